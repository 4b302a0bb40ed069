"""Limits: bounds on a single run of a public page, and on the recording of any run."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.cache.base import RunInfo
from engine.catalog import derive_plan
from engine.config.spec import MAX_LENGTH, RunSpec
from engine.core.events import SITES
from engine.models.base import ModelInfo
from engine.models.loading.memory_estimate import gigabytes
from engine.record.recorder import TOP_CANDIDATES
from engine.record.sketches import MAX_BLOCKS, MAX_STEPS
from engine.serve.guider_pool import decodes_causally
from engine.serve.memory_budget import present_devices
from engine.trace.schema import MAX_POSITIONS
from engine.vision.picture import PictureLimits

OWN_RECORDING = 1_500_000_000  # bytes that one run may record on one's own machine
CANDIDATE_BYTES = 32 + 8 * TOP_CANDIDATES  # step, position and proposal; ids and probabilities
LENS_BYTES = 2 * (4 + 1 + 1)  # both passes: best id, its probability and that of the token
PUBLIC_PICTURE = PictureLimits(8_000_000, 16_000_000)
AUTO = "auto"  # may spread a model over disks too, which is slow


@dataclass(frozen=True)
class Limits:
    """Upper bounds of a run's fields.

    `prompt` is in characters, `recording` in bytes that the recorder keeps of a run, `trace` in
    bytes of a trace file; `images` is a number of them, and `picture` bounds their files.
    """

    gen_length: int = 512
    steps: int = 512
    prompt: int = 4_000
    recording: int = 64_000_000
    trace: int = 64_000_000
    images: int = 1
    picture: PictureLimits = PUBLIC_PICTURE

    def check(self, spec: RunSpec) -> None:
        """Raise ValueError naming the field that is above its limit."""
        if spec.device == AUTO:
            offered = " or ".join(name for name in present_devices() if name != AUTO)
            raise ValueError(
                f"device: {AUTO} is not available on this public page; set device to {offered}"
            )
        for name in ("gen_length", "steps"):
            if (given := getattr(spec, name)) > (most := getattr(self, name)):
                raise ValueError(
                    f"{name}: {given} is more than this public page allows; at most {most}, or "
                    "run a copy of your own"
                )
        length = len(spec.prompt) + sum(len(text) for _, text in spec.messages)
        if length > self.prompt:
            raise ValueError(
                f"prompt: {length} characters are more than this public page allows; shorten it "
                f"to {self.prompt}, or run a copy of your own"
            )

        if len(spec.images) > self.images:
            raise ValueError(
                f"images: {len(spec.images)} are more than this public page allows; at most "
                f"{self.images}, or run a copy of your own"
            )

    def limit_fields(self, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Descriptions of RunSpec fields with `hi` lowered to these limits."""
        limits: Mapping[str, int] = {"gen_length": self.gen_length, "steps": self.steps}
        return [row | {"hi": limits.get(row["name"], row["hi"])} for row in fields]


def recorded_bytes(
    spec: RunSpec, info: ModelInfo, tokens: int, forwards: int, suffix: int = 0
) -> int:
    """Bytes that the recorder keeps of a run of so many forwards over a prompt of `tokens` tokens.

    `suffix` are the tokens of the text after the answer.

    Plans and candidates from level `steps` on, drifts, similarities and changes of experts from
    `layers` on, errors and the logit lens at level `probe`. Raises ValueError naming the field of
    the narrowing that does not fit the run.
    """
    run = RunInfo(info, 1, tokens, spec.gen_length, spec.block_length, suffix_length=suffix)
    length = run.length
    cells = spec.narrowing.cells(info.layers, length, run.answer_length, suffix)
    if spec.record == "off":
        return 0
    kept = forwards * info.layers * len(SITES) * -(-length // 8)
    kept += forwards * (spec.block_length + 1) // 2 * CANDIDATE_BYTES
    if spec.record == "steps":
        return kept
    rows, experts = len(cells.layers) * len(cells.positions), int(info.experts is not None)
    kept += -(-forwards // spec.record_every) * rows * (len(cells.quantities) + experts)
    if {0, 1} <= set(cells.quantities.tolist()):  # K and V
        compared = -(-forwards // max(1, -(-forwards // MAX_STEPS)))
        groups = 1 + min(len(run.grid), MAX_BLOCKS)
        kept += compared * (compared + 1) * len(cells.layers) * groups
    in_answer = (cells.positions >= tokens) & (cells.positions < length - suffix)
    lens = info.layers * int(in_answer.sum()) * LENS_BYTES
    return kept + spec.max_probes(forwards) * (rows * (2 * len(cells.sites) + experts) + lens)


def recording_problem(
    spec: RunSpec, info: ModelInfo, tokens: int, forwards: int, most: int, suffix: int = 0
) -> str:
    """Why a recording of more than `most` bytes is refused, and what to set; empty if it fits."""
    kept = recorded_bytes(spec, info, tokens, forwards, suffix)
    if kept <= most:
        return ""

    def fits(**changes: Any) -> bool:
        return recorded_bytes(replace(spec, **changes), info, tokens, forwards, suffix) <= most

    narrower = "".join(f"set {name} to {value}, or " for name, value in _narrower(spec, info, fits))
    lower = "off" if spec.record == "steps" else "steps"
    return (
        f"record: level {spec.record} keeps about {gigabytes(kept)} of this run, and at most "
        f"{gigabytes(most)} are allowed here; {narrower}set record to {lower}, or lower gen_length"
    )


def planned_recording(
    spec: RunSpec, info: ModelInfo, tokens: int | None, most: int, suffix: int = 0, images: int = 0
) -> dict[str, Any]:
    """`recording` and `recording_bytes` of a plan, see `Session.plan`; `most` bytes are allowed.

    `tokens` are those of the prompt, None if unknown; then it has more than `images`, the rows of
    its images, and at most fills the context. The level is `layers` if the spec's is `off`. Raises
    ValueError if a recording is asked for and too large, with an unknown prompt if it is too large
    with any.
    """
    forwards = derive_plan(spec)[0].max_forwards
    asked = replace(spec, record="layers") if spec.record == "off" else spec
    if decodes_causally(spec):  # no level adds to the plans and candidates of such a run
        asked = replace(asked, record="steps")
    least = longest = tokens
    if least is None or longest is None:
        behind = spec.gen_length + suffix
        least = max(images + 1, spec.narrowing.last_position - behind)
        longest = info.max_length - behind
    kept = recorded_bytes(asked, info, longest, forwards, suffix)
    problem = recording_problem(asked, info, least, forwards, most, suffix)
    if problem and spec.record != "off":
        raise ValueError(problem)
    found = {"level": asked.record, "bytes": kept, "problem": problem}
    return {"recording": None if tokens is None else found, "recording_bytes": min(kept, most)}


def _narrower(
    spec: RunSpec, info: ModelInfo, fits: Callable[..., bool]
) -> Iterator[tuple[str, str]]:
    """Fields of the narrowing, each with the widest value with which alone the recording fits."""
    if spec.record == "steps":
        return
    every = range(spec.record_every + 1, MAX_LENGTH + 1)
    found = bisect_left(every, True, key=lambda n: fits(record_every=n))
    if found < len(every):
        yield "record_every", str(every[found])
    held = len(spec.narrowing.cells(info.layers, MAX_POSITIONS, spec.gen_length).layers)
    fewer = range(held - 1, 0, -1)
    found = bisect_left(fewer, True, key=lambda n: fits(record_layers=f"1-{n}"))
    if found < len(fewer):
        yield "record_layers", f"1-{fewer[found]}"
    for name, value in (("record_positions", "answer"), ("record_quantities", "k,v")):
        if getattr(spec, name) == "all" and fits(**{name: value}):
            yield name, value

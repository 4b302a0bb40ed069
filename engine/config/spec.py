"""RunSpec: one experiment as plain data, with its limits, its forms and its derived plan."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlencode

from engine.config.branch_start import BranchStart
from engine.config.knobs import Scalar, check_fields, knob
from engine.config.validation import (
    check_divides,
    check_name,
    check_temperature,
    check_texts,
    checked_fixed,
    checked_knobs,
    checked_messages,
    checked_start,
)

MAX_PROMPT_CHARS = 8_000
MAX_LENGTH = 1_024
MAX_SPEC_BYTES = 64_000


@dataclass(frozen=True)
class RunSpec:
    """One decoding experiment, whole: what `to_dict` gives rebuilds it exactly.

    Knobs of the unmasker and of the cache stand in `knobs` under `component.knob`
    (`threshold.threshold`, `dual.refresh_interval`); `messages` are (role, text) turns that
    stand in for `prompt`; `fixed` are (offset, token id) pairs of the answer that are given;
    `start` is where a branch of another run goes on. Raises ValueError naming the field.
    """

    model: str = knob("tiny-llada", label="Model", help="A listed name; or a folder, a Hub name.")
    prompt: str = knob("", label="Prompt", help="What the model is asked.")
    messages: tuple[tuple[str, str], ...] = ()
    chat: bool = knob(True, label="Chat template", help="Wrap the prompt in the model's template.")
    gen_length: int = knob(
        128, 1, MAX_LENGTH, label="Answer length", help="Mask positions that are decoded."
    )
    block_length: int = knob(
        32,
        1,
        MAX_LENGTH,
        label="Block length",
        help="Positions decoded together, left to right; divides the length.",
    )
    steps: int = knob(
        128,
        1,
        MAX_LENGTH,
        label="Steps",
        help="Forwards in all, shared evenly by the blocks (quota only).",
    )
    unmasker: str = knob("quota", label="Unmasker", help="Which tokens are committed in a step.")
    cache: str = knob("none", label="Cache", help="Which rows are recomputed in a step.")
    knobs: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    temperature: float = knob(0.0, 0.0, 10.0, label="Temperature", help="0 is greedy.")
    cfg_scale: float = knob(
        0.0, 0.0, 20.0, label="CFG scale", help="Classifier-free guidance; 0 is off."
    )
    eos: str = knob(
        "official",
        choices=("official", "fill_safe", "fill_eager"),
        label="End of text",
        help="official decodes on; fill_safe stops at a settled end; fill_eager at any.",
    )
    eos_suppress: str = knob(
        "none",
        choices=("none", "logits", "confidence"),
        label="Suppress end",
        help="Forbid or postpone end tokens.",
    )
    fixed: tuple[tuple[int, int], ...] = ()
    start: BranchStart | None = None
    seed: int = knob(0, 0, 2**31 - 1, label="Seed", help="Fixes every random draw.")
    dtype: str = knob(
        "float32",
        choices=("float32", "float64", "bfloat16", "float16"),
        label="Number format",
        help="Format of weights and activations.",
    )
    device: str = knob("cpu", label="Device", help="cpu, cuda, cuda:1, or auto: placed over all.")
    record: str = knob(
        "off",
        choices=("off", "steps", "layers", "probe"),
        label="Recording",
        help="steps keeps each step's plan and candidates; layers also how far every row moved; "
        "probe also compares some steps with an exact forward. Speeds count at off and steps.",
    )
    probe_steps: int = knob(
        8,
        1,
        64,
        label="Probed steps",
        help="Steps that are compared, spread evenly over the answer (recording probe only).",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        check_name("model", self.model)
        check_temperature(self.temperature)
        object.__setattr__(self, "messages", checked_messages(self.messages))
        check_texts(self.prompt, [text for _, text in self.messages], MAX_PROMPT_CHARS)
        check_divides(self.gen_length, self.block_length)
        object.__setattr__(self, "knobs", checked_knobs(self.knobs))
        object.__setattr__(self, "fixed", checked_fixed(self.fixed, self.gen_length))
        object.__setattr__(self, "start", checked_start(self.start, self.gen_length, self.fixed))

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.gen_length // self.block_length

    def to_dict(self) -> dict[str, Any]:
        """Plain data, every field in it."""
        values = dataclasses.asdict(self)
        lists = {k: [list(pair) for pair in values[k]] for k in ("messages", "fixed")}
        return values | lists | {"start": self.start and self.start.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunSpec:
        """Rebuild from `to_dict`; keys with a dot are knobs; ValueError names an unknown key."""
        if not isinstance(data, Mapping):
            raise ValueError("spec: expected a mapping of fields")
        names = {f.name for f in dataclasses.fields(cls)}
        values = dict(data)
        knobs = values.pop("knobs", {})
        if not isinstance(knobs, Mapping):
            raise ValueError("knobs: expected a mapping of component.knob to value")
        dotted = {k: values.pop(k) for k in list(values) if isinstance(k, str) and "." in k}
        unknown = sorted(str(k) for k in values if k not in names)
        if unknown:
            raise ValueError(
                f"{unknown[0][:60]}: unknown field; the fields are {', '.join(sorted(names))}"
            )
        return cls(**values, knobs={**knobs, **dotted})

    def to_json(self) -> str:
        """The spec as a JSON document."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str) -> RunSpec:
        """Rebuild from `to_json`; ValueError for anything else."""
        return cls.from_dict(_parsed_json(text))

    def flat(self) -> dict[str, str]:
        """The fields that differ from the defaults, as strings, knobs dotted."""
        base, out = RunSpec().to_dict(), {}
        for name, value in (self.to_dict() | dict(self.knobs)).items():
            if name == "knobs" or (name in base and value == base[name]):
                continue
            out[name] = value if isinstance(value, str) else json.dumps(value)
        return out

    def to_query(self) -> str:
        """A URL query that restores the spec."""
        return urlencode(self.flat())

    @classmethod
    def from_query(cls, query: str) -> RunSpec:
        """Rebuild from `to_query`; ValueError names what is wrong."""
        return cls.from_flat(dict(_parsed_query(query)))

    @classmethod
    def from_flat(cls, values: Mapping[str, str]) -> RunSpec:
        """Rebuild from `flat`: strings, each read by its field's type."""
        texts = {f.name for f in dataclasses.fields(cls) if f.type == "str"}
        return cls.from_dict({k: v if k in texts else _scalar(v) for k, v in values.items()})


@dataclass(frozen=True)
class RaceSpec:
    """Two runs to be shown side by side: `a` the baseline, `b` the accelerated one."""

    a: RunSpec
    b: RunSpec

    def to_dict(self) -> dict[str, Any]:
        """Plain data of both lanes."""
        return {"a": self.a.to_dict(), "b": self.b.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RaceSpec:
        """Rebuild from `to_dict`; ValueError names the lane and the field."""
        if not isinstance(data, Mapping) or set(data) != {"a", "b"}:
            raise ValueError("race: expected exactly the two lanes a and b")
        return cls(
            _lane("a", RunSpec.from_dict, data["a"]), _lane("b", RunSpec.from_dict, data["b"])
        )

    def to_query(self) -> str:
        """A URL query: what both lanes share once, the rest under `a.` and `b.`."""
        a, b = self.a.flat(), self.b.flat()
        shared = {k: v for k, v in a.items() if b.get(k) == v}
        own = {
            f"{lane}.{k}": v
            for lane, flat in (("a", a), ("b", b))
            for k, v in flat.items()
            if k not in shared
        }
        return urlencode(shared | own)

    @classmethod
    def from_query(cls, query: str) -> RaceSpec:
        """Rebuild from `to_query`; ValueError names what is wrong."""
        pairs = dict(_parsed_query(query))
        shared = {k: v for k, v in pairs.items() if not k.startswith(("a.", "b."))}
        lanes = [
            shared | {k[2:]: v for k, v in pairs.items() if k.startswith(f"{lane}.")}
            for lane in "ab"
        ]
        return cls(_lane("a", RunSpec.from_flat, lanes[0]), _lane("b", RunSpec.from_flat, lanes[1]))


def _lane(lane: str, build: Any, data: Any) -> RunSpec:
    try:
        return build(data)
    except ValueError as error:
        raise ValueError(f"{lane}.{error}") from None


def _scalar(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _parsed_query(query: str) -> list[tuple[str, str]]:
    if len(query) > MAX_SPEC_BYTES:
        raise ValueError(f"link: longer than {MAX_SPEC_BYTES} characters")
    return parse_qsl(query.lstrip("?"), keep_blank_values=True)


def _parsed_json(text: str) -> Any:
    if len(text) > MAX_SPEC_BYTES:
        raise ValueError(f"spec: longer than {MAX_SPEC_BYTES} characters")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError("spec: not a JSON document") from None

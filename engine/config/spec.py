"""RunSpec and RaceSpec: the settings of a run and of a race, as plain data, JSON and links."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

from engine.config.branch_start import BranchStart, checked_start, checked_tokens
from engine.config.images import checked_images
from engine.config.knobs import Scalar, check_fields, knob
from engine.config.narrowing import Narrowing
from engine.config.validation import (
    check_divides,
    check_name,
    check_temperature,
    check_texts,
    checked_knobs,
    checked_messages,
    checked_probes,
    checked_stops,
)

MAX_PROMPT_CHARS = 8_000
MAX_PROMPT_FILE_BYTES = 16_000_000  # of a file with prompts
MAX_LENGTH = 1_024
MAX_SUFFIX_CHARS = 400
MAX_PROBES = 64
MAX_SHOTS = 8  # worked examples before a problem
MAX_SPEC_BYTES = 64_000
MAX_DEPTH = 8  # nesting of JSON; a spec needs 4 levels
AUTO_DTYPE = "auto"


@dataclass(frozen=True)
class RunSpec:
    """All settings of one run; `from_dict` restores exactly what `to_dict` gives.

    `knobs` maps `method.knob` (`threshold.threshold`, `dual.refresh_interval`) to the settings
    of the unmasker and the cache; `messages` are (role, text) turns in place of `prompt`; `fixed`
    are given tokens of the answer, as (offset, token id) pairs; `images` names the images of the
    prompt (`engine.config.images`), which are given to the run beside its spec; each of `stop` is a
    text whose tokens, one after the other, end the answer (the same letters within longer tokens do
    not); `suffix` is a given text after it; `start` is the step of another run
    that this one continues; `probe_at` are the steps, from 0, to probe in place of `probe_steps`
    steps spread evenly. Raises ValueError naming the field.
    """

    model: str = knob("tiny-llada", label="Model", help="A listed name, a folder or a Hub name.")
    prompt: str = knob("", label="Prompt", help="The text that the model completes or answers.")
    messages: tuple[tuple[str, str], ...] = ()
    images: tuple[str, ...] = ()
    keep_after_image: bool = knob(
        False,
        label="Line break after the image",
        help="Keep the line break after an image, as in training; LLaDA-V's code drops it.",
    )
    stop: tuple[str, ...] = ()
    suffix: str = knob("", label="Suffix", help="Given text after the answer, seen in every step.")
    chat: bool = knob(True, label="Chat template", help="Wrap the prompt in the model's template.")
    gen_length: int = knob(
        128, 1, MAX_LENGTH, label="Answer length", help="Masked positions to decode."
    )
    block_length: int = knob(
        32,
        1,
        MAX_LENGTH,
        label="Block length",
        help="Positions per block; blocks are decoded left to right. Divides the answer length.",
    )
    steps: int = knob(
        128,
        1,
        MAX_LENGTH,
        label="Steps",
        help="Number of steps of the whole answer, divided evenly among its blocks. Only unmaskers "
        "with a schedule use it. Classifier-free guidance and commit calls add forwards.",
    )
    unmasker: str = knob("quota", label="Unmasker", help="Chooses the tokens that a step commits.")
    cache: str = knob("none", label="Cache", help="Chooses the rows that a step recomputes.")
    knobs: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    temperature: float = knob(
        0.0, 0.0, 10.0, label="Temperature",
        help="Randomness of the proposed tokens; 0: always the most probable one.",
    )  # fmt: skip
    cfg_scale: float = knob(
        0.0, 0.0, 20.0, label="CFG scale",
        help="Strength of classifier-free guidance; 0: off.",
    )  # fmt: skip
    eos: str = knob(
        "official",
        choices=("official", "fill_safe", "fill_eager"),
        label="End of text",
        help="official: decode every position (in block diffusion until a block ends the text), "
        "but as fill_safe in a race with guided diffusion or an autoregressive model; "
        "fill_safe: stop once an end of text is committed and no mask is left before it; "
        "fill_eager: once there is an end of text, decode only the masks before it.",
    )
    eos_suppress: str = knob(
        "none",
        choices=("none", "logits", "confidence"),
        label="Suppress end",
        help="none: as the model proposes; logits: never propose the end-of-text token (an end of "
        "turn still may be); confidence: rank both last.",
    )
    fixed: tuple[tuple[int, int], ...] = ()
    start: BranchStart | None = None
    seed: int = knob(0, 0, 2**31 - 1, label="Seed", help="Fixes every random draw.")
    dtype: str = knob(
        "float32",
        choices=("float32", "float64", "bfloat16", "float16", AUTO_DTYPE),
        label="Number format",
        help="Format of weights and activations. auto: on a GPU bfloat16, unless the GPU only "
        "emulates it; on a CPU bfloat16 if it is measured 1.3 times as fast and loses at most "
        "one in 200 of the model's exam problems; else float32.",
    )
    device: str = knob(
        "cpu", label="Device", help="cpu, cuda, cuda:1 or auto (distributed over all devices)."
    )
    record: str = knob(
        "off",
        choices=("off", "steps", "layers", "probe"),
        label="Recording",
        help="steps: each step's plan and candidates; layers: also the drift of every row; probe: "
        "also an exact forward beside some steps, and what each layer of both would predict. Times "
        "are comparable at off and steps only.",
    )
    probe_steps: int = knob(
        8,
        1,
        MAX_PROBES,
        label="Probed steps",
        help="Steps compared with an exact forward, spread evenly over the answer (probe only).",
    )
    probe_at: tuple[int, ...] = ()
    record_layers: str = knob(
        "all",
        label="Recorded layers",
        help="Layers whose drifts are recorded, from 1: all, or for example 1-4,32.",
    )
    record_quantities: str = knob(
        "all",
        label="Recorded quantities",
        help="Drifts that are recorded: all, or some of k,v,attn,ffn,q0 (the query of head 1). "
        "Similarity needs k and v.",
    )
    record_every: int = knob(
        1,
        1,
        MAX_LENGTH,
        label="Record every",
        help="Steps from one recorded drift to the next; 1: every step.",
    )
    record_positions: str = knob(
        "all",
        label="Recorded positions",
        help="Positions whose drifts are recorded: all, answer, or for example 1-512.",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        check_name("model", self.model)
        check_temperature(self.temperature)
        object.__setattr__(self, "messages", checked_messages(self.messages))
        check_texts(self.prompt, [text for _, text in self.messages], MAX_PROMPT_CHARS)
        check_texts(self.suffix, (), MAX_SUFFIX_CHARS, "suffix")
        object.__setattr__(self, "images", checked_images(self.images))
        object.__setattr__(self, "stop", checked_stops(self.stop))
        check_divides(self.gen_length, self.block_length)
        object.__setattr__(self, "knobs", checked_knobs(self.knobs))
        object.__setattr__(self, "fixed", checked_tokens("fixed", self.fixed, self.gen_length))
        object.__setattr__(self, "probe_at", checked_probes(self.probe_at, MAX_PROBES, MAX_LENGTH))
        object.__setattr__(self, "start", checked_start(self.start, self.gen_length, self.fixed))
        self.narrowing.check(self.record == "probe")

    @property
    def blocks(self) -> int:
        """Number of blocks."""
        return self.gen_length // self.block_length

    @property
    def narrowing(self) -> Narrowing:
        """Which drifts are recorded."""
        return Narrowing(
            self.record_layers, self.record_quantities, self.record_every, self.record_positions
        )

    def max_probes(self, forwards: int) -> int:
        """The largest number of probed steps in a run of at most so many forwards."""
        if self.record != "probe":
            return 0
        return min(len(self.probe_at) or self.probe_steps, forwards)

    def to_dict(self) -> dict[str, Any]:
        """Every field as plain data."""
        values = dataclasses.asdict(self)
        lists = {k: [list(pair) for pair in values[k]] for k in ("messages", "fixed")}
        lists |= {k: list(values[k]) for k in ("images", "stop", "probe_at")}
        rest = {"start": self.start and self.start.to_dict()}
        return values | lists | rest

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunSpec:
        """Restore from `to_dict`; keys with a dot are knobs. ValueError names an unknown key."""
        if not isinstance(data, Mapping):
            raise ValueError("spec: expected a mapping (JSON object) of fields")
        names = {f.name for f in dataclasses.fields(cls)}
        values = dict(data)
        knobs = values.pop("knobs", {})
        if not isinstance(knobs, Mapping):
            raise ValueError("knobs: expected a mapping of method.setting to value")
        dotted = {k: values.pop(k) for k in list(values) if isinstance(k, str) and "." in k}
        unknown = sorted(str(k) for k in values if k not in names)
        if unknown:
            raise ValueError(
                f"{unknown[0][:60]}: unknown field; the fields are {', '.join(sorted(names))}"
            )
        return cls(**values, knobs={**knobs, **dotted})

    def flat(self) -> dict[str, str]:
        """The knobs, and the fields that differ from their defaults, as strings.

        Strings are written as they are, or as JSON if they are knobs that could be read as JSON;
        other values are JSON.
        """
        base, out = RunSpec().to_dict(), {}
        for name, value in self.to_dict().items():
            if name != "knobs" and value != base[name]:
                out[name] = value if isinstance(value, str) else json.dumps(value)
        for name, value in self.knobs.items():
            plain = isinstance(value, str) and not _is_json(value)
            out[name] = str(value) if plain else json.dumps(value)
        return out

    def to_query(self) -> str:
        """A URL query from which `from_query` restores the spec."""
        return urlencode(self.flat())

    @classmethod
    def from_query(cls, query: str, text_knobs: Set[str] = frozenset()) -> RunSpec:
        """Restore from `to_query`; see `from_flat`. ValueError names the field."""
        return cls.from_flat(_parsed_query(query), text_knobs)

    @classmethod
    def from_flat(cls, values: Mapping[str, str], text_knobs: Set[str] = frozenset()) -> RunSpec:
        """Restore from `flat`: fields and knobs that are strings as they are, others from JSON.

        `text_knobs` names the string knobs (see `knobs.text_knobs`), so that a number written for
        one of them by hand stays text. Raises ValueError naming the field.
        """
        texts = {f.name for f in dataclasses.fields(cls) if f.type == "str"}
        parsed = {k: v if k in texts else _parse_value(k, v) for k, v in values.items()}
        for name in values.keys() & text_knobs:
            parsed[name] = parsed[name] if isinstance(parsed[name], str | None) else values[name]
        return cls.from_dict(parsed)


@dataclass(frozen=True)
class RaceSpec:
    """Two runs to compare: `a`, the baseline, and `b`, the challenger."""

    a: RunSpec
    b: RunSpec

    def to_dict(self) -> dict[str, Any]:
        """Both lanes as plain data."""
        return {"a": self.a.to_dict(), "b": self.b.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RaceSpec:
        """Restore from `to_dict`; ValueError names the lane and the field."""
        if not isinstance(data, Mapping) or set(data) != {"a", "b"}:
            raise ValueError("race: expected exactly the two lanes a and b")
        return cls(
            _lane("a", RunSpec.from_dict, data["a"]), _lane("b", RunSpec.from_dict, data["b"])
        )

    def to_query(self) -> str:
        """A URL query: shared settings once, the others with a prefix `a.` or `b.`."""
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
    def from_query(cls, query: str, text_knobs: Set[str] = frozenset()) -> RaceSpec:
        """Restore from `to_query`; see `RunSpec.from_flat`. ValueError names lane and field."""
        pairs = _parsed_query(query)
        shared = {k: v for k, v in pairs.items() if not k.startswith(("a.", "b."))}
        lanes = [
            shared | {k[2:]: v for k, v in pairs.items() if k.startswith(f"{lane}.")}
            for lane in "ab"
        ]
        build = partial(RunSpec.from_flat, text_knobs=text_knobs)
        return cls(_lane("a", build, lanes[0]), _lane("b", build, lanes[1]))


def _lane(lane: str, build: Callable[[Any], RunSpec], data: Any) -> RunSpec:
    try:
        return build(data)
    except ValueError as error:
        raise ValueError(f"{lane}.{error}") from None


def _parsed_query(query: str) -> dict[str, str]:
    if len(query) > MAX_SPEC_BYTES:
        raise ValueError(f"link: longer than {MAX_SPEC_BYTES} characters")
    return dict(parse_qsl(query.lstrip("?"), keep_blank_values=True))


def _parse_value(name: str, text: str) -> Any:
    """The value of a JSON document, or `text` itself if it is none; ValueError if too deep."""
    try:
        value = json.loads(text)
        if _is_deeper(value, MAX_DEPTH):
            raise RecursionError
    except RecursionError:
        raise ValueError(
            f"{name}: nested deeper than {MAX_DEPTH} levels; give a value as to_dict writes it"
        ) from None
    except ValueError:
        return text
    return value


def _is_json(text: str) -> bool:
    """Whether `_parse_value` does not return a text as it is."""
    try:
        return _parse_value("", text) is not text
    except ValueError:
        return True


def _is_deeper(value: Any, levels: int) -> bool:
    """Whether lists and mappings are nested in more than so many levels."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deeper(one, levels - 1) for one in inner)

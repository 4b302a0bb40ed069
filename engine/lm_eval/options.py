"""The harness's model arguments as a run spec."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from typing import Any, TypeVar

import torch

from engine import catalog
from engine.batch.flags import DEFAULTS, NOT_FLAGS, OF_A_RECORDING
from engine.config.knobs import describe_fields
from engine.config.spec import MAX_LENGTH, MAX_PROMPT_CHARS, RunSpec
from engine.models.tokenizer import Messages

_LOG = logging.getLogger(__name__)
N = TypeVar("N", int, float)
NOT_ARGUMENTS = (*NOT_FLAGS, *OF_A_RECORDING, "chat", "model")


def spec_of(arguments: Mapping[str, Any], name: str) -> RunSpec:
    """The spec of model arguments for the model `name`.

    Keys are fields of RunSpec, `method.knob`, or the name alone of a knob of the chosen cache or
    unmasker. Raises ValueError naming an argument that is unknown, with the nearest known one.
    """
    described = catalog.describe()
    components = described["caches"] + described["unmaskers"]
    known = {row["name"] for row in describe_fields(RunSpec)} - set(NOT_ARGUMENTS)
    known |= {f"{one['name']}.{row['name']}" for one in components for row in one["knobs"]}
    base = {field.name: field.default for field in fields(RunSpec)} | dict(arguments)
    chosen = (str(base["cache"]), str(base["unmasker"]))
    flat = {key: str(value) for key, value in (DEFAULTS | {"model": name}).items()}
    for key, value in arguments.items():
        owners = [one for one in chosen if f"{one}.{key}" in known]
        if key not in known and not owners:
            of = [one.partition(".")[0] for one in sorted(known) if one.endswith(f".{key}")]
            near = get_close_matches(key, [*known, *(n.split(".")[-1] for n in known)], 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            hint = f"; it is of {' and '.join(of)}, choose that first" if of else hint
            raise ValueError(f"{key}: unknown model argument{hint}")
        if key not in known and len(owners) > 1:
            raise ValueError(f"{key}: write {' or '.join(f'{one}.{key}' for one in owners)}")
        flat[key if key in known else f"{owners[0]}.{key}"] = _text(value)
    flat.setdefault("steps", flat["gen_length"])
    spec = RunSpec.from_flat(flat, catalog.text_knobs_of_methods())
    if spec.record != "off":
        raise ValueError("record: an evaluation records nothing; leave it out")
    catalog.make_unmasker(spec)  # refuses autoregressive decoding
    catalog.derive_plan(spec)
    return spec


def _text(value: Any) -> str:
    """A parsed argument as it is written in a spec."""
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


def device_of(given: str) -> str:
    """The device of a model argument: the CPU if it names a GPU and there is none.

    The harness gives cuda:0 where no device is named. That is `cuda` here, so that each of several
    processes has a GPU of its own (Processes.device).
    """
    if given.startswith("cuda") and not torch.cuda.is_available():
        _LOG.warning("device: %s is not available; the CPU is used", given)
        return "cpu"
    return "cuda" if given == "cuda:0" else given


def flag(name: str, value: bool | str) -> bool:
    """A yes or no among the arguments. Raises ValueError naming it if it is neither."""
    found = {"true": True, "1": True, "false": False, "0": False}.get(str(value).lower())
    if found is None:
        raise ValueError(f"{name}: {value!r} is neither true nor false")
    return found


def count(name: str, value: int | str) -> int:
    """A number of things among the arguments. Raises ValueError naming it if it is below 1."""
    if not str(value).isdecimal() or int(value) < 1:
        raise ValueError(f"{name}: {value!r} is not a whole number from 1; give one")
    return int(value)


def number(given: Mapping[str, Any], name: str, kind: type[N]) -> N | None:
    """A number among generation arguments, None if it is missing. ValueError names a wrong one."""
    value = given.get(name)
    try:
        return None if value is None else kind(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"{name}: {value!r} is not a number; give one") from None


def most_tokens(given: Mapping[str, Any], block: int) -> int | None:
    """`max_gen_toks` among generation arguments; None if it is missing.

    Raises ValueError naming it if a run in blocks of `block` cannot be so long.
    """
    tokens, most = number(given, "max_gen_toks", int), MAX_LENGTH // block * block
    if tokens is None:
        return None
    if not 1 <= tokens <= most:
        raise ValueError(
            f"max_gen_toks: {tokens} is outside 1 to {most}; give another one with --gen_kwargs"
        )
    return tokens


def cut(text: str, stops: Sequence[object]) -> str:
    """The text before the first of the stop strings; empty ones do not count."""
    texts = map(str, stops)  # the harness reads `5` as a number
    ends = [text.find(stop) for stop in texts if stop and stop in text]
    return text[: min(ends)] if ends else text


def prompted(spec: RunSpec, context: str, turns: Messages) -> RunSpec:
    """The spec with its prompt, which only a guider reads; empty if it is too long for a spec.

    `turns` are those that the context holds in the model's chat template, if it has one: a guider
    reads them in its own. Raises ValueError naming `unmasker` if a guider gets no prompt.
    """
    fits = len(context) <= MAX_PROMPT_CHARS
    if not fits and spec.unmasker == "guided":
        raise ValueError(
            f"unmasker: guided decoding takes prompts of at most {MAX_PROMPT_CHARS} characters, "
            f"this one has {len(context)}; choose another unmasker"
        )
    if turns and fits:
        return replace(spec, prompt="", messages=tuple(turns), chat=True)
    return replace(spec, prompt=context if fits else "", chat=False)

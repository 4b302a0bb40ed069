"""What is known of runs that another engine decoded, and whether lanes can be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engine.trace.foreign.build import placeholder
from engine.trace.trace import Trace

OURS_ONLY = (
    "This lane was decoded by another engine, which cannot be run here. Press Run to start a race "
    "of this engine."
)
UNTITLED = "Imported run"
OTHER_CLOCK = "Speed is not compared: the files do not give times of one machine."
OTHER_PROMPTS = "The lanes are not compared: their prompts differ."


def facts(trace: Trace) -> Mapping[str, Any] | None:
    """`meta.foreign` of a trace (engine.trace.foreign.build); None for a run of this engine."""
    found: Mapping[str, Any] | None = trace.meta.get("foreign")
    return found


def title(trace: Trace, own: Callable[[Mapping[str, Any]], str]) -> str:
    """The title of a lane: that of its spec by `own`, or the method that a foreign run names."""
    found = facts(trace)
    return own(trace.meta["spec"]) if found is None else str(found["method"])[:120] or UNTITLED


def lacks(trace: Trace) -> list[str]:
    """What the arrays of a run do not know: `costs` (rows, forwards, FLOPs) and `times`."""
    found = facts(trace)
    if found is None:
        return []
    return ["costs"] if found["timed"] else ["costs", "times"]


def check_ours(trace: Trace) -> None:
    """Raise ValueError for a run that this engine cannot repeat, record or continue."""
    if facts(trace) is not None:
        raise ValueError(OURS_ONLY)


def apart(a: Trace, b: Trace) -> str:
    """Why the tokens of two lanes cannot be compared; empty if they can.

    Of two lanes of this engine only the prompts are looked at; whether their ids mean the same
    tokens says `compare.same_vocabulary`.
    """
    if facts(a) is None and facts(b) is None:
        return "" if _asked(a) == _asked(b) else OTHER_PROMPTS
    one, other = (str(trace.meta["spec"].get("prompt") or "").strip() for trace in (a, b))
    if one and other and one not in other and other not in one:
        return OTHER_PROMPTS
    names = [str(trace.meta["model"].get("name") or "") for trace in (a, b)]
    spelt = [facts(trace) is None or bool((facts(trace) or {})["texts"]) for trace in (a, b)]
    by_text = any((facts(trace) or {}).get("by_text") for trace in (a, b))
    if not all(spelt) and (names[0] != names[1] or not names[0] or by_text):
        return (
            "The lanes are not compared: a file has token ids without texts, and the other one has "
            "no ids or does not name the same model."
        )
    texts = [_texts(trace) for trace in (a, b)]
    if any(texts[0][i] != texts[1][i] for i in texts[0].keys() & texts[1].keys()):
        return "The lanes are not compared: the same token ids stand for different texts."
    return ""


def same_clock(a: Trace, b: Trace) -> bool:
    """Whether the times of two lanes may be compared.

    Those of this engine may unless they name two processors or GPUs; with a foreign run, both have
    to name one machine.
    """
    found = [facts(a), facts(b)]
    if found == [None, None]:
        one, other = (trace.meta["environment"].get("device_name") for trace in (a, b))
        return not one or not other or bool(one == other)
    named = [one["machine"] if one and one["timed"] else "" for one in found]
    return bool(named[0]) and named[0] == named[1]


def note(traces: Mapping[str, Trace]) -> str:
    """What foreign runs of a race lack, and what is not compared and why, in sentences."""
    found = {lane: facts(trace) for lane, trace in traces.items()}
    if not any(found.values()):
        return "" if len(traces) < 2 or same_clock(*traces.values()) else OTHER_CLOCK
    parts = [_missing(lane, one) for lane, one in found.items() if one]
    if len(traces) == 2:
        a, b = traces.values()
        parts.append(apart(a, b))
        if not all(one is None or one["prompt"] for one in found.values()):
            parts.append("Whether both lanes answered the same prompt is not known.")
        if not same_clock(a, b):
            parts.append(OTHER_CLOCK)
    return " ".join(filter(None, parts))


def _missing(lane: str, found: Mapping[str, Any]) -> str:
    absent = ["computed rows", "FLOPs", "drifts"]
    absent += [] if found["timed"] else ["times"]
    absent += [] if found["prompt"] else ["prompt"]
    *most, last = (f"no {what}" for what in absent)
    words = f"Lane {lane.upper()} was decoded by another engine. "
    words += f"Its file has {', '.join(most)} and {last}."
    if not found["texts"]:
        words += " It has no token texts either, so tokens are shown by their ids."
    return words


def _asked(trace: Trace) -> tuple[Any, ...]:
    """What a run of this engine was asked: its prompt, its turns and its images."""
    spec = trace.meta["spec"]
    return tuple(spec.get(name) or None for name in ("prompt", "messages", "images"))


def _texts(trace: Trace) -> dict[int, bytes]:
    return {i: raw for i, raw in trace.pieces.items() if raw != placeholder(i).encode()}

"""Summary of a finished race: speed-up, forwards, agreement and answers."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from engine.config.answers import final_number, is_right, number_of
from engine.trace.metrics import steps_to_reveal
from engine.trace.trace import Trace
from inspector.page_data import foreign
from inspector.page_data.plan import END_OF_TEXT
from inspector.page_data.tokens import answer_text, generation, stop_ids

UNTIMED = ("layers", "probe")
MAX_METRICS = 200  # of a trace file; a run has fewer
DIGITS = 9  # that are significant in a metric which is no whole number
EXACT = 2**53  # whole numbers beyond it are rounded by whoever reads JSON into doubles, as browsers


def timed(trace: Trace) -> bool:
    """Whether a run's times may be shown, that is, layers were not recorded in it."""
    return trace.meta["spec"].get("record") not in UNTIMED


def clean_metrics(trace: Trace) -> dict[str, float | None]:
    """The metrics of a run, of DIGITS digits; a value that is not a finite number becomes None."""
    found = trace.meta.get("metrics")
    if not isinstance(found, Mapping):
        return {}
    return {str(name)[:40]: _number(value) for name, value in list(found.items())[:MAX_METRICS]}


def answer_ids(trace: Trace) -> list[int]:
    """The token ids of the answer before its end or stop, without the suffix.

    In traces of older versions, those of all positions after the prompt before the first end.
    """
    if trace.meta["reason"] == "done" and "answer" in trace.meta:
        return list(trace.meta["answer"])
    ids = trace.canvas_at(trace.steps)[generation(trace)].tolist()
    stops = set(stop_ids(trace.meta["model"]))
    end = next((i for i, token in enumerate(ids) if token in stops), len(ids))
    return ids[:end]


def same_vocabulary(a: Trace, b: Trace) -> bool:
    """Whether equal ids are equal tokens in two runs, as far as their traces say."""
    one, other = (trace.meta["model"].get("vocabulary") for trace in (a, b))
    return one == other or None in (one, other)


def text_cost(trace: Trace, tokens: int) -> tuple[int, float]:
    """Forwards and milliseconds until the last of the first `tokens` answer tokens is committed."""
    arrays = trace.arrays()
    steps = steps_to_reveal(trace.step_map()[generation(trace)][:tokens])
    spent = (arrays["forward_ms"] + arrays["decide_ms"])[:steps]
    return int(arrays["forwards"][:steps].sum()), float(spent.sum())


def end_of_text_rule(trace: Trace) -> str:
    """The rule by which a run ended, of END_OF_TEXT; empty if the trace names no known rule.

    In traces of older versions, `official` of a guided run stands for `fill_safe`.
    """
    rule = trace.meta["spec"].get("eos")
    if rule == "official" and len(trace.arrays()["guided_count"]):
        return "fill_safe"
    return rule if isinstance(rule, str) and rule in END_OF_TEXT else ""


def known_answers(lanes: int, expected: str | None, apart: str) -> list[str | None]:
    """The right answer of each lane, None if it is not known.

    `expected` answers the prompt of the first lane. `apart` is why the lanes cannot be compared
    (foreign.apart): the second one may have another prompt.
    """
    second = None if apart == foreign.OTHER_PROMPTS else expected
    return [expected, second][:lanes]


def summarise(traces: Mapping[str, Trace], expected: str | None) -> dict[str, Any]:
    """The summary of a race; a field is None if the race has no data for it.

    `expected` is the right answer to the prompt of the first lane, if it is known
    (`engine.config.answers`). The answer to another prompt is not judged, nor that of a run that
    did not end by itself: it was cut off. In `numbers`, one beyond EXACT is a text.
    """
    both = [traces[lane] for lane in ("a", "b") if lane in traces]
    ended = [t.meta["reason"] == "done" for t in both]
    done = len(both) == 2 and all(ended)
    answers = [answer_text(t) for t in both]
    of_number = expected is None or number_of(expected) is not None
    judged = [text if whole else None for text, whole in zip(answers, ended, strict=True)]
    numbers = [None if text is None or not of_number else final_number(text) for text in judged]
    apart = foreign.apart(*both) if len(both) == 2 else ""
    right = [
        None if text is None or answer is None else is_right(text, answer)
        for text, answer in zip(judged, known_answers(len(both), expected, apart), strict=True)
    ]
    ids = [answer_ids(t) for t in both]
    known = [
        None if foreign.lacks(trace) or not whole else text_cost(trace, len(own))
        for trace, own, whole in zip(both, ids, ended, strict=True)
    ]
    out: dict[str, Any] = {
        "speedup": None, "text_speedup": None,
        "text_forwards": [found and found[0] for found in known],
        "end_of_text": [end_of_text_rule(t) for t in both],
        "agreement": None, "first_divergence": None, "same_text": None,
        "forwards": [clean_metrics(t).get("forwards") for t in both],
        "numbers": [str(n) if n is not None and abs(n) > EXACT else n for n in numbers],
        "expected": expected,
        "right": right,
        "same_answer": None,
        "apart": apart,
        "same_vocabulary": len(both) < 2 or same_vocabulary(*both),
    }  # fmt: skip
    if not done or out["apart"]:
        return out
    times = [clean_metrics(t).get("total_ms") for t in both]
    same_start = both[0].meta["spec"].get("start") == both[1].meta["spec"].get("start")
    comparable = same_start and all(map(timed, both)) and foreign.same_clock(*both)
    if times[0] and times[1] and comparable:
        out["speedup"] = _speedup(times[0], times[1], out["forwards"])
        ms_a, ms_b = map(_text_ms, both, known)
        out["text_speedup"] = _speedup(ms_a, ms_b, out["text_forwards"]) if ms_a and ms_b else None
    if out["same_vocabulary"]:
        out |= _agreement(*ids)
    else:
        out["same_text"] = answers[0] == answers[1]
    same = numbers[0] == numbers[1] if numbers[0] is not None else all(right)
    out["same_answer"] = out["same_text"] or same
    return out


def _speedup(ms_a: float, ms_b: float, forwards: Sequence[float | None]) -> float | None:
    """The time of lane A over that of lane B.

    None if each lane took a single forward, whose time varies too much from run to run, or if it is
    too large or too small for a number.
    """
    found = ms_a / ms_b
    known = 0 < found < math.inf and list(forwards) != [1, 1]
    return float(f"{found:.{DIGITS}g}") if known else None


def _text_ms(trace: Trace, cost: tuple[int, float] | None) -> float | None:
    """Milliseconds until the text is complete, by `text_cost` or by a foreign run's metrics."""
    return clean_metrics(trace).get("text_ms") if cost is None else cost[1]


def _agreement(a: list[int], b: list[int]) -> dict[str, Any]:
    """Share of equal tokens, and the index of the first difference."""
    longest, shortest = max(len(a), len(b)), min(len(a), len(b))
    same = np.array(a[:shortest]) == np.array(b[:shortest])
    apart = np.flatnonzero(~same)
    first = int(apart[0]) if len(apart) else (None if len(a) == len(b) else shortest)
    share = float(same.sum()) / longest if longest else 1.0
    return {"agreement": round(share, 4), "first_divergence": first, "same_text": a == b}


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if isinstance(value, int) and abs(value) <= EXACT:
        return value
    finite = abs(value) <= sys.float_info.max
    return float(f"{float(value):.{DIGITS}g}") if finite else None

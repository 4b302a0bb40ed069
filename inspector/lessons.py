"""The seven lessons: what to do, what to see, and a question that the data answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine import logcode
from engine.events import QUANTITIES, SITES
from engine.trace import Trace
from inspector.views.tokens import generation, stop_ids

Pinned = Mapping[str, int | None]
Verdict = tuple[bool, str]
Check = Callable[[Mapping[str, Trace], str, Pinned], Verdict]
MOVED, DRIFTED = 0.001, 0.05


@dataclass(frozen=True)
class Lesson:
    """One lesson on recorded runs.

    `lanes` names the traces of both lanes; `choices` (label, trace) may stand in lane B instead;
    `action` names what the reader has to do before the mark is set; `view` and `start` set the
    inspector; `answer` is `number`, `choice` or `pin`; `check` judges the answer by the traces.
    """

    key: str
    title: str
    do: str
    see: str
    ask: str
    lanes: tuple[str, str]
    action: str
    view: str
    start: Mapping[str, int | str]
    answer: str
    check: Check
    choices: tuple[tuple[str, str], ...] = ()


def last_word(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 1: the answer token, before the end of the text, that was unmasked last."""
    trace = traces["a"]
    shown, steps = generation(trace), trace.step_map()
    ids = trace.canvas_at(trace.steps)[shown]
    ends = np.flatnonzero(np.isin(ids, stop_ids(trace.meta["model"])))
    before = shown[: ends[0]] if len(ends) else shown
    place = int(steps[before].argmax())
    arrays = trace.arrays()
    at = int(np.flatnonzero(arrays["commit_position"] == before[place])[0])
    sure = float(arrays["commit_confidence"][at])
    told = f"Token {place + 1} came last, at step {steps[before[place]] + 1}, with confidence "
    return number(given) == place + 1, told + f"{sure:.3f}."


def kept_by_causal(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 2: answer tokens before the one just unmasked whose V moved all the same."""
    trace, step, layer = traces["a"], 12, -1
    drift = logcode.decode(trace.arrays()["drift"][step, layer, QUANTITIES.index("v")])
    fresh = int(np.flatnonzero(trace.step_map() == step - 1)[0])
    before = generation(trace)
    before = before[before < fresh]
    count = int((drift[before] > MOVED).sum())
    told = (
        f"{count} of the {len(before)} answer tokens before it moved by more than {MOVED}. Under "
        "causal attention none of them could see the new token, and their K and V would stand."
    )
    return number(given) == count, told


def drifted_share(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 3: share of the rows of layer 5 whose V moves by more than 0.05 in a step."""
    codes = traces["a"].arrays()["drift"][:, 4, QUANTITIES.index("v")]
    known = codes[codes != logcode.NOTHING]
    share = 100 * float((logcode.decode(known) > DRIFTED).mean())
    said, found = f"{share:.1f} % of the rows of layer 5, over all steps.", number(given)
    return found is not None and abs(found - share) <= 1, said


def cheapest_faithful(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 4: of the settings that change no token, the one that recomputes least."""
    plain = final(traces["a"])
    changed = {name: int((final(traces[name]) != plain).sum()) for _, name in DLLM_CHOICES}
    costs = {name: float(traces[name].arrays()["recomputed"].mean()) for _, name in DLLM_CHOICES}
    best = min((name for name in costs if not changed[name]), key=lambda name: costs[name])
    told = "; ".join(
        f"{label}: {changed[name]} tokens changed, {100 * costs[name]:.0f} % recomputed"
        for label, name in DLLM_CHOICES
    )
    return given == best, told + "."


def first_wrong(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 5: the first answer token that threshold 0.7 decodes otherwise than one by one."""
    plain, fast = final(traces["a"]), final(traces["threshold_70"])
    apart = np.flatnonzero(plain != fast)
    steps = {name: trace.steps for name, trace in traces.items()}
    told = (
        f"Token {apart[0] + 1} is the first of {len(apart)} that differ. 0.95 takes "
        f"{steps['threshold_95']} forwards, 0.7 takes {steps['threshold_70']}, one by one "
        f"{steps['a']}."
    )
    return number(given) == apart[0] + 1, told


def missed_row(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 6: a row that had moved as much as those chosen, and was not chosen."""
    trace = traces["b"]
    arrays = trace.arrays()
    step, layer, position = (pinned.get(name) for name in ("step", "layer", "position"))
    if position is None or step is None or layer is None:
        return False, "Pin a cell of lane B first: click it, or move there and press Enter."
    probed = np.flatnonzero(arrays["probe_step"] == step)
    if not len(probed):
        near = ", ".join(str(s + 1) for s in arrays["probe_step"].tolist())
        return False, f"Step {step + 1} was not probed; the probed steps are {near}."
    site = SITES.index("attn")
    codes = arrays["probe_moved"][probed[0], layer, site].astype(int)
    renewed = trace.recompute_map()[step, layer, site]
    moved = np.where(codes == logcode.NOTHING, -1, codes)
    known = moved >= 0
    count = int((renewed & known).sum())
    if renewed[known].all() or not count:
        return False, "In this layer and step everything, or nothing, was recomputed; take another."
    bar = np.sort(moved[known])[-count]
    code = moved[position]
    told = f"Its attention output stood {logcode.decode(np.uint8(max(code, 0))):.4f} off"
    if renewed[position]:
        return False, told + ", but it was recomputed."
    right = code >= bar
    tail = "at least" if right else "less than"
    return bool(right), f"{told}, {tail} the least of the {count} that moved most. " + (
        "It was passed over." if right else "It was rightly left alone."
    )


def frozen_from(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 7: the step from which no row of the first block is recomputed."""
    trace = traces["b"]
    block = generation(trace)[: int(trace.meta["spec"]["block_length"])]
    renewed = trace.recompute_map()[:, :, :, block].any((1, 2, 3))
    first = int(np.flatnonzero(renewed)[-1]) + 1
    share = 100 * float(trace.arrays()["recomputed"].mean())
    told = f"Block 1 is last renewed at step {first} and stands from step {first + 1} on. "
    return number(given) == first + 1, told + f"In all, {share:.0f} % was recomputed."


def final(trace: Trace) -> np.ndarray:
    """The answer's ids at the end."""
    return trace.canvas_at(trace.steps)[generation(trace)]


def number(text: str) -> float | None:
    """A number as a reader types it; None where it is none."""
    try:
        return float(text.strip().rstrip("%").replace(",", "."))
    except ValueError:
        return None


DLLM_CHOICES = (
    ("prompt 25, response 5", "dllm_25_5"),
    ("prompt 25, response 50", "dllm_25_50"),
    ("prompt 100, response 20, nothing between", "dllm_100_20_0"),
)
LESSONS = (
    Lesson(
        "masks", "From masks to text",
        "Drag the replay bar to its very start, then on to its end.",
        "All masks stand there from the start. Tokens appear out of order: the surest first, "
        "wherever it is in the block.",
        "Which answer token, of those before the end of the text, was unmasked last? "
        "Give its number.",
        ("plain", "threshold_95"), "scrub", "candidates", {"lane": "a", "step": 0, "layer": 0},
        "number", last_word,
    ),
    Lesson(
        "attention", "Why there is no ordinary KV cache",
        "Go to step 13, layer 8, and switch the strip below between causal and bidirectional.",
        "One token was unmasked in the step before. Every position sees it, so K and V move "
        "before it as well as after it. Causal attention would have kept all that stands before.",
        "At step 13, layer 8: how many answer tokens before the one just unmasked moved by more "
        "than 0.001? The strip counts them.",
        ("plain", "dual"), "strip", "drift", {"lane": "a", "step": 3, "layer": 3},
        "number", kept_by_causal,
    ),
    Lesson(
        "drift", "But most of it barely changes",
        "Move the threshold from one end to the other.",
        "The counts fall to almost nothing long before the threshold reaches a tenth: most rows "
        "come out nearly as they were.",
        "What share of the rows of layer 5, in per cent, moves by more than 0.05 in V?",
        ("plain", "dllm_25_5"), "threshold", "counts", {"lane": "a", "step": 20, "layer": 4},
        "number", drifted_share,
    ),
    Lesson(
        "clocks", "Refresh clocks (dLLM-Cache)",
        "Put each of the three settings in lane B.",
        "The longer the intervals, the thinner the schedule, and the sooner the text parts from "
        "plain decoding.",
        "Which is the cheapest setting that changes no token?",
        ("plain", "dllm_25_5"), "choices", "schedule", {"lane": "b", "step": 20, "layer": 4},
        "choice", cheapest_faithful, DLLM_CHOICES,
    ),
    Lesson(
        "thresholds", "Blocks and thresholds (Fast-dLLM)",
        "Put 0.95, 0.7 and 0.5 in lane B.",
        "A lower threshold commits more tokens a forward. Tokens that depend on each other are "
        "then decided apart, and the text begins to differ.",
        "Which answer token is the first that 0.7 decodes otherwise than plain decoding?",
        ("plain", "threshold_95"), "choices", "compare", {"lane": "b", "step": 2, "layer": 4},
        "number", first_wrong,
        (("0.95", "threshold_95"), ("0.7", "threshold_70"), ("0.5", "threshold_50")),
    ),
    Lesson(
        "selection", "Choosing what to recompute (SPA-Cache)",
        "Look at the probed steps of lane B and pin a cell.",
        "A layer recomputes the rows whose proxy moved most, as many as its budget allows. The "
        "exact forward beside it shows which rows had truly moved.",
        "Find a row that had moved as much as those chosen and was not recomputed: pin it at a "
        "probed step, then press Check.",
        ("plain", "spa_cache"), "pin", "error", {"lane": "b", "step": 20, "layer": 4},
        "pin", missed_row,
    ),
    Lesson(
        "freezing", "Freezing what is done (FlashDLM's FreeCache)",
        "Pin a cell of the schedule and move along the steps.",
        "Once a block is decoded its K and V stand for good: no clock ever renews them. The "
        "prompt is computed once.",
        "From which step on is no row of block 1 recomputed any more?",
        ("plain", "freecache"), "pin", "schedule", {"lane": "b", "step": 10, "layer": 4},
        "number", frozen_from,
    ),
)  # fmt: skip


def described(lesson: Lesson) -> dict[str, Any]:
    """What the page may know of a lesson; the answer stays here."""
    names = ("key", "title", "do", "see", "ask", "action", "view", "answer")
    choices = [{"label": label, "name": name} for label, name in lesson.choices]
    return {name: getattr(lesson, name) for name in names} | {
        "start": dict(lesson.start), "choices": choices, "lane_b": lesson.lanes[1],
    }  # fmt: skip

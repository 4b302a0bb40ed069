"""KnownAnswers: what a lesson's reader says, judged by the data of its recorded runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from engine.core import drift_codes
from engine.core.events import GUIDED, QUANTITIES, SITES
from engine.trace.trace import Trace
from inspector.page_data.tokens import generation, stop_ids
from inspector.views.verdicts import spans

Pinned = Mapping[str, int | None]
Verdict = tuple[bool, str]
Check = Callable[[Mapping[str, Trace], str, Pinned], Verdict]
MOVED, DRIFTED = 0.001, 0.05
DLLM_CHOICES = (
    ("prompt 25, response 5", "dllm_25_5"),
    ("prompt 25, response 50", "dllm_25_50"),
    ("prompt 100, response 20, nothing between", "dllm_100_20_0"),
)


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
    drift = drift_codes.decode(trace.arrays()["drift"][step, layer, QUANTITIES.index("v")])
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
    known = codes[codes != drift_codes.NOTHING]
    share = 100 * float((drift_codes.decode(known) > DRIFTED).mean())
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
    moved = np.where(codes == drift_codes.NOTHING, -1, codes)
    known = moved >= 0
    count = int((renewed & known).sum())
    if renewed[known].all() or not count:
        return False, "In this layer and step everything, or nothing, was recomputed; take another."
    bar = np.sort(moved[known])[-count]
    code = moved[position]
    told = f"Its attention output stood {drift_codes.decode(np.uint8(max(code, 0))):.4f} off"
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


def who_wins(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 8: first mismatches at which the guider's first choice stands in the end."""
    trace = traces["freecache_guided"]
    arrays, ids, spelt = trace.arrays(), trace.canvas_at(trace.steps), spans(trace)
    stopped = set(stop_ids(trace.meta["model"]))
    rows = [first for first in first_mismatches(trace) if spelt[first, 0] >= 0]
    wins, told = 0, []
    for row in rows:
        position, drafted = arrays["draft_position"][row], int(arrays["draft_id"][row])
        became = int(ids[position])
        choice = trace.guider_pieces.get(int(arrays["guider_top"][spelt[row, 0]]), b"")
        wins += became not in stopped and trace.pieces[became] == choice
        place = position - arrays["prompt_mask"].sum() + 1
        told.append(f"token {place}, {_word(trace, drafted)} became {_word(trace, became)}")
    said = f"At {wins} of {len(rows)}: {'; '.join(told)}. No token is the guider's own: the "
    return number(
        given
    ) == wins, said + "diffusion model drafts anew once what stands before is so."


def first_mismatches(trace: Trace) -> list[int]:
    """Rows of the draft's arrays at which a step's run of accepted tokens ended."""
    arrays, rows = trace.arrays(), []
    for step, taken in enumerate(arrays["guided_count"][:, GUIDED.index("accepted")].tolist()):
        lo, hi = np.searchsorted(arrays["draft_step"], [step, step + 1])
        if lo + taken < hi and not arrays["draft_ok"][lo + taken]:
            rows.append(int(lo) + taken)
    return rows


def _word(trace: Trace, token: int) -> str:
    return f"“{trace.pieces.get(token, b'').decode(errors='backslashreplace')}”"


def final(trace: Trace) -> np.ndarray:
    """The answer's ids at the end."""
    return trace.canvas_at(trace.steps)[generation(trace)]


def number(text: str) -> float | None:
    """A number as a reader types it; None where it is none."""
    try:
        return float(text.strip().rstrip("%").replace(",", "."))
    except ValueError:
        return None

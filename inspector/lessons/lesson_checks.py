"""Checks of the lessons' answers against the data of the recorded runs.

Each check has the signature `Check`: it gets the traces of the lesson by name, the answer as text
and the pinned cell. It returns whether the answer is right; if it is, with an explanation, else
with a hint that fits the answer and does not give the right one away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from engine.core import drift_codes
from engine.core.events import GUIDED, PARTS, SITES
from engine.core.tables import percentage
from engine.trace.trace import Trace
from inspector.lessons.choices import DARE_CHOICES, DLLM_CHOICES
from inspector.page_data.compare import answer_ids, text_cost
from inspector.page_data.tokens import generation, stop_ids
from inspector.views.drift import drift_of
from inspector.views.queries import REUSED, dare_part
from inspector.views.verdicts import spans

Pinned = Mapping[str, int | None]
Verdict = tuple[bool, str]
Check = Callable[[Mapping[str, Trace], str, Pinned], Verdict]
MOVED, DRIFTED = 0.001, 0.05
SAVING = ("projections", "attention", "ffn")  # the parts of the FLOPs that lesson 9 names


def last_word(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 1: which answer token before the end of the text was committed last."""
    trace = traces["a"]
    shown, steps = generation(trace), trace.step_map()
    ends = np.flatnonzero(np.isin(final(trace), stop_ids(trace.meta["model"])))
    before = shown[: ends[0]] if len(ends) else shown
    place = int(steps[before].argmax())
    arrays = trace.arrays()
    at = int(np.flatnonzero(arrays["commit_position"] == before[place])[0])
    sure = float(arrays["commit_confidence"][at])
    step = steps[before[place]] + 1
    if number(given) == place + 1:
        return True, f"Token {place + 1} was committed last, at step {step}, confidence {sure:.3f}."
    chosen = _place(given, len(shown))
    if chosen is None:
        return False, f"The answer has {len(shown)} tokens, counted from 1."
    if chosen >= len(before):
        return False, f"Token {chosen + 1} is not before the end of the text (the cell “end”)."
    when = steps[shown[chosen]] + 1
    return False, (
        f"Token {chosen + 1} was committed at step {when} in lane A. Move back from the end, step "
        "by step, and watch which cell of lane A before the end of the text becomes a mask first."
    )


def kept_by_causal(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 2: number of answer tokens before the one just committed whose V changed."""
    trace, step, layer = traces["a"], 12, -1
    drift = drift_codes.decode(drift_of(trace, "v", slice(step, step + 1))[0, layer])
    fresh = int(np.flatnonzero(trace.step_map() == step - 1)[0])
    before = generation(trace)
    before = before[before < fresh]
    count = int((drift[before] > MOVED).sum())
    if number(given) == count:
        return True, (
            f"The V of {count} of the {len(before)} answer tokens before it drifted by more than "
            f"{MOVED}. Under causal attention none of them could see the new token, and their K "
            "and V would not change."
        )
    if number(given) == 0:
        return False, "That is so under causal attention; this model's is bidirectional."
    return False, (
        "Set the controls of this lesson to step 13 and layer 8, choose bidirectional, and count "
        "the cells with a dot on the left of the newest token."
    )


def drifted_share(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 3: percentage of the rows of layer 5 (index 4) whose V drifts by more than 0.05."""
    codes = drift_of(traces["a"], "v", layers=slice(4, 5))
    known = codes[codes != drift_codes.NOT_EVALUATED]
    share = 100 * float((drift_codes.decode(known) > DRIFTED).mean())
    found = number(given)
    if found is not None and abs(found - share) <= 1:
        return True, f"{share:.1f} % of the rows of layer 5, over all steps."
    if found is not None and abs(found - 100 + share) <= 1:
        return False, "That is the share of the rows below 0.05."
    return False, (
        "Set the threshold to 0.05 and the quantity to V, then read layer 5 in the chart of each "
        "layer over all steps (not in a single step)."
    )


def cheapest_faithful(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 4: the setting that recomputes least among those that change no token."""
    plain = final(traces["a"])
    names = [one.name for one in DLLM_CHOICES]
    changed = {name: int((final(traces[name]) != plain).sum()) for name in names}
    costs = {name: float(traces[name].arrays()["recomputed"].mean()) for name in names}
    best = min((name for name in costs if not changed[name]), key=lambda name: costs[name])
    if given == best:
        text = "; ".join(
            f"{one.label}: {changed[one.name]} tokens changed, "
            f"{percentage(costs[one.name], 0)} recomputed"
            for one in DLLM_CHOICES
        )
        return True, text + "."
    if changed.get(given):
        return False, f"That setting changes {changed[given]} tokens (≠ in the lanes)."
    return False, "It changes no token, but another setting that changes none recomputes less."


def first_wrong(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 5: the first answer token that differs between threshold 0.7 and plain decoding."""
    plain, fast = final(traces["a"]), final(traces["threshold_70"])
    apart = np.flatnonzero(plain != fast)
    steps = {name: trace.steps for name, trace in traces.items()}
    if number(given) == apart[0] + 1:
        return True, (
            f"Token {apart[0] + 1} is the first of {len(apart)} that differ. Threshold 0.95 takes "
            f"{steps['threshold_95']} forwards, 0.7 takes {steps['threshold_70']}, and plain "
            f"decoding takes {steps['a']}."
        )
    chosen = _place(given, len(plain))
    if chosen is None:
        return False, f"The answer has {len(plain)} tokens, counted from 1."
    if chosen in apart:
        return False, f"Token {chosen + 1} differs, but so does one before it."
    return False, (
        f"Token {chosen + 1} is the same in both runs. Put 0.7 in lane B, go to the end, and look "
        "for the first cell marked ≠."
    )


def missed_row(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 6: a reused row among the n that drifted most, where n rows were recomputed."""
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
    codes = trace.cells("probe_moved")[probed[0], layer, site].astype(int)
    renewed = trace.recompute_map()[step, layer, site]
    moved = np.where(codes == drift_codes.NOT_EVALUATED, -1, codes)
    known = moved >= 0
    count = int((renewed & known).sum())
    if renewed[known].all() or not count:
        return False, "In this layer and step all rows, or none, were recomputed; choose another."
    bar = np.sort(moved[known])[-count]
    code = moved[position]
    drift = drift_codes.decode(np.uint8(max(code, 0)))
    text = f"The drift of its attention output was {drift:.4f}"
    if renewed[position]:
        return False, text + ", but the row was recomputed."
    right = code >= bar
    among = "one" if right else "not one"
    end = "The row was missed." if right else "Reusing the row was right."
    return bool(right), (
        f"{text}, {among} of the {count} largest in this layer (rows recomputed: {count}). {end}"
    )


def frozen_from(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 7: the step from which on no row of the first block is recomputed."""
    trace = traces["b"]
    block = generation(trace)[: int(trace.meta["spec"]["block_length"])]
    renewed = trace.recompute_map()[:, :, :, block].any((1, 2, 3))
    first = int(np.flatnonzero(renewed)[-1]) + 1
    share = float(trace.arrays()["recomputed"].mean())
    found = number(given)
    if found == first + 1:
        return True, (
            f"Block 1 is last recomputed at step {first} and frozen from step {first + 1} on. In "
            f"total, {percentage(share, 0)} was recomputed."
        )
    if found == first:
        return False, f"At step {first} rows of block 1 are recomputed for the last time."
    if found is not None and found < first:
        return False, "Rows of block 1 are still recomputed after that step; move further right."
    return False, "Block 1 is frozen before that step; move further left."


def commit_call(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 11: the last step that computes rows of the first decoded block."""
    trace = traces["a"]
    rows = trace.region_rows(np.arange(1))[0, 1]
    computed = trace.recompute_map()[..., rows].any((1, 2, 3))
    step = int(np.flatnonzero(computed)[-1]) + 1
    errors = [_largest_error(traces[lane]) for lane in "ab"]
    found = number(given)
    if found == step:
        return True, (
            f"Step {step} computes the block's final keys and values. The largest error of all "
            f"probed steps is {errors[0]:.4f} in lane A and {errors[1]:.4f} in lane B."
        )
    if found is not None and found < step:
        return (
            False,
            "Rows of the first block are computed after that step too; move further right.",
        )
    return False, "The first block is frozen before that step; move further left."


def _largest_error(trace: Trace) -> float:
    """The largest error of a value that a probed step used."""
    codes = trace.cells("probe_error")
    known = codes[codes != drift_codes.NOT_EVALUATED]
    return float(drift_codes.decode(known.max())) if known.size else 0.0


def who_wins(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 8: number of first mismatches where the final token is the guider's first choice."""
    trace = traces["freecache_guided"]
    arrays, ids, spelt = trace.arrays(), trace.canvas_at(trace.steps), spans(trace)
    stopped = set(stop_ids(trace.meta["model"]))
    rows = [first for first in first_mismatches(trace) if spelt[first, 0] >= 0]
    wins, cases = 0, []
    for row in rows:
        position, drafted = arrays["draft_position"][row], int(arrays["draft_id"][row])
        became = int(ids[position])
        choice = trace.guider_pieces.get(int(arrays["guider_top"][spelt[row, 0]]), b"")
        wins += became not in stopped and trace.pieces[became] == choice
        place = position - trace.prompt_length + 1
        cases.append(f"token {place}, {_quoted(trace, drafted)} became {_quoted(trace, became)}")
    if number(given) == wins:
        return True, (
            f"At {wins} of {len(rows)}: {'; '.join(cases)}. No committed token comes from the "
            "guider: after each step the diffusion model drafts the rest again."
        )
    if number(given) == len(rows):
        return False, (
            "That is how often the two disagree. Count only where the guider's first choice is the "
            "token of the final answer."
        )
    return False, (
        "Put FreeCache + guider in lane B. At each first ✗ of a step, compare the guider's first "
        "choice with the token at that place in the final answer, and count those that are equal."
    )


def saved_by_reuse(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 9: the largest saving of GFLOPs among DARE's settings that leave the text alone."""
    plain = traces["a"]
    runs = [(one.label, traces[one.lane_b]) for one in DARE_CHOICES]
    faithful = [trace for _, trace in runs if answer_ids(trace) == answer_ids(plain)]
    best = max((_saved(plain, trace, PARTS) for trace in faithful), default=None)
    found = number(given)
    if found is not None and best is not None and abs(found - best) <= 0.5:
        return True, "; ".join(_reuse_and_savings(*run, plain) for run in runs) + "."
    for label, trace in runs:
        if found is not None and abs(found - _saved(plain, trace, PARTS)) <= 0.5:
            kept = trace in faithful
            text = "keeps the text, but another setting keeps it and saves more"
            return False, f"{label} {text if kept else 'saves that, but it changes the text'}."
    return False, (
        "For each setting read the row GFLOPs in Compare: the saving is 1 minus the ratio, in "
        "percent. Then see which settings agree in all tokens before the end."
    )


def equal_terms(traces: Mapping[str, Trace], given: str, pinned: Pinned) -> Verdict:
    """Lesson 10: forwards of plain decoding over those of guided diffusion, both stopping."""
    runs = (traces["plain"], traces["plain_fill_safe"], traces["guided"])
    whole, stopped, guided = (int(trace.arrays()["forwards"].sum()) for trace in runs)
    factor, found = stopped / guided, number(given)

    def near(value: float) -> bool:
        return found is not None and abs(found - value) <= 0.02 * value

    if not near(factor):
        return False, _unequal_hint(near, whole, stopped, guided)
    complete, _ = text_cost(runs[0], len(answer_ids(runs[0])))
    return True, (
        f"Plain decoding takes {whole} forwards if it decodes every position and {stopped} if it "
        f"stops at the end of the text. Guided diffusion takes {guided}. Of the factor "
        f"{whole / guided:.1f} under unequal rules, {whole / stopped:.1f} is early stopping and "
        f"{factor:.1f} is guidance. The text of plain decoding is complete after "
        f"{complete} forwards; official spends the other {whole - complete} on what follows the "
        "text."
    )


def _unequal_hint(near: Callable[[float], bool], whole: int, stopped: int, guided: int) -> str:
    """A hint for a wrong answer to lesson 10, by the forwards of its three runs."""
    if near(whole / guided):
        return "That compares unequal rules: lane A goes on after the end of the text."
    if near(whole / stopped):
        return "That is what stopping at the end of the text saves, without guidance."
    return "Open “Guided, equal rules” and divide the forwards of lane A by those of lane B."


def _reuse_and_savings(label: str, trace: Trace, plain: Trace) -> str:
    """What a run with DARE reused and saved, in words."""
    reused = ~trace.recompute_map()[1:, :, REUSED[dare_part(trace) or ""]]
    saved = {part: _saved(plain, trace, (part,)) for part in SAVING}
    text = "same text" if answer_ids(trace) == answer_ids(plain) else "another text"
    return (
        f"{label}: {percentage(reused.mean(), 0)} reused after the first step, "
        f"{_saved(plain, trace, PARTS):.1f} % of the GFLOPs saved (of the projections "
        f"{saved['projections']:.0f} %, of attention {saved['attention']:.0f} %, of the "
        f"feed-forward {saved['ffn']:.0f} %), {text}"
    )


def _saved(plain: Trace, trace: Trace, parts: Sequence[str]) -> float:
    """Percentage of plain decoding's FLOPs in `parts` of events.PARTS that a run saves."""
    columns = [PARTS.index(part) for part in parts]
    before, after = (float(one.arrays()["flops"][:, columns].sum()) for one in (plain, trace))
    return 100 * (1 - after / before)


def first_mismatches(trace: Trace) -> list[int]:
    """Indices into the draft arrays of each step's first token that the guider did not accept."""
    arrays, rows = trace.arrays(), []
    for step, taken in enumerate(arrays["guided_count"][:, GUIDED.index("accepted")].tolist()):
        lo, hi = np.searchsorted(arrays["draft_step"], [step, step + 1])
        if lo + taken < hi and not arrays["draft_ok"][lo + taken]:
            rows.append(int(lo) + taken)
    return rows


def _quoted(trace: Trace, token: int) -> str:
    return f"“{trace.pieces.get(token, b'').decode(errors='backslashreplace')}”"


def final(trace: Trace) -> np.ndarray:
    """The token ids of the answer after the last step."""
    return trace.canvas_at(trace.steps)[generation(trace)]


def _place(given: str, length: int) -> int | None:
    """The answer token, counted from 0, that an answer names; None if there is none."""
    found = number(given)
    return int(found) - 1 if found is not None and found in range(1, length + 1) else None


def number(text: str) -> float | None:
    """Parse a number as readers type it (`12`, `3,5`, `7 %`); None if it is not a number."""
    try:
        return float(text.strip().rstrip("%").replace(",", "."))
    except ValueError:
        return None

"""Comparison of what a guider fed, held and decided with FlashDLM's guided cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from engine.core.events import StepEvent
from tests.compat.guided import GuiderCall, ReleasedGuided, ReleasedStep
from tests.conformance import flashdlm
from tests.conformance.cases import Case
from tests.conformance.flashdlm import ATOL, RTOL, FlashRecorder
from tests.conformance.recorders import Arrays
from tests.conformance.runs import Decoded

RANK_MARGIN = 1e-5  # between logarithms of probabilities


def differences(case: Case, found: Decoded, recorder: FlashRecorder) -> Iterator[str]:
    """Differences of a run as released: rows, drafts, decisions and the guider's forwards."""
    yield from flashdlm.differences(case, found, recorder)
    unmasker, golden = found.state.job.unmasker, case.arrays
    assert isinstance(unmasker, ReleasedGuided)
    reader, steps = unmasker.reader, unmasker.steps
    lists = {
        **_steps(steps),
        **_calls(reader.calls),
        "cache_ids": [counted for counted, _ in reader.after_steps],
        "cache_kv": [held for _, held in reader.after_steps],
        **_judged(steps),
    }
    yield from (f"{name} differs" for name, rows in lists.items() if not _equal(golden[name], rows))
    yield from _distant(golden, steps, reader.calls)


def _steps(steps: Sequence[ReleasedStep]) -> dict[str, list]:
    return {
        "step_prefix": [int(s.verified.draft.positions[0]) for s in steps],
        "step_drafts": [s.verified.draft.ids.tolist() for s in steps],
        "step_chosen": [s.chosen for s in steps],
        "accept_len": [s.verified.accepted for s in steps],
        "committed": [s.committed for s in steps],
    }


def _calls(calls: Sequence[GuiderCall]) -> dict[str, list]:
    return {
        "guider_calls": [len(calls)],
        "guider_step": [c.step for c in calls],
        "guider_verify": [int(c.judges) for c in calls],
        "guider_fed": [len(c.fed) for c in calls],
        "guider_kv_before": [len(c.held) for c in calls],
        "guider_key_pos": [[position for position, _ in c.held] for c in calls],
        "guider_key_id": [[token for _, token in c.held] for c in calls],
    }


def _judged(steps: Sequence[ReleasedStep]) -> dict[str, list]:
    rows = list(_judged_rows(steps))
    return {
        "judged_step": [row[0] for row in rows],
        "judged_index": [row[1] for row in rows],
    }


def _judged_rows(
    steps: Sequence[ReleasedStep],
) -> Iterator[tuple[int, int, float, float, int, int]]:
    """(step, index in the draft, p of the draft, largest p, bounds of its rank) of each.

    The rank counts the tokens that are better. Processors round the probabilities of two alike
    tokens differently, so the bounds leave those within RANK_MARGIN out or count them.
    """
    for number, step in enumerate(steps):
        for begin, verdict in step.verified.verdicts:
            assert verdict.verification is not None, "a shared vocabulary is always verified"
            found = verdict.verification
            for place, token in enumerate(found.ids.tolist()):
                log_p = found.log_p[place]
                least = int((log_p > log_p[token] + RANK_MARGIN).sum())
                others = log_p > log_p[token] - RANK_MARGIN
                others[token] = False
                own, best = float(log_p[token].exp()), float(log_p.max().exp())
                yield number, begin + place, own, best, least, int(others.sum())


def _equal(recorded: np.ndarray, rows: list) -> bool:
    """Whether lists equal a recorded array, whose rows end in -1."""
    recorded = np.atleast_1d(recorded)
    if recorded.ndim == 1:
        return bool(np.array_equal(recorded, rows))
    if len(recorded) != len(rows):
        return False
    pairs = zip(recorded, rows, strict=True)
    return all(np.array_equal(row[row >= 0], found) for row, found in pairs)


def _distant(
    golden: Arrays, steps: Sequence[ReleasedStep], calls: Sequence[GuiderCall]
) -> Iterator[str]:
    rows = list(_judged_rows(steps))
    for name, column in (("judged_p", 2), ("judged_pmax", 3)):
        values = np.array([row[column] for row in rows])
        if len(values) != len(golden[name]) or not np.allclose(values, golden[name], 0, ATOL):
            yield f"{name} differs"
    least, most = np.array([row[4:] for row in rows]).reshape(-1, 2).T
    ranks = golden["judged_rank"]
    if len(ranks) != len(rows) or (ranks < least).any() or (ranks > most).any():
        yield "judged_rank differs"
    for call, row, expected in zip(
        golden["g_logit_call"], golden["g_logit_row"], golden["g_logits"], strict=True
    ):
        known = call < len(calls) and row < len(calls[call].logits)
        if not known or not np.allclose(calls[call].logits[row].cpu(), expected, RTOL, ATOL):
            yield "g_logits differ"
            return


def sound_steps(case: Case) -> int:
    """The leading steps of a recording that no defect has touched.

    In them the guider's cache is the text, the engine's sliding window has the recorded rows, and
    what is committed are the accepted drafts, up to an end of text.
    """
    golden, settings = case.arrays, case.settings
    bad = [int(golden["nfe"])]
    if settings["cache"] == "sliding":
        bad += np.flatnonzero(golden["write_start"] != golden["fed_start"])[:1].tolist()
        if golden["accept_len"][0] >= settings["sliding_window_size"] - 1:
            bad.append(0)  # the engine drafts no further in the first step either
    counts = [taken(case, step) for step in range(bad[0])]
    bad += np.flatnonzero(golden["committed"] != counts)[:1].tolist()
    bad += [int(golden["guider_step"][i]) for i in misplaced_calls(case)[:1]]
    return min(bad)


def taken(case: Case, step: int) -> int:
    """Tokens that a step commits without an id swap: accepted drafts up to an end of text."""
    golden = case.arrays
    drafts = golden["step_drafts"][step, : max(int(golden["accept_len"][step]), 1)]
    ends = np.flatnonzero(drafts == case.settings["eos_token_id"])
    return int(ends[0]) + 1 if len(ends) else len(drafts)


def misplaced_calls(case: Case) -> list[int]:
    """The guider's calls over a cache that is not the text, or not all of it before a chunk."""
    golden, found, chunks = case.arrays, [], Counter[int]()
    for call, step in enumerate(golden["guider_step"].tolist()):
        prefix, count = int(golden["step_prefix"][step]), int(golden["guider_kv_before"][call])
        text = np.append(golden["final_ids"][:prefix], golden["step_drafts"][step])
        positions, ids = golden["guider_key_pos"][call], golden["guider_key_id"][call]
        sound = np.array_equal(positions[positions >= 0], range(count))
        sound = sound and np.array_equal(ids[ids >= 0], text[:count])
        if golden["guider_verify"][call]:
            start = prefix - 1 + chunks[step] * case.settings["verify_batch_size"]
            sound, chunks[step] = sound and count == start, chunks[step] + 1
        if not sound:
            found.append(call)
    return found


def shipped_differences(case: Case, events: Sequence[StepEvent]) -> Iterator[str]:
    """Differences in accepted lengths and the guider's probabilities of a run as it ships."""
    golden = case.arrays
    for event in events[: len(golden["accept_len"])]:
        guided, here = event.guided, golden["judged_step"] == event.step
        assert guided is not None
        assert guided.verdicts is not None, "guided runs are recorded"
        accepted = min(int(golden["accept_len"][event.step]), taken(case, event.step))
        if guided.accepted != accepted:
            yield f"accepted length differs in step {event.step}"
        index = guided.verdicts.positions - int(golden["step_prefix"][event.step])
        recorded = dict(zip(golden["judged_index"][here].tolist(), range(here.sum()), strict=True))
        rows = [recorded[i] for i in index.tolist() if i in recorded]
        if len(rows) < len(index):
            yield f"drafts judged in step {event.step} differ"
            continue
        for name, values in (
            ("judged_p", guided.verdicts.p_g), ("judged_pmax", guided.verdicts.top_p),
        ):  # fmt: skip
            if not np.allclose(values, golden[name][here][rows], 0, ATOL):
                yield f"{name} differs in step {event.step}"

"""Recordings that do not fit their run are refused."""

import numpy as np
import pytest

from engine.record import sketches
from engine.trace.schema import (
    ADDED_AFTER,
    MAX_COMPARED,
    MAX_GROUPS,
    MAX_PIECE_BYTES,
    check_arrays,
)
from engine.trace.trace import Trace
from tests.engine.trace.test_hostile_traces import refused, rewritten
from tests.engine.trace.test_trace import traced
from tests.proofs import fuzz
from tests.support.big_trace import make_big_trace
from tests.support.hostile import is_named


@pytest.fixture(scope="module")
def trace():
    return traced(level="probe")[0]


WRONG = {
    "odd flags": lambda a: {"prompt_mask": np.full(len(a["canvas"]), 2, np.uint8).view(bool)},
    "planned kind": lambda a: {"planned": a["planned"] + 4},
    "planned regions": lambda a: {"planned": a["planned"][:, :2].copy()},
    "planned steps": lambda a: {"planned": a["planned"][1:]},
    "drift steps": lambda a: {"drift": a["drift"][1:]},
    "drift layers": lambda a: {"drift": a["drift"][:, :1].copy()},
    "drift quantities": lambda a: {"drift": a["drift"][:, :, :4].copy()},
    "drift positions": lambda a: {"drift": a["drift"][..., :-1].copy()},
    "drift type": lambda a: {"drift": a["drift"].astype(np.int8)},
    "steps of all": lambda a: {
        n: np.repeat(a[n], 500, 0)
        for n in (
            "block",
            "block_step",
            "kind",
            "rows",
            "forwards",
            "masks_left",
            "forward_ms",
            "decide_ms",
            "flops",
            "recomputed",
            "plan",
            "planned",
            "drift",
        )
    },
    "layers of all": lambda a: {
        n: np.zeros((a[n].shape[0], 2000, *a[n].shape[2:]), np.uint8)[..., :1]
        for n in ("plan", "drift")
    },
    "pairs": lambda a: {"similarity": a["similarity"][1:]},
    "pairs of none": lambda a: {"similarity_step": a["similarity_step"][:0]},
    "similarity step": lambda a: {"similarity_step": a["similarity_step"] + 1},
    "similarity order": lambda a: {"similarity_step": a["similarity_step"][::-1].copy()},
    "similarity layers": lambda a: {"similarity": a["similarity"][:, :, :1].copy()},
    "groups": lambda a: {"similarity_group": a["similarity_group"][1:]},
    "group outside": lambda a: {"similarity_group": a["similarity_group"] + 1},
    "group turned": lambda a: {"similarity_group": a["similarity_group"][:, ::-1].copy()},
    "probe step": lambda a: {"probe_step": a["probe_step"] + 99},
    "probe order": lambda a: {"probe_step": a["probe_step"][::-1].copy()},
    "probe twice": lambda a: {"probe_step": a["probe_step"] * 0},
    "probe sites": lambda a: {"probe_error": a["probe_error"][:, :, :3].copy()},
    "probe steps": lambda a: {"probe_moved": a["probe_moved"][1:]},
    "probe row": lambda a: {"probe_row": a["probe_row"] + 1},
    "probe row order": lambda a: {"probe_row": a["probe_row"][::-1].copy()},
    "probe position": lambda a: {"probe_position": a["probe_position"] + 22},
    "variation": lambda a: {"probe_tv": a["probe_tv"] + 1.5},
    "no variation": lambda a: {"probe_tv": a["probe_tv"] * np.float32(np.nan)},
    "probe id": lambda a: {"probe_top": a["probe_top"] + 40},
    "probe ids": lambda a: {"probe_top": a["probe_top"][:, :1].copy()},
}


def test_more_probed_steps_than_a_run_may_have_are_refused():
    """The recall of each is computed layer by layer, in 16 s for 4,096 steps of 1,024 layers."""
    arrays = make_big_trace(1, 65, 16, 8, guided=False).arrays()
    few, steps = dict(arrays), np.arange(65, dtype=np.int32)
    few["probe_step"] = steps
    for name in ("probe_error", "probe_moved", "lens_id", "lens_prob", "lens_token_prob"):
        few[name] = np.zeros((65, *arrays[name].shape[1:]), arrays[name].dtype)
    with pytest.raises(ValueError, match=r"^trace: at most 64 probed steps expected$"):
        check_arrays(few, 50)


@pytest.mark.parametrize(("steps", "groups"), [(257, 2), (2, 7)])
def test_no_more_is_compared_than_the_recorder_compares(steps, groups):
    """The pairs of 4,096 steps in 1,024 layers, of which a file may hold one, take 17 GB."""
    assert (MAX_COMPARED, MAX_GROUPS) == (sketches.MAX_STEPS, 1 + sketches.MAX_BLOCKS)
    arrays = make_big_trace(1, 257, 16, 8, guided=False).arrays()
    pairs = steps * (steps + 1) // 2
    arrays["similarity"] = np.zeros((pairs, 2, 1, groups), np.uint8)
    arrays["similarity_step"] = np.arange(steps, dtype=np.int32)
    arrays["similarity_group"] = np.array([[0, 8]] * groups, np.int32)
    with pytest.raises(ValueError, match=r"^trace: at most \d+ (steps|groups) in similarity_"):
        check_arrays(arrays, 50)


@pytest.mark.parametrize("prefix", ["", "guider_"])
def test_texts_of_tokens_that_no_vocabulary_has_are_refused(trace, prefix):
    long = {f"{prefix}piece_bytes": np.full(MAX_PIECE_BYTES + 1, 255, np.uint8)}
    with pytest.raises(ValueError, match=f"^trace: at most .* bytes in {prefix}piece_bytes"):
        Trace.from_bytes(rewritten(trace, long))


@pytest.mark.parametrize("wrong", WRONG)
def test_arrays_that_do_not_fit(trace, wrong):
    refused(rewritten(trace, WRONG[wrong](trace.arrays())))


def test_more_commits_than_positions_are_refused_before_they_are_sorted(trace):
    """Sorting 100 million of them, which a file of 1.6 GB may have, takes 10 s and 1 GB more."""
    arrays = trace.arrays()
    names = [name for name in arrays if name.startswith("commit_")]
    many = {name: np.repeat(arrays[name], 50) for name in names}
    most = len(arrays["canvas"])
    refused(rewritten(trace, many), f"trace: at most {most} commits, one a position, expected")


def test_drift_and_probes_without_a_plan_are_refused(trace):
    without = {"plan": trace.arrays()["plan"][:0]}
    refused(rewritten(trace, without), "need the plan of the run; add it or drop them")


def test_an_empty_array_has_any_sizes(trace):
    odd = {"similarity": np.zeros((0, 2, 10**9, 7), np.uint8)}
    odd |= {
        "similarity_step": np.zeros(0, np.int32),
        "similarity_group": np.zeros((0, 2), np.int32),
    }
    assert Trace.from_bytes(rewritten(trace, odd)).arrays()["similarity"].shape == (0, 2, 0, 0)


@pytest.mark.parametrize("name", ADDED_AFTER[1])
def test_version_1_with_a_later_field_is_refused(trace, name):
    arrays = {other: None for other in ADDED_AFTER[1] if other != name}
    refused(rewritten(trace, arrays, version=1))


FACTS = [
    [], {"a": 1}, {"a": ["1"]}, {"a": [True]}, {"a": [float("nan")]}, {"a": [float("inf")]},
    {"a": [10**400]}, {"a": [1e308]}, {"a": [0] * 1025}, {"a" * 33: [1]},
    {str(n): [] for n in range(17)},
]  # fmt: skip


@pytest.mark.parametrize("facts", FACTS)
def test_facts_that_are_not_lists_of_numbers(trace, facts):
    refused(rewritten(trace, {}, facts=facts))


def test_facts_that_are_lists_of_numbers(trace):
    facts = {"budget": [1, 0.5, -1.0]}
    assert Trace.from_bytes(rewritten(trace, {}, facts=facts)).meta["facts"] == facts


def test_fuzzed_specs_links_and_traces_are_accepted_or_refused_by_name(tmp_path):
    tally = fuzz.within(tmp_path, 40)
    assert sum(tally.values()) >= 40
    assert {"spec run", "spec refused", "trace drawn", "trace refused"} <= set(tally)


def test_a_message_without_a_name_is_detected():
    assert not is_named("The run failed: nothing could be committed.")
    assert not is_named("Something failed in the app (KeyError).")
    assert not is_named(None)
    assert is_named("Lane B, b.threshold.threshold: 3 is outside 0 to 2.0")

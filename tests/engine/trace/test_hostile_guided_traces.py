"""Inconsistent guided traces are refused; files of version 2 are read."""

import json

import numpy as np
import pytest

from engine.core.events import PARTS
from engine.trace.file_format import VERSION
from engine.trace.schema import ADDED_AFTER, OLD_PARTS
from engine.trace.trace import Trace
from tests.engine.trace.test_hostile_traces import refused, rewritten
from tests.support.branching import make, record


@pytest.fixture(scope="module")
def trace():
    return record(make(unmasker="guided", record="steps", gen_length=16, block_length=8))


def shifted(name, by):
    return lambda a: {name: a[name] + np.asarray(by, a[name].dtype)}


def filled(name, value):
    return lambda a: {name: np.full_like(a[name], value)}


WRONG = {
    "fewer steps": lambda a: {"guided_count": a["guided_count"][1:]},
    "more steps": lambda a: {n: np.repeat(a[n], 2, 0) for n in ("guided_count", "guided_nll")},
    "columns": lambda a: {"guided_count": a["guided_count"][:, 1:]},
    "negative count": shifted("guided_count", -1000),
    "infinite nll": filled("guided_nll", np.inf),
    "negative nll": filled("guided_nll", -1),
    "time": filled("guided_ms", np.nan),
    "negative time": filled("guided_ms", -1),
    "flops": filled("guided_flops", -1),
    "step": shifted("draft_step", 10_000),
    "falling steps": lambda a: {"draft_step": a["draft_step"][::-1].copy()},
    "position": shifted("draft_position", 10_000),
    "token": shifted("draft_id", 10_000),
    "end": shifted("draft_end", -10_000),
    "p_f": filled("draft_p_f", np.nan),
    "p_g": filled("draft_p_g", 1.5),
    "kl": filled("draft_kl", -1),
    "infinite kl": filled("draft_kl", np.inf),
    "flags": lambda a: {"draft_ok": a["draft_ok"].astype(np.uint8)},
    "shorter": lambda a: {"draft_ok": a["draft_ok"][1:]},
    "guider step": shifted("guider_step", 10_000),
    "guider token": filled("guider_id", 2**24),
    "guider end": filled("guider_end", -1),
    "guider p": filled("guider_p", 2),
    "rank": filled("guider_rank", 6),
    "first choice": filled("guider_top", -1),
    "its probability": filled("guider_top_p", -0.5),
    "pieces": filled("guider_piece_end", 10**6),
    "falling pieces": lambda a: {"guider_piece_end": a["guider_piece_end"][::-1].copy()},
    "piece": filled("guider_piece_id", -1),
    "missing": lambda a: {"guider_rank": None},
}


def test_an_unchanged_trace_is_read(trace):
    arrays = Trace.from_bytes(rewritten(trace, {})).arrays()
    assert len(arrays["draft_id"]) > len(arrays["guided_count"]) > 1
    assert np.isfinite(arrays["draft_kl"]).all()


@pytest.mark.parametrize("wrong", WRONG)
def test_arrays_that_do_not_fit(trace, wrong):
    refused(rewritten(trace, WRONG[wrong](trace.arrays())))


@pytest.mark.parametrize(
    "guider",
    [None, [], "x", {"a": []}, {"a": {}}, {"a" * 33: 1}, {"a": 1.5},
     {str(n): 1 for n in range(17)}, {"name": "x" * 1_001}, {"parameters": 10**400}],
)  # fmt: skip
def test_a_guider_that_is_not_plain(trace, guider):
    refused(rewritten(trace, {}, guider=guider))


def old(trace, **change):
    """The file of a trace as version 2 wrote it."""
    arrays = trace.arrays()
    change = {"flops": arrays["flops"][:, :OLD_PARTS]} | change
    return rewritten(trace, dict.fromkeys(ADDED_AFTER[2]) | change, version=2)


def test_version_2_is_read_without_a_guider(trace):
    plain = record(make(record="steps"))
    loaded, arrays = Trace.from_bytes(old(plain)), plain.arrays()
    assert loaded.meta["version"] == VERSION
    assert loaded.arrays()["flops"].shape[1] == len(PARTS) == 6
    assert np.array_equal(loaded.arrays()["flops"], arrays["flops"])
    assert arrays["flops"][:, :5].any()
    for name in ADDED_AFTER[2]:
        assert len(loaded.arrays()[name]) == 0
    assert "guider" not in json.loads(json.dumps(plain.meta)) or loaded.meta["guider"] == {}
    again = Trace.from_bytes(loaded.to_bytes())
    assert np.array_equal(again.arrays()["flops"], arrays["flops"])


def test_version_2_with_later_fields_is_refused(trace):
    refused(old(trace, guided_nll=trace.arrays()["guided_nll"]), "version 2 has no field")
    refused(old(trace, flops=trace.arrays()["flops"]))
    refused(old(trace, flops=trace.arrays()["flops"][:, :4]))
    refused(old(trace, flops=trace.arrays()["flops"].ravel()))

"""Query drift: thresholds, what was reused by them, and how the rows spread."""

from dataclasses import replace

import numpy as np
import pytest

from engine.core.drift_codes import NOT_EVALUATED, decode
from engine.core.events import QUANTITIES
from inspector.views.queries import bins, histogram, queries, reuse
from tests.inspector.conftest import small_race
from tests.inspector.unpacked import unpacked
from tests.support.looking import recorded

Q0 = QUANTITIES.index("q0")


@pytest.fixture(scope="module")
def record(session):
    held = {}

    def make(cache, **knobs):
        key = cache, *knobs.items()
        if key not in held:
            spec = replace(small_race(session).a, cache=cache, knobs=knobs, record="layers")
            held[key] = recorded(session, spec)
        return held[key]

    return make


@pytest.mark.parametrize(("cache", "site"), [("dare_kv", 0), ("dare_o", 2), ("prefix+dare_kv", 0)])
def test_a_row_is_reused_below_its_threshold_and_only_there(record, cache, site):
    trace = record(cache)
    found = queries(trace)
    assert (found["site"], found["dare"], found["anchor"]) == (site, True, False)
    assert found["threshold"] == trace.meta["facts"]["threshold"]
    assert found["aimed"] == trace.meta["facts"]["reuse"]
    codes, kept = unpacked(found["q0"]), ~trace.recompute_map()[:, :, site]
    assert np.array_equal(codes, trace.arrays()["drift"][:, :, Q0])
    full = trace.arrays()["kind"] == 0
    for layer, limit in enumerate(found["threshold"]):
        here = codes[:, layer]
        seen = (here != NOT_EVALUATED) & ~full[:, None]
        least, most = decode(np.maximum(here - 0.5, 0)), decode(np.minimum(here + 0.5, 254))
        assert not (seen & kept[:, layer] & (least > limit)).any()
        assert not (seen & ~kept[:, layer] & (most < limit)).any()
        assert (seen & kept[:, layer]).any() == (limit >= 0)


def test_shares_are_of_the_rows_compared(record):
    trace = record("prefix+dare_kv")
    codes, kept = trace.arrays()["drift"][:, :, Q0], ~trace.recompute_map()
    found = unpacked(queries(trace)["reuse"])
    for layer, site in ((0, 0), (4, 1), (7, 3)):
        pairs = [
            bool(kept[s, layer, site, x])
            for s in range(trace.steps)
            for x in range(codes.shape[-1])
            if codes[s, layer, x] != NOT_EVALUATED
        ]
        assert found[layer, site] == pytest.approx(sum(pairs) / len(pairs))
    assert found[4, 0] != pytest.approx(kept[1:, 4, 0].mean(), abs=0.05)
    plan = trace.arrays()["plan"][:2, 0, :, :1]
    assert np.isnan(reuse(np.full((2, 8), NOT_EVALUATED, np.uint8), plan)).all()


def test_other_methods_have_no_threshold(record):
    trace = record("dllm_cache")
    found = queries(trace)
    assert (found["dare"], found["threshold"], found["aimed"], found["site"]) == (
        False, None, None, 1,
    )  # fmt: skip
    kept = ~trace.recompute_map()[1:]
    for layer, site in ((0, 1), (5, 2)):
        assert unpacked(found["reuse"])[layer, site] == pytest.approx(kept[:, layer, site].mean())


def test_settings_of_dare_that_change_what_is_shown(record):
    assert queries(record("dare_kv", **{"dare_kv.ref": "anchor"}))["anchor"]
    nothing = queries(record("dare_kv", **{"dare_kv.qbar": 0.0}))
    assert nothing["dare"]
    assert nothing["threshold"] is None
    assert not unpacked(nothing["reuse"]).any()


def test_bins_take_every_code_once_and_grow_evenly():
    edges = bins()
    assert edges[0] == 0
    assert edges[-1] == NOT_EVALUATED
    assert (np.diff(edges) > 0).all()
    low = decode(edges[1:-1] - 0.5)
    wide = low[1:] / low[:-1]
    assert (wide >= 10 ** (1 / 6)).all()
    assert wide[7:].max() < 1.6


def test_counts_are_those_of_a_plain_loop(record):
    trace = record("dare_o")
    edges, counts = bins(), unpacked(queries(trace)["counts"])
    codes, done = trace.arrays()["drift"][:, :, Q0], trace.recompute_map()
    want = np.zeros_like(counts[6, 2])
    for s in range(trace.steps):
        for x, code in enumerate(codes[s, 6]):
            if code != NOT_EVALUATED:
                place = max(i for i, edge in enumerate(edges) if edge <= code)
                want[0 if done[s, 6, 2, x] else 1, place] += 1
    assert np.array_equal(counts[6, 2], want)
    assert want[1].sum() > 0
    kept = np.ones((1, 1, 4, 3), bool)
    codes = np.array([[[NOT_EVALUATED, 0, 254]]], np.uint8)
    assert histogram(codes[:, 0], kept[:, 0], edges)[0, 1].nonzero()[0].tolist() == [
        0,
        len(edges) - 2,
    ]


def test_a_run_without_drift_says_so(traces):
    with pytest.raises(ValueError, match="press Record"):
        queries(traces["a"])

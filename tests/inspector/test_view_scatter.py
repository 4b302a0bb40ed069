"""Scatter: counts and correlations by independent means."""

from dataclasses import replace

import numpy as np
import pytest

from engine.core.drift_codes import NOT_EVALUATED, decode
from engine.core.events import QUANTITIES
from engine.trace.trace import Trace
from inspector.views.drift import BIN_OF, BINS, FLOOR, PAIRS, TOGETHER, scatter
from tests.inspector.conftest import small_race
from tests.inspector.unpacked import unpacked
from tests.support.looking import recorded


def hand_made(seed=5, shape=(4, 3, 5, 60)):
    """Drifts that go together, with a tenth of the values missing."""
    random = np.random.default_rng(seed)
    common = random.normal(90, 40, (shape[0], shape[1], 1, shape[3]))
    codes = (common + random.normal(0, 25, shape)).clip(0, 254).astype(np.uint8)
    codes[random.random(shape) < 0.1] = NOT_EVALUATED
    codes[0] = NOT_EVALUATED
    return codes


def given(codes):
    steps, layers, quantities, positions = (np.arange(size) for size in codes.shape)
    trace = Trace()
    trace._arrays |= {
        "drift": codes, "drift_step": steps, "recorded_layer": layers, "rows": steps,
        "recorded_quantity": quantities, "recorded_position": positions, "canvas": positions,
    }  # fmt: skip
    return scatter(trace)


def chosen(codes, pair, layer):
    """Drifts of a pair's rows, by plain loops; layer None is all of them."""
    names = TOGETHER[0] if pair[0] == "v" else TOGETHER[1]
    layers = range(codes.shape[1]) if layer is None else [layer]
    rows = [
        [codes[s, l, QUANTITIES.index(name), x] for name in pair]
        for s in range(codes.shape[0])
        for l in layers  # noqa: E741
        for x in range(codes.shape[3])
        if all(codes[s, l, QUANTITIES.index(name), x] != NOT_EVALUATED for name in names)
    ]
    return decode(np.array(rows).T)


def ranked(values):
    below = (values[:, None] > values).sum(1)
    return below + ((values[:, None] == values).sum(1) + 1) / 2


@pytest.mark.parametrize("place", range(len(PAIRS)))
@pytest.mark.parametrize("layer", [1, None])
def test_correlations_are_those_of_the_rows(place, layer):
    codes = hand_made()
    view, at = given(codes), codes.shape[1] if layer is None else layer
    x, y = chosen(codes, PAIRS[place], layer)
    logs = np.log10(np.maximum([x, y], FLOOR))
    want = [np.corrcoef(*z)[0, 1] for z in ((x, y), logs, (ranked(x), ranked(y)))]
    got = unpacked(view["stats"])[place, at]
    assert got == pytest.approx(want, abs=1e-6)
    assert len(set(got.tolist())) == 3
    assert unpacked(view["rows"])[place, at] == len(x)


def test_counts_are_histograms_of_the_logarithms():
    codes = hand_made()
    x, y = chosen(codes, ("v", "ffn"), 2)
    edges = np.linspace(np.log10(FLOOR), 0, BINS + 1)
    logs = np.log10(np.clip([x, y], FLOOR, 1))
    want = np.histogram2d(*logs, [edges, edges])[0]
    got = unpacked(given(codes)["counts"])[PAIRS.index(("v", "ffn")), 2]
    assert np.array_equal(got, want)
    assert not np.array_equal(got.T, want)


def test_every_bin_holds_a_code():
    assert np.array_equal(np.unique(BIN_OF), np.arange(BINS))
    assert (np.diff(BIN_OF) >= 0).all()


def test_what_never_moves_correlates_with_nothing():
    codes = np.zeros((3, 1, 5, 8), np.uint8)
    assert np.isnan(unpacked(given(codes)["stats"])).all()
    codes[:] = NOT_EVALUATED
    view = given(codes)
    assert np.isnan(unpacked(view["stats"])).all()
    assert not unpacked(view["rows"]).any()


def test_plain_decoding_misses_no_row_and_a_cache_does(session):
    share = {}
    for cache in ("none", "dllm_cache"):
        spec = replace(small_race(session).a, cache=cache, record="layers")
        view = scatter(recorded(session, spec))
        share[cache] = unpacked(view["rows"])[:, :-1] / view["most"]
    assert (share["none"] == 1).all()
    assert (share["dllm_cache"][:, 1:] < 0.5).all()


def test_a_run_without_drifts_says_so(traces):
    with pytest.raises(ValueError, match="press Record"):
        scatter(traces["a"])

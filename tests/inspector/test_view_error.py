"""Error against exact: nan_means, predictions, recall of the selector and DARE's proxy."""

import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from engine.core.drift_codes import NOT_EVALUATED, decode
from engine.core.events import QUANTITIES
from inspector.views.error import bounds, error, mean_errors, nan_means, recall_at_k, recalls
from tests.inspector.conftest import small_race
from tests.inspector.unpacked import unpacked
from tests.support.big_trace import make_synthetic_trace
from tests.support.looking import recorded

Q0 = QUANTITIES.index("q0")


@pytest.fixture(scope="module")
def record(session):
    held = {}

    def make(cache, **knobs):
        if cache not in held:
            spec = replace(small_race(session).a, cache=cache, knobs=knobs, record="probe")
            held[cache] = recorded(session, spec)
        return held[cache]

    return make


def test_plain_decoding_is_exact_and_chooses_nothing(record):
    found = error(record("none"))
    assert not np.nan_to_num(unpacked(found["error"])).any()
    assert not unpacked(found["mean"]).any()
    assert not unpacked(found["flips"]).any()
    assert unpacked(found["mean_tv"]).max() < 1e-6
    assert np.isnan(unpacked(found["recall"])).all()
    assert np.isnan(unpacked(found["chance"])).all()
    assert found["proxy"] is None


def test_means_and_predictions_are_those_of_the_trace(record):
    trace = record("dllm_cache", **{"dllm_cache.prompt_interval": 8})
    found, arrays = error(trace), trace.arrays()
    codes = arrays["probe_error"]
    for probe, layer, site in ((1, 3, 2), (6, 7, 0), (7, 1, 3)):
        known = [float(decode(c)) for c in codes[probe, layer, site] if c != NOT_EVALUATED]
        assert unpacked(found["mean"])[probe, layer, site] == pytest.approx(
            sum(known) / len(known), rel=1e-5
        )
    assert unpacked(found["mean"]).max() > 0.01
    top, tv = arrays["probe_top"], arrays["probe_tv"]
    for probe in range(8):
        rows = [i for i, row in enumerate(arrays["probe_row"]) if row == probe]
        assert unpacked(found["count"])[probe] == len(rows)
        assert unpacked(found["flips"])[probe] == sum(top[i, 0] != top[i, 1] for i in rows)
        assert unpacked(found["mean_tv"])[probe] == pytest.approx(sum(tv[rows]) / len(rows))
    assert 0 < unpacked(found["flips"]).sum() < len(top)
    assert set(found["pieces"]) == {str(i) for i in np.unique(top)}


def test_rows_without_part_are_in_no_mean():
    values = np.array([[0.5, np.nan, 0.1], [np.nan] * 3])
    found = nan_means(values)
    assert found[0] == pytest.approx(0.3)
    assert np.isnan(found[1])


def test_the_means_need_the_memory_of_few_rows():
    codes = np.zeros((1, 64, 4, 16_384), np.uint8)
    codes[0, 63, 3] = 9
    tracemalloc.start()
    try:
        found = mean_errors(codes)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.shape == (1, 64, 4)
    assert found[0, 63, 3] == pytest.approx(float(decode(9)))
    assert not found.ravel()[:-1].any()
    assert peak < 4 * codes.nbytes  # the drifts of all rows


@pytest.mark.parametrize(
    ("moved", "chosen", "recall"),
    [
        ([9, 8, 1, 0], [1, 1, 0, 0], 1),
        ([9, 8, 1, 0], [0, 0, 1, 1], 0),
        ([9, 8, 1, 0], [1, 0, 1, 0], 0.5),
        ([9, 5, 5, 5], [1, 0, 0, 1], 1),
        ([9, 5, 5, 5], [0, 1, 1, 0], 0.5),
        ([0, 0, 0, 0], [0, 0, 1, 0], 1),
    ],
)
def test_recall_by_hand(moved, chosen, recall):
    found = recall_at_k(np.array(moved, np.uint8), np.array(chosen, bool))
    assert found == (recall, sum(chosen) / 4)


@pytest.mark.parametrize("chosen", [[0, 0, 0], [1, 1, 1], []])
def test_without_a_choice_there_is_no_recall(chosen):
    found = recall_at_k(np.arange(len(chosen)), np.array(chosen, bool))
    assert np.isnan(found).all()


def naive_recall(moved, chosen, rows):
    rows = [x for x in rows if moved[x] != NOT_EVALUATED]
    picked = [x for x in rows if chosen[x]]
    if len(picked) in (0, len(rows)):
        return math.nan
    best = sorted(rows, key=lambda x: (-int(moved[x]), not chosen[x]))[: len(picked)]
    return len(set(best) & set(picked)) / len(picked)


def test_rows_that_the_clock_renews_are_no_choice(record):
    trace = record("dllm_cache", **{"dllm_cache.prompt_interval": 8})
    recall, chance = recalls(trace)
    arrays, plan = trace.arrays(), trace.recompute_map()
    prompt, length = int(arrays["prompt_mask"].sum()), len(arrays["canvas"])
    probe = arrays["probe_step"].tolist().index(8)
    assert arrays["planned"][8].tolist() == [0, 1, 1]
    for layer, site in ((2, 0), (4, 2), (7, 3)):
        moved, chosen = arrays["probe_moved"][probe, layer, site], plan[8, layer, site]
        assert recall[probe, layer, site] == pytest.approx(
            naive_recall(moved, chosen, range(prompt, length))
        )
        assert chance[probe, layer, site] == pytest.approx(chosen[prompt:].mean())
        whole = naive_recall(moved, chosen, range(length))
        assert recall[probe, layer, site] != pytest.approx(whole)
    assert np.isnan(recall[:, 0, 2]).all()  # layer 1 recomputes every row
    probe = arrays["probe_step"].tolist().index(12)
    moved, chosen = arrays["probe_moved"][probe, 4, 2], plan[12, 4, 2]
    assert recall[probe, 4, 2] == pytest.approx(naive_recall(moved, chosen, range(length)))


def test_the_recall_needs_the_memory_of_one_layer_and_site():
    trace = make_synthetic_trace(16, 32, 1200)
    whole = recalls(trace)[0]
    tracemalloc.start()
    try:
        one = recalls(trace, [2])[0]
        recalls(trace)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(one[..., 0], whole[..., 2], equal_nan=True)
    assert not np.isnan(whole).all()
    assert peak < trace.arrays()["probe_moved"].nbytes / 2


@pytest.mark.parametrize(("cache", "site"), [("dare_kv", 0), ("dual+dare_o", 2)])
def test_the_proxy_sums_the_drift_since_the_last_renewal(record, cache, site):
    trace = record(cache)
    arrays, plan = trace.arrays(), trace.recompute_map()
    found = bounds(trace)
    assert found is not None
    proxy, true = found
    for probe, layer in ((2, 6), (3, 7)):
        last = int(arrays["probe_step"][probe])
        used = arrays["probe_error"][probe, layer, 2]
        rows = [x for x in range(len(used)) if used[x] != NOT_EVALUATED]
        ends = []
        for shift in (-0.5, 0.5):
            total = 0.0
            for x in rows:
                step = last
                while not plan[step, layer, site, x]:
                    code = int(arrays["drift"][step, layer, Q0, x])
                    if code != NOT_EVALUATED:
                        s = float(decode(max(code + shift, 0)))
                        total += math.sqrt(s / (2 - s))
                    step -= 1
            ends.append(total / len(rows))
        assert proxy[probe, layer].tolist() == pytest.approx(ends, rel=1e-4)
        assert ends[0] <= ends[1]
        exact = [float(decode(used[x])) for x in rows]
        want = sum(math.sqrt(e / (2 - e)) for e in exact) / len(exact)
        assert true[probe, layer] == pytest.approx(want, rel=1e-4)
    assert (proxy[0] == 0).all()
    assert proxy.max() > 0


def test_a_run_without_probe_says_so(traces):
    with pytest.raises(ValueError, match="Record and probe"):
        error(traces["a"])

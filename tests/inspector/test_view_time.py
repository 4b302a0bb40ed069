"""Times are those of the timed run, FLOPs those of its steps; the sweep's fit is exact."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

from engine.bench.ratio_sweep import INTERVALS, RATIOS, fit, settings
from engine.trace.schema import ADDED_AFTER, OLD_PARTS
from engine.trace.trace import Trace
from inspector.handlers.view_service import ViewService
from inspector.run_store import RaceRecord
from inspector.views import guider as view
from inspector.views import time
from tests.inspector.unpacked import unpacked


def test_the_bars_are_the_steps_of_the_trace(traces):
    found, arrays = time.time(traces["b"]), traces["b"].arrays()
    for name in ("forward_ms", "decide_ms"):
        assert unpacked(found[name]) == pytest.approx(arrays[name], rel=1e-6)
    gflops = unpacked(found["gflops"])
    assert gflops.shape == (traces["b"].steps, len(found["parts"]))
    assert gflops.sum() == pytest.approx(traces["b"].meta["metrics"]["gflops"], rel=1e-5)


def test_a_file_from_before_guiders_is_drawn(traces):
    document = json.loads(traces["a"].to_json())
    document["meta"]["version"] = 2
    arrays = {n: a for n, a in document["arrays"].items() if n not in ADDED_AFTER[2]}
    steps, flops = traces["a"].steps, traces["a"].arrays()["flops"][:, :OLD_PARTS]
    arrays["flops"] = {"shape": flops.shape, "data": flops.ravel().tolist()}
    old = Trace.from_bytes(json.dumps(document | {"arrays": arrays}).encode())
    found = time.time(old)
    assert unpacked(found["gflops"]).shape == (steps, len(found["parts"]))
    assert unpacked(found["gflops"]).sum() == pytest.approx(flops.sum() / 1e9, rel=1e-5)
    assert found["guider_ms"]["shape"] == [0, 2]
    assert view.guider(old) == {"asked": False}


def test_a_run_recorded_at_level_steps_has_the_times_of_a_run_without(traces):
    plain = time.time(traces["a"])
    traces["a"].meta["spec"] = traces["a"].meta["spec"] | {"record": "steps"}
    assert time.time(traces["a"]) == plain


@pytest.mark.parametrize("level", ["layers", "probe"])
def test_a_run_whose_layers_are_recorded_shows_no_times(traces, level):
    traces["a"].meta["spec"] = traces["a"].meta["spec"] | {"record": level}
    with pytest.raises(ValueError, match="no times"):
        time.time(traces["a"])


def test_the_lens_reads_the_clocks_of_the_timed_run(handlers, traces):
    record = RaceRecord(state="done", traces=traces, recorded={"a": traces["b"]})
    handlers.store.put(record)
    shown = ViewService(handlers).view([record.run_id, "a", "time"])
    assert shown == ViewService(handlers).view([record.run_id, "a", "time"])
    assert record.trace_for_views("a", timed=True) is traces["a"]
    assert record.trace_for_views("a") is traces["b"]
    assert f'"shape":[{traces["a"].steps}]' in shown


def test_the_fit_finds_its_own_line():
    def tpot(rho):
        return 2.0 + 0.5 * (rho > 0) + 3.0 * rho

    found = fit([{"rho": rho, "tpot_ms": tpot(rho)} for rho in RATIOS])
    assert [found[name] for name in ("a0", "a1", "b", "r2")] == pytest.approx([2, 0.5, 3, 1])
    bent = fit([{"rho": rho, "tpot_ms": tpot(rho) + rho**2} for rho in RATIOS])
    assert bent["r2"] < 0.9999


def test_the_sweep_asks_for_every_setting_once(session):
    specs = settings(session.default_race().a)
    assert len(specs) == len(RATIOS) * len(INTERVALS)
    for (ratio, interval), spec in specs.items():
        assert spec.cache == "dllm_cache"
        assert spec.knobs["dllm_cache.recompute_ratio"] == ratio
        assert spec.knobs["dllm_cache.response_interval"] == interval


def test_the_recorded_sweep_fits_its_own_points():
    found = time.rho(SimpleNamespace())
    assert len(found["points"]) == len(RATIOS) * len(INTERVALS)
    for line in found["fits"]:
        points = [p for p in found["points"] if p["interval"] == line["interval"]]
        assert fit(points)["a1"] == pytest.approx(line["a1"])
        assert np.isfinite(line["r2"])

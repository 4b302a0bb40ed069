"""DARE's thresholds: quantiles of drifts, how they are measured, cached and found."""

import json
from dataclasses import replace

import numpy as np
import pytest

from engine.cache.base import PolicyContext
from engine.cache.calibration.drift_profile import (
    BINS,
    DriftProfile,
    load,
    load_or_measure,
    save,
    shipped_path,
)
from engine.cache.calibration.thresholds import CAP, FLOOR, allocate
from engine.cache.methods.dare import DareKv, DareO
from engine.cache.methods.fast_dllm import DualCache
from engine.cache.methods.none import NoCache
from engine.cache.stack import Stack
from engine.catalog import make_policy
from engine.config.spec import RunSpec
from engine.core.files import cache_path
from engine.generate.loop import Denoiser
from engine.serve import calibrate, drift_meter
from engine.serve.drift_meter import DriftMeter
from engine.serve.loaded_model import policy_context_of
from engine.serve.model_pool import ModelPool
from tests.engine.cache.methods.test_dare import FORMS
from tests.support.micro import make_profile, make_spec, micro_job, model_of, run

MEANS = np.array([0.01, 0.12, 0.05, 0.03, 0.08])
LOOSE = float("inf")


@pytest.mark.parametrize("temperature", [0.02, 0.1, 3.0])
@pytest.mark.parametrize("qbar", [0.1, 0.5, 0.9])
def test_quantiles_average_to_qbar_in_the_order_opposite_to_drift(qbar, temperature):
    for cap in (LOOSE, CAP):
        shares = allocate(MEANS, qbar, temperature, cap)
        assert shares.mean() == pytest.approx(qbar)
        assert (np.diff(shares[np.argsort(MEANS)]) <= 0).all()
        assert shares.max() <= cap
    raw = allocate(MEANS, qbar, temperature, LOOSE)
    assert (np.diff(raw[np.argsort(MEANS)]) < 0).all()


def test_quantiles_flatten_with_the_temperature():
    spreads = [np.ptp(allocate(MEANS, 0.5, t, LOOSE)) for t in (0.05, 0.1, 1.0, 100.0)]
    assert spreads == sorted(spreads, reverse=True)
    assert spreads[-1] < 1e-3 < spreads[0]
    assert allocate(MEANS, 0.0, 0.1).max() == 0


def test_the_excess_over_the_cap_goes_to_the_others_in_proportion():
    raw, capped = (allocate(MEANS, 0.5, 0.02, cap) for cap in (LOOSE, CAP))
    assert raw.max() > 1
    assert capped[0] == CAP
    free = capped < CAP
    assert (capped[free] > raw[free]).all()
    assert np.ptp(capped[free] / raw[free]) < 1e-12
    assert allocate(MEANS, CAP, 0.001).tolist() == pytest.approx([CAP] * 5)
    assert np.isfinite(allocate(1e4 * MEANS, 0.5, 0.001)).all()


def test_thresholds_are_the_quantiles_of_each_layers_drifts():
    policy, profile = DareKv(), make_profile(3)
    policy.set_profile(profile)
    assert policy.thresholds == (profile.quantile(0, 0.5),) * 3
    assert 0.016 < policy.thresholds[0] < 0.019  # the geometric middle of 0.001 and 0.3
    policy.set_profile(make_profile(3, 0, 1e-7))
    assert policy.thresholds == (FLOOR,) * 3
    eager = DareKv(qbar=0.9)
    eager.set_profile(profile)
    assert eager.thresholds[0] > profile.quantile(0, 0.5)
    none = DareKv(qbar=0.0)
    none.set_profile(profile)
    assert max(none.thresholds) == -LOOSE


@pytest.mark.parametrize("form", FORMS)
def test_reuse_without_thresholds_is_refused(form):
    for policy in (form(), form()):
        with pytest.raises(ValueError, match=rf"{form.name}\.qbar: .*prepare .* or set it to 0"):
            Denoiser(micro_job(model_of("gqa"), make_spec(), policy=lambda p=policy: p))
        policy.set_profile(make_profile(2))
    Denoiser(micro_job(model_of("gqa"), make_spec(), policy=lambda: form(qbar=0.0)))


@pytest.mark.parametrize(
    ("cache", "base"),
    [
        ("dare_o", "none"),
        ("none+dare_kv", "none"),
        ("dual+dare_o", "dual"),
        ("prefix+dare_kv", "prefix"),
    ],
)
def test_a_policy_uses_drifts_measured_under_the_cache_beneath(cache, base):
    requested = []

    def measure(*what):
        requested.append(what)
        return make_profile(3)

    make_policy(RunSpec(cache=cache)).prepare(PolicyContext(model_of("gqa"), "", None, measure))
    assert requested == [(base, "q0")]
    knobs = {f"{cache.split('+')[-1]}.qbar": 0.0}
    idle = make_policy(RunSpec(cache=cache, knobs=knobs))
    idle.prepare(PolicyContext(model_of("gqa"), "", None, measure))
    assert len(requested) == 1


def test_a_profile_is_the_same_after_saving_and_loading(tmp_path):
    path, profile = tmp_path / "a" / "none-q0.npz", make_profile(4)
    profile = replace(profile, checkpoint="abc")
    save(profile, path)
    assert [p.name for p in path.parent.iterdir()] == ["none-q0.npz"]
    found = load(path, 4)
    for name in ("base", "quantity", "checkpoint"):
        assert getattr(found, name) == getattr(profile, name)
    assert np.array_equal(found.counts, profile.counts)
    assert np.array_equal(found.totals, profile.totals)


@pytest.mark.parametrize("damage", [lambda b: b[:300], lambda b: b"PK" + b[2:60], lambda b: b""])
def test_a_damaged_profile_is_named_and_counts_as_missing(tmp_path, damage):
    path = shipped_path(tmp_path, "none", "q0")
    save(replace(make_profile(), checkpoint="damaged"), path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=r"calibration: .*none-q0\.npz .*delete it"):
        load(path, 3)
    found = load_or_measure(tmp_path, "damaged", "none", "q0", 3, lambda *_: make_profile())
    assert found.counts.sum()
    with pytest.raises(ValueError, match="another model"):
        load(cache_path("damaged", "none-q0.npz"), 2)


def test_profiles_come_from_the_checkpoint_then_the_cache_then_a_measurement(tmp_path):
    requested = []

    def measure(base, quantity):
        requested.append(base)
        return make_profile(base=base, hi=0.2)

    def found(digest, base="none"):
        return load_or_measure(tmp_path, digest, base, "q0", 3, measure)

    assert found("one").checkpoint == "one"
    assert found("one").counts.sum() == make_profile(hi=0.2).counts.sum()
    assert requested == ["none"]
    save(replace(make_profile(hi=0.1), checkpoint="two"), shipped_path(tmp_path, "none", "q0"))
    assert found("two").counts.sum() == make_profile(hi=0.1).counts.sum()
    assert requested == ["none"]
    assert found("one").counts.sum() == make_profile(hi=0.2).counts.sum()
    found("three")
    found("two", "dual")
    assert requested == ["none", "none", "dual"]
    load_or_measure(tmp_path, "", "none", "q0", 3, measure)
    assert len(requested) == 4


def test_a_cache_folder_that_cannot_be_written_is_ignored(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert (
        load_or_measure(None, "four", "none", "q0", 3, lambda *_: make_profile()).checkpoint
        == "four"
    )
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_path("five", "x") == tmp_path / ".cache" / "driftscope" / "five" / "x"


def test_the_meter_counts_only_steps_in_which_rows_could_be_reused(model):
    for window, rows in ((NoCache, 15 * 22), (DualCache, 12 * (4 + model.info.logit_shift))):
        meter = DriftMeter("q0")
        run(model, make_spec(), policy=lambda w=window, m=meter: Stack(w(), m))
        assert [int(counts.sum()) for counts in meter.counts] == [rows] * 3
    profile = DriftProfile("dual", "q0", np.stack(meter.counts), np.array(meter.totals))
    assert profile.counts.shape == (3, BINS)
    assert profile.quantile(0, 0.5) < 1e-6 < profile.quantile(2, 0.5)


def test_a_folder_that_takes_no_drifts_is_told_before_they_are_measured(folder, monkeypatch):
    (folder / "calibration").write_text("not a folder")
    monkeypatch.setattr(calibrate, "policy_context_of", lambda *given: pytest.fail("it began"))
    with pytest.raises(SystemExit, match=r"^error: model: .*calibration cannot be used"):
        calibrate.main(["--model", str(folder)])


def test_shipped_drifts_are_measured_once_and_found(folder, monkeypatch):
    monkeypatch.setattr(drift_meter, "PROBLEMS", 1)
    paths = calibrate.write_profiles(folder, ["none", "dual"])
    assert [p.name for p in paths] == ["none-q0.npz", "dual-q0.npz"]
    model = ModelPool({"micro": folder}).load(RunSpec(model="micro"))
    context = policy_context_of(model, "micro")
    refuse = replace(context, measure=lambda *_: pytest.fail("measured again"))
    for form in FORMS:
        policy = Stack(DualCache(), form())
        policy.prepare(refuse)
        assert len(policy.reuse.thresholds) == model.adapter.info.layers
    assert load(paths[0], 2).counts.sum() > load(paths[1], 2).counts.sum() > 0
    again = context.measure("none", "q0")
    assert np.array_equal(again.counts, load(paths[0], 2).counts)
    assert policy_context_of(model, "micro").measure("none", "q0") is again


def test_a_model_without_a_chat_template_is_measured_too(folder, monkeypatch):
    monkeypatch.setattr(drift_meter, "PROBLEMS", 1)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text("utf-8"))
    assert config.pop("chat_template")
    path.write_text(json.dumps(config), "utf-8")
    model = ModelPool({"micro": folder}).load(RunSpec(model="micro"))
    assert policy_context_of(model, "micro").measure("none", "q0").counts.sum() > 0


def test_no_layer_is_skipped_by_default():
    assert (DareKv().skip_first_layers, DareO().skip_first_layers) == (0, 0)
    for form in (DareKv(), DareO(), DareO(skip_first_layers=2)):
        form.set_profile(make_profile(3))
        skipped = [limit < 0 for limit in form.facts()["threshold"]]
        assert skipped == [layer < form.skip_first_layers for layer in range(3)]

"""The budget over the layers: published curves, curves of one's own, curves fitted to drifts."""

from dataclasses import replace

import numpy as np
import pytest

from engine.cache.base import PolicyContext
from engine.cache.calibration.layer_budget import PRESETS, Curve, fit, preset
from engine.cache.methods.spa_cache import SpaCache
from tests.support.micro import make_info, make_profile, make_spec, model_of, run

PUBLISHED = {"llada": (32, 0.159), "llada_1_5": (32, 0.156), "dream": (28, 0.231)}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_curves(name):
    curve, (layers, mean) = PRESETS[name], PUBLISHED[name]
    ratios = curve.ratios(layers)
    assert sum(ratios) / layers == pytest.approx(mean, rel=0.012)
    assert ratios[0] == pytest.approx(curve.first)
    assert ratios[-1] == pytest.approx(curve.last)
    peak = ratios.index(max(ratios))
    assert abs(peak + 1 - curve.position * layers) < 1
    assert max(ratios) == pytest.approx(curve.peak, rel=0.02)
    assert list(ratios[: peak + 1]) == sorted(ratios[: peak + 1])
    assert list(ratios[peak:]) == sorted(ratios[peak:], reverse=True)
    assert min(curve.first, curve.last) <= min(ratios) + 1e-12


def test_the_paper_s_formula_by_hand():
    ratios = Curve(0.75, 0.03, 0.25, 0.13).ratios(4)
    assert ratios == pytest.approx((0.03, 0.25 * (0.03 / 0.25) ** 0.25, 0.25, 0.13))
    assert Curve(0.0, 0.1, 0.2, 0.1).ratios(3) == pytest.approx((0.2, 0.2 / 2**0.25, 0.1))
    assert Curve(1.0, 0.1, 0.2, 0.1).ratios(1) == (0.2,)


def test_a_least_ratio_lifts_the_layers_up_to_the_peak_by_hand():
    """A curve of 0.03, 0.147, 0.25 and 0.13: what lies behind the peak stays below 0.15."""
    curve = Curve(0.75, 0.03, 0.25, 0.13)
    assert curve.ratios(4, least=0.15) == pytest.approx((0.15, 0.15, 0.25, 0.13))
    assert curve.ratios(4, least=0.1) == pytest.approx((0.1, 0.25 * 0.12**0.25, 0.25, 0.13))
    assert curve.ratios(4, least=0.0) == curve.ratios(4)
    assert Curve(0.0, 0.1, 0.2, 0.1).ratios(3, least=0.2) == Curve(0.0, 0.1, 0.2, 0.1).ratios(3)


@pytest.mark.parametrize(("least", "mean"), [(1 / 16, 0.162), (0.125, 0.178), (0.2, 0.210)])
def test_the_least_ratio_has_the_means_of_the_released_curve(least, mean):
    """The released curve counts layers from 0, so its means differ a little."""
    llada = make_info(layers=32, family="llada")
    ratios = SpaCache(min_update_ratio=least).ratios(llada)
    assert sum(ratios) / 32 == pytest.approx(mean, rel=0.012)
    assert min(ratios[:24]) == least
    assert ratios[24:] == SpaCache().ratios(llada)[24:]


def test_the_least_ratio_is_not_scaled_with_the_peak():
    dream = make_info(layers=28, family="dream")
    ratios = SpaCache(peak_ratio=0.15, min_update_ratio=0.1).ratios(dream)
    assert (ratios[0], max(ratios)) == pytest.approx((0.1, 0.15))
    assert SpaCache(peak_ratio=0.15).ratios(dream)[0] == pytest.approx(0.05 / 2)


def test_knobs_and_families_make_the_budget():
    dream, llada = make_info(layers=28, family="dream"), make_info(layers=32, family="llada")
    scripts = SpaCache().ratios(dream)
    assert (scripts[0], max(scripts), scripts[-1]) == pytest.approx((0.05 / 1.2, 0.25, 0.25 / 1.2))
    assert SpaCache(budget="dream").ratios(llada) != SpaCache().ratios(llada)
    assert SpaCache(budget="dream", peak_ratio=None).ratios(dream)[13] == 0.3
    assert SpaCache().ratios(llada) == SpaCache().ratios(replace(llada, family="other"))
    assert preset("llada") is PRESETS["llada"]
    assert set(SpaCache(budget="uniform", peak_ratio=0.16).ratios(llada)) == {0.16}
    own = SpaCache(peak_ratio=0.4, first_ratio=0.1, last_ratio=0.4, peak_position=0.5).ratios(llada)
    assert (own[0], own[15], own[-1]) == pytest.approx((0.1, 0.4, 0.4))


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_fit_recovers_the_curve_of_the_shares(name):
    layers = PUBLISHED[name][0]
    curve = replace(PRESETS[name], position=round(PRESETS[name].position * layers) / layers)
    found = fit(np.array(curve.ratios(layers)))
    got = (found.position, found.first, found.peak, found.last)
    assert got == pytest.approx((curve.position, curve.first, curve.peak, curve.last))


@pytest.mark.parametrize("shares", [[0.0] * 8, [1.0] * 8, [0.3], [0.5, 0.01, 0.5], [0, 1, 0, 1]])
def test_a_fit_of_any_shares_is_a_curve(shares):
    found = fit(np.array(shares, float))
    assert 0 < min(found.first, found.last) <= max(found.first, found.last) <= found.peak <= 1
    assert len(found.ratios(8)) == 8
    if len(set(shares)) == 1:
        assert found.ratios(8) == pytest.approx([max(shares[0], 0.01)] * 8)


def test_a_fitted_budget_is_that_of_the_measured_drifts():
    model, requested = model_of("mha"), []

    def measure(base, quantity):
        requested.append((base, quantity))
        profile = make_profile(lo=0.01, hi=0.2, quantity=quantity)
        profile.counts[1] = make_profile(lo=0.03, hi=0.2).counts[1]
        return profile

    policy = SpaCache(budget="fitted", peak_ratio=None)
    policy.prepare(PolicyContext(model, "", None, measure))
    shares = measure("none", "v").beyond(0.05)
    assert requested[0] == ("none", "v")
    assert policy.ratios(model.info) == pytest.approx(tuple(shares), rel=1e-6)
    assert shares[1] > shares[0]
    with pytest.raises(ValueError, match=r"spa_cache.budget: .*prepare"):
        SpaCache(budget="fitted").ratios(model.info)
    spec = make_spec(cache="spa_cache", knobs={"spa_cache.budget": "fitted"})
    assert len(run(model, spec).events) == 16


@pytest.mark.parametrize(
    ("knobs", "message"),
    [({"rank": 33}, r"spa_cache.rank: 33 .* at most 32"),
     ({"first_ratio": 0.3}, "spa_cache.first_ratio: 0.3 exceeds the peak of 0.25"),
     ({"last_ratio": 0.4, "peak_ratio": None}, "spa_cache.last_ratio: 0.4 exceeds"),
     ({"min_update_ratio": 0.3}, "spa_cache.min_update_ratio: 0.3 exceeds the peak of 0.25"),
     ({"min_update_ratio": 0.3, "peak_ratio": None}, "spa_cache.min_update_ratio: 0.3 exceeds"),
     ({"min_update_ratio": 1.5}, "spa_cache.min_update_ratio: 1.5 is outside 0.0 to 1.0"),
     ({"identifier": "hidden"}, "spa_cache.identifier"), ({"peak_ratio": 0.0}, "spa_cache.peak")],
)  # fmt: skip
def test_impossible_knobs_name_themselves(knobs, message):
    spec = make_spec(cache="spa_cache", knobs={f"spa_cache.{k}": v for k, v in knobs.items()})
    with pytest.raises(ValueError, match=message):
        run(model_of("mha"), spec)

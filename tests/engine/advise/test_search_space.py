"""The settings that a search may choose from."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from engine.advise.search_space import (
    ALL,
    fitted,
    grid,
    name_of,
    named_caches,
    published,
    searchable,
    with_cache,
    without_repeats,
)
from engine.cache.calibration.drift_profile import DriftProfile, histogram
from engine.catalog import derive_plan, policies
from engine.config.knobs import searched_values
from engine.config.spec import RunSpec
from engine.models.loading.random_weights import PUBLISHED
from engine.models.loading.registry import REGISTERED
from tests.support.micro import block_model_of, model_of

BASE = RunSpec(gen_length=64, block_length=32, steps=64)


@pytest.mark.parametrize("cache", sorted(policies()))
def test_every_value_to_search_is_one_that_its_knob_allows(cache):
    for knob, values in searched_values(policies()[cache]).items():
        for value in values:
            policies()[cache](**{knob: value})


def test_caches_to_search_are_those_of_the_models_attention():
    full, block = model_of("mha").info, block_model_of("mha").info
    assert set(searchable(full)) | set(searchable(block)) == set(searchable())
    assert searchable(block) == ["sub_block"]
    assert "dual" in searchable(full)
    assert named_caches(ALL, block) == ["sub_block"]
    assert named_caches("dual, prefix", full) == ["dual", "prefix"]


@pytest.mark.parametrize("cache", searchable())
def test_every_setting_of_a_grid_can_be_planned(cache):
    found = grid(BASE, cache)
    assert len(found) > 1
    for spec in found:
        derive_plan(spec)
    assert len(without_repeats(found)) == len(found)


def test_a_stack_searches_the_knobs_of_both_methods():
    found = grid(BASE, "prefix+dare_kv")
    owners = {key.partition(".")[0] for spec in found for key in spec.knobs}
    assert owners == {"prefix", "dare_kv"}


@pytest.mark.parametrize(
    ("cache", "words"), [("none", "no settings to search"), ("fast", "is unknown")]
)
def test_a_cache_that_cannot_be_searched_is_named(cache, words):
    with pytest.raises(ValueError, match=rf"^cache: .*{words}"):
        grid(BASE, cache)


def test_settings_that_the_method_refuses_are_left_out():
    wide = with_cache(BASE, "freecache", {"freecache.block": 16})
    assert wide in grid(BASE, "freecache") or "freecache.freeze" in grid(BASE, "freecache")[0].knobs
    blocks = {spec.knobs["freecache.block"] for spec in grid(BASE, "freecache")}
    refused = set(searched_values(policies()["freecache"])["block"]) - blocks
    for block in refused:
        with pytest.raises(ValueError, match=r"^freecache\.block"):
            derive_plan(with_cache(BASE, "freecache", {"freecache.block": block}))


def test_the_knobs_of_the_unmasker_are_kept():
    base = replace(BASE, unmasker="threshold", knobs={"threshold.threshold": 0.8})
    assert all(spec.knobs["threshold.threshold"] == 0.8 for spec in grid(base, "dual"))


def test_published_settings_start_with_the_defaults_and_appear_once():
    found = published(BASE, "dllm_cache", "llada")
    assert found[0].name == "defaults"
    assert {one.name for one in found} >= {"dLLM-Cache, GSM8K", "dLLM-Cache, BBH"}
    knobs = [tuple(sorted(one.spec.knobs.items())) for one in found]
    assert len(set(knobs)) == len(knobs)
    assert all(one.spec.gen_length == BASE.gen_length for one in found)


def test_defaults_that_do_not_go_with_the_run_are_no_published_setting():
    """Guided decoding in blocks of 64 needs 64 candidates of d2Cache, whose default is 32."""
    base = replace(BASE, unmasker="guided", block_length=64)
    assert grid(base, "d2_cache")
    for one in published(base, "d2_cache", "llada"):
        derive_plan(one.spec)


@pytest.mark.parametrize("model", sorted(REGISTERED))
def test_published_settings_of_a_model_have_names_of_their_own(model):
    """Models of a family have presets of one title with other knobs."""
    for family, cache in product(PUBLISHED, searchable()):
        names = [one.name for one in published(replace(BASE, model=model), cache, family)]
        assert len(set(names)) == len(names)


def test_a_fitted_budget_follows_the_drifts_of_the_layers():
    drifts = [np.full(100, value) for value in (0.001, 0.2, 0.001)]
    counts = np.stack([histogram(one) for one in drifts])
    profile = DriftProfile("none", "v", counts, np.array([one.sum() for one in drifts]))
    found = fitted(BASE, "spa_cache", lambda quantity: profile)
    assert {spec.knobs["spa_cache.peak_position"] for spec in found} == {round(2 / 3, 4)}
    assert max(spec.knobs["spa_cache.peak_ratio"] for spec in found) == pytest.approx(1.0)


def test_a_fitted_reuse_is_the_share_of_rows_that_hardly_drift():
    drifts = np.array([[1e-5] * 30 + [0.2] * 70])
    profile = DriftProfile("none", "q0", np.stack([histogram(d) for d in drifts]), drifts.sum(1))
    found = fitted(BASE, "dare_kv", lambda quantity: profile)
    assert {spec.knobs["dare_kv.qbar"] for spec in found} == {0.3}


def test_a_setting_is_named_by_its_knobs():
    spec = with_cache(BASE, "dllm_cache", {"dllm_cache.prompt_interval": None})
    assert name_of(spec) == "prompt_interval off"
    assert name_of(with_cache(BASE, "dllm_cache", {})) == "defaults"

"""Why a row was recomputed: the reasons of the methods, refreshes, thresholds and candidates."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest

from engine.catalog import policies, unmaskers
from engine.config.knobs import describe_fields
from engine.config.spec import RaceSpec
from engine.core.events import SITES
from engine.core.reasons import GENERIC
from engine.core.regions import REGIONS
from engine.evaluate.record_examples import collect_traces
from inspector.views import registry
from inspector.views.candidates import candidates
from inspector.views.why import refreshes, why
from tests.inspector.conftest import small_race
from tests.inspector.unpacked import unpacked
from tests.support import looking
from tests.support.micro import full_policies

METHODS = [*full_policies(), *unmaskers()]
PAIRS = [METHODS[i : i + 2] for i in range(0, len(METHODS), 2)]
ANY, PLAIN = "any", ("",)
CONDITIONS = dict.fromkeys(
    ("first_step", "first_layer", "full", "new_block", "prompt", "block", "rest", "answer",
     "after_block", "reused", "every_row", "again"), PLAIN,
) | {
    "refresh": ("", *REGIONS), "recomputed": ("", *SITES), "no": ("threshold", "budget"),
}  # fmt: skip
PLACEHOLDERS = dict.fromkeys(("title", "layer", "block", "rows", "times"), PLAIN) | {
    "share": ("", "ffn", "ffn:answer"), "refreshes": ("", *REGIONS), "drift": ("k", "v", "q0"),
    "rank": ("k", "v", "attn"), "cut": ("k:ffn", "v:ffn", "attn:ffn"), "fact": ANY, "percent": ANY,
}  # fmt: skip


def caches_of(session):
    return session.catalog()["caches"]


@pytest.fixture(scope="module")
def recorded(session):
    """A run with a cache and its knobs, made once; a test gets a copy of its trace."""
    held = {}

    def make(cache, **knobs):
        key = cache, *knobs.items()
        if key not in held:
            named = {f"{cache}.{name}": value for name, value in knobs.items()}
            spec = replace(small_race(session).a, cache=cache, knobs=named, record="steps")
            held[key] = looking.recorded(session, spec)
        return held[key].snapshot()

    return make


def test_refreshes_are_the_steps_that_recompute_a_region(recorded):
    knobs = {"prompt_interval": 10, "response_interval": 4}
    trace = recorded("dllm_cache", **knobs)
    found = why(trace)
    steps = np.arange(trace.steps)
    due = unpacked(found["due"])
    assert np.array_equal(np.flatnonzero(due[:, 0]), np.flatnonzero(steps % 10 == 0))
    assert np.array_equal(np.flatnonzero(due[:, 1]), np.flatnonzero(steps % 4 == 0))
    assert found["parts"] == ["dllm_cache"]
    assert found["shift"] == 0


def test_without_recorded_plans_of_regions_refreshes_are_what_was_done(recorded):
    trace = recorded("dllm_cache", prompt_interval=8, response_interval=3)
    planned = refreshes(trace)
    arrays = trace.arrays() | {"planned": np.zeros((0, 3), np.uint8)}
    trace.arrays = lambda: arrays
    assert np.array_equal(refreshes(trace), planned)
    arrays["plan"] = np.zeros_like(arrays["plan"])
    assert not refreshes(trace).any()


def texts(found, part=0):
    return [reason["text"] for reason in found["reasons"][part]]


def test_reasons_hold_the_knobs_of_the_run_and_its_method(session, recorded):
    caches = session.catalog()["caches"]
    found = why(recorded("dllm_cache", prompt_interval=10), caches)
    assert any("the prompt is refreshed every 10 steps" in text for text in texts(found))
    assert any("the whole answer is refreshed[ every 5 steps]" in text for text in texts(found))
    assert not any("random" in text or "its K" in text for text in texts(found))
    found = why(recorded("dllm_cache", selector="random"), caches)
    assert any("drawn at random" in text for text in texts(found))
    assert not any("=" in reason["when"] for reason in found["reasons"][0])


def test_an_interval_without_a_value_leaves_its_placeholder(session, recorded):
    trace = recorded("dual")
    assert any("{every:refresh_interval}" in text for text in texts(why(trace, caches_of(session))))
    found = why(recorded("dual", refresh_interval=1), caches_of(session))
    assert any("recomputed in every step of a block" in text for text in texts(found))


def test_a_stack_has_the_reasons_of_both(session, recorded):
    found = why(recorded("dual+dare_kv"), caches_of(session))
    assert found["parts"] == ["dual", "dare_kv"]
    assert "the dual cache reuses every row" in texts(found, 0)[-1]
    assert "threshold" in texts(found, 1)[-1]


def test_a_method_that_is_not_in_the_catalog_has_generic_reasons(recorded):
    found = why(recorded("dual"))
    assert texts(found)[0] == "dual recomputes every row in this step"
    assert len(texts(found)) == len(GENERIC)


def test_the_facts_of_the_policy_are_served(recorded):
    found = why(recorded("dare_kv"))["facts"]["threshold"]
    assert len(found) == 8
    assert all(limit > 0 for limit in found)
    assert why(recorded("none"))["facts"] == {}


@pytest.mark.parametrize("name", policies())
def test_every_reason_uses_known_conditions_and_placeholders(name):
    cls = policies()[name]
    knobs = {row["name"]: row for row in describe_fields(cls)}
    assert not cls.reasons[-1].when or "=" in cls.reasons[-1].when
    for reason in cls.reasons:
        for word in reason.when.split():
            condition, _, of = word.lstrip("!").partition(":")
            knob, setting, value = condition.partition("=")
            if setting:
                choices = knobs[knob]["choices"]
                assert value in choices or not choices
            else:
                assert of in CONDITIONS[condition], word
        assert reason.text.count("[") == reason.text.count("]")
        for placeholder in re.findall(r"{(.*?)}", reason.text):
            kind, _, of = placeholder.partition(":")
            known = knobs if kind in ("every", "knob") else PLACEHOLDERS[kind]
            assert of in known or known == ANY, placeholder


def said(name, true):
    """The first reason of a method whose conditions hold if just these are true."""
    return next(
        reason.text
        for reason in policies()[name].reasons
        if all((word.lstrip("!") in true) != word.startswith("!") for word in reason.when.split())
    )


@pytest.mark.parametrize(
    ("name", "true", "text"),
    [
        ("dare_o", "block answer recomputed every_row", "a refresh is due"),
        ("dare_kv", "rest answer recomputed every_row", "a refresh is due"),
        ("dare_kv", "block answer recomputed every_row", "the query of every row has drifted"),
        ("dare_kv", "block answer recomputed ref=anchor", "drifted by more than this layer's"),
        ("dare_o", "block answer ref=anchor", "drifted by no more than this layer's"),
        ("dare_kv", "block answer recomputed every_row no:threshold", "nothing is reused in layer"),
        ("dare_kv", "block answer recomputed every_row qbar=0.0", "the reuse quantile is 0"),
        ("freecache", "rest answer reused after_block", "outside the window"),
        ("freecache", "rest answer reused again", "before the window around the first mask"),
        ("freecache", "rest answer recomputed window= freeze=clean", "a finished block once more"),
        ("spa_cache", "block answer recomputed full refresh", "it belongs to the warm-up"),
        ("spa_cache", "block answer recomputed full refresh warm_up=0", "as is done"),
        ("spa_cache", "block answer recomputed refresh kv_mode=sparse peak_ratio=1.0",
         "this step recomputes every row of the answer"),
        ("spa_cache", "prompt recomputed recomputed:ffn refresh refresh:block kv_mode=sparse "
         "identifier=value peak_ratio=1.0", "the row is among"),
        ("dllm_cache", "block answer refresh recomputed recompute_ratio=1.0",
         "with an update ratio of 1"),
        ("dllm_cache", "block answer reused again selector=random layer0_dense=true case2=code",
         "was not drawn at random"),
        ("dllm_cache", "block answer first_layer recomputed selector=v_cos case2=code",
         "changed most"),
        ("dllm_cache", "block answer recomputed selector=v_cos ref=last_update",
         "the row is among the {share:ffn:answer} of the answer whose V changed most"),
        ("dllm_cache", "rest answer reused selector=k_cos ref=last_update",
         "whose K changed most in layer {layer} since their last update"),
        ("dllm_cache", "block answer refresh recomputed full", "every row of the answer"),
        ("dllm_cache", "block answer reused refresh:prompt case2=paper selector=v_cos",
         "a step that refreshes the prompt alone"),
        ("dllm_cache", "block answer reused refresh:prompt case2=paper recompute_ratio=1.0",
         "all other steps recompute every row"),
        ("spa_cache", "prompt reused refresh:block kv_mode=sparse identifier=value",
         "no row of the prompt"),
        ("sub_block", "block answer recomputed", "the sub-block of the candidates"),
        ("sub_block", "prompt recomputed again", "predicts the first token of the current block"),
        ("frozen", "rest answer recomputed", "predicts the first token of the current block"),
        ("frozen", "rest answer recomputed new_block", "gives the keys and values that stay"),
        ("dual", "block answer recomputed full new_block", "first step of the run in block"),
        ("prefix", "rest answer recomputed after_block", "comes after the current block"),
        ("dkv_cache", "rest answer recomputed variant=decode", "predicts no token that was known"),
        ("d2_cache", "prompt recomputed", "the rows in small gaps"),
        ("d2_cache", "prompt recomputed inflate_w=0", "and those that attention flows to"),
    ],
)  # fmt: skip
def test_the_first_reason_that_holds_is_true(name, true, text):
    assert text in said(name, set(true.split()))


@pytest.mark.parametrize("name", ["frozen", "sub_block"])
def test_a_commit_call_does_not_call_the_next_block_finished(name):
    text = said(name, {"block", "answer", "reused", "again", "new_block"})
    assert text.startswith("this forward computes only rows before the current block")


@pytest.mark.parametrize("name", ["frozen", "sub_block"])
def test_a_block_that_is_not_in_sight_has_no_reason(name):
    assert not any("after_block" in reason.when for reason in policies()[name].reasons)


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_a_race_with_any_method_gives_the_views_of_the_page(session, pair):
    plain = replace(small_race(session, gen_length=8, block_length=4, steps=8).a, record="layers")
    changes = [{"unmasker" if name in unmaskers() else "cache": name} for name in pair]
    lanes = [replace(plain, **one) for one in (changes * 2)[:2]]
    for trace in collect_traces(session.race(RaceSpec(*lanes))).values():
        assert trace.meta["reason"] == "done"
        drawn = registry.VIEWS.keys() - registry.TIMED
        views = {view: registry.draw(trace, view, caches_of(session)) for view in drawn}
        json.dumps(views)
        missing = {view for view, found in views.items() if "missing" in found}
        assert missing <= {"error", "lens", "guider", "experts"}


@pytest.mark.parametrize(("kv_mode", "rows"), [("dense", "answer"), ("sparse", "all")])
def test_a_budget_is_a_share_of_the_rows_that_are_chosen_from(recorded, kv_mode, rows):
    trace = recorded("spa_cache", kv_mode=kv_mode)
    assert why(trace)["budget_of"] == rows
    assert why(recorded("dllm_cache"))["budget_of"] == "answer"


def test_a_run_without_plans_says_so(traces):
    for view in (why, candidates):
        with pytest.raises(ValueError, match="press Record"):
            view(traces["a"])


def test_candidates_know_which_token_was_committed(recorded):
    trace = recorded("dual")
    found, arrays = candidates(trace), trace.arrays()
    step, position = unpacked(found["step"]), unpacked(found["position"])
    chosen, ids = unpacked(found["chosen"]), unpacked(found["ids"])
    marked = chosen != 255
    pairs = zip(arrays["commit_step"], arrays["commit_position"], arrays["commit_id"], strict=True)
    committed = {(int(s), int(p)): int(i) for s, p, i in pairs}
    got = {
        (int(s), int(p)): int(ids[n, chosen[n]])
        for n, (s, p) in enumerate(zip(step, position, strict=True))
        if marked[n]
    }
    assert got == committed
    assert marked.sum() < len(marked)
    probs = unpacked(found["probs"])
    assert (np.diff(probs, axis=1) <= 0).all()
    assert (probs.sum(1) <= 1 + 1e-5).all()
    assert set(found["pieces"]) == {str(i) for i in np.unique(ids)}

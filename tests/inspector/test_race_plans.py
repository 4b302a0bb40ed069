"""The plans of both lanes together: what does not fit is refused, and all memory is counted."""

import json
from dataclasses import replace

import gradio as gr
import pytest

from engine.config.spec import RaceSpec, RunSpec
from engine.core.files import ASSETS
from engine.models.loading.families import embedded_models
from engine.models.loading.hub import Hub
from engine.serve.session import Session
from inspector.handlers.api import Endpoints
from inspector.handlers.estimates import EstimateService
from inspector.handlers.page_handlers import Handlers
from inspector.page_data.plan import memory, sentence
from tests.inspector.conftest import form_values, make_form, small_race

TOGETHER = "model: the models of both lanes and a run need 9.0 GB together"
ROW = {
    "weights_bytes": 7e6, "memory_bytes": 9e6, "kept_bytes": 5e5, "free_bytes": 8e9,
    "fetch_bytes": 0, "guider_bytes": 0,
}  # fmt: skip
UNKNOWN = dict.fromkeys(ROW) | {"guider_bytes": 0}


def test_models_that_do_not_fit_together_are_refused_in_the_plans_of_page_and_api(
    handlers, form, session, request_of, monkeypatch
):
    asked = []

    def refuse(race, plans):
        asked.append([plan["max_forwards"] for plan in plans])
        raise ValueError(TOGETHER)

    monkeypatch.setattr(session, "check_race", refuse)
    race = small_race(session)
    document, run = handlers.plan(request_of(), form_values(form, race))
    said = TOGETHER.replace("model", "Model", 1)
    assert json.loads(document) == {"ok": False, "error": said}
    assert not run["interactive"]
    endpoints = Endpoints(handlers, EstimateService(handlers))
    given = {"a": race.a.to_dict(), "b": race.b.to_dict()}
    for ask in (endpoints.plan, lambda given: next(endpoints.run(given, request_of()))):
        with pytest.raises(gr.Error, match=TOGETHER):
            ask(given)
    assert asked == [[16, 16]] * 3


def test_the_plan_counts_the_models_and_caches_of_both_lanes_and_the_larger_step():
    other = ROW | {"weights_bytes": 1e6, "memory_bytes": 2e6, "fetch_bytes": 1e6}
    assert memory([ROW, other], shared=False) == (
        "weights 8.00 MB + runs 2.50 MB of 8.00 GB free; 1.00 MB to download first"
    )
    for rows in ([ROW, UNKNOWN], [UNKNOWN, ROW]):
        assert memory(rows, shared=False) == (
            "weights 7.00 MB + runs 2.00 MB of 8.00 GB free; the model to download first"
        )


def test_the_plan_says_how_many_forwards_measure_drifts_before_the_run():
    plan = {"blocks": 1, "min_forwards": 32, "max_forwards": 32, "tokens_per_step": (1,) * 32,
            "steps_per_block": 32, "prompt_tokens": 9}  # fmt: skip
    run = sentence(RunSpec(gen_length=32, steps=32), plan | {"calibration_forwards": 0})
    assert run.endswith("1 token a step, 32 forwards")
    said = sentence(RunSpec(gen_length=32, steps=32), plan | {"calibration_forwards": 512})
    assert said == (
        f"{run}; before the run at most 512 forwards measure the drifts that the cache needs on "
        "this model (once, not timed)"
    )


def test_the_plan_says_what_lane_b_alone_downloads():
    """As a guider, beside a model that is here."""
    assert memory([ROW, ROW | {"fetch_bytes": 5e6}]).endswith(" free; 5.00 MB to download first")


def test_a_causal_model_that_is_not_here_races_one_that_is(tmp_path, request_of):
    session = Session(embedded_models(ASSETS), Hub(tmp_path))
    form, race = make_form(session), small_race(session)
    knobs = {"autoregressive.model": "Qwen/Qwen2.5-0.5B-Instruct"}
    causal = replace(race.b, unmasker="autoregressive", cache="none", knobs=knobs)
    for lanes in ((race.a, causal), (causal, race.a)):
        values = form_values(form, RaceSpec(*lanes))
        found = json.loads(Handlers(session, form).plan(request_of(), values)[0])
        assert found["ok"], found
        assert "; 988 MB to download first" in found["memory"]

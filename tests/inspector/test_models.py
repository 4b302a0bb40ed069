"""Models beside the embedded one: who may name which, and the views of one with shifted logits."""

import json
from dataclasses import replace

import gradio as gr
import pytest

from engine.core.files import ASSETS
from engine.models.loading.families import embedded_models
from engine.models.loading.hub import Hub
from engine.serve.session import Session
from inspector.handlers.api import Endpoints
from inspector.handlers.estimates import EstimateService
from inspector.handlers.page_handlers import Handlers
from inspector.handlers.view_service import ViewService
from inspector.run_store import RaceRecord
from inspector.views import registry
from tests.inspector.conftest import make_form, small_race
from tests.inspector.test_handlers import values_of
from tests.support import looking
from tests.support.micro import write_checkpoint

SHORT = {"gen_length": 16, "block_length": 16, "steps": 4}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A micro checkpoint of the family whose logits are shifted."""
    return write_checkpoint(tmp_path_factory.mktemp("models") / "micro-dream", kind="dream")


@pytest.fixture(scope="module")
def open_session():
    return Session(embedded_models(ASSETS))


@pytest.fixture(scope="module")
def public_session(tmp_path_factory):
    hub = Hub(tmp_path_factory.mktemp("hub"))
    return Session(embedded_models(ASSETS), hub, public=True)


@pytest.fixture(scope="module")
def open_form(open_session):
    return make_form(open_session)


@pytest.fixture(scope="module")
def public_form(public_session):
    return make_form(public_session)


def race_of(session, model):
    race = small_race(session, model=str(model), **SHORT).to_dict()
    return {lane: spec | {"cache": "none", "knobs": {}} for lane, spec in race.items()}


def test_a_folder_runs_by_the_page_and_the_api(open_session, open_form, folder, request_of):
    handlers = Handlers(open_session, open_form)
    values = values_of(open_form, small_race(open_session, **SHORT), model=f" {folder}\n")
    last = json.loads(list(handlers.run(request_of(), values))[-1][0])
    assert (last["state"], last["lanes"]["a"]["start"]["model"]) == ("done", str(folder)[:80])
    endpoints = Endpoints(handlers, EstimateService(handlers))
    news = list(endpoints.run(race_of(open_session, folder), request_of()))
    assert news[-1]["state"] == "done"


@pytest.mark.parametrize("name", ["{folder}", "other/model", "../models", "/etc", "a\0b", "~"])
def test_a_public_page_and_its_api_take_the_listed_only(
    public_session, public_form, folder, request_of, name
):
    name = name.replace("{folder}", str(folder))
    handlers = Handlers(public_session, public_form)
    values = values_of(public_form, small_race(public_session, **SHORT), model=name)
    (update,) = handlers.run(request_of(), values)
    assert json.loads(update[0])["message"].startswith("Model:")
    race = race_of(public_session, public_session.default_race().a.model)
    for lane in race.values():
        lane["model"] = name
    endpoints = Endpoints(handlers, EstimateService(handlers))
    with pytest.raises(gr.Error, match="model"):
        endpoints.plan(race)
    with pytest.raises(gr.Error, match="model"):
        next(endpoints.run(race, request_of()))


def test_a_registered_model_is_planned_before_it_is_here(
    public_session, public_form, request_of, monkeypatch
):
    monkeypatch.setattr("engine.serve.model_pool.free_bytes", lambda: {"cpu": 64 * 10**9})
    rows = {row["name"]: row for row in public_session.catalog()["models"]}
    assert rows["GSAI-ML/LLaDA-8B-Instruct"]["registered"]
    roomy = {"model": "GSAI-ML/LLaDA-8B-Instruct", "dtype": "bfloat16"}
    values = values_of(public_form, small_race(public_session, **SHORT), **roomy)
    found = json.loads(Handlers(public_session, public_form).plan(request_of(), values)[0])
    assert found["ok"], found
    assert found["lanes"][0]["context"] == "answer 16 of 4096 tokens"
    assert found["memory"].startswith("weights 16.0 GB + runs")
    assert found["memory"].endswith("16.0 GB to download first")


@pytest.fixture(scope="module")
def shifted(open_session):
    """A race of the embedded Dream, its lane B recorded with probe."""
    base = small_race(open_session, model="tiny-dream", **SHORT).a
    spec = replace(base, cache="dual", unmasker="dream")
    timed = looking.recorded(open_session, spec)
    probed = looking.recorded(open_session, replace(spec, record="probe"))
    return RaceRecord(state="done", traces={"b": timed}, recorded={"b": probed})


@pytest.mark.parametrize("name", sorted(registry.VIEWS.keys() - {"experts"}))
def test_every_view_draws_a_model_with_shifted_logits(open_session, shifted, form, name):
    assert shifted.traces["b"].meta["model"]["logit_shift"] == 1
    handlers = Handlers(open_session, form)
    handlers.store.put(shifted)
    found = json.loads(ViewService(handlers).view([shifted.run_id, "b", name]))
    assert set(found) - {"missing"}, found

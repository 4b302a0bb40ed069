"""What the inspector's tests share: the real session on the embedded model, and small races."""

from dataclasses import replace

import gradio as gr
import pytest

from engine.config.spec import RaceSpec
from engine.core.files import ASSETS
from engine.models.loading.families import embedded_models
from engine.serve.session import Session
from engine.trace.trace import Trace
from inspector.catalog import Catalog
from inspector.form.model_picker import build_model_picker
from inspector.form.settings import Form, build_lane, build_prompt, build_shared
from inspector.handlers.page_handlers import Handlers
from inspector.run_store import RaceRecord
from tests.support import looking
from tests.support.browser import PROMPT


def small_race(session, **changes):
    race = session.default_race()
    shape = {"prompt": PROMPT, "gen_length": 16, "block_length": 8, "steps": 16} | changes
    return RaceSpec(replace(race.a, **shape), replace(race.b, **shape))


def given_values(form, given):
    """The values that a value of `Form.values_given` gives, by key of the widget."""
    return (
        {key: one[0] for key, one in zip(form.widgets, given, strict=True) if one} if given else {}
    )


def form_values(form, race):
    """The values of a form's widgets for a race, as the page sends them."""
    return list(form.values_by_key(race).values())


def make_form(session):
    form = Form(Catalog(session.catalog(), session.default_race()))
    with gr.Blocks():
        build_model_picker(form)
        build_prompt(form)
        build_shared(form)
        for lane in "ab":
            build_lane(form, lane)
    return form


@pytest.fixture(scope="session")
def session():
    folders = embedded_models(ASSETS)
    if not folders:
        pytest.skip("no embedded model under assets/models")
    return Session(folders)


@pytest.fixture(scope="session")
def form(session):
    return make_form(session)


@pytest.fixture
def handlers(session, form):
    return Handlers(session, form)


@pytest.fixture(scope="session")
def events(session):
    return list(session.race(small_race(session)))


@pytest.fixture
def traces(events):
    out = {"a": Trace(), "b": Trace()}
    for lane, event in events:
        out[lane].append(event)
    return out


@pytest.fixture(scope="session")
def recorded(session):
    """A small run as it was timed, and the same run recorded at level `layers`."""
    base = small_race(session, gen_length=16, block_length=16, steps=4).a
    specs = (replace(base, cache="dual", record=level) for level in ("off", "layers"))
    return [looking.recorded(session, spec) for spec in specs]


@pytest.fixture
def request_of():
    return lambda name="visitor", **params: gr.Request(session_hash=name, query_params=params)


@pytest.fixture
def record(handlers, traces, request_of):
    """A finished race in the store, which the visitor sees."""
    made = RaceRecord(state="done", expected="45", traces=traces)
    handlers.store.put(made)
    handlers.live_runs.show("visitor", made.run_id)
    return made

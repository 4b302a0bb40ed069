"""The handlers of the advisor: a search, Stop and Continue, refusals, the race of a setting."""

import json
from types import SimpleNamespace

import gradio as gr
import pytest

from engine.advise.service import SearchService
from engine.batch.service import BatchService
from inspector.handlers.tasks.advice_handlers import AdviceHandlers, _share
from inspector.handlers.tasks.prompt_sources import TYPED
from tests.inspector.conftest import form_values, given_values, small_race

TEXT = "\n".join(f"Ann has {i} pens." for i in range(6))
ASKED = {"cache": "dual", "of": "tokens", "keep": 1, "candidates": 2, "random": False}


@pytest.fixture
def tab(session, handlers):
    return AdviceHandlers(handlers, SearchService(session), BatchService(session).count)


@pytest.fixture
def press(tab, session, form, request_of):
    """Press Search: the documents that the page gets."""
    values = form_values(form, small_race(session, gen_length=8, block_length=4, steps=8))

    def run(text=TEXT, estimate=False, shown="", **changes):
        problem = {"family": "short_problems", "count": 6, "shots": 0, "seed": 1}
        asked = ASKED | changes
        given = [shown, TYPED, text, *problem.values(), *asked.values(), values]
        for document, *_ in tab.starter(estimate)(request_of(), *given):
            yield json.loads(document)

    return run


def test_a_search_ends_with_a_chosen_setting_whose_race_fills_the_form(press, tab, form):
    *_, last = press()
    assert (last["state"], last["advice"]["finished"]) == ("done", True)
    name = last["advice"]["chosen"]["name"]
    event = SimpleNamespace(search=last["search"], name=name)
    selected, given = tab.fill(event)
    assert selected.selected == "run"
    assert given_values(form, given)["b.cache"] == "dual"


def test_a_stopped_search_goes_on(press, tab, request_of):
    documents = press()
    first = next(documents)
    tab.stop(request_of())
    *_, stopped = documents
    assert stopped["state"] == "stopped"
    assert not stopped["advice"]["finished"]
    *_, last = tab.go_on(request_of(), json.dumps(first))
    assert json.loads(last[0])["state"] == "done"


def test_an_estimate_runs_no_setting(press):
    *_, last = press(estimate=True)
    assert (last["state"], last["runs"]) == ("estimated", 0)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"text": "one"}, "prompts: 1 are too few"),
        ({"keep": None, "candidates": "x"}, "candidates: expected a whole number"),
        ({"keep": 200}, "keep: 2.0 is outside"),
        ({"cache": ["dual"]}, "Cache: choose from"),
    ],
)
def test_a_refusal_names_what_is_wrong(press, changes, said):
    (only,) = press(**changes)
    assert only["state"] == "refused"
    assert said in only["message"]


@pytest.mark.parametrize(("percent", "share"), [(95, 0.95), (10**400, 10**400), ("x", "x")])
def test_a_percentage_that_is_none_is_left_to_be_refused(percent, share):
    assert _share(percent) == share


def test_a_search_that_is_gone_is_named(tab, request_of):
    (only,) = tab.go_on(request_of(), '{"search": "gone"}')
    assert "search: it is no longer in memory" in json.loads(only[0])["message"]
    found = tab.reopen(["gone"])
    assert list(found) == [gr.skip()] * len(found) != []
    event = SimpleNamespace(search="gone", name="dual: defaults")
    (message, *_) = next(iter(tab.race(event, request_of())))
    assert "search: it is no longer in memory" in str(message)

"""What the page and the API hear while a model is fetched and loaded, and how that may end."""

import json

import pytest

from engine.core.events import Waiting
from inspector.handlers.api import Endpoints
from inspector.handlers.estimates import EstimateService
from inspector.handlers.page_handlers import Handlers
from inspector.handlers.view_service import progress_message
from inspector.page_data import messages
from inspector.page_data.sizes import parameters, size
from inspector.run_store import RaceRecord
from tests.inspector import fake
from tests.inspector.conftest import make_form, small_race
from tests.inspector.test_handlers import pressable, values_of


@pytest.fixture
def big(session):
    return fake.Session(session)


@pytest.fixture(scope="module")
def form(session):
    return make_form(fake.Session(session))


@pytest.fixture
def handlers(big, form):
    return Handlers(big, form)


@pytest.fixture
def values(handlers, big):
    return values_of(handlers.form, small_race(big), model=fake.BIG)


@pytest.fixture
def at_once(monkeypatch):
    """Every event in a message of its own."""
    monkeypatch.setattr("inspector.handlers.page_handlers.MAX_HZ", 1e9)
    monkeypatch.setattr("inspector.handlers.api.MAX_HZ", 1e9)


def test_the_download_is_told_byte_by_byte(handlers, values, request_of, at_once):
    news = [json.loads(update[0]) for update in handlers.run(request_of(), values)]
    told = [(n["state"], n["wait"]["done"], n["wait"]["total"]) for n in news if "wait" in n]
    expected = [(w.state, w.done, w.total) for w in fake.download()]
    assert told[: len(expected)] == expected
    assert all(n["wait"]["what"] == fake.BIG for n in news if n["state"] == "fetching")
    assert "wait" not in news[-1]
    assert news[-1]["state"] == "done"


def test_stop_while_fetching(handlers, values, request_of, at_once):
    stream = handlers.run(request_of(), values)
    for update in stream:
        if json.loads(update[0])["state"] == "fetching":
            break
    handlers.flag("stop")(request_of())
    rest = list(stream)
    last = json.loads(rest[-1][0])
    assert last["state"] == "stopped"
    assert last["lanes"] == {}
    assert "before the first step" in last["message"]
    assert pressable(rest[-1][1:]) == set()
    assert handlers.live_runs.control("visitor") is None
    again = json.loads(list(handlers.run(request_of(), values))[-1][0])
    assert again["state"] == "done"
    assert "message" not in again


def test_a_failed_download_is_said(handlers, big, values, request_of):
    big.fault = "model: owner/big-8B is gated; log in with `hf auth login`"
    last = json.loads(list(handlers.run(request_of(), values))[-1][0])
    assert (last["state"], last["message"]) == ("failed", big.fault)


def test_names_from_outside_are_cut():
    told = messages.wait(Waiting("fetching", 1, 2, "<img onerror=x>" * 99))
    assert len(told["what"]) == 120


@pytest.mark.parametrize(("state", "unit"), [("loading", "bytes"), ("calibrating", "layers")])
def test_a_recording_says_what_it_waits_for(state, unit):
    record, event = RaceRecord(), Waiting(state, 3, 9, "m", unit=unit)
    said = json.loads(progress_message(record, "recording", "", event))
    assert said["state"] == "recording"
    assert said["wait"] == {"state": state, "done": 3, "total": 9, "unit": unit, "what": "m"}
    assert "wait" not in json.loads(progress_message(record, "recording", "", None))


def test_the_api_tells_the_download(handlers, big, request_of, at_once):
    race = small_race(big).to_dict()
    for lane in race.values():
        lane["model"] = fake.BIG
    news = list(Endpoints(handlers, EstimateService(handlers)).run(race, request_of()))
    told = [n["wait"]["done"] for n in news if n["state"] == "fetching"]
    assert told == [w.done for w in fake.download() if w.state == "fetching"]
    assert news[-1]["state"] == "done"


@pytest.mark.parametrize(("count", "words"), [
    (0, "0 bytes"), (1, "1 byte"), (999, "999 bytes"), (1000, "1.00 kB"),
    (16_031_162_368, "16.0 GB"), (999_999_999, "1.00 GB"), (99_940_000_000, "99.9 GB"),
    (99_960_000_000, "100 GB"), (1.5e12, "1.50 TB"),
])  # fmt: skip
def test_sizes(count, words):
    assert size(count) == words


@pytest.mark.parametrize(("count", "words"), [
    (8_015_581_184, "8.02 B"), (12_345_678, "12.3 M"), (1_234, "1.23 k"), (12, "12"),
])  # fmt: skip
def test_numbers_of_parameters(count, words):
    assert parameters(count) == words

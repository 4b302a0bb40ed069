"""Searches of a page: limits, parts that continue each other, estimate, and what can be raced."""

import gc
import json
import re
import weakref
from dataclasses import replace
from itertools import islice

import pytest

from engine.advise import advisor, service
from engine.advise.advisor import EXACT_RUNS
from engine.advise.service import PUBLIC, SearchLimits, SearchService
from engine.config.run_card import specs_of
from engine.config.spec import RunSpec
from engine.core.control import Control
from engine.evaluate.repeat import differences, repeat
from engine.trace.trace import Trace

BASE = RunSpec(model="micro", prompt="", gen_length=8, block_length=4, steps=8)
TEXT = {"text": "\n".join(f"Ann has {i} pens." for i in range(6))}
ASKED = {"of": "tokens", "keep": 0.1, "candidates": 4}


@pytest.fixture
def served(session):
    return SearchService(session)


def run(search, stop_after=None):
    """Search, and stop after so many messages."""
    control = Control()
    for count, _ in enumerate(search.run(control), 1):
        if count == stop_after:
            control.stop()
    return search.figures()


def points(front):
    """Names of the measured settings, and how many prompts each was measured on."""
    rows = [row for cache in front["advice"]["caches"] for row in cache["searched"]]
    return {row["name"]: row["prompts"] for row in rows}


def test_a_search_is_stopped_goes_on_and_ends(served):
    search = served.open(TEXT, BASE, "dual", **ASKED)
    first = run(search, stop_after=9)
    assert (first["state"], first["advice"]["finished"]) == ("stopped", False)
    assert first["runs"] > 0
    assert points(first)
    last = run(served.get(search.id))
    assert (last["state"], last["advice"]["finished"]) == ("done", True)
    assert set(points(first)) <= set(points(last))
    assert 0 < last["runs"] <= last["most_runs"]
    json.dumps(last)
    before = last["runs"]
    assert run(search)["runs"] == before, "no run is made again"


def test_no_part_records_or_predicts_again(served, session, monkeypatch):
    recorded, predicted = [], []
    asked, made = session.run, advisor.predict_steps

    def counted(spec, control):
        recorded.append(spec.record)
        return asked(spec, control)

    def noted(narrow, scale, errors, spec, tokens, steps):
        predicted.append(spec)
        return made(narrow, scale, errors, spec, tokens, steps)

    monkeypatch.setattr(session, "run", counted)
    monkeypatch.setattr(advisor, "predict_steps", noted)
    search = served.open(TEXT, BASE, "dual", **ASKED)
    assert run(search, stop_after=14)["state"] == "stopped"
    assert recorded.count("layers") == EXACT_RUNS
    assert predicted
    assert run(search)["state"] == "done"
    assert recorded.count("layers") == EXACT_RUNS
    assert len(set(predicted)) == len(predicted)


def test_a_search_hears_stop_while_it_waits_for_the_models(served, session):
    search = served.open(TEXT, BASE, "dual", **ASKED)
    running = session.run(replace(BASE, prompt="One?"))
    list(islice(running, 8))  # it holds the models
    control = Control()
    control.stop()
    assert list(search.run(control)) == []
    assert (search.state, search.message) == ("stopped", "")
    running.close()
    assert run(search, stop_after=9)["runs"] > 0


def test_a_method_that_does_not_go_with_the_model_is_refused_before_anything_runs(session):
    with pytest.raises(ValueError, match=r"^cache: .*sub-block cache needs block-causal"):
        SearchService(session).open(TEXT, BASE, "sub_block", **ASKED)
    everything = SearchService(session).open(TEXT, BASE, "all", **ASKED)
    assert "sub_block" not in everything.request.caches


def test_the_chosen_setting_is_raced_against_plain_decoding(served):
    search = served.open(TEXT, BASE, "dual", **ASKED)
    chosen = run(search)["advice"]["chosen"]
    race = search.race(chosen["name"])
    assert (race.a.cache, race.b.cache) == ("none", "dual")
    assert race.b.prompt == "Ann has 2 pens."
    assert search.answer is None
    for name in ("none", None, ["dual"]):
        with pytest.raises(ValueError, match="search: it has measured no setting"):
            search.race(name)


def test_an_estimate_times_plain_decoding_and_bounds_the_runs(served):
    search = served.open(TEXT, BASE, "dual", **ASKED)
    list(search.estimate(Control()))
    figures = search.figures()
    assert (figures["state"], figures["runs"]) == ("estimated", 0)
    assert f"at most {figures['most_runs']} runs" in figures["message"]
    seconds = r"about [\d.]+ s if no setting is faster than plain decoding$"
    assert re.search(seconds, figures["message"]), "a short search is told in seconds"


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.5432, "0.54 s"), (59, "59 s"), (90, "1.5 min"), (7_530, "125.5 min")]
)
def test_a_long_search_is_told_in_minutes(seconds, said):
    assert service.in_words(seconds) == said


@pytest.mark.parametrize(("caches", "plain"), [("dual", 4), ("dual,prefix", 6)])
def test_an_estimate_counts_plain_decoding_beside_the_settings_of_every_cache(
    served, caches, plain
):
    search = served.open(TEXT, BASE, caches, **ASKED)
    for _ in range(2):  # the first one loads the model
        list(search.estimate(Control()))
    seconds = (search.figures()["most_runs"] + plain * 6) * search._used
    assert f"about {seconds:.2g} s if no setting" in search.message


def test_the_time_of_a_public_page_ends_a_part_and_nothing_is_lost(session, monkeypatch):
    monkeypatch.setattr(service, "PUBLIC", SearchLimits(seconds=0.0))
    search = SearchService(session, public=True).open(TEXT, BASE, "dual", **ASKED)
    front = run(search)
    assert front["state"] == "limit"
    assert front["message"].startswith("seconds: the 0 s")


def test_a_search_advances_if_each_run_takes_longer_than_its_time(session, monkeypatch):
    monkeypatch.setattr(service, "PUBLIC", SearchLimits(seconds=0.0))
    search = SearchService(session, public=True).open(
        TEXT, BASE, "dual", **ASKED | {"candidates": 2}
    )
    list(search.estimate(Control()))
    assert search.state == "estimated"
    parts, done = 0, -1
    while run(search)["state"] == "limit" and parts < 100:
        before, done = done, len(search._journal) + len(search._exact)
        assert done > before
        parts += 1
    assert parts > EXACT_RUNS + len(points(search.figures()))
    assert search.figures()["advice"]["finished"]


def test_a_search_does_not_hold_the_traces_of_its_exact_runs(served, monkeypatch):
    """A running search is not dropped, and its traces may have 64 MB each on a public page."""
    made = []

    class Watched(Trace):
        def __init__(self):
            super().__init__()
            made.append(weakref.ref(self))

    monkeypatch.setattr(advisor, "Trace", Watched)
    search = served.open(TEXT, BASE, "dual", **ASKED)
    going_on = search.run(Control())
    while len(search._exact) < EXACT_RUNS:
        next(going_on)
    gc.collect()
    assert [one() for one in made] == [None] * EXACT_RUNS
    going_on.close()


def test_a_prompt_that_is_too_long_is_refused_by_its_number(served):
    """It is not the one with most characters, but the one with most tokens."""
    words = "\n".join(["pens " * 100, "a", "b", "\U0001f600" * 400, "c", "d"])
    with pytest.raises(ValueError, match=r"^prompts: number 4: prompt: .* exceed"):
        served.open({"text": words}, BASE, "dual", **ASKED)


class Failing:
    """A session that fails on one prompt; `plan` does not foresee it."""

    def __init__(self, session, prompt):
        self._session, self._prompt = session, prompt

    def __getattr__(self, name):
        return getattr(self._session, name)

    def run(self, spec, control):
        if spec.prompt == self._prompt:
            raise ValueError("memory: the prompt does not fit")
        return self._session.run(spec, control)


def test_prompts_on_which_plain_decoding_fails_are_left_out_of_the_test(session):
    search = SearchService(Failing(session, "Ann has 4 pens.")).open(TEXT, BASE, "dual", **ASKED)
    advice = run(search)["advice"]
    assert advice["chosen"]["prompts"] == 3
    said = [one for one in advice["not_tested"] if "failed on" in one]
    assert said[0].startswith("Plain decoding failed on 1 of the 4 prompts of the test")
    assert "memory: the prompt does not fit" in said[0]
    assert "The test has 3 prompts" in advice["not_tested"][-1]


def test_the_race_of_the_chosen_setting_is_of_a_prompt_that_could_be_run(session):
    """The results on its run card were measured on the same prompt."""
    search = SearchService(Failing(session, "Ann has 2 pens.")).open(TEXT, BASE, "dual", **ASKED)
    chosen = run(search)["advice"]["chosen"]
    specs = specs_of(chosen["card"])
    assert {spec.prompt for spec in specs.values()} == {"Ann has 3 pens."}
    assert differences(chosen["card"], repeat(session, specs)) == []
    assert search.race(chosen["name"]).b.prompt == "Ann has 3 pens."


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cache": "none"}, "cache: none has no settings"),
        ({"cache": "magic"}, "cache: 'magic' is unknown"),
        ({"cache": 3}, "cache: choose from"),
        ({"candidates": 1}, "candidates: 1 is outside"),
        ({"candidates": "many"}, "candidates: expected a whole number, not 'many'"),
        ({"keep": "0.9"}, "keep: expected a number, not '0.9'"),
        ({"random": 1}, "random: expected true or false, not '1'"),
        ({"keep": 2}, "keep: 2 is outside"),
        ({"of": "accuracy"}, "of: 6 of 6 prompts have no answer"),
        ({"colour": 1}, "colour: unknown"),
        ({"source": {"text": "one\ntwo"}}, "prompts: 2 are too few"),
        ({"source": {}}, "prompts: give either"),
        ({"base": replace(BASE, images=("8x8-" + "0" * 32,))}, "images: a search takes none"),
        ({"base": RunSpec(model="micro", gen_length=1024, steps=1024)}, "prompt: .* exceed"),
    ],
)
def test_impossible_searches_are_refused_by_name(served, changes, message):
    given = {"source": TEXT, "base": BASE, "cache": "dual"} | ASKED | changes
    source, base, cache = (given.pop(name) for name in ("source", "base", "cache"))
    with pytest.raises(ValueError, match=message):
        served.open(source, base, cache, **given)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"source": {"text": "\n".join(map(str, range(41)))}}, "prompts: 41 are more than the 40"),
        ({"cache": "dual,prefix"}, "cache: 2 are more than the 1"),
        ({"candidates": 9}, "candidates: 9 are more than the 8"),
    ],
)
def test_a_public_page_has_limits(session, asked, message):
    given = {"source": TEXT, "cache": "dual"} | ASKED | asked
    source, cache = given.pop("source"), given.pop("cache")
    with pytest.raises(ValueError, match=message):
        SearchService(session, public=True).open(source, BASE, cache, **given)
    assert PUBLIC.seconds


def test_old_searches_are_dropped_but_not_the_newest(session, monkeypatch):
    monkeypatch.setattr(service, "KEPT_SEARCHES", 1)
    served = SearchService(session)
    first, second = (served.open(TEXT, BASE, "dual", **ASKED) for _ in range(2))
    assert served.get(second.id) is second
    with pytest.raises(ValueError, match="search: it is no longer in memory"):
        served.get(first.id)

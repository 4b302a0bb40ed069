"""Batches of a page: limits, parts that continue each other, estimate, time, what is kept."""

import json
from dataclasses import replace

import pytest

from engine.batch import service
from engine.batch.prompts import MAX_PROMPTS
from engine.batch.runner import Finished
from engine.batch.service import PLAIN, PUBLIC, BatchService
from engine.batch.settings import plain_decoding
from engine.config.spec import RunSpec
from engine.core.control import LIFETIME_S, Control
from engine.core.events import QueueFullError

BASE = RunSpec(model="micro", prompt="", gen_length=8, block_length=8, steps=8)
DUAL = [{"name": "dual", "cache": "dual"}]
TEXT = {"text": "one\ntwo\nthree"}
IMAGE = "8x8-" + "0" * 32


@pytest.fixture
def served(session):
    return BatchService(session)


def run(batch, first=None, stop_after=None):
    """Run a batch, and stop it after so many runs."""
    control, over = Control(), 0
    for event in batch.run(control, first):
        over += isinstance(event, Finished)
        if over == stop_after:
            control.stop()
    return batch.figures()


def test_a_batch_is_stopped_goes_on_and_ends(served):
    batch = served.open(TEXT, BASE, DUAL)
    front = run(batch, stop_after=3)
    assert (front["state"], front["done"], front["total"]) == ("stopped", 3, 6)
    assert front["seconds_left"] > 0
    before = batch.rows(0, 100)
    front = run(served.get(batch.id))
    assert (front["state"], front["done"], front["seconds_left"]) == ("done", 6, 0)
    assert batch.rows(0, 3) == before
    assert [(row["prompt"], row["setting"]) for row in batch.rows(2, 3)] == [(1, 0), (1, 1), (2, 0)]
    assert [row["name"] for row in front["settings"]] == [PLAIN, "dual"]
    assert front["environment"]["threads"] == 1
    json.dumps(front)


def test_a_batch_that_was_stopped_within_its_last_recording_goes_on(served):
    batch, control = served.open({"text": "one\ntwo"}, BASE, DUAL, "steps"), Control()
    for event in batch.run(control):
        if isinstance(event, Finished) and event.done == event.total:
            control.stop()
    assert [row["recorded"] for row in batch.figures()["settings"]] == [2, 1]
    assert (batch.state, batch.left) == ("stopped", True)
    assert [row["recorded"] for row in run(batch)["settings"]] == [2, 2]
    assert (batch.state, batch.left) == ("done", False)


def test_an_estimate_runs_the_first_prompt_and_keeps_it(served):
    batch = served.open(TEXT, BASE, DUAL)
    front = run(batch, first=1)
    assert (front["state"], front["done"]) == ("estimated", 2)
    assert front["seconds_left"] > 0
    assert run(batch)["done"] == 6


def test_plain_decoding_has_the_lengths_of_the_base(served):
    base = RunSpec(model="micro", gen_length=16, block_length=8, steps=4, unmasker="threshold")
    plain = served.open(TEXT, base, []).results.settings[0].spec
    assert (plain.cache, plain.unmasker, plain.steps) == ("none", "quota", 16)
    own = served.open(TEXT, RunSpec(model="micro", steps=32, gen_length=64), [])
    assert own.results.settings[0].spec.steps == 32


def test_plain_decoding_is_the_base_itself_if_it_is_plain():
    base = RunSpec(model="micro", gen_length=16, block_length=8, steps=4)
    assert plain_decoding(base) is base
    cached = replace(base, cache="dual", knobs={"dual.refresh_interval": 4})
    assert plain_decoding(cached) == replace(base, steps=16)


def test_recorded_batches_have_aggregates(served):
    batch = served.open(TEXT, BASE, DUAL, record="layers")
    front = run(batch, stop_after=2)
    assert [row["recorded"] for row in front["settings"]] == [1, 0]
    front = run(batch)
    assert [row["recorded"] for row in front["settings"]] == [3, 3]
    found = batch.aggregates()
    assert (found["level"], found["settings"][1]["name"]) == ("layers", "dual")
    assert found["settings"][1]["runs"] == 3
    with pytest.raises(ValueError, match=r"^record: this batch is not recorded"):
        served.open(TEXT, BASE, []).aggregates()


def test_a_public_batch_ends_when_its_time_is_used_up_and_can_go_on(session, monkeypatch):
    monkeypatch.setattr(service, "PUBLIC", service.BatchLimits(50, 5, 200, seconds=1e-9))
    batch = BatchService(session, public=True).open(TEXT, BASE, DUAL)
    for done in range(1, 6):
        front = run(batch)
        assert (front["state"], front["done"]) == ("limit", done)
        assert front["message"].startswith("seconds: the 0 s that a batch may compute at once")
    assert run(batch)["state"] == "done"


def test_failed_runs_that_are_tried_again_have_a_limit_of_time_too(served, monkeypatch):
    def fail(spec, control):
        raise ValueError(f"prompt: {spec.prompt} is refused")

    monkeypatch.setattr(served._session, "run", fail)
    batch = served.open(TEXT, BASE, [])
    assert run(batch)["state"] == "done"
    batch._seconds = 1e-9
    again = [event for event in batch.run(Control()) if isinstance(event, Finished)]
    assert (len(again), batch.state) == (1, "limit")


def test_what_failed_is_tried_again_after_what_was_not_run_yet(served, monkeypatch):
    tried = []

    def fail(spec, control):
        tried.append(spec.prompt)
        raise ValueError(f"prompt: {spec.prompt} is refused")

    monkeypatch.setattr(served._session, "run", fail)
    batch = served.open(TEXT, BASE, [])
    run(batch, stop_after=1)
    assert run(batch)["state"] == "done"
    assert tried == ["one", "two", "three", "one"]


def test_the_rows_can_be_read_while_a_run_is_added(served, monkeypatch):
    batch, seen = served.open(TEXT, BASE, []), []

    def add(*given):
        seen.append(len(batch.rows(0, 100)))
        real(*given)
        seen.append(len(batch.rows(0, 100)))

    real = batch.results.add
    monkeypatch.setattr(batch.results, "add", add)
    assert run(batch)["done"] == 3
    assert seen == [0, 0, 1, 1, 2, 2]


def test_the_race_of_a_prompt_is_against_plain_decoding(served):
    batch = served.open(TEXT, BASE, DUAL)
    race = batch.race(2, 1)
    assert (race.a.prompt, race.a.cache, race.b.cache) == ("three", "none", "dual")
    with pytest.raises(ValueError, match=r"^batch: it has no such prompt"):
        batch.race(3, 0)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ({}, "prompts: give either"),
        ({"text": 4}, "prompts: give a text, or a list"),
        ({"text": " \n"}, "prompts: there are none"),
        ({"text": "a\n" * 10_000}, f"prompts: there are more than {MAX_PROMPTS}"),
        ({"text": "a\n" * 51}, "prompts: 51 are more than the 50 of a batch here"),
        ({"file": b'{"prompt": "a"}\n{"prompt": '}, "prompts: line 2: expected an object"),
        ({"rows": [{"prompt": "a"}, 4]}, "prompts: line 2: expected an object"),
        ({"problems": {"family": "nope"}}, "family: 'nope' is unknown"),
        ({"problems": {}}, "problems: family is missing; choose from"),
        ({"problems": {"family": "balance", "count": 0}}, "problems: count has to be"),
        ({"problems": {"family": "balance", "seed": "x"}}, "problems: seed has to be"),
        ({"problems": {"family": "balance", "colour": 1}}, "problems: 'colour' is unknown"),
    ],
)
def test_impossible_prompts_are_named(session, source, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        BatchService(session, public=True).open(source, BASE, DUAL)


@pytest.mark.parametrize(
    ("settings", "record", "said"),
    [
        (4, "off", "settings: expected a list of at most 4 objects"),
        ([4], "off", "settings: the field must be a JSON list"),
        ([{"name": "x", "cache": "nope"}], "off", "settings: x: cache: "),
        ([{"name": "x", "steps": 0}], "off", "settings: x: steps"),
        ([{"name": PLAIN}], "off", "settings: two have the same name"),
        ([{"name": " "}], "off", "settings: a name has 1 to 80"),
        ([{"name": str(i)} for i in range(5)], "off", "settings: 6 are more than the 5"),
        ([{"name": "x", "fixed": [[1, 5]]}], "off", "settings: a batch takes no start"),
        ([{"name": "x", "images": [IMAGE]}], "off", "images: a batch takes none"),
        (DUAL, "all", "record: choose from off, steps, layers, probe"),
    ],
)
def test_impossible_settings_are_named(session, settings, record, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        BatchService(session, public=True).open(TEXT, BASE, settings, record)


def test_a_prompt_that_does_not_fit_is_refused_before_the_first_run(served):
    with pytest.raises(ValueError, match=r"^plain decoding: prompt 2: \d+ tokens"):
        served.open({"text": "a\n" + "one " * 1900}, BASE, DUAL)


def test_old_batches_are_dropped_and_the_newest_stays(session, monkeypatch):
    monkeypatch.setattr(service, "KEPT_RUNS", 7)
    now = [0.0]
    served = BatchService(session, clock=lambda: now[0])
    first = served.open(TEXT, BASE, [])
    second = served.open(TEXT, BASE, DUAL)
    with pytest.raises(ValueError, match=r"^batch: it is no longer in memory"):
        served.get(first.id)
    now[0] = LIFETIME_S + 1
    assert served.get(second.id) is second
    for wrong in (None, [1], "x"):
        with pytest.raises(ValueError, match=r"^batch: it is no longer in memory"):
            served.get(wrong)


def test_batches_that_were_not_started_are_dropped_first(session, monkeypatch):
    monkeypatch.setattr(service, "KEPT_BATCHES", 3)
    served = BatchService(session)
    ran, estimated = served.open(TEXT, BASE, DUAL), served.open(TEXT, BASE, DUAL)
    assert (run(ran)["state"], run(estimated, first=1)["state"]) == ("done", "estimated")
    opened = [served.open(TEXT, BASE, DUAL) for _ in range(3)]
    for gone in (estimated, opened[0]):
        with pytest.raises(ValueError, match=r"^batch: it is no longer in memory"):
            served.get(gone.id)
    assert [served.get(one.id) for one in (ran, *opened[1:])] == [ran, *opened[1:]]


def test_the_batches_of_whoever_holds_most_make_room(session, monkeypatch):
    monkeypatch.setattr(service, "KEPT_BATCHES", 3)
    served, made = BatchService(session), {}
    for name in ("you", "me 1", "me 2", "me 3"):
        made[name], control = served.open({"text": "one"}, BASE, []), Control()
        control.owner = name.partition(" ")[0]
        list(made[name].run(control))
    with pytest.raises(ValueError, match=r"^batch: it is no longer in memory"):
        served.get(made.pop("me 1").id)
    assert [served.get(batch.id) for batch in made.values()] == [*made.values()]


def test_a_running_batch_cannot_be_run_twice(served):
    batch = served.open(TEXT, BASE, DUAL)
    events = batch.run(Control())
    next(events)
    with pytest.raises(ValueError, match=r"^batch: it is running"):
        next(batch.run(Control()))
    events.close()
    assert batch.state == "stopped"
    assert run(batch)["state"] == "done"


@pytest.mark.parametrize("record", ["off", "layers"])
def test_a_full_queue_ends_the_part_and_no_run_fails(served, session, monkeypatch, record):
    batch = served.open(TEXT, BASE, DUAL, record)
    asked = session.run

    def refused(spec, control):
        if batch.done >= 2:
            raise QueueFullError("queue: too many")
        return asked(spec, control)

    monkeypatch.setattr(session, "run", refused)
    front = run(batch)
    assert (front["state"], front["done"], front["message"]) == ("limit", 2, "queue: too many")
    assert batch.left
    monkeypatch.undo()
    assert (run(batch)["state"], batch.done) == ("done", 6)
    assert all(row["reason"] == "done" for row in batch.rows(0, 6))


def test_the_limits_are_described(session):
    found = BatchService(session, public=True).describe()
    assert found["prompts"] == PUBLIC.prompts
    assert found["levels"] == ["steps", "layers", "probe"]

"""What is left of visitors who have gone: nothing."""

import json
from types import SimpleNamespace

from engine.core.files import ASSETS
from inspector.handlers.branching import Branching
from inspector.handlers.lesson_service import LessonService
from inspector.handlers.view_service import ViewService
from inspector.lessons.lessons import LESSONS
from tests.inspector.conftest import form_values, small_race


def test_visitors_leave_nothing_behind(handlers, session, form, request_of):
    values = list(form_values(form, small_race(session, gen_length=16, block_length=16, steps=16)))
    staying = list(handlers.run(request_of("staying"), values))
    held = len(handlers.store)
    for i in range(5):
        who = request_of(f"visitor {i}")
        for _ in handlers.run(who, values):
            pass
        assert len(handlers.store) == held + 1
        handlers.leave(who)
        assert len(handlers.store) == held
    run_id = json.loads(staying[-1][0])["run"]
    assert json.loads(handlers.replay(run_id))["state"] == "done"
    assert handlers.live_runs.last("visitor 3") is None


def test_a_run_whose_visitor_left_meanwhile_is_not_kept(handlers, session, form, request_of):
    stream = handlers.run(request_of(), form_values(form, small_race(session)))
    for update in stream:
        if json.loads(update[0])["lanes"]:
            break
    handlers.leave(request_of())
    assert json.loads(list(stream)[-1][0])["state"] == "stopped"
    assert len(handlers.store) == 0


def test_a_visitor_who_went_back_to_the_example_leaves_it_to_the_others(handlers, request_of):
    run_id = json.loads(handlers.first_view(ASSETS / "examples"))["run"]
    event = SimpleNamespace(back=run_id)
    list(Branching(handlers).branch(event, request_of("me"), []))
    assert handlers.live_runs.last("me") == run_id
    handlers.leave(request_of("me"))
    assert json.loads(handlers.replay(run_id))["state"] == "example"


def test_a_visitor_who_knows_an_id_leaves_the_run_to_its_own_visitor(handlers, record, request_of):
    list(Branching(handlers).branch(SimpleNamespace(back=record.run_id), request_of("other"), []))
    assert handlers.live_runs.last("other") == record.run_id
    handlers.leave(request_of("other"))
    assert handlers.store.get(record.run_id) is record
    handlers.leave(request_of("visitor"))
    assert handlers.store.get(record.run_id) is None


def test_a_visitor_who_leaves_a_recording_leaves_the_run_to_its_own_visitor(
    handlers, record, request_of
):
    event = SimpleNamespace(run=record.run_id, level="layers")
    recording = ViewService(handlers).record(event, request_of("other"))
    next(recording)
    next(recording)
    handlers.leave(request_of("other"))
    list(recording)
    assert handlers.store.get(record.run_id) is record
    assert len(handlers.store) == 1


def test_a_run_that_another_visitor_sees_too_is_recorded_as_a_copy(handlers, record, request_of):
    """A new recording in its place would leave the other page without its views."""
    version = record.version
    event = SimpleNamespace(run=record.run_id, level="layers")
    *_, (last, *_) = ViewService(handlers).record(event, request_of("other"))
    own = handlers.store.get(json.loads(last)["run"])
    assert (record.recorded, record.version) == ({}, version)
    assert set(own.recorded) == {"a", "b"}


def test_the_race_of_another_visitor_that_goes_on_is_neither_recorded_nor_dropped(
    handlers, record, request_of
):
    record.state = "running"
    event = SimpleNamespace(run=record.run_id, level="layers")
    ((said, *_),) = ViewService(handlers).record(event, request_of("other"))
    assert json.loads(said)["message"].startswith("Nothing to record. The race goes on")
    assert handlers.store.get(record.run_id) is record


def test_an_example_that_a_visitor_began_to_record_is_not_kept(handlers, record, request_of):
    record.state, held = "example", len(handlers.store)
    handlers.store.pin(record)
    event = SimpleNamespace(run=record.run_id, level="layers")
    recording = ViewService(handlers).record(event, request_of("other"))
    next(recording)
    recording.close()
    assert len(handlers.store) == held + 1
    handlers.leave(request_of("other"))
    assert len(handlers.store) == held


def shown_lesson(lessons):
    """The id of the run that the first lesson shows."""
    asked = [LESSONS[0].key, next(iter(LESSONS[0].races()))]
    return json.loads(lessons.lesson(asked))["run"]


def test_all_visitors_share_the_run_of_a_lesson_and_no_other_start_has_its_id(handlers):
    first, later = (LessonService(handlers, ASSETS / "examples" / "lessons") for _ in range(2))
    assert shown_lesson(first) == shown_lesson(first) != shown_lesson(later)


def test_a_visitor_who_went_back_to_a_lesson_leaves_it_to_the_others(handlers, request_of):
    run_id = shown_lesson(LessonService(handlers, ASSETS / "examples" / "lessons"))
    list(Branching(handlers).branch(SimpleNamespace(back=run_id), request_of("me"), []))
    assert handlers.live_runs.last("me") == run_id
    handlers.leave(request_of("me"))
    assert json.loads(handlers.replay(run_id))["state"] == "example"


def test_callers_without_a_session_share_nothing(handlers, session, form, request_of):
    values = list(form_values(form, small_race(session, gen_length=16, block_length=16, steps=16)))
    list(handlers.run(request_of(None), values))
    assert handlers.current(request_of(None)) is None
    list(handlers.run(request_of("named"), values))
    assert handlers.current(request_of("named")) is not None

"""The page as built: private listeners, distinct ids, no torch, nothing started by an import."""

import asyncio
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from copy import copy

import pytest
from gradio import queueing

from engine.advise.service import SearchService
from engine.batch.service import BatchService
from engine.serve.fair_queue import MAX_WAITING
from engine.serve.model_pool import ModelPool
from inspector.handlers.api import VIEWS_AT_ONCE
from inspector.handlers.estimates import EstimateService
from inspector.handlers.page_handlers import BUTTONS, RUNS
from inspector.lessons.lessons import LESSONS
from inspector.page.layout import build, launch_options
from inspector.page.run_tab import FILES_AT_ONCE, plan_after_failure
from inspector.static_files import template
from tests.inspector.conftest import form_values, small_race
from tests.support.browser import ROOT


@pytest.fixture(scope="module")
def demo(session):
    return build(session)


@pytest.fixture(scope="module")
def whole(session):
    """The page with the tabs of many prompts and of the advisor."""
    return build(session, batches=BatchService(session), searches=SearchService(session))


def test_only_the_api_is_public(demo):
    shown = {fn.api_name: fn.api_visibility for fn in demo.fns.values()}
    assert set(shown.values()) <= {"public", "private"}
    assert {name for name, kind in shown.items() if kind == "public"} == {
        "estimate", "image", "methods", "plan", "run", "trace", "what_if",
    }  # fmt: skip


def test_the_advisor_begins_with_the_method_of_the_default_race(session, whole):
    (method,) = (one for one in whole.blocks.values() if one.elem_id == "ds-advice-cache")
    assert method.value == session.default_race().b.cache
    assert method.value in [name for _, name in method.choices]


def test_a_link_to_a_lesson_selects_no_tab_that_is_not_there(demo):
    assert "first_tab" not in {fn.name for fn in demo.fns.values()}


def test_a_message_of_a_listener_updates_few_components(whole):
    """The inputs and, unless a list names others, the outputs; the page is searched for each.

    The most inputs are those of a search for settings, 13; the settings alone are over 100. The
    server makes a component anew for each output that it updates; the most are the groups of knobs
    of a lane, 22.
    """
    served = [
        fn for fn in whole.fns.values() if fn.fn is not None and fn.api_visibility == "private"
    ]
    assert served
    for fn in served:
        assert len(fn.inputs) <= 16, fn.api_name
        assert len(fn.outputs) <= 24, fn.api_name
        assert fn.show_progress_on == [] or not fn.outputs, fn.api_name


def test_what_runs_the_settings_reads_them_just_after_they_were_copied(whole):
    """It follows the copy, or comes after one on the same event."""
    (copy,) = (i for i, one in whole.blocks.items() if one.elem_id == "ds-values-copy")
    copies = [fn for fn in whole.fns.values() if [one._id for one in fn.outputs] == [copy]]
    readers = [fn for fn in whole.fns.values() if copy in [one._id for one in fn.inputs]]
    fills = [fn for fn in readers if copy in [one._id for one in fn.outputs]]
    runs = [fn for fn in readers if fn not in fills and getattr(fn.fn, "__name__", "") != "plan"]
    served = {fn.fn.__name__ for fn in runs if fn.fn is not None}
    assert served == {"run", "branch", "fit", "press", "keep"}
    for fn in runs:
        before = [one for one in copies if one._id < fn._id and one.targets == fn.targets]
        assert before or fn.trigger_after in [one._id for one in copies], fn.api_name


def test_the_first_plan_is_that_of_the_default_race(demo, session, form):
    (copy,) = (one for one in demo.blocks.values() if one.elem_id == "ds-values-copy")
    assert copy.value == form_values(form, session.default_race())


def test_a_run_card_runs_after_its_import(demo):
    """The import is refused while a run goes on, and that of the card would be one."""
    found = {fn.name: fn for fn in demo.fns.values()}
    assert found["run_card"].trigger_after == found["import_files"]._id


@pytest.mark.parametrize(
    ("name", "told"), [("run_card", "driftscope-import-over"), ("run", "driftscope-over")]
)
def test_only_what_holds_the_keys_of_the_race_gives_them_back(demo, name, told):
    """A file may be uploaded during a run, which holds them until its own end.

    The race is told of the end also if the run or its recording fails.
    """
    (first,) = (fn for fn in demo.fns.values() if fn.name == name and fn.trigger_after is not None)
    chain, found = {first._id}, [first]
    for fn in sorted(demo.fns.values(), key=lambda fn: fn._id):
        if fn.trigger_after in chain:
            chain.add(fn._id)
            found.append(fn)
    (recording,) = (fn for fn in found if fn.name == "record_short_run")
    ends = [fn for fn in found if "driftscope-" in str(fn.js)]
    assert {(fn.trigger_after, fn.trigger_only_on_failure) for fn in ends} == {
        (first._id, True), (recording._id, True), (recording._id, False),
    }  # fmt: skip
    assert all(f"'{told}'" in fn.js for fn in ends)


def test_whatever_runs_a_race_updates_all_buttons_after_a_failure(whole):
    """It sends no last message then, and Stop would stay enabled and do nothing."""
    keys = {i for i, one in whole.blocks.items() if one.elem_id in {f"ds-{n}" for n in BUTTONS}}
    named = ("run", "run_card", "race", "record_short_run", "record", "branch")
    runs = [
        fn for fn in whole.fns.values()
        if fn.name in named and keys <= {one._id for one in fn.outputs}
    ]  # fmt: skip
    assert {fn.name for fn in runs} == set(named)
    for run in runs:
        follow = [fn for fn in whole.fns.values() if fn.trigger_after == run._id]
        failed = [fn for fn in follow if fn.trigger_only_on_failure and fn.name == "plan"]
        assert [keys <= {one._id for one in fn.outputs} for fn in failed] == [True], run.name


def test_after_a_failure_no_button_is_left_but_run(handlers, session, form, request_of):
    values = list(form_values(form, small_race(session)))
    _, *updates = plan_after_failure(handlers)(request_of(), values)
    assert [one["interactive"] for one in updates] == [True, False, False, False, False]


def test_a_failure_leaves_the_buttons_of_a_run_that_goes_on(handlers, session, form, request_of):
    values = list(form_values(form, small_race(session)))
    with closing(handlers.run(request_of(), values)) as running:
        next(running)
        _, run, *others = plan_after_failure(handlers)(request_of(), values)
    assert not run["interactive"]
    assert not any("interactive" in one for one in others)


@pytest.mark.parametrize(
    ("name", "most"),
    [("export", FILES_AT_ONCE), ("import_files", FILES_AT_ONCE), ("trace", VIEWS_AT_ONCE)],
)
def test_few_large_traces_are_unpacked_at_the_same_time(demo, name, most):
    (found,) = (fn for fn in demo.fns.values() if fn.name == name)
    assert found.concurrency_limit == most


def test_ids_are_distinct(demo):
    ids = [block.elem_id for block in demo.blocks.values() if getattr(block, "elem_id", None)]
    assert len(set(ids)) == len(ids)


def test_every_input_is_labelled(demo):
    for block in demo.blocks.values():
        if type(block).__name__ in ("Slider", "Number", "Dropdown", "Textbox", "Checkbox", "File"):
            assert block.label


def test_a_page_that_may_keep_nothing_can_be_loaded(whole):
    """A browser may give no storage to a page within that of another site: reading it throws."""
    scripts = [str(fn.js) for fn in whole.fns.values() if "Storage" in str(fn.js)]
    assert len(scripts) == 8, "of two tabs: kept by two keys, shown again, and the task"
    for script in scripts:
        assert script.index("try") < script.index("Storage") < script.index("catch")


def test_the_short_course_takes_half_an_hour_and_leaves_no_lesson_out():
    """A lesson may need what one before it has introduced."""
    last = int(re.search(r"Lessons 1 to (\d+) make a course of half an hour", template("learn"))[1])
    assert 25 <= sum(lesson.minutes for lesson in LESSONS[:last]) <= 30


@pytest.mark.parametrize("name", ["batch", "advice"])
def test_progress_that_changes_all_the_time_is_in_no_live_region(name):
    text = template(name)
    state, spoken = (
        re.search(rf"<p [^>]*data-{name}-{part}>", text)[0] for part in ("state", "spoken")
    )
    assert "role=" not in state
    assert 'role="status"' in spoken


def test_a_text_model_offers_no_image(demo):
    """The page opens with the first model, which reads text only."""
    (box,) = (one for one in demo.blocks.values() if one.elem_id == "ds-image-box")
    assert box.visible is False


def test_the_configs_of_all_models_are_read_once(session, monkeypatch):
    """That of the default model also for the default race."""
    read, describe = Counter(), ModelPool._describe

    def counted(pool, name):
        read[name] += 1
        return describe(pool, name)

    monkeypatch.setattr(ModelPool, "_describe", counted)
    build(session)
    del read[session.default_race().a.model]
    assert set(read.values()) == {1}


def test_launch_options_are_known_to_gradio(demo):
    import inspect

    assert set(launch_options(demo)) <= set(inspect.signature(demo.launch).parameters)
    assert launch_options(demo)["ssr_mode"] is False


def test_paused_runs_leave_places_and_threads_to_others(demo):
    paused = RUNS["concurrency_limit"] - MAX_WAITING
    assert paused >= 100  # three classes that press Pause
    assert launch_options(demo)["max_threads"] >= RUNS["concurrency_limit"] + 64


def test_an_idle_queue_looks_for_events_a_hundred_times_a_second(demo, monkeypatch):
    """Gradio's own pause, a tenth of that, costs a processor 4 % for as long as the app runs."""
    pauses = []

    async def pause(seconds):
        pauses.append(seconds)
        if len(pauses) == 3:
            raise EndedError

    monkeypatch.setattr(queueing.asyncio, "sleep", pause)
    queue = copy(demo._queue)
    queue.stopped = False
    with ThreadPoolExecutor(1) as pool, pytest.raises(EndedError):  # a loop may run in this thread
        pool.submit(asyncio.run, queue.start_processing()).result()
    assert pauses == [0.01] * 3


class EndedError(Exception):
    """Ends a loop that has no end."""


def loaded_after(statement, *modules):
    code = f"import sys; {statement}; print([m for m in {modules!r} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout.strip().splitlines()[-1]


def test_importing_the_app_starts_nothing():
    assert loaded_after("import app", "torch", "gradio", "engine.serve.session") == "[]"


def test_page_and_api_count_their_estimates_together(session, monkeypatch):
    """Else each of them would compute as many at the same time as one service may."""
    made, service = [], EstimateService.__init__

    def init(self, handlers):
        made.append(self)
        service(self, handlers)

    monkeypatch.setattr(EstimateService, "__init__", init)
    build(session)
    assert len(made) == 1

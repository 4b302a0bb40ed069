"""Branches: what is run on, what it stands beside, and what a refused wish leaves as it was."""

import json
from dataclasses import replace

import gradio as gr
import numpy as np
import pytest

from engine.config.branch_start import BranchStart
from engine.config.spec import RunSpec
from engine.trace.trace import Trace
from inspector.handlers.branching import Branching, child_record, trace_id
from inspector.handlers.view_service import ViewService
from tests.inspector.conftest import form_values, small_race


def asked(**data):
    return gr.EventData(None, data)


def values_of(handlers, **changes):
    form = handlers.form
    found = dict(zip(form.widgets, form_values(form, form.catalog.default), strict=True))
    return list((found | changes).values())


def ran(handlers, request_of, **data):
    values = values_of(handlers, **data.pop("values", {}))
    messages = list(Branching(handlers).branch(asked(**data), request_of(), values))
    return [json.loads(message[0]) for message in messages]


def test_a_branch_stands_beside_its_parent_which_stays(handlers, record, traces, request_of):
    before = record.traces["a"].to_bytes()
    step, prompt = 5, int(traces["a"].arrays()["prompt_mask"].sum())
    canvas = traces["a"].canvas_at(step)
    mask = traces["a"].meta["model"]["mask_id"]
    place = int(np.flatnonzero(canvas[prompt:] == mask)[0])
    said = ran(
        handlers, request_of, run=record.run_id, lane="a", step=step, edits=[[place, 351]],
        settings="parent",
    )  # fmt: skip
    last = said[-1]
    assert last["state"] == "done"
    assert last["parent"] == record.run_id
    assert last["run"] != record.run_id
    assert set(said[0]["lanes"]) == {"a"}
    assert last["summary"]["speedup"] is None
    child = handlers.store.get(last["run"])
    assert child.traces["a"] is traces["a"]
    assert handlers.current(request_of()) is child
    start = child.traces["b"].arrays()["canvas"]
    expected = canvas.copy()
    expected[prompt + place] = 351
    assert np.array_equal(start, expected)
    assert record.traces["a"].to_bytes() == before
    assert last["lanes"]["b"]["start"]["title"] == "Plain decoding, from step 6"


@pytest.mark.parametrize("reason", ["failed", "memory", "stopped"])
def test_a_branch_ends_as_its_own_lane_however_its_parent_ended(
    handlers, record, traces, request_of, reason
):
    traces["a"].meta |= {"reason": reason, "message": "odd"}
    last = ran(handlers, request_of, run=record.run_id, lane="a", step=5, edits=[])[-1]
    assert (last["state"], last.get("message", "")) == ("done", "")


def test_without_an_edit_the_branch_repeats_the_parent(handlers, record, traces, request_of):
    last = ran(handlers, request_of, run=record.run_id, lane="a", step=9, edits=[])[-1]
    tokens = handlers.store.get(last["run"]).traces["b"].canvas_at(999)
    assert np.array_equal(tokens, traces["a"].canvas_at(999))


def test_the_form_may_give_the_settings_but_not_the_prompt(handlers, record, request_of):
    form = {"b.cache": "prefix", "b.unmasker": "threshold", "prompt": "Other?", "gen_length": 64,
            "block_length": 16}  # fmt: skip
    last = ran(
        handlers, request_of, run=record.run_id, lane="a", step=3, edits=[], settings="form",
        values=form,
    )[-1]  # fmt: skip
    spec = handlers.store.get(last["run"]).traces["b"].meta["spec"]
    parent = record.traces["a"].meta["spec"]
    assert (spec["cache"], spec["unmasker"]) == ("prefix", "threshold")
    assert (spec["prompt"], spec["gen_length"]) == (parent["prompt"], parent["gen_length"])
    assert spec["start"] == {"trace": trace_id(record, "a"), "step": 3, "edits": []}


def test_back_shows_the_parent_again(handlers, record, request_of):
    ran(handlers, request_of, run=record.run_id, lane="b", step=2, edits=[])
    assert handlers.current(request_of()) is not record
    back = ran(handlers, request_of, back=record.run_id)[-1]
    assert (back["run"], back["state"], back["parent"]) == (record.run_id, "done", "")
    assert handlers.current(request_of()) is record


def test_a_branch_counts_the_steps_before_it_and_names_its_edits(handlers, record, request_of):
    mask_again = int(np.flatnonzero(record.traces["a"].step_map()[-16:] == 0)[0])
    last = ran(
        handlers, request_of, run=record.run_id, lane="a", step=5, edits=[[mask_again, -1]]
    )[-1]  # fmt: skip
    start = last["lanes"]["b"]["start"]
    assert (start["before"], start["branch"]) == (5, {str(mask_again): -1})
    assert last["lanes"]["a"]["start"]["branch"] is None
    again = ran(handlers, request_of, run=last["run"], lane="b", step=2, edits=[])[-1]
    titles = [again["lanes"][lane]["start"]["title"] for lane in "ab"]
    assert titles == ["Plain decoding, from step 6", "Plain decoding, from step 8"]


def test_an_imported_branch_of_a_branch_counts_the_steps_of_both(handlers, record, request_of):
    first = ran(handlers, request_of, run=record.run_id, lane="a", step=10, edits=[])[-1]
    said = ran(handlers, request_of, run=first["run"], lane="b", step=5, edits=[])[-1]
    held = handlers.store.get(said["run"])
    files = [Trace.from_bytes(held.traces[lane].to_bytes()) for lane in "ab"]
    assert [trace.steps_before for trace in files] == [10, 15]
    older = held.traces["a"].snapshot()
    del older.meta["steps_before"]
    assert older.steps_before == 10


def test_chosen_steps_are_probed_in_the_lane_that_took_them(handlers, record, request_of):
    run = ran(handlers, request_of, run=record.run_id, lane="a", step=6, edits=[])[-1]["run"]
    views = ViewService(handlers)
    said = list(views.record(asked(run=run, level="probe", probe_at=[2, 9]), request_of()))
    assert json.loads(said[-1][0])["message"] == ""
    child = handlers.current(request_of())
    steps = {lane: trace.arrays()["probe_step"].tolist() for lane, trace in child.recorded.items()}
    assert steps == {"a": [2, 9], "b": [3]}
    before = child.version
    list(views.record(asked(run=run, level="probe", probe_at=[2]), request_of()))
    assert child.version != before
    assert len(child.recorded["b"].arrays()["probe_step"]) == 0
    said = list(views.record(asked(run=run, level="probe", probe_at="3"), request_of()))
    refused = "Nothing to record. probe_at: expected a list of steps"
    assert json.loads(said[-1][0])["message"] == refused


def test_a_branch_can_be_recorded(handlers, record, request_of):
    last = ran(handlers, request_of, run=record.run_id, lane="a", step=6, edits=[])[-1]
    event = asked(run=last["run"], level="layers")
    said = list(ViewService(handlers).record(event, request_of()))
    assert json.loads(said[-1][0])["message"] == ""
    child = handlers.store.get(last["run"])
    assert set(child.recorded) == {"a", "b"}
    assert np.array_equal(child.recorded["b"].canvas_at(99), child.traces["b"].canvas_at(99))


@pytest.mark.parametrize(
    "wish",
    [
        {"run": "unknown", "lane": "a", "step": 1}, {"lane": "c", "step": 1},
        {"lane": ["a"], "step": 1}, {"lane": "a", "step": -1}, {"lane": "a", "step": "1"},
        {"lane": "a", "step": 99}, {"lane": "a", "step": 1, "edits": [[99, 3]]},
        {"lane": "a", "step": 1, "edits": "x"}, {"lane": "a", "step": 1, "edits": [[0, 10**9]]},
        {"back": 3}, {"back": "unknown"}, {},
    ],
)  # fmt: skip
def test_an_impossible_wish_changes_nothing(handlers, record, request_of, wish):
    said = ran(handlers, request_of, **{"run": record.run_id} | wish)
    assert said[-1]["state"] == "failed"
    assert said[-1]["message"]
    assert "Unexpected error" not in said[-1]["message"]
    held = handlers.current(request_of())
    assert held is record or held.parent == record.run_id


def test_a_refused_setting_of_the_form_is_named_by_its_label(handlers, record, request_of):
    values = {"b.unmasker": "threshold", "b.threshold.threshold": -3.0}
    wish = {"run": record.run_id, "lane": "a", "step": 5, "settings": "form", "values": values}
    assert ran(handlers, request_of, **wish)[-1]["message"].startswith("Threshold: ")


def test_a_run_that_goes_on_has_no_branch(handlers, record, request_of):
    record.state = "running"
    said = ran(handlers, request_of, run=record.run_id, lane="a", step=5)[-1]["message"]
    assert said == "The run goes on: wait for its end, or stop it."


def test_a_refused_branch_leaves_the_buttons_of_a_run_that_goes_on(handlers, request_of):
    run = handlers.run_race(small_race(handlers.session), "visitor")
    next(run)
    event, values = asked(run="gone"), values_of(handlers)
    ((said, *updates),) = Branching(handlers).branch(event, request_of(), values)
    assert json.loads(said)["state"] == "failed"
    assert not any("interactive" in update for update in updates)
    run.close()


def test_a_parent_that_is_gone_is_named(handlers, record, request_of):
    run = ran(handlers, request_of, run=record.run_id, lane="a", step=6, edits=[])[-1]["run"]
    handlers.store.drop(record.run_id)
    event = asked(run=run, level="layers")
    said = list(ViewService(handlers).record(event, request_of()))
    gone = "The run that this branch continues is no longer in memory"
    assert json.loads(said[-1][0])["message"].startswith(gone)
    back = ran(handlers, request_of, back=record.run_id)[-1]
    assert "no longer in memory" in back["message"]


def test_the_offspring_keeps_what_was_recorded_of_the_parent(record, traces):
    record.recorded = {"b": traces["a"]}
    above = RunSpec.from_dict(traces["b"].meta["spec"])
    start = BranchStart(trace_id(record, "b"), 4)
    child = child_record(record, "b", replace(above, start=start))
    assert (child.expected, child.parent) == ("45", record.run_id)
    assert child.traces["a"] is traces["b"]
    assert child.recorded == {"a": traces["a"]}

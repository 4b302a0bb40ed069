"""The API as a program uses it, and what the page's stream weighs."""

import json
import math
import os
import signal
import time
from contextlib import closing
from functools import partial

import pytest
from gradio_client.exceptions import AppError

from tests.inspector.unpacked import unpacked
from tests.proofs import visitors
from tests.proofs.endurance import endure
from tests.proofs.fuzz_web import MODEL, Web, shares
from tests.support.browser import PROMPT, ROOT, running_app
from tests.support.crash import BROKEN, write_broken
from tests.support.micro import write_checkpoint
from tests.support.web import Visitor, program

UPDATE_BYTES = 5_000
START_BYTES = 20_000
STREAM_BYTES = 1_500_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("api")


@pytest.fixture(scope="module")
def steps(folder):
    """A broken checkpoint; the steps that a run of it gets through."""
    return write_broken(folder / "models")


@pytest.fixture(scope="module")
def app(folder, steps):
    models = [folder / "models" / BROKEN, write_checkpoint(folder / "models" / MODEL)]
    env = {"DRIFTSCOPE_MODELS": os.pathsep.join(map(str, models))}
    with running_app(folder, **env, GRADIO_TEMP_DIR=str(folder / "cache")) as app:
        yield app


@pytest.fixture(scope="module")
def client(app):
    return program(app.url)


def race(**changes):
    shape = {"prompt": PROMPT, "gen_length": 32, "block_length": 16, "steps": 32} | changes
    fast = {"unmasker": "threshold", "cache": "dual", "threshold.threshold": 0.9}
    return {"a": shape, "b": shape | fast}


def test_endpoints_with_types(client):
    named = client.view_api(return_format="dict")["named_endpoints"]
    batches = {"/batch", "/batch_results", "/batch_aggregates"}
    searches = {"/advise", "/advise_results"}
    races = {"/methods", "/plan", "/estimate", "/run", "/trace", "/what_if", "/image"}
    assert set(named) == races | batches | searches
    assert named["/run"]["parameters"][0]["parameter_name"] == "race"


def test_methods(client):
    found = client.predict(api_name="/methods")
    assert {"quota", "threshold"} <= {row["name"] for row in found["unmaskers"]}
    assert {"none", "prefix", "dual"} <= {row["name"] for row in found["caches"]}
    assert found["models"]


def test_plan(client):
    found = client.predict(race(), api_name="/plan")
    assert found["plans"]["a"]["max_forwards"] == 32
    assert found["plans"]["b"]["min_forwards"] == 2
    assert client.predict({}, api_name="/plan")["plans"]["a"]["max_forwards"] == 64


def test_estimate_of_both_lanes_on_another_model(client):
    found = client.predict(race(), "GSAI-ML/LLaDA-8B-Instruct", "h100", api_name="/estimate")
    a, b = found["a"], found["b"]
    assert a["flops_per_step"] > 5e11
    assert sum(a["flops_by_part"].values()) == a["flops"]
    assert (a["exact"], b["exact"]) == (True, False)
    assert b["recomputed"] < 1 == a["recomputed"]
    assumed = {"prompt_tokens": 700, "assumptions": {"tokens_per_forward": 4}}
    given = ("GSAI-ML/LLaDA-8B-Instruct", "h100", assumed)
    other = client.predict(race(), *given, api_name="/estimate")
    assert other["a"]["prompt_tokens"] == 700
    assert other["b"]["forwards"] == 8


@pytest.mark.parametrize(
    ("model", "device", "options", "named"),
    [
        ("gpt-9", "h100", {}, "model: "),
        ("llada:layers=2,d=64", "abacus", {}, "device: "),
        ("llada:layers=2,d=64", "h100", {"colour": 1}, "options: 'colour' is unknown"),
        ("llada:layers=2,d=64", "h100", {"prompt_tokens": 0}, "prompt_tokens: "),
        ("llada:layers=2,d=64", "h100", {"recorded": "gone"}, "recorded: "),
        ("llada:layers=2,d=64", "h100", {"assumptions": {"share": 2}}, "share: "),
    ],
)
def test_impossible_estimates_are_refused_by_name(client, model, device, options, named):
    with pytest.raises(AppError, match=named):
        client.predict(race(), model, device, options, api_name="/estimate")


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (race(prompt=""), "prompt"),
        (race(prompt="x" * 9000), "prompt"),
        (race(prompt="nuts " * 1500), "prompt"),
        (race(gen_length=0), "gen_length"),
        (race(gen_length=100_000), "gen_length"),
        (race(steps=-1), "steps"),
        (race(steps=31), "steps"),
        (race(block_length=7), "block_length"),
        (race(unmasker="magic"), "unmasker"),
        (race(cache="magic"), "cache"),
        (race(model="../../gone"), "model"),
        (race(model="/etc"), "config.json"),
        (race(device="tpu"), "device"),
        (race(temperature="hot"), "temperature"),
        (race(**{"quota.speed": 1}), "quota.speed"),
        (race(colour="red"), "colour"),
        ({"a": {}}, "race"),
        ({"a": [], "b": 3}, "spec"),
    ],
)
def test_impossible_races_are_refused_by_name(client, given, named):
    with pytest.raises(AppError, match=named):
        client.predict(given, api_name="/run")


RECORDED = json.loads((ROOT / "tests" / "data" / "recorded_api.json").read_text("utf-8"))


def test_methods_has_the_recorded_names_and_fields(client):
    found = client.predict(api_name="/methods")
    for kind, names in RECORDED["methods"].items():
        assert set(names) <= {row["name"] for row in found[kind]}
    for kind, fields in RECORDED["method_fields"].items():
        assert all(set(fields) <= set(row) for row in found[kind])


@pytest.mark.parametrize("recorded", RECORDED["runs"], ids=range(len(RECORDED["runs"])))
def test_recorded_calls_give_the_recorded_answers(client, recorded):
    plans = client.predict(recorded["race"], api_name="/plan")["plans"]
    last = client.submit(recorded["race"], api_name="/run").result()["lanes"]
    for lane in "ab":
        assert recorded["plans"][lane].items() <= plans[lane].items()
        assert last[lane]["text"] == recorded["texts"][lane]
        assert recorded["metrics"][lane].items() <= last[lane]["metrics"].items()


def test_nan_is_refused(app):
    with closing(Visitor(app.url)) as visitor:  # the client of Gradio would not send it
        answer = visitor.post("/call/run", {"data": [race(temperature=math.nan)]})
    assert answer.status_code == 400
    assert "body: not a JSON document" in answer.text


def test_a_run_streams_steps_and_ends_with_metrics(client):
    job = client.submit(race(), api_name="/run")
    last = job.result()
    steps = {"a": [], "b": []}
    for update in job.outputs():
        for row in update["steps"]:
            steps[row["lane"]].append(row["step"])
    assert steps["a"] == list(range(32))
    assert steps["b"] == list(range(len(steps["b"])))
    assert last["state"] == "done"
    assert last["lanes"]["a"]["metrics"]["forwards"] == 32
    assert last["lanes"]["b"]["metrics"]["forwards"] == len(steps["b"])
    assert last["summary"]["speedup"] > 0
    assert len(last["run"]) >= 24
    assert (
        client.predict(race(), api_name="/run")["lanes"]["a"]["text"]
        == (last["lanes"]["a"]["text"])
    )


def test_cancel_leaves_the_engine_free(client):
    """A run that had gone on to its end, before the next one, would be kept for its views."""
    job = client.submit(race(prompt=PROMPT * 6, gen_length=256, steps=256), api_name="/run")
    while not any(update["steps"] for update in job.outputs()):
        time.sleep(0.05)
    run = job.outputs()[-1]["run"]
    job.cancel()
    assert client.predict(race(), api_name="/run")["state"] == "done"
    with pytest.raises(AppError, match="no longer in memory"):
        client.predict(run, "a", "frame", api_name="/trace")


def press_run(app, changes):
    """Press the page's Run without a browser; the events of its stream and their bytes."""
    visitor, events = Visitor(app.url), []
    visitor.join("ds-run.click", **changes)
    with closing(visitor), closing(visitor.lines()) as lines:
        for line in lines:
            events.append((json.loads(line[5:]), len(line.encode()) + 1))  # with the line's end
            if events[-1][0]["msg"] == "process_completed":
                return events
    raise AssertionError("the stream ended early")


def test_the_page_s_stream_is_light(app, record_property):
    changes = {"ds-prompt": PROMPT, "ds-gen_length": 128, "ds-a-steps": 128}
    events = press_run(app, changes)
    updates = [size for event, size in events if event["msg"] == "process_generating"]
    *live, whole = updates
    total = sum(size for _, size in events)
    record_property("bytes per update", sorted(live))
    record_property("bytes of the last message", whole)
    assert len(live) > 5
    assert sorted(live)[-2] < UPDATE_BYTES
    assert max(live) < START_BYTES
    assert whole < 60_000
    assert total < STREAM_BYTES


def test_a_view_of_a_run_by_its_id(client):
    ran = client.predict(race(record="steps"), api_name="/run")
    ask = partial(client.predict, api_name="/trace")
    found = ask(ran["run"], "b", "candidates")
    assert unpacked(found["ids"]).shape == (*unpacked(found["step"]).shape, 5)
    shape = unpacked(ask(ran["run"], "a", "plan")["plan"]).shape
    assert shape[:3] == (32, 8, 4)
    assert len(ran["run"]) >= 20
    for run, lane, view, said in [
        (ran["run"][:-1], "a", "frame", "no longer in memory"),
        ("../../etc/passwd" * 99, "a", "frame", "no longer in memory"),
        (ran["run"], "c", "frame", "lane: choose from a, b"),
        ([ran["run"]], "a", "frame", "run: expected text"),
        (ran["run"], "a", {}, "view: expected text"),
        (ran["run"], "a", "__class__", "choose from frame"),
        (ran["run"], "a", "similarity", "No steps were compared"),
    ]:
        with pytest.raises(AppError, match=said):
            ask(run, lane, view)


def test_what_if_of_a_run_by_its_id(client):
    ran = client.predict(race(record="steps"), api_name="/run")
    ask = partial(client.predict, api_name="/what_if")
    own = ask(ran["run"], "b", 0, {})
    assert own["own"]
    assert own["would"] == own["did"]
    other = ask(ran["run"], "b", 0, {"threshold.threshold": 2.0})
    assert sum(other["would"]) == 1
    for run, step, settings, said in [
        (ran["run"][:-1], 0, {}, "no longer in memory"),
        (ran["run"], 10_000, {}, "step: expected a step"),
        (ran["run"], 0, {"threshold.threshold": "high"}, "threshold.threshold: expected a number"),
        (ran["run"], 0, ["x"], "settings: expected a mapping"),
        (ran["run"], "0", {}, "step: expected a whole number"),
    ]:
        with pytest.raises(AppError, match=said):
            ask(run, "b", step, settings)


def test_three_visitors_at_once(app):
    assert visitors.at_once(app, 3)["lanes equal"] == 6


def test_who_is_cut_off_frees_the_model(app):
    visitors.left_by(app, "cut")


def test_pages_see_their_own_races(app):
    visitors.pages_apart(app)


def test_a_crash_in_a_step_is_told_and_harms_nobody(app, steps):
    visitors.crashed(app, steps)


def test_runs_and_cancels_at_once_all_end(app):
    tally = endure(app, 1, 3, most_steps=8)
    assert tally.done == {"page and program": 1, "tab closed": 1, "cancel": 1, "Stop": 1}


def test_hostile_requests(app, folder):
    web = Web(app, folder)
    for strategy, check, share in shares(web):
        web.all_of(share // 4, strategy, check)
    assert sum(web.tally.values()) > 20


def test_the_app_is_still_well(app, client):
    assert client.predict(race(), api_name="/run")["state"] == "done"
    assert "Traceback" not in app.log.read_text()


def test_an_app_that_is_ended_during_a_run_does_not_abort(app, client):
    """The last of this file, because it ends the app.

    It closes the connections of its clients, for which it would wait five seconds.
    """
    lane = {"prompt": "one", "gen_length": 512, "block_length": 512, "steps": 512}
    job = client.submit({"a": lane, "b": lane}, api_name="/run")
    while not job.outputs():
        time.sleep(0.05)
    os.kill(app.pid, signal.SIGINT)
    while app.runs():
        time.sleep(0.05)
    log = app.log.read_text()
    assert "Closing server running on port" in log
    assert "terminate called" not in log

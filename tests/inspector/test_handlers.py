"""What the buttons do, on the real session: runs, flags, refusals, imports, links."""

import json
import shutil
import threading
import time
from contextlib import closing

import pytest

from engine.core.files import ASSETS
from engine.serve.session import Session
from inspector.handlers.page_handlers import BUTTONS, Handlers
from tests.inspector.conftest import form_values, given_values, make_form, small_race


def values_of(form, race, **changes):
    return list((dict(zip(form.widgets, form_values(form, race), strict=True)) | changes).values())


def pressable(updates):
    return {name for name, u in zip(BUTTONS, updates, strict=True) if u.get("interactive")}


@pytest.fixture
def small(session, form):
    return values_of(form, small_race(session))


@pytest.fixture
def every_step(monkeypatch):
    """A message for every step."""
    monkeypatch.setattr("inspector.handlers.page_handlers.MAX_HZ", 1e9)


def test_a_run_streams_and_ends_whole(handlers, small, request_of):
    updates = list(handlers.run(request_of(), small))
    first, last = json.loads(updates[0][0]), json.loads(updates[-1][0])
    assert first["state"] == "starting"
    assert pressable(updates[0][1:]) == {"pause", "stop"}
    assert last["state"] == "done"
    assert last["reset"]
    assert len(last["lanes"]["a"]["rows"]) == 16
    assert last["summary"]["speedup"] > 0
    assert pressable(updates[-1][1:]) == set()
    assert handlers.plan(request_of(), small)[1]["interactive"]
    assert handlers.live_runs.control("visitor") is None
    assert handlers.store.get(last["run"]).state == "done"


def test_stop_ends_within_a_step(handlers, small, request_of, every_step):
    stream = handlers.run(request_of(), small)
    for update in stream:
        news = json.loads(update[0])
        if news["lanes"].get("a", {}).get("rows"):
            break
    handlers.flag("stop")(request_of())
    last = json.loads(list(stream)[-1][0])
    assert last["state"] == "stopped"
    assert 0 < len(last["lanes"]["a"]["rows"]) < 32
    again = json.loads(list(handlers.run(request_of(), small))[-1][0])
    assert again["state"] == "done"


def test_pause_step_resume(handlers, form, session, request_of):
    held, seen = [], []
    values = values_of(form, small_race(session, gen_length=64, steps=64))
    thread = threading.Thread(
        target=lambda: seen.extend(handlers.run(request_of(), values)), daemon=True
    )
    thread.start()

    def steps():
        record = handlers.store.get(handlers.live_runs.last("visitor") or "")
        return sum(t.steps for t in record.traces.values()) if record else 0

    def wait_for(check):
        end = time.monotonic() + 30
        while not check():
            assert time.monotonic() < end
            time.sleep(0.005)

    wait_for(lambda: steps() > 2)
    handlers.flag("pause")(request_of())
    wait_for(lambda: any(json.loads(u[0])["state"] == "paused" for u in seen))
    for _ in range(3):
        held.append(steps())
        handlers.flag("step")(request_of())
        wait_for(lambda: steps() > held[-1])
        time.sleep(0.3)
        assert steps() == held[-1] + 1
    assert any(pressable(u[1:]) == {"step", "resume", "stop"} for u in seen)
    handlers.flag("resume")(request_of())
    thread.join(60)
    assert json.loads(seen[-1][0])["state"] == "done"


def test_closing_the_stream_frees_the_engine(handlers, small, request_of):
    stream = handlers.run(request_of(), small)
    for update in stream:
        if json.loads(update[0])["lanes"]:
            break
    stream.close()
    assert handlers.live_runs.control("visitor") is None
    assert len(handlers.store) == 0
    assert json.loads(list(handlers.run(request_of("other"), small))[-1][0])["state"] == "done"


def test_a_second_run_takes_the_place_of_the_first(handlers, small, request_of, every_step):
    """The end of the first would bring back its lanes, and the buttons of a page without a run."""
    first = handlers.run(request_of(), small)
    assert json.loads(next(first)[0])["state"] == "starting"
    second = handlers.run(request_of(), small)
    run = json.loads(next(second)[0])["run"]
    assert list(first) == []
    assert handlers.live_runs.control("visitor") is not None
    last = json.loads(list(second)[-1][0])
    assert (last["run"], last["state"]) == (run, "done")


def test_a_plan_of_settings_changed_during_a_run_enables_run_if_the_run_has_ended(
    handlers, small, request_of, monkeypatch
):
    stream = handlers.run(request_of(), small)
    next(stream)
    assert not handlers.plan(request_of(), small)[1]["interactive"]
    plans = handlers._plans

    def slow(race):
        stream.close()
        return plans(race)

    monkeypatch.setattr(handlers, "_plans", slow)
    assert handlers.plan(request_of(), small)[1]["interactive"]


def test_a_run_sets_the_buttons_again_with_its_first_steps(handlers, small, request_of):
    """A plan that was made before the run can reach the page after the run's first message."""
    first, second, third, *_ = handlers.run(request_of(), small)
    assert pressable(first[1:]) == pressable(second[1:]) == {"pause", "stop"}
    assert not any("interactive" in update for update in third[1:])


def test_the_first_message_of_a_lane_has_the_question(handlers, small, request_of):
    news = [json.loads(update[0]) for update in handlers.run(request_of(), small)]
    first = next(one for one in news if one.get("reset"))
    assert first["state"] == "running"
    assert first["question"] == news[-1]["question"] != ""


def test_a_second_visitor_waits_and_both_finish(handlers, small, request_of):
    last = {}

    def run(name):
        last[name] = json.loads(list(handlers.run(request_of(name), small))[-1][0])

    threads = [threading.Thread(target=run, args=(name,), daemon=True) for name in ("x", "y")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert last["x"]["run"] != last["y"]["run"]
    assert last["x"]["lanes"]["a"]["end"]["text"] == last["y"]["lanes"]["a"]["end"]["text"]


def test_a_plan_reads_the_configs_of_no_other_models(handlers, small, request_of, monkeypatch):
    monkeypatch.setattr(handlers.session._models, "describe", lambda: pytest.fail("all are read"))
    assert json.loads(handlers.plan(request_of(), small)[0])["estimates"]["models"]


def test_the_plan_enables_run(handlers, small, request_of):
    document, button = handlers.plan(request_of(), small)
    plan = json.loads(document)
    assert plan["ok"]
    assert plan["lanes"][0]["plan"].endswith("16 forwards")
    assert button["interactive"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"prompt": ""}, "Prompt"),
        ({"prompt": " \n "}, "Prompt"),
        ({"prompt": "nuts " * 1500}, "Prompt"),
        ({"a.steps": 5}, "Steps"),
        ({"gen_length": 0}, "Answer length"),
        ({"gen_length": -8}, "Answer length"),
        ({"block_length": 5}, "Block length"),
        ({"b.threshold.threshold": float("nan")}, "Threshold"),
        ({"b.unmasker": "magic"}, "Unmasker"),
        ({"b.cache": None}, "Cache"),
        ({"model": "gone"}, "Model"),
    ],
)
def test_bad_settings_are_refused_in_place(handlers, form, session, request_of, changes, named):
    values = values_of(form, small_race(session), **changes)
    document, button = handlers.plan(request_of(), values)
    plan = json.loads(document)
    assert not plan["ok"]
    assert named in plan["error"]
    assert not button["interactive"]
    (update,) = handlers.run(request_of(), values)
    assert json.loads(update[0])["state"] == "failed"
    assert pressable(update[1:]) == set()


HOSTILE = "<img src=x onerror=alert(1)>${window.x=1}`{{value}}` \u202eשלום 😀\U000e0001" * 50


def test_hostile_prompts_are_only_text(handlers, form, session, request_of):
    race = small_race(session, gen_length=16, block_length=16, steps=16)
    values = values_of(form, race, prompt=HOSTILE[:80])
    last = json.loads(list(handlers.run(request_of(), values))[-1][0])
    assert last["state"] == "done"
    assert last["question"] == HOSTILE[:80].strip()


def test_links(handlers, form, session, request_of):
    race = small_race(session, seed=5)
    assert handlers.restore(request_of(__theme="dark"))[1] is None
    params = {"gen_length": "64", "seed": "5", "prompt": race.a.prompt, "b.cache": "dual"}
    params |= {"cursor": "b.12.3.40", "look": "drift"}
    skip, given = handlers.restore(request_of(**params))
    assert skip.get("__type__") == "update"
    found = given_values(form, given)
    assert set(found) == set(form.widgets)
    assert (found["gen_length"], found["seed"], found["b.cache"]) == (64, 5, "dual")
    assert found["prompt"] == race.a.prompt
    bad, given = handlers.restore(request_of(gen_length="many"))
    assert "Answer length" in json.loads(bad)["message"]
    assert given is None


@pytest.mark.parametrize(("params", "prompt"), [({"b.cache": "dual"}, None), ({"prompt": ""}, "")])
def test_a_link_without_a_prompt_has_that_of_the_page(handlers, form, request_of, params, prompt):
    _, given = handlers.restore(request_of(**params))
    own = form.catalog.default.a.prompt
    assert given_values(form, given)["prompt"] == (own if prompt is None else prompt)


def test_dice_and_examples_know_their_answers(handlers, session):
    prompt, *_ = handlers.new_problem(0, "balance", 16)
    assert handlers.known_problems.expected(prompt) is not None
    assert handlers.new_problem(2, None, 16)[0] != handlers.new_problem(2, None, 16)[0]
    assert isinstance(handlers.new_problem(None, ["x"], None)[0], str)
    assert isinstance(handlers.new_problem(10**400, None, -(10**400))[0], str)
    example = session.examples()[0]
    assert handlers.example(example["label"], 16)[0] == example["prompt"]
    assert handlers.known_problems.expected(example["prompt"]) == example["answer"]
    assert all(update.get("__type__") == "update" for update in handlers.example("none", 16))


def test_a_model_offers_the_families_that_it_knows(handlers, monkeypatch):
    known = {"few": [("Short", "short")], "many": [("Short", "short"), ("Long", "long")]}
    monkeypatch.setattr(handlers.session, "families", lambda model="": known[model or "many"])
    few = handlers.offer_families("few", "long", hidden=True)
    assert (few["choices"], few["value"], few["visible"]) == (known["few"], "short", False)
    assert handlers.offer_families("few", "short")["visible"]
    for model in ("many", None, 3):
        found = handlers.offer_families(model, "long", hidden=True)
        assert (found["choices"], found["value"], found["visible"]) == (known["many"], "long", True)


@pytest.mark.parametrize("block", [1, 16, 32])
def test_a_new_problem_sets_the_length_of_its_own_text(handlers, form, request_of, block):
    for _, family in handlers.session.families():
        prompt, length, *steps = handlers.new_problem(0, family, block)
        known = handlers.known_problems.get(prompt)
        assert length % block == 0
        assert 0 <= length - known.answer_tokens < block
        assert steps == [length, length]
        values = form_values(form, handlers.session.default_race())
        values = dict(zip(form.widgets, values, strict=True)) | {
            "prompt": prompt, "gen_length": length, "block_length": block, "a.steps": length,
        }  # fmt: skip
        plan = json.loads(handlers.plan(request_of(), list(values.values()))[0])
        context = plan["lanes"][0]["context"]
        assert context.endswith(
            f"the worked answer has {known.answer_tokens} tokens, rounded up to blocks of {block}"
        )
        values["gen_length"] = values["a.steps"] = length + block
        plan = json.loads(handlers.plan(request_of(), list(values.values()))[0])
        assert plan["lanes"][0]["context"].endswith(f"for which {length} would do")


def test_a_new_problem_keeps_the_worked_examples(handlers):
    assert handlers.session.default_shots() == 2
    prompt = handlers.new_problem(3, "short_problems", 16)[0]
    assert prompt.count("Answer: ") == 3


def test_replay_takes_only_ids_it_gave_out(handlers, small, request_of):
    last = json.loads(list(handlers.run(request_of(), small))[-1][0])
    assert json.loads(handlers.replay([last["run"]]))["run"] == last["run"]
    for odd in (None, "", "x", ["x"], 3, {"a": 1}, "x" * 10_000, []):
        assert json.loads(handlers.replay(odd))["state"] == "failed"


def test_no_example_is_said(handlers, tmp_path):
    assert json.loads(handlers.first_view(tmp_path))["state"] == "empty"
    assert json.loads(handlers.first_view(None))["state"] == "empty"
    for lane in "ab":
        (tmp_path / f"{lane}.npz").write_bytes(b"PK")
    assert json.loads(handlers.first_view(tmp_path))["state"] == "empty"


def test_no_model_is_said(request_of):
    empty = Session({})
    form = make_form(empty)
    handlers = Handlers(empty, form)
    values = [widget.value for widget in form.inputs]
    plan = json.loads(handlers.plan(request_of(), values)[0])
    assert not plan["ok"]
    assert "Model" in plan["error"]


def copied_model(tmp_path, session):
    name = session.default_race().a.model
    folder = tmp_path / name
    shutil.copytree(ASSETS / "models" / name, folder)
    return name, folder


@pytest.mark.parametrize("damage", ["weights", "tokenizer", "config"])
def test_a_damaged_checkpoint_is_said(session, tmp_path, request_of, damage):
    name, folder = copied_model(tmp_path, session)
    if damage == "weights":
        weights = next(folder.glob("*.safetensors"))
        weights.write_bytes(weights.read_bytes()[:5000])
    elif damage == "tokenizer":
        (folder / "tokenizer.json").unlink()
    else:
        (folder / "config.json").write_text("{")
    broken = Session({name: folder})
    form = make_form(broken)
    handlers = Handlers(broken, form)
    values = values_of(form, small_race(broken))
    last = json.loads(list(handlers.run(request_of(), values))[-1][0])
    assert last["state"] == "failed"
    assert {"weights": "safetensors", "tokenizer": "tokenizer", "config": "config"}[damage] in (
        last["message"]
    )
    assert "Unexpected error" not in last["message"]


def test_what_is_not_a_refusal_is_logged_not_shown(
    handlers, small, request_of, monkeypatch, caplog
):
    def broken(*_):
        raise KeyError("secret detail")

    monkeypatch.setattr(handlers.session, "race", broken)
    last = json.loads(list(handlers.run(request_of(), small))[-1][0])
    assert last["state"] == "failed"
    assert "secret detail" not in last["message"]
    assert "unexpected failure" in caplog.text


def test_a_page_is_told_the_steps_that_it_lacks(handlers, small, request_of):
    whole = json.loads(list(handlers.run(request_of(), small))[-1][0])
    rows = whole["lanes"]["a"]["rows"]
    news = json.loads(handlers.news([whole["run"], 14, -1]))
    assert news["run"] == whole["run"]
    assert list(news["lanes"]) == ["a"]
    assert news["lanes"]["a"]["rows"] == rows[14:]
    told = {str(token) for row in rows[14:] for token in row[-1][1::3]}
    assert news["lanes"]["a"]["pieces"].keys() == told
    assert json.loads(handlers.news([whole["run"], 16, 10**9]))["lanes"] == {}


def test_steps_are_told_while_a_run_goes_on(handlers, small, request_of, every_step):
    with closing(handlers.run(request_of(), small)) as stream:
        for update in stream:
            sent = json.loads(update[0])
            if sent["lanes"].get("a", {}).get("rows"):
                break
        told = json.loads(handlers.news([sent["run"], 0, -1]))
    assert told["state"] == "running"
    rows = told["lanes"]["a"]["rows"]
    assert rows[-1] == sent["lanes"]["a"]["rows"][-1]
    assert [row[0] for row in rows] == list(range(len(rows)))


@pytest.mark.parametrize(
    "asked",
    [None, "run", [], [None, 0, 0], ["unknown", 0, 0], ["RUN"], ["RUN", 0], ["RUN", 0, "1"],
     ["RUN", 0.5, 0], ["RUN", True, 0], ["RUN", 0, 0, 0], [["RUN"], 0, 0]],
)  # fmt: skip
def test_a_malformed_question_for_steps_gets_none(handlers, record, asked):
    if isinstance(asked, list):
        asked = [record.run_id if one == "RUN" else one for one in asked]
    assert json.loads(handlers.news([record.run_id, 0, 0]))["run"] == record.run_id
    assert json.loads(handlers.news(asked)) == {
        "run": None, "state": "empty", "message": "", "lanes": {},
    }  # fmt: skip

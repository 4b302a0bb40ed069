"""The handlers of many prompts: sources, settings, Stop and Continue, rows, a prompt's race."""

import json
from types import SimpleNamespace

import pytest

from engine.batch import service
from engine.batch.service import BatchService
from engine.core.events import QueueFullError, Waiting
from inspector.handlers.tasks import prompt_sources
from inspector.handlers.tasks.batch_handlers import MAX_TEXT, BatchHandlers, _shortened
from inspector.handlers.tasks.prompt_sources import FILE, PROBLEMS, TYPED
from tests.inspector.conftest import form_values, given_values, small_race

DUAL = "Fast-dLLM dual cache + Threshold 0.9"
PROBLEM = {"family": "short_problems", "count": 2, "shots": 0, "seed": 1}


@pytest.fixture
def tab(session, handlers):
    return BatchHandlers(handlers, BatchService(session))


@pytest.fixture
def values(session, form):
    return form_values(form, small_race(session, gen_length=16, block_length=8, steps=16))


@pytest.fixture
def press(tab, values, request_of):
    """Press Run: the documents that the page gets."""

    def run(
        source=TYPED,
        text="one\ntwo",
        lanes=("b",),
        kept="",
        record="off",
        first=None,
        shown="",
        **own,
    ):
        problem = PROBLEM | own
        given = [shown, source, text, *problem.values(), list(lanes), kept, record, values]
        for document, *_ in tab.starter(first)(request_of(), *given):
            yield json.loads(document)

    return run


def test_typed_prompts_run_under_plain_decoding_and_lane_b(press, tab):
    *_, last = press()
    assert (last["state"], last["done"], last["total"]) == ("done", 4, 4)
    assert [row["name"] for row in last["settings"]] == [
        "plain decoding", DUAL,
    ]  # fmt: skip
    assert last["settings"][0]["title"] == "Plain decoding"
    found = json.loads(tab.rows([last["batch"], 1]))
    assert [(row["prompt"], row["setting"]) for row in found["rows"]] == [(0, 1), (1, 0), (1, 1)]
    assert found["rows"][0]["question"] == "one"
    assert 0 <= found["rows"][0]["agreement"] <= 1


def test_lane_a_is_not_run_twice_if_it_is_plain_decoding(press):
    *_, last = press(text="one", lanes=("a", "b"))
    assert len(last["settings"]) == 2


@pytest.mark.parametrize(("change", "names"), [
    ({"b.cache": "none", "b.unmasker": "quota", "b.steps": 16}, ["plain decoding"]),
    ({"b.cache": "none", "b.unmasker": "quota", "b.steps": 4},
     ["plain decoding", "Plain decoding, 4 steps"]),
    ({"b.cache": "none", "b.unmasker": "quota", "b.steps": 1, "block_length": 16},
     ["plain decoding", "Plain decoding, 1 step"]),
    ({"b.cache": "none", "b.unmasker": "quota", "b.steps": 16, "b.quota.score": "margin"},
     ["plain decoding", "Plain decoding, 16 steps"]),
])  # fmt: skip
def test_a_plain_lane_with_other_settings_is_run(change, names, press, form, values):
    places = list(form.widgets)
    for key, value in change.items():
        values[places.index(key)] = value
    *_, last = press(text="one", lanes=("a", "b"))
    assert [row["name"] for row in last["settings"]] == names


def test_a_stop_keeps_what_was_run_and_continue_does_the_rest(press, tab, request_of):
    running = press(text="\n".join(map(str, range(12))))  # longer than a stop takes
    for document in running:
        if document["done"] >= 2:
            tab.stop(request_of())
    assert document["state"] == "stopped"
    kept = document["done"]
    assert 2 <= kept < 24
    before = json.loads(tab.rows([document["batch"], 0]))["rows"][:kept]
    buttons = tab.idle(request_of(), json.dumps(document))
    assert [one["interactive"] for one in buttons] == [True, True, True, False]
    *_, (last, *_) = tab.go_on(request_of(), json.dumps(document))
    last = json.loads(last)
    assert (last["state"], last["done"]) == ("done", 24)
    assert json.loads(tab.rows([last["batch"], 0]))["rows"][:kept] == before
    buttons = tab.idle(request_of(), json.dumps(last))
    assert [one["interactive"] for one in buttons] == [True, True, False, False]


def test_a_message_says_what_its_batch_waits_for(tab):
    """Else nobody knows what is done to the layers."""
    task, wait = SimpleNamespace(progress=dict), Waiting("calibrating", 3, 32, "m", unit="layers")
    assert json.loads(tab.document(task, [wait], whole=False)) == {
        "wait": {"state": "calibrating", "done": 3, "total": 32, "unit": "layers", "what": "m"}
    }
    assert json.loads(tab.document(task, [wait, None], whole=False)) == {}


def test_continue_does_not_stop_a_batch_that_runs(press, tab, request_of):
    running = press(text="\n".join(map(str, range(5))))
    next(running)
    document = next(running)
    ((refused, *_),) = tab.go_on(request_of(), json.dumps(document))
    assert json.loads(refused)["message"] == "batch: it is running; stop it first, or wait"
    *_, last = running
    assert (last["state"], last["done"]) == ("done", 10)


def test_a_batch_that_may_not_begin_is_refused_and_the_shown_one_stays(
    press, handlers, monkeypatch
):
    def refuse():
        raise QueueFullError("queue: too many")

    *_, shown = press(text="one")
    monkeypatch.setattr(handlers.controls, "new", refuse)
    (only,) = press(text="two", shown=json.dumps(shown))
    found = {name: only[name] for name in ("state", "message", "batch")}
    assert found == {"state": "refused", "message": "queue: too many", "batch": shown["batch"]}


def test_a_batch_that_a_newer_one_replaced_says_no_more(press, tab, request_of):
    older = press(text="\n".join(map(str, range(20))))
    next(older)
    newer = press(text="one")
    shown = json.dumps(next(newer))
    assert not [document for document in older if document["state"] != "running"]
    assert not any("interactive" in button for button in tab.idle(request_of(), shown))
    *_, last = newer
    assert last["state"] == "done"
    assert tab.idle(request_of(), json.dumps(last))[0]["interactive"]


def test_an_estimate_runs_the_first_prompt(press):
    *_, last = press(first=1)
    assert (last["state"], last["done"]) == ("estimated", 2)
    assert last["seconds_left"] > 0


def test_who_leaves_stops_the_batch_and_can_come_back(press, tab, request_of):
    running = press(text="one\ntwo\nthree")
    batch = next(running)["batch"]
    tab.leave(request_of())
    assert list(running)[-1]["state"] == "stopped"
    document, *buttons = tab.reopen(batch)
    assert json.loads(document)["batch"] == batch
    assert buttons[2]["interactive"]
    assert "value" not in tab.reopen("nothing")[0]


def test_a_batch_that_runs_in_another_tab_is_said_to_do_so(press, tab):
    """Its Continue would be refused, and no message would tell its end."""
    running = press(text="one\ntwo\nthree")
    next(running)
    batch = next(running)["batch"]
    document, *buttons = tab.reopen(batch)
    shown = json.loads(document)
    assert (shown["batch"], shown["state"]) == (batch, "running")
    assert shown["message"].startswith("It runs in another tab")
    assert [one["interactive"] for one in buttons] == [True, True, False, False]
    running.close()


def test_problems_of_a_family_have_answers(press):
    *_, last = press(PROBLEMS)
    assert last["settings"][0]["known"] == 2
    (last,) = press(PROBLEMS, count=0)
    assert last["message"].startswith("problems: count has to be a whole number from 1")


def test_an_uploaded_file(press, tab, request_of, tmp_path):
    (last,) = press(FILE)
    assert last["message"] == prompt_sources.NO_FILE
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "one", "answer": 4}\n{"prompt": "two"}\n')
    assert tab.sources.take_file(request_of(), str(path)) == "2 prompts, 1 with an answer."
    *_, last = press(FILE)
    assert (last["state"], last["settings"][0]["known"]) == ("done", 1)
    path.write_text('{"prompt": "one"}\n{"prompt": \n')
    assert tab.sources.take_file(request_of(), str(path)).startswith(
        "Not read. prompts: line 2: expected"
    )
    (last,) = press(FILE)
    assert last["message"] == prompt_sources.NO_FILE


def test_a_kept_method_has_the_other_settings_of_the_run_tab(press, tab, values):
    kept, said = tab.keep(" mine ", "", values)
    assert said == "Kept as “mine”."
    assert json.loads(kept)[0]["cache"] == "dual"
    twice, _ = tab.keep("other", kept, values)
    *_, last = press(text="one", lanes=("b",), kept=twice)
    names = [row["name"] for row in last["settings"]]
    assert names == ["plain decoding", DUAL, "mine", "other"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"text": ""}, "prompts: there are none"),
        ({"text": "a\n" * 10_000}, "prompts: there are more than 2000"),
        ({"text": 5}, "prompts: there are none"),
        ({"kept": "{"}, "settings: the kept settings are not a JSON list"),
        ({"kept": "5"}, "settings: the kept settings are not a JSON list"),
        ({"kept": "[5]"}, "settings: the field must be a JSON list"),
        ({"kept": '[{"name": "x", "cache": "nope"}]'}, "settings: x: "),
        ({"kept": '[{"name": "plain decoding"}]'}, "settings: two have the same name"),
        ({"record": "everything"}, "Recording: choose from off"),
        ({"record": ["off"]}, "Recording: choose from off"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_run(press, change, said):
    (only,) = press(**change)
    assert (only["state"], only["batch"]) == ("refused", "")
    assert only["message"].startswith(said), only["message"]


def test_a_refusal_leaves_the_shown_batch(press, tab, request_of):
    *_, last = press(text="one\ntwo", first=1)
    (refused,) = press(text="", shown=json.dumps(last))
    assert (refused["state"], refused["batch"], refused["done"]) == ("refused", last["batch"], 2)
    assert tab.idle(request_of(), json.dumps(refused))[2]["interactive"]


def test_a_public_page_has_fewer_prompts(session, handlers, values, request_of):
    tab = BatchHandlers(handlers, BatchService(session, public=True))
    given = ["", TYPED, "a\n" * 51, *PROBLEM.values(), ["b"], "", "off", values]
    ((document, *_),) = tab.starter(None)(request_of(), *given)
    said = json.loads(document)["message"]
    assert said.startswith(f"prompts: 51 are more than the {service.PUBLIC.prompts} of a batch")


def test_recorded_batches_have_aggregates(press, tab):
    *_, last = press(text="one", record="layers")
    assert [row["recorded"] for row in last["settings"]] == [1, 1]
    found = json.loads(tab.aggregates([last["batch"], 0]))
    assert found["settings"][1]["runs"] == 1
    *_, last = press(text="one")
    assert "not recorded" in json.loads(tab.aggregates([last["batch"], 0]))["missing"]


@pytest.mark.parametrize("asked", [None, 5, [], ["x"], ["x", "y"], ["gone", 0], [["x"], 0]])
def test_untrusted_requests_are_answered(tab, asked):
    assert json.loads(tab.rows(asked))["missing"].startswith("batch: ")
    assert json.loads(tab.aggregates(asked))["missing"].startswith("batch: ")


def test_the_race_of_a_prompt(press, tab, handlers, form, request_of):
    *_, last = press(PROBLEMS)
    event = SimpleNamespace(batch=last["batch"], prompt=1, setting=1)
    opened, given = tab.fill(event)
    assert opened.selected == "run"
    race = form.race(list(given_values(form, given).values()))
    assert (race.a.cache, race.b.cache) == ("none", "dual")
    *_, (document, *_) = tab.race(event, request_of())
    found = json.loads(document)
    assert found["state"] == "done"
    record = handlers.store.get(found["run"])
    rows = json.loads(tab.rows([last["batch"], 0]))["rows"]
    texts = {row["setting"]: row["text"] for row in rows if row["prompt"] == 1}
    assert record.expected == rows[2]["known_answer"]
    for lane, setting in (("a", 0), ("b", 1)):
        assert record.traces[lane].meta["texts"][0] == texts[setting]


@pytest.mark.parametrize("change", [{"batch": "gone"}, {"prompt": "1"}, {"setting": 9}])
def test_the_race_of_nothing_is_refused(press, tab, request_of, change):
    *_, last = press(text="one")
    event = SimpleNamespace(**{"batch": last["batch"], "prompt": 0, "setting": 1} | change)
    ((document, *_),) = tab.race(event, request_of())
    assert json.loads(document)["state"] == "failed"
    skip, given = tab.fill(event)
    assert "selected" not in skip
    assert given is None


def test_a_refused_race_leaves_the_buttons_of_the_one_that_is_paused(
    tab, handlers, form, session, request_of
):
    """Else it could neither be resumed nor stopped, and Run stays disabled while it is live."""
    event = SimpleNamespace(batch="gone", prompt=0, setting=1)
    stream = handlers.run(request_of(), form_values(form, small_race(session)))
    next(stream)
    handlers.flag("pause")(request_of())
    ((document, *updates),) = tab.race(event, request_of())
    assert json.loads(document)["state"] == "failed"
    assert all("interactive" not in update for update in updates)
    handlers.flag("stop")(request_of())
    assert json.loads(list(stream)[-1][0])["state"] == "stopped"


def upload(tab, request_of, tmp_path, who):
    path = tmp_path / f"{who}.jsonl"
    size = path.write_text(f'{{"prompt": "{who}"}}\n')
    assert tab.sources.take_file(request_of(who), str(path)) == "1 prompt, 0 with an answer."
    return size


def test_the_files_of_many_visitors_are_kept_up_to_a_size(tab, request_of, tmp_path, monkeypatch):
    visitors = [f"visitor{i:02}" for i in range(20)]
    size = [upload(tab, request_of, tmp_path, who) for who in visitors][-1]
    for who in visitors:
        assert tab.sources.chosen(who, FILE, "", {})
    monkeypatch.setattr(prompt_sources, "KEPT_BYTES", 2 * size)
    upload(tab, request_of, tmp_path, visitors[5])
    assert tab.sources.chosen(visitors[19], FILE, "", {})
    with pytest.raises(ValueError, match=prompt_sources.NO_FILE):
        tab.sources.chosen(visitors[18], FILE, "", {})


@pytest.mark.parametrize("longer", [0, 1, 900])
def test_a_text_that_is_cut_shows_it(longer):
    found = _shortened("x" * (MAX_TEXT + longer), MAX_TEXT)
    assert len(found) == MAX_TEXT
    assert found.endswith("…") == (longer > 0)

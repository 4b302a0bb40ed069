"""Views are pure: what they say of a run is what the run did."""

import json
import re
from itertools import takewhile

import numpy as np
import pytest

from engine.batch.outcome import outcome_of
from engine.batch.statistics import agreement
from engine.core.events import RunFinished, RunStarted, StepEvent
from engine.evaluate.record_examples import collect_traces
from engine.trace.trace import Trace
from inspector import static_files
from inspector.page_data import compare, foreign, messages, plan, timeline, tokens
from inspector.run_store import RaceRecord
from tests.inspector.conftest import small_race


def hand_made(ids, stop=9, reason="done", total_ms=100.0, text="so 42"):
    """A trace of one step that commits `ids` after a prompt of two tokens."""
    n = len(ids)
    canvas = np.array([[5, 6, *[0] * n]], np.int32)
    prompt = np.zeros(canvas.shape, bool)
    prompt[:, :2] = True
    trace = Trace()
    spec, model = {"block_length": n}, {"mask_id": 0, "eos_id": stop, "stop_ids": [8]}
    blank = np.zeros(canvas.shape, bool)
    trace.append(
        RunStarted(
            spec, model | {"vocab_size": 10}, {"device": "cpu"}, canvas, prompt, blank, ~blank
        )
    )
    trace.append(
        StepEvent(
            0, 0, 0, "full", n + 2, n + 2, 1, np.zeros(n, np.int32),
            np.arange(2, n + 2, dtype=np.int32), np.array(ids, np.int32),
            np.full(n, 0.5, np.float32), 0, 1.0, 1.0, np.zeros(5, np.int64), 1.0,
        )
    )  # fmt: skip
    answer = tuple(takewhile(lambda token: token not in (stop, 8), ids))
    metrics = {"total_ms": total_ms, "forwards": 4}
    trace.append(RunFinished(reason, canvas, (text,), metrics, answer=answer))
    return trace


def test_rows_are_the_same_live_and_from_the_trace(events, traces):
    for lane in "ab":
        index = timeline.places(traces[lane])
        live = [
            timeline.event_row(event, index)
            for name, event in events
            if name == lane and isinstance(event, StepEvent)
        ]
        assert live == timeline.trace_rows(traces[lane])


def test_a_lane_starts_with_what_its_canvas_needs(traces):
    start = tokens.lane_start(traces["b"], "B")
    assert start["length"] == 16
    assert start["block"] == 8
    assert start["canvas"] == {}
    assert len(start["prompt"]) + 16 == len(traces["b"].arrays()["canvas"])
    assert "float32" in start["environment"]
    assert start["stop"]


def test_what_a_branch_knows_is_there_from_the_start():
    canvas = np.array([[5, 6, 0, 4, 0, 7]], np.int32)
    prompt = np.array([[True, True, False, False, False, False]])
    given = np.array([[False] * 5 + [True]])
    model = {"mask_id": 0, "eos_id": 9, "vocab_size": 10}
    start = {"trace": "t", "step": 1, "edits": []}
    trace = Trace()
    trace.append(RunStarted({"start": start}, model, {}, canvas, prompt, given, ~given))
    commit = np.array([2], np.int32), np.array([8], np.int32), np.array([0.5], np.float32)
    event = StepEvent(
        0, 0, 1, "full", 6, 6, 1, np.zeros(1, np.int32), *commit, 1, 1.0, 1.0,
        np.zeros(5, np.int64), 1.0,
    )  # fmt: skip
    trace.append(event)
    begun = tokens.lane_start(trace, "")
    assert (begun["canvas"], begun["given"]) == ({1: 4, 3: 7}, [3])
    assert tokens.generation(trace).tolist() == [2, 3, 4, 5]
    assert timeline.places(trace).tolist() == [-1, -1, 0, 1, 2, 3]
    assert [row[7] for row in timeline.trace_rows(trace)] == [[0, 8, 500]]
    del trace.meta["model"]["mask_id"]
    assert tokens.lane_start(trace, "")["canvas"] == {3: 7}


def test_commits_lie_in_the_answer_and_cover_it(traces):
    rows = timeline.trace_rows(traces["a"])
    places = [place for row in rows for place in row[7][::3]]
    assert sorted(places) == list(range(16))
    assert all(0 <= sure <= 1000 for row in rows for sure in row[7][2::3])


def test_filled_tokens_have_no_confidence():
    flat = timeline._commits(np.array([0, -1, 3]), np.array([7, 7, 8]), np.array([np.nan, 1, 0.25]))
    assert flat == [0, 7, -1, 3, 8, 250]


def test_a_confidence_is_that_of_0_or_1_only_if_it_is():
    sure = np.array([0.9996, 0.0004, 1, 0.9984, 2.0**-30, 0], np.float32)
    flat = timeline._commits(np.arange(6), np.full(6, 7), sure)
    assert flat[2::3] == [999.6, 0.4, 1000, 998, 1000 * 2.0**-30, 0]


def test_pieces_keep_broken_characters_as_bytes():
    raw = {1: b" caf\xc3\xa9", 2: b"\xf0\x9f", 3: b"<img onerror=x>${y}`"}
    found = tokens.pieces(raw, [1, 2, 3, 4])
    assert found == {"1": " café", "2": [0xF0, 0x9F], "3": "<img onerror=x>${y}`"}


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("", ("", 0)),
        ("How many?", ("How many?", 0)),
        ("Question: a\nAnswer: b\n\nQuestion: c?", ("c?", 1)),
        ("\n\n\n  x \n\n", ("x", 0)),
    ],
)
def test_the_question_is_the_last_paragraph(prompt, expected):
    assert tokens.question(prompt) == expected


def test_environment_in_a_line():
    line = tokens.environment({"device": "cpu", "dtype": "float32", "threads": 2, "torch": "2.13"})
    assert line == "cpu · float32 · 2 threads · torch 2.13"
    assert tokens.environment({"threads": "many"}) == ""


def test_equal_answers():
    same = compare.summarise({"a": hand_made([1, 2]), "b": hand_made([1, 2], total_ms=25)}, "42")
    assert same["speedup"] == 4
    assert same["same_text"]
    assert same["same_answer"]
    assert same["agreement"] == 1
    assert same["first_divergence"] is None
    assert same["right"] == [True, True]


def test_swapping_the_lanes_gives_the_reciprocal():
    a, b = hand_made([1, 2], total_ms=100), hand_made([1, 3], total_ms=40)
    one, other = (
        compare.summarise({"a": a, "b": b}, None),
        compare.summarise({"a": b, "b": a}, None),
    )
    assert one["speedup"] * other["speedup"] == pytest.approx(1, rel=1e-2)
    assert one["agreement"] == other["agreement"] == 0.5
    assert one["first_divergence"] == 1
    assert one["right"] == [None, None]


def test_two_runs_of_a_single_forward_have_no_ratio():
    a, b = hand_made([1, 2], total_ms=100), hand_made([1, 2], total_ms=25)
    found = compare.summarise({"a": a, "b": b}, None)
    assert (found["speedup"], found["text_forwards"], found["text_speedup"]) == (4, [1, 1], None)
    for trace in (a, b):
        trace.meta["metrics"]["forwards"] = 1
    assert compare.summarise({"a": a, "b": b}, None)["speedup"] is None
    b.meta["metrics"]["forwards"] = 2
    assert compare.summarise({"a": a, "b": b}, None)["speedup"] == 4


def test_the_ratio_of_the_text_stops_at_its_last_token(session):
    traces = collect_traces(session.race(small_race(session, gen_length=48, steps=48)))
    found = compare.summarise(traces, None)
    for i, lane in enumerate("ab"):
        trace = traces[lane]
        arrays, metrics = trace.arrays(), trace.meta["metrics"]
        shown = tokens.generation(trace)[: metrics["tokens"]]
        last = arrays["commit_step"][np.isin(arrays["commit_position"], shown)].max()
        assert found["text_forwards"][i] == arrays["forwards"][: last + 1].sum()
        assert found["text_forwards"][i] < found["forwards"][i]
        tokens_before_end = len(compare.answer_ids(trace))
        assert compare.text_cost(trace, tokens_before_end)[1] == pytest.approx(metrics["text_ms"])
    ratio = traces["a"].meta["metrics"]["text_ms"] / traces["b"].meta["metrics"]["text_ms"]
    assert found["text_speedup"] == pytest.approx(ratio, abs=1e-3)
    assert found["text_speedup"] != found["speedup"]


@pytest.mark.parametrize("rule", [None, 3, {"x": 1}, "<b>", "x" * 99])
def test_an_unknown_end_of_text_rule_of_a_file_is_not_shown(rule):
    one, other = hand_made([1, 2]), hand_made([1, 2])
    one.meta["spec"] = {**one.meta["spec"], "eos": rule}
    other.meta["spec"] = {**other.meta["spec"], "eos": "fill_safe"}
    assert compare.summarise({"a": one, "b": other}, None)["end_of_text"] == ["", "fill_safe"]


def ends(*rules, attention="full"):
    return plan.end_of_text([{"end_of_text": rule, "attention": attention} for rule in rules])


def test_the_plan_says_by_which_rule_both_lanes_end():
    assert ends("official", "official").endswith("end of the text (official)")
    unequal = ends("official", "fill_safe")
    assert unequal.startswith("unequal end-of-text rules: in lane A every")
    assert "in lane B decoding stops" in unequal
    blocks = ends("official", "official", attention="block_causal")
    assert (
        blocks == "in both lanes decoding stops after the block in which the text ends (official)"
    )


def test_what_follows_the_end_of_text_does_not_count():
    a, b = hand_made([1, 8, 3, 4]), hand_made([1, 9, 7, 7])
    assert compare.summarise({"a": a, "b": b}, None)["same_text"]
    longer = compare.summarise({"a": hand_made([1, 2, 8]), "b": hand_made([1, 8, 2])}, None)
    assert longer["first_divergence"] == 1
    assert longer["agreement"] == 0.5


SUFFIX = " Checked on page 7 of 9."


@pytest.mark.parametrize("changes", [{"suffix": SUFFIX}, {"stop": (".",)}])
def test_the_answer_is_compared_without_what_follows_it(session, changes):
    race = small_race(session, gen_length=16, block_length=16, steps=16, seed=1, **changes)
    traces = collect_traces(session.race(race))
    found, events = compare.summarise(traces, None), {}
    for lane, spec in (("a", race.a), ("b", race.b)):
        events[lane] = outcome_of(session.run(spec))
        assert compare.answer_ids(traces[lane]) == list(events[lane].ids)
        assert tokens.answer_text(traces[lane]) == events[lane].text
        assert SUFFIX not in events[lane].text
        assert found["numbers"]["ab".index(lane)] == events[lane].number != 9
    assert found["agreement"] == round(agreement(events["a"].ids, events["b"].ids), 4)


def test_a_trace_of_an_older_version_has_the_answer_of_its_canvas():
    trace = hand_made([1, 8, 3])
    assert "answer" in trace.meta
    del trace.meta["answer"]
    assert compare.answer_ids(trace) == [1]


def two_runs(name, section="spec", values=("one", "two")):
    """Two finished runs that differ in a field of their spec or environment."""
    traces = {"a": hand_made([1, 2]), "b": hand_made([1, 2], total_ms=25)}
    for trace, value in zip(traces.values(), values, strict=True):
        trace.meta[section] = {**trace.meta[section], name: value}
    return traces


@pytest.mark.parametrize(("name", "values"), [("prompt", ("one", "two")), ("messages", ([], [1]))])
def test_runs_of_different_prompts_are_not_compared(name, values):
    found = compare.summarise(two_runs(name, values=values), None)
    assert found["apart"] == foreign.OTHER_PROMPTS
    assert (found["agreement"], found["speedup"], found["same_answer"]) == (None, None, None)
    alike = compare.summarise(two_runs(name, values=values[:1] * 2), None)
    assert (alike["apart"], alike["agreement"], alike["speedup"]) == ("", 1, 4)


def test_times_of_two_machines_are_not_compared():
    traces = two_runs("device_name", "environment", ("AMD EPYC", "NVIDIA H100"))
    found = compare.summarise(traces, None)
    assert (found["speedup"], found["agreement"]) == (None, 1)
    assert foreign.note(traces) == foreign.OTHER_CLOCK
    alike = two_runs("device_name", "environment", ("AMD EPYC", "AMD EPYC"))
    assert compare.summarise(alike, None)["speedup"] == 4
    assert foreign.note(alike) == ""


def test_small_metrics_keep_their_digits_and_none_is_left_out():
    trace = hand_made([1])
    trace.meta["metrics"] = {"gflops_attention": 1.536e-05, "rows": 10**7, "bad": float("inf")}
    trace.meta["metrics"] |= {f"guider_{i}": i for i in range(60)}
    found = compare.clean_metrics(trace)
    assert (found["gflops_attention"], found["rows"], found["bad"]) == (1.536e-05, 10**7, None)
    assert len(found) == 63


def test_no_speedup_unless_both_are_done():
    found = compare.summarise({"a": hand_made([1]), "b": hand_made([1], reason="stopped")}, "42")
    assert found["speedup"] is None
    assert compare.summarise({}, None)["numbers"] == []


def answered(*texts):
    """Two finished runs with these answers."""
    traces = {}
    for lane, text in zip("ab", texts, strict=True):
        traces[lane] = hand_made([1])
        traces[lane].meta["texts"] = [text]
    return traces


@pytest.mark.parametrize(
    ("expected", "numbers", "right"),
    [
        ("12", [12, 9], [True, False]),
        (None, [12, 9], [None, None]),
        ("The numbers are 3, 12.", [None, None], [True, False]),
    ],
)
def test_answers_are_marked_by_what_is_right(expected, numbers, right):
    found = compare.summarise(answered("The numbers are 3, 12.", "The numbers are 9."), expected)
    assert (found["numbers"], found["right"]) == (numbers, right)


def test_an_answer_that_was_cut_off_is_not_judged():
    traces = answered("It is 12.", "It is 12.")
    traces["b"].meta["reason"] = "stopped"
    found = compare.summarise(traces, "42")
    assert (found["numbers"], found["right"]) == ([12, None], [False, None])
    assert found["text_forwards"][1] is None


def test_metrics_are_finite_numbers():
    trace = hand_made([1])
    trace.meta["metrics"] = {"a": float("nan"), "b": "<b>", "c": True, "d": 2, "e": None}
    assert compare.clean_metrics(trace) == {"a": None, "b": None, "c": None, "d": 2, "e": None}
    trace.meta["metrics"] = [1]
    assert compare.clean_metrics(trace) == {}


def test_a_browser_reads_every_number_as_it_is():
    trace = hand_made([1])
    trace.meta["metrics"] = {"a": 2**53, "b": 2**53 + 1, "c": 10**400}
    found = compare.clean_metrics(trace)
    assert (found, type(found["b"])) == ({"a": 2**53, "b": 9.00719925e15, "c": None}, float)
    texts = (f"It is {2**53}.", f"It is {2**53 + 1}.")
    assert compare.summarise(answered(*texts), None)["numbers"] == [2**53, "9007199254740993"]


@pytest.mark.parametrize(("a", "b", "ratio"), [(1, 30_000, 3.33333333e-05), (1e-300, 1e300, None)])
def test_a_lane_that_is_far_slower_has_a_ratio_above_zero(a, b, ratio):
    lanes = {"a": hand_made([1], total_ms=a), "b": hand_made([1], total_ms=b)}
    assert compare.summarise(lanes, None)["speedup"] == ratio


def replayed(documents):
    """What a page holds after some messages: rows, pieces and ends by lane."""
    held = {}
    for text in documents:
        news = json.loads(text)
        if news["reset"]:
            held = {}
        for lane, part in news["lanes"].items():
            mine = held.setdefault(lane, {"rows": [], "pieces": {}})
            mine["rows"] += part.get("rows", [])
            mine["pieces"] |= part.get("pieces", {})
            mine |= {key: part[key] for key in ("start", "end") if key in part}
    return held


def test_the_news_add_up_to_the_whole(events):
    record = RaceRecord()
    feed = messages.Feed(record, lambda spec: "title")
    stream = [feed.message([event], "running") for event in feed.kept(events)]
    record.state, record.message = messages.final_state(record)
    assert record.state == "done"
    whole = messages.whole(record, lambda spec: "title")
    assert replayed(stream) == replayed([whole])
    assert json.loads(whole)["summary"]["speedup"] > 0
    assert max(len(text.encode()) for text in stream[2:]) < 5_000
    assert len(whole.encode()) < 60_000


def test_a_failed_lane_says_why():
    record = RaceRecord()
    record.append("a", RunFinished("failed", np.zeros((1, 0), np.int32), message="out of memory"))
    assert messages.final_state(record) == ("failed", "out of memory")


TEMPLATES = sorted(set(static_files.STATIC.rglob("*.html")) - {static_files.STATIC / "replay.html"})


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_templates_hold_no_placeholders(path):
    text = path.read_text()
    assert not any(mark in text for mark in ("${", "{{", "`", "<script"))


def test_scripts_write_text_only_as_text():
    for path in (static_files.STATIC.parent / "web" / "src").rglob("*.ts"):
        script = path.read_text()
        for known in ("http://www.w3.org/2000/svg", "https://arxiv.org/abs/"):
            script = script.replace(known, "")
        for mark in ("innerHTML", "insertAdjacentHTML", "eval(", "document.write", "http"):
            assert mark not in script, path.name


def test_no_selector_hides_a_comma_that_gradio_would_split_at():
    inside = re.compile(r":(is|not|where|has)\([^)]*,")
    assert not inside.search(static_files.css())
    assert inside.search(".a :is(th, td) {}")

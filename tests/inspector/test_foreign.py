"""Imported runs of other engines on the page: what is shown, and what is not claimed."""

import csv
import io
import json
from pathlib import Path

import pytest

from engine.core.files import ASSETS
from engine.trace.trace import Trace
from inspector.files.export import read_race, write_race
from inspector.files.run_card import run_card
from inspector.files.summary import summary_table
from inspector.files.tables import steps_table, tokens_table
from inspector.handlers.file_service import FileService
from inspector.handlers.view_service import recording_specs
from inspector.page_data import links, messages
from inspector.protocol import LANES
from inspector.views import registry

RUN = {
    "format": "driftscope-run", "version": 1, "method": "one engine", "prompt": "What is 4 + 5?",
    "tokens": ["It", " is", " 9", "<end>"], "step_map": [2, 2, 1, 3], "end_tokens": ["<end>"],
}  # fmt: skip
OTHER = RUN | {"tokens": ["It", " is", " 8", "<end>"], "method": "another engine"}
IDS = {
    "format": "driftscope-run", "version": 1, "model": "m", "prompt": "What is 4 + 5?",
    "tokens": [1, 2, 3, 4], "step_map": [1, 2, 3, 4],
}  # fmt: skip


@pytest.fixture
def race(tmp_path):
    """Import documents as a race; None in place of one stands for a native trace."""

    def make(*documents):
        paths = []
        for name, document in zip(LANES, documents, strict=False):
            if document is None:
                paths.append(ASSETS / "examples" / "b.npz")
                continue
            paths.append(tmp_path / f"{name}.json")
            paths[-1].write_text(json.dumps(document))
        return read_race(paths)

    return make


def shown(record):
    return json.loads(messages.whole(record, lambda spec: "a native run"))


def test_an_answer_to_another_prompt_is_not_judged(race):
    record = race(RUN, OTHER | {"prompt": "What is 4 + 4?"})
    record.expected = "9"
    summary = shown(record)["summary"]
    assert (summary["numbers"], summary["right"]) == ([9, 8], [True, None])
    rows = list(csv.DictReader(io.StringIO(summary_table(record, str))))
    assert [(row["expected"], row["right"]) for row in rows] == [("9", "1"), ("", "")]


def test_a_race_of_two_imported_runs(race):
    news = shown(race(RUN, OTHER))
    assert [news["lanes"][lane]["start"]["title"] for lane in LANES] == [
        "one engine", "another engine",
    ]  # fmt: skip
    assert news["summary"]["first_divergence"] == 2
    assert news["summary"]["numbers"] == [9, 8]
    assert news["lanes"]["a"]["start"]["lacks"] == ["costs", "times"]
    assert news["question"] == "What is 4 + 5?"
    assert "Its file has no computed rows, no FLOPs, no drifts and no times." in news["message"]


def test_equal_runs_agree_and_nothing_is_said_of_their_speed(race):
    found = shown(race(RUN, RUN))["summary"]
    assert (found["agreement"], found["same_text"]) == (1, True)
    assert (found["speedup"], found["text_speedup"]) == (None, None)
    assert (found["forwards"], found["text_forwards"]) == ([None, None], [None, None])


@pytest.mark.parametrize(
    ("machines", "speedup"), [(("H200", "H200"), 2), (("H200", "A100"), None), (("", ""), None)]
)
def test_speed_is_compared_on_one_machine_only(race, machines, speedup):
    a, b = (RUN | {"seconds": [s] * 3} for s in (2, 1))
    documents = [one | {"machine": name} for one, name in zip((a, b), machines, strict=True)]
    news = shown(race(*documents))
    assert news["summary"]["speedup"] == news["summary"]["text_speedup"] == speedup
    assert ("Speed is not compared" in news["message"]) == (speedup is None)


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (RUN | {"prompt": "Another question"}, "their prompts differ"),
        (IDS, "token ids without texts"),
        (RUN | {"prompt": "<user> What is 4 + 5? <assistant>"}, ""),
        ({k: v for k, v in RUN.items() if k != "prompt"}, ""),
    ],
)
def test_lanes_are_compared_only_where_they_are_comparable(race, other, said):
    found = shown(race(RUN, other))["summary"]
    assert said in found["apart"]
    assert bool(found["apart"]) == bool(said) == (found["agreement"] is None)


def test_a_lane_without_a_prompt_is_named(race):
    bare = {name: value for name, value in RUN.items() if name != "prompt"}
    told = "Whether both lanes answered the same prompt is not known."
    assert told in shown(race(RUN, bare))["message"]
    assert told not in shown(race(RUN, OTHER))["message"]


def test_ids_of_one_model_are_compared_without_texts(race):
    found = shown(race(IDS, IDS | {"tokens": [1, 2, 9, 4]}))["summary"]
    assert (found["apart"], found["first_divergence"]) == ("", 2)


def test_texts_and_ids_of_one_model_are_compared_by_text(race):
    texts = IDS | {"tokens": ["a", "b", "c", "d"]}
    spelt = IDS | {"vocabulary": {"1": "a", "2": "b", "3": "x", "4": "d"}}
    found = shown(race(spelt, texts))["summary"]
    assert (found["apart"], found["agreement"], found["first_divergence"]) == ("", 0.75, 2)


def test_texts_and_ids_without_texts_are_not_compared(race):
    found = shown(race(IDS, IDS | {"tokens": ["a", "b", "c", "d"]}))["summary"]
    assert "the other one has no ids" in found["apart"]
    assert found["agreement"] is None


def test_an_imported_run_beside_a_native_one_is_compared_by_text(race):
    native = Trace.load(ASSETS / "examples" / "b.npz")
    arrays = native.arrays()
    when, ids = native.step_map(), native.canvas_at(native.steps)
    answer = [i for i in range(len(ids)) if not arrays["prompt_mask"][i]]
    same = {
        "format": "driftscope-run", "version": 1, "prompt": native.meta["spec"]["prompt"],
        "tokens": [native.pieces[int(ids[i])].decode() for i in answer],
        "step_map": [int(when[i]) + 1 for i in answer],
    }  # fmt: skip
    found = shown(race(same, None))["summary"]
    assert (found["apart"], found["agreement"], found["speedup"]) == ("", 1, None)
    assert found["numbers"][0] == found["numbers"][1]


def test_every_view_gives_its_reason_or_its_data(race):
    trace = race(RUN).traces["a"]
    missing = {name for name in registry.VIEWS if "missing" in registry.draw(trace, name)}
    assert {"time", "schedule", "error", "candidates", "plan", "scatter"} <= missing
    assert "no FLOPs" in registry.draw(trace, "time")["missing"]
    assert registry.draw(trace, "frame")["level"] == "off"


def test_tables_have_empty_cells_for_what_is_unknown(race):
    record = race(RUN, OTHER)
    [first, *_] = csv.DictReader(io.StringIO(steps_table(record.traces["a"])))
    unknown = ("kind", "rows", "forwards", "forward_ms", "recomputed", "flops_ffn")
    assert [first[name] for name in unknown] == [""] * 6
    assert (first["committed"], first["masks_left"]) == ("1", "3")
    tokens = list(csv.DictReader(io.StringIO(tokens_table(record.traces["a"]))))
    assert [row["step"] for row in tokens] == ["2", "2", "1", "3"]
    summary = list(csv.DictReader(io.StringIO(summary_table(record, str))))
    assert [row["title"] for row in summary] == ["one engine", "another engine"]
    assert {row["total_ms"] for row in summary} == {""}


def test_an_imported_race_can_be_exported_and_read_again(race, tmp_path):
    record = race(RUN, OTHER)
    folder = tmp_path / "out"
    folder.mkdir()
    paths = write_race(record, folder, str)
    again = read_race([path for path in paths if path.endswith((".npz",))])
    assert shown(again)["summary"] == shown(record)["summary"]
    replay = next(path for path in paths if path.endswith(".html"))
    assert "one engine" in Path(replay).read_text("utf-8")


def test_an_imported_race_has_no_link_and_no_command(race):
    record = race(RUN, OTHER)
    assert run_card(record)["repeat"] is None
    assert links.link(record) is None


def test_an_imported_run_is_neither_recorded_nor_continued(race):
    with pytest.raises(ValueError, match="decoded by another engine"):
        recording_specs(race(RUN), "layers", ())


def test_a_foreign_file_is_no_recording(tmp_path):
    for name in ("a", "a-recorded"):
        (tmp_path / f"{name}.json").write_text(json.dumps(RUN))
    with pytest.raises(ValueError, match=r"a-recorded\.json is a run of another engine"):
        read_race(sorted(tmp_path.iterdir()))


@pytest.mark.parametrize(
    "more",
    [
        {"x": {"path": "README.md", "meta": {"_type": "gradio.FileData"}}},
        {"steps": [1]},
        {"steps": 2**60},
    ],
)
def test_settings_of_another_engine_hold_no_documents(more, race, tmp_path):
    """The API's answers hold the settings, and Gradio serves the file that such a mapping names."""
    trace = race(RUN).traces["a"]
    trace.meta["spec"] |= more
    trace.save(tmp_path / "own.npz")
    with pytest.raises(ValueError, match=r"trace: meta.spec of another engine's run may have"):
        read_race([tmp_path / "own.npz"])


def test_the_page_imports_and_names_the_file_of_an_error(handlers, request_of, tmp_path):
    files = FileService(handlers)
    good, bad = tmp_path / "good.json", tmp_path / "bad.json"
    good.write_text(json.dumps(RUN))
    bad.write_text(json.dumps(RUN | {"seconds": [1]}))
    document, note, _ = files.import_files(request_of(), [str(good)])
    assert json.loads(document)["state"] == "imported"
    assert note.startswith("Imported.")
    _, note, left = files.import_files(request_of(), [str(bad)])
    assert note == "Not imported. bad.json: seconds: 1 for 3 steps; give one for each step"
    assert left is None

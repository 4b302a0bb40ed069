"""The archive of all tables: every column has a note, and the summary is that of the race."""

import csv
import io
import zipfile

import pytest

from engine.config.answers import final_number
from engine.core.files import ASSETS
from engine.trace.trace import Trace
from inspector.files.column_notes import SUMMARY
from inspector.files.export import tables_archive
from inspector.page_data import compare
from inspector.page_data.tokens import answer_text, generation
from inspector.run_store import RaceRecord
from tests.support.handmade_guided_run import guided_trace

EXAMPLES = ASSETS / "examples"


def title(spec):
    return f"Method {spec.get('cache')}"


def read(record):
    """The tables of the archive by name, each as a list of rows."""
    with zipfile.ZipFile(io.BytesIO(tables_archive(record, title))) as archive:
        texts = {name: archive.read(name).decode() for name in archive.namelist()}
    return {name: list(csv.DictReader(io.StringIO(text))) for name, text in texts.items()}


@pytest.fixture(scope="module")
def race():
    record = RaceRecord(state="example", expected="64")
    for lane in "ab":
        record.traces[lane] = Trace.load(EXAMPLES / f"{lane}.npz")
        record.recorded[lane] = Trace.load(EXAMPLES / f"{lane}-recorded.npz")
    return record


@pytest.mark.parametrize("which", ["recorded", "guided"])
def test_every_column_of_every_table_has_a_note(which, race):
    guided = RaceRecord(state="done", traces={"a": guided_trace("off")})
    tables = read(race if which == "recorded" else guided)
    notes = {(row["table"], row["column"]): row["meaning"] for row in tables.pop("columns.csv")}
    written = {(name, column) for name, rows in tables.items() for column in rows[0]}
    assert set(notes) == written
    assert all(notes.values())


def test_the_archive_has_the_tables_of_both_lanes(race):
    tables = read(race)
    assert list(tables) == [
        "summary.csv", "a-steps.csv", "a-tokens.csv", "b-steps.csv", "b-tokens.csv", "columns.csv",
    ]  # fmt: skip
    assert "share_k" in tables["b-steps.csv"][0]
    assert len(tables["b-steps.csv"]) == race.traces["b"].steps


def test_the_summary_has_a_row_for_each_lane(race):
    rows = read(race)["summary.csv"]
    found = compare.summarise(race.started(), race.expected)
    assert [row["lane"] for row in rows] == ["A", "B"]
    for row, trace in zip(rows, race.traces.values(), strict=True):
        spec, metrics = trace.meta["spec"], trace.meta["metrics"]
        assert row["title"] == title(spec)
        for name in ("model", "cache", "unmasker", "dtype", "eos"):
            assert row[name] == spec[name]
        assert int(row["gen_length"]) == spec["gen_length"]
        for name in ("forwards", "tokens", "nfe"):
            assert float(row[name]) == metrics[name]
        assert float(row["total_ms"]) == pytest.approx(metrics["total_ms"], rel=1e-4)
        assert int(row["answer"]) == final_number(answer_text(trace))
        assert row["right"] == str(int(row["answer"] == "64"))
    assert rows[1]["knobs"] == "threshold.threshold=0.9"
    assert float(rows[1]["speedup_over_a"]) == found["speedup"]
    assert rows[0]["speedup_over_a"] == rows[0]["agreement_with_a"] == ""


def test_the_first_difference_counts_from_one():
    changed = Trace.load(EXAMPLES / "a.npz")
    arrays = changed.arrays()
    third_token = generation(changed)[2]
    arrays["commit_id"][arrays["commit_position"] == third_token] += 1
    same = RaceRecord(state="done", traces={lane: Trace.load(EXAMPLES / "a.npz") for lane in "ab"})
    other = RaceRecord(state="done", traces={"a": same.traces["a"], "b": changed})
    assert read(same)["summary.csv"][1]["first_difference"] == ""
    assert read(other)["summary.csv"][1]["first_difference"] == "3"


def test_the_summary_shows_no_times_of_a_recorded_run():
    trace = Trace.load(EXAMPLES / "b-recorded.npz")
    (row,) = read(RaceRecord(state="imported", traces={"b": trace}))["summary.csv"]
    assert row["total_ms"] == row["tokens_per_s"] == ""
    assert row["forwards"]


def test_the_times_of_the_steps_are_those_of_the_timed_run(race):
    rows = read(race)["b-steps.csv"]
    assert [float(row["forward_ms"]) for row in rows] == race.traces["b"].arrays()[
        "forward_ms"
    ].tolist()
    alone = read(RaceRecord(state="imported", traces={"b": race.recorded["b"]}))["b-steps.csv"]
    assert {row["forward_ms"] for row in alone} == {row["decide_ms"] for row in alone} == {""}
    assert "share_k" in alone[0]


def test_notes_say_which_positions_rows_and_shares_are_of():
    assert "position that the model attends to" in SUMMARY["rows_plain"]
    assert "all positions" in SUMMARY["recomputed"]

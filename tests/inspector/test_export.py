"""Traces go out and come back equal; hostile files are refused in words."""

import csv
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from engine.core.files import ASSETS
from inspector.files.export import read_example, read_race, write_race
from inspector.files.summary import summary_table
from inspector.page_data import messages
from inspector.run_store import RaceRecord
from inspector.views.frame import level_of

FILES = [
    "a.json", "a.npz", "b.json", "b.npz", "replay.html", "run-card.json", "tables.zip",
]  # fmt: skip


@pytest.fixture
def written(traces, tmp_path):
    return write_race(RaceRecord(traces=traces), tmp_path, lambda spec: "x")


def of(paths, suffix):
    return [path for path in paths if path.endswith((f"-a.{suffix}", f"-b.{suffix}"))]


def test_what_is_written(written):
    assert sorted(path.rpartition("driftscope-")[2][9:] for path in written) == FILES


def test_a_race_is_written_without_its_lock(traces, tmp_path):
    """The views of other visitors wait for it: two threads cut the slices of all."""
    record, free = RaceRecord(traces=traces), []

    def title(spec):
        free.append(record.lock.acquire(blocking=False))
        record.lock.release()
        return "x"

    write_race(record, tmp_path, title)
    assert free
    assert all(free)


def test_a_race_that_goes_on_ends_in_its_replay_file(traces, tmp_path):
    """Nothing follows there, and the views of a running race are not drawn."""
    record = RaceRecord(traces=traces, state="running")
    (page,) = (path for path in write_race(record, tmp_path, str) if path.endswith(".html"))
    head = f'"race":{{"run":"{record.run_id}","state":"stopped"'
    assert head in Path(page).read_text()
    assert record.state == "running"


def test_what_is_written_is_read_back(written, traces):
    for suffix in ("npz", "json"):
        record = read_race(of(written, suffix))
        for lane in "ab":
            for name, array in traces[lane].arrays().items():
                np.testing.assert_array_equal(record.traces[lane].arrays()[name], array)
            assert record.traces[lane].meta == json.loads(json.dumps(traces[lane].meta))


def test_an_import_draws_what_the_run_drew(written, traces):
    title = str.upper
    imported = read_race(of(written, "npz"))
    ran = RaceRecord(traces=traces, state="done")
    one, other = (
        json.loads(messages.whole(record, lambda spec: title("x"))) for record in (imported, ran)
    )
    assert one["lanes"] == other["lanes"]
    assert one["summary"] == other["summary"]
    assert one["state"] == "imported"


@pytest.mark.parametrize(("expected", "cell"), [("-3", "-3"), ("1,024", "1024"), ("-a", "'-a")])
def test_a_right_answer_that_is_a_number_is_one_in_the_summary(traces, expected, cell):
    record = RaceRecord(traces=traces, state="done", expected=expected)
    rows = csv.DictReader(io.StringIO(summary_table(record, lambda spec: "x")))
    assert {row["expected"] for row in rows} == {cell}


def test_one_file_fills_one_lane(written):
    record = read_race(written[:1])
    assert list(record.started()) == ["a"]
    assert json.loads(messages.whole(record, lambda spec: "x"))["summary"]["speedup"] is None


def test_the_number_of_files(written):
    for paths in ([], of(written, "npz") + of(written, "json")):
        with pytest.raises(ValueError, match="one file, or two"):
            read_race(paths)


@pytest.fixture
def pair(recorded, tmp_path):
    """Lane A as it was timed and as it was recorded, as files."""
    timed, kept = recorded
    record = RaceRecord(traces={"a": timed}, recorded={"a": kept})
    paths = write_race(record, tmp_path, lambda spec: "x")
    return [path for path in paths if path.endswith("npz")]


def test_a_timed_run_and_its_record_come_back_as_one(pair, recorded, tmp_path):
    assert [path.rpartition("-a")[2] for path in pair] == [".npz", "-recorded.npz"]
    record = read_race(pair)
    assert list(record.started()) == ["a"]
    assert record.trace_for_views("a").meta["spec"]["record"] == "layers"
    assert record.trace_for_views("a", timed=True).meta["spec"]["record"] == "off"
    alone = read_race(pair[1:])
    assert not alone.recorded
    assert alone.started()["a"].meta["spec"]["record"] == "layers"


def test_files_that_are_too_large_together_are_refused_with_a_remedy(pair):
    sizes = [Path(path).stat().st_size for path in pair]
    with pytest.raises(ValueError, match=r"MB; import one run alone, or leave out the -rec"):
        read_race(pair, max(sizes) // 2)
    with pytest.raises(ValueError, match=r"MB; narrow record_every.* and export again"):
        read_race(pair[:1], sizes[0] // 3)


def test_a_small_file_that_takes_much_memory_is_refused(traces, tmp_path):
    """Empty lists have three bytes each in a file, and sixty in memory."""
    limit, path = 2_000_000, tmp_path / "a.npz"
    traces["a"].meta["extra"] = [[] for _ in range(200_000)]
    traces["a"].save(path)
    with pytest.raises(ValueError, match=r"^trace: the runs take 1\d MB of memory, more than 10;"):
        read_race([path], limit)


def test_a_record_of_another_run_is_refused(pair, traces, tmp_path):
    traces["b"].save(pair[0])
    with pytest.raises(ValueError, match="lane A has other tokens"):
        read_race(pair)


def hostile(kind, good):
    if kind == "truncated":
        return good[: len(good) // 2]
    if kind == "empty":
        return b""
    if kind == "noise":
        return bytes(range(256)) * 50
    if kind == "deep":
        return b"[" * 200_000
    if kind == "other json":
        return b'{"meta": {"version": 1}, "arrays": {}}'
    out = io.BytesIO()
    if kind == "bomb":
        with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("canvas.npy", b"\0" * 80_000_000)
    if kind == "pickle":
        np.savez(out, meta=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    return out.getvalue()


@pytest.mark.parametrize(
    "kind", ["truncated", "empty", "noise", "deep", "other json", "bomb", "pickle"]
)
def test_hostile_files_are_refused(kind, written, tmp_path):
    path = tmp_path / "bad.npz"
    path.write_bytes(hostile(kind, Path(written[0]).read_bytes()))
    with pytest.raises(ValueError, match="trace"):
        read_race([path])


def test_a_file_with_a_foreign_spec_is_refused(traces, tmp_path):
    traces["a"].meta["spec"] = {"gen_length": "<b>"}
    traces["a"].save(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="gen_length"):
        read_race([tmp_path / "a.npz"])


def test_odd_metadata_is_drawn_as_text(traces, tmp_path):
    meta = traces["a"].meta
    meta["texts"] = [{"not": "text"}]
    meta["metrics"] = {"total_ms": "<img>", "forwards": float("inf")}
    meta["model"] |= {"stop_ids": "x", "eos_id": None, "mask_id": "m", "name": "<b>" * 99}
    meta["environment"] = {"device": "<script>", "threads": []}
    traces["a"].save(tmp_path / "a.npz")
    whole = json.loads(messages.whole(read_race([tmp_path / "a.npz"]), lambda spec: "x"))
    start = whole["lanes"]["a"]["start"]
    assert start["mask"] is None
    assert start["stop"] == []
    assert len(start["model"]) == 80
    assert whole["lanes"]["a"]["end"]["text"] == ""


def test_a_race_is_told_the_texts_of_its_canvas_alone(recorded):
    """Candidates and the logit lens of a large recorded run show most of a vocabulary."""
    trace = recorded[1]
    whole = json.loads(messages.whole(RaceRecord(traces={"a": trace}), str))
    steps = range(trace.steps + 1)
    shown = {str(i) for step in steps for i in trace.canvas_at(step).tolist() if i in trace.pieces}
    assert set(whole["lanes"]["a"]["pieces"]) == shown
    assert len(shown) < len(trace.pieces)


@pytest.mark.parametrize("ms", [5e-324, 10**400])
def test_times_beyond_all_numbers_give_no_speed_up(ms, traces, tmp_path):
    """Infinity is no JSON: the page would keep the race before, and say that it was imported."""
    traces["b"].meta["metrics"] |= {"total_ms": ms, "text_ms": ms}
    for lane in "ab":
        traces[lane].save(tmp_path / f"{lane}.npz")
    record = read_race([tmp_path / "a.npz", tmp_path / "b.npz"])
    text = messages.whole(record, lambda spec: "x")
    assert "Infinity" not in text
    assert json.loads(text)["summary"]["speedup"] is None


def test_the_example_folder(traces, tmp_path):
    assert read_example(tmp_path) is None
    for lane in "ab":
        traces[lane].save(tmp_path / f"{lane}.npz")
    assert read_example(tmp_path).state == "example"
    assert not read_example(tmp_path).recorded


def test_the_shipped_example_comes_with_its_record():
    record = read_example(ASSETS / "examples")
    assert {lane: level_of(record.trace_for_views(lane)) for lane in "ab"} == {
        "a": "probe",
        "b": "probe",
    }
    assert not {trace.meta["spec"]["record"] for trace in record.started().values()} - {"off"}
    assert json.loads(messages.whole(record, lambda spec: "x"))["summary"]["speedup"] > 0


def test_a_trace_beyond_the_limit_is_refused_with_its_lane_and_a_remedy(recorded, tmp_path):
    timed, kept = recorded
    record = RaceRecord(traces={"a": timed}, recorded={"a": kept})
    held = sum(array.nbytes for array in kept.arrays().values())
    limit = 2_010_000 + sum(array.nbytes for array in timed.arrays().values())
    assert held > limit - 2_000_000
    with pytest.raises(ValueError, match=r"^Lane A, recording: trace: .* narrow record_every"):
        write_race(record, tmp_path, str, limit=limit)
    assert len(write_race(record, tmp_path, str, limit=held + 2_010_000)) == 7


def test_a_file_beyond_the_limit_is_not_imported(written):
    with pytest.raises(ValueError, match="larger than 0 MB"):
        read_race(of(written, "npz"), 1_000)

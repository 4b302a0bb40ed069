"""Traces go out and come back equal; hostile files are refused in words."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from inspector.export import read_example, read_race, write_race
from inspector.shelf import Record
from inspector.views import messages


@pytest.fixture
def written(traces, tmp_path):
    return write_race(Record(traces=traces), tmp_path)


def test_what_is_written_is_read_back(written, traces):
    assert sorted(path.rsplit("-", 1)[1] for path in written) == [
        "a.json", "a.npz", "b.json", "b.npz",
    ]  # fmt: skip
    for suffix in ("npz", "json"):
        record = read_race([path for path in written if path.endswith(suffix)])
        for lane in "ab":
            for name, array in traces[lane].arrays().items():
                np.testing.assert_array_equal(record.traces[lane].arrays()[name], array)
            assert record.traces[lane].meta == json.loads(json.dumps(traces[lane].meta))


def test_an_import_draws_what_the_run_drew(written, traces):
    title = str.upper
    imported = read_race([path for path in written if path.endswith("npz")])
    ran = Record(traces=traces, state="done")
    one, other = (
        json.loads(messages.whole(record, lambda spec: title("x"))) for record in (imported, ran)
    )
    assert one["lanes"] == other["lanes"]
    assert one["summary"] == other["summary"]
    assert one["state"] == "imported"


def test_one_file_fills_one_lane(written):
    record = read_race(written[:1])
    assert list(record.started()) == ["a"]
    assert json.loads(messages.whole(record, lambda spec: "x"))["summary"]["speedup"] is None


def test_the_number_of_files(written):
    for paths in ([], written[:3]):
        with pytest.raises(ValueError, match="one file, or two"):
            read_race(paths)


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


def test_the_example_folder(traces, tmp_path):
    assert read_example(tmp_path) is None
    for lane in "ab":
        traces[lane].save(tmp_path / f"{lane}.npz")
    assert read_example(tmp_path).state == "example"

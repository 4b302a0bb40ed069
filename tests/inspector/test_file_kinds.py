"""An imported file that is no trace is told what it is."""

import json
import zipfile

import numpy as np
import pytest

from inspector.files.export import read_race
from inspector.files.run_card import run_card
from inspector.run_store import RaceRecord
from tests.engine.trace.test_hostile_traces import archive_of


def refused(path):
    with pytest.raises(ValueError, match=r".") as told:
        read_race([path])
    return str(told.value)


def test_a_run_card_is_told_that_it_is_one(recorded, tmp_path):
    record = RaceRecord(state="done", traces={"b": recorded[0]})
    path = tmp_path / "card.json"
    path.write_text(json.dumps(run_card(record)))
    said = refused(path)
    assert said.startswith("card.json is a run card: the settings and results of a race")
    assert f"driftscope-{record.run_id[:8]}-a.npz" in said


@pytest.mark.parametrize(
    ("document", "kind"),
    [
        ({"gen_length": 8, "model": "x"}, "settings of a run"),
        ({"a": {}, "b": {}}, "settings of a run"),
        ({"hidden_size": 8}, "a JSON file without a trace"),
        ([1, 2], "a JSON file without a trace"),
        ({"lanes": 1, "summary": [], "run": None}, "a run card"),
    ],
)
def test_other_json_files_are_told_what_they_are(document, kind, tmp_path):
    path = tmp_path / "one.json"
    path.write_text(json.dumps(document))
    assert refused(path).startswith(f"one.json is {kind}")


def test_a_replay_page_is_told_that_it_is_a_web_page(tmp_path):
    (tmp_path / "replay.html").write_text("<!DOCTYPE html>\n<html></html>")
    said = refused(tmp_path / "replay.html")
    assert said.startswith("replay.html is a web page; open a replay of Driftscope in a browser")


def test_an_archive_of_other_arrays_is_told_that_it_has_no_trace(tmp_path):
    np.savez(tmp_path / "weights.npz", w=np.zeros(3))
    assert refused(tmp_path / "weights.npz").startswith("weights.npz is an archive without a trace")


def test_a_long_list_of_members_is_not_read_to_tell_what_the_archive_is(tmp_path):
    path = tmp_path / "many.zip"
    path.write_bytes(archive_of(10_000))
    assert "its list of arrays is too long" in refused(path)


@pytest.mark.parametrize("data", [b"", b"PK nonsense", b"{", b"\xff\xfe", b"[" * 90_000])
def test_damaged_files_are_called_damaged(data, tmp_path):
    path = tmp_path / "broken.json"
    path.write_bytes(data)
    assert "damaged or not a trace" in refused(path)


def test_an_archive_of_an_unknown_version_is_called_damaged(tmp_path):
    path = tmp_path / "new.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("meta.npy", b"x")
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 6] = 99  # the version that is needed to read it
    path.write_bytes(data)
    assert "damaged or not a trace" in refused(path)


def test_a_damaged_trace_is_not_called_something_else(recorded, tmp_path):
    document = json.loads(recorded[0].to_json())
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document | {"meta": {}}))
    assert refused(path).startswith("trace.json: trace: ")

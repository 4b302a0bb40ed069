"""The journal of a batch: what is kept, what a key depends on, damaged lines."""

import json
from dataclasses import replace

import pytest

from engine.batch import journal as journal_module
from engine.batch.journal import Journal, run_key
from engine.batch.outcome import Outcome
from engine.config.spec import RunSpec
from engine.core.variables import KERNELS
from engine.evaluate.sharing.shared_exam import machine_of
from engine.serve import environment

OUTCOME = Outcome("done", text="a „b“\n", ids=(4, 5), number=7, right=True, forwards=3, ms=1.5)
WHERE = {
    "device_name": "x",
    "dtype": "float32",
    "device": "cpu",
    "threads": 1,
    "torch": "2",
    "checkpoint": "abc",
    "record": "off",
}


def test_outcomes_come_back(tmp_path):
    path = tmp_path / "new" / "runs.jsonl"
    journal = Journal(path)
    journal.put("one", OUTCOME)
    journal.put("two", replace(OUTCOME, right=None))
    again = Journal(path)
    assert len(again) == 2
    assert again.get("one") == OUTCOME
    assert again.get("two").right is None
    assert again.get("three") is None


def test_a_line_that_was_cut_off_is_left_out_and_the_next_one_is_whole(tmp_path):
    path = tmp_path / "runs.jsonl"
    journal = Journal(path)
    journal.put("one", OUTCOME)
    journal.put("two", OUTCOME)
    path.write_bytes(path.read_bytes()[:-20])
    again = Journal(path)
    assert again.get("two") is None
    again.put("three", OUTCOME)
    assert {key for key in ("one", "two", "three") if Journal(path).get(key)} == {"one", "three"}


@pytest.mark.parametrize("line", ["[]", "5", '{"key": "one"}', '{"key": "one", "reason": "done"}'])
def test_a_line_of_another_kind_is_left_out(tmp_path, line):
    path = tmp_path / "runs.jsonl"
    path.write_text(line + "\n")
    assert len(Journal(path)) == 0


def test_a_key_is_of_spec_answer_checkpoint_machine_and_versions():
    spec = RunSpec(prompt="a")
    key = run_key(spec, "4", WHERE)
    assert key == run_key(RunSpec(prompt="a"), "4", WHERE | {"record": "layers"})
    others = [
        run_key(replace(spec, prompt="b"), "4", WHERE),
        run_key(replace(spec, cache="dual"), "4", WHERE),
        run_key(spec, None, WHERE),
        *(run_key(spec, "4", WHERE | {name: "other"}) for name in WHERE if name != "record"),
    ]
    assert len({key, *others}) == len(others) + 1


def test_times_of_measured_routines_and_of_those_of_torch_are_kept_apart(monkeypatch):
    found = []
    for chosen in ("torch", ""):
        monkeypatch.setenv(KERNELS, chosen)
        found.append(environment.describe(RunSpec(), ""))
    assert [one.get("kernels") for one in found] == ["torch", None]
    assert run_key(RunSpec(), None, found[0]) != run_key(RunSpec(), None, found[1])
    assert machine_of(found[0], 1) != machine_of(found[1], 1)


def test_a_file_is_of_one_version_of_the_code_and_a_journal_in_memory_of_this_one(
    tmp_path, monkeypatch
):
    versions = {("none", "quota"): "1", ("dual", "quota"): "2"}
    monkeypatch.setattr(journal_module, "code_version", lambda *names: versions[names])
    journal = Journal(tmp_path / "runs.jsonl")
    assert journal.version(RunSpec()) == {"code": "1"}
    assert journal.version(RunSpec(cache="dual")) == {"code": "2"}
    assert Journal().version(RunSpec()) == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [("ms", "1.5"), ("text", None), ("ids", "45"), ("ids", [4, "5"]), ("right", 1), ("number", "7"),
     ("forwards", [3]), ("reason", {"done": 1}), ("cache_bytes", None), ("recomputed", True)],
)  # fmt: skip
def test_a_line_with_a_value_of_another_kind_is_left_out(tmp_path, field, value):
    path = tmp_path / "runs.jsonl"
    Journal(path).put("one", OUTCOME)
    row = json.loads(path.read_text("utf-8"))
    assert field in row
    path.write_text(json.dumps(row | {field: value}) + "\n", "utf-8")
    assert len(Journal(path)) == 0

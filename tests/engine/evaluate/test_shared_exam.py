"""Several processes find what one finds, and an interrupted evaluation resumes."""

import io
import json
from contextlib import redirect_stdout

import pytest

from engine.distributed.keyed_lines import KeyedLines, read_lines
from engine.distributed.processes import Processes
from engine.evaluate.__main__ import main
from engine.evaluate.exam import ExamResult
from engine.evaluate.sharing import shared_exam
from engine.evaluate.sharing.shared_exam import Sample, SharedExam
from tests.support.launched import start

OPTIONS = (
    "--problems", "8", "--seed", "7", "--batch", "2", "--unmasker", "threshold", "--json",
)  # fmt: skip
COMMAND = ("-m", "engine.evaluate", *OPTIONS)
TIMES = {"ms"}


def finish(processes):
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), outputs
    return json.loads(outputs[0][0].splitlines()[-1]), [out for out, _ in outputs[1:]]


def run_alone(folder, *flags):
    """The document of the same command in this process."""
    with redirect_stdout(io.StringIO()) as printed:
        main([*OPTIONS, *flags, "--out", str(folder)])
    return json.loads(printed.getvalue().splitlines()[-1])


def samples(folder):
    return [line for path in sorted(folder.glob("samples-*")) for line in read_lines(path)]


def without_times(folder):
    return {
        key: {name: value for name, value in row["result"].items() if name not in TIMES}
        for key, row in samples(folder)
    }


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    return folder, run_alone(folder)


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """The folder and the document of two processes, and what the second one printed."""
    folder = tmp_path_factory.mktemp("together")
    return folder, *finish(start(2, *COMMAND, "--out", str(folder)))


def test_two_processes_equal_one_sample_by_sample(alone, together):
    folder, document, others = together
    assert others == [""]
    assert document["processes"] == 2
    assert document["wall_s"] > 0
    assert all((folder / f"samples-{rank}.jsonl").is_file() for rank in range(2))
    assert len(samples(folder)) == 8
    assert without_times(folder) == without_times(alone[0])
    row, expected = document["rows"][0], alone[1]["rows"][0]
    same = ("accuracy", "correct", "nfe", "tokens", "gflops_per_token", "recomputed", "cache_bytes")
    assert {name: row[name] for name in same} == pytest.approx({n: expected[n] for n in same})
    assert row["resumed"] == 0


def test_killed_processes_are_resumed_by_one_that_does_only_the_rest(alone, together, tmp_path):
    """Each of their files ends within a line; a batch that is not whole is decoded again."""
    for rank in range(2):
        name = f"samples-{rank}.jsonl"
        text = (together[0] / name).read_text("utf-8")
        (tmp_path / name).write_text(text[:-40], "utf-8")
    kept = len(samples(tmp_path))
    assert kept == 6
    (row,) = run_alone(tmp_path)["rows"]
    assert row["resumed"] in (kept, kept - 1, kept - 2)
    assert len(samples(tmp_path)) == kept + 8 - row["resumed"]
    assert without_times(tmp_path) == without_times(alone[0])
    assert row["correct"] == alone[1]["rows"][0]["correct"]
    assert row["tokens_per_s"] is None
    assert row["machine"] is None


def test_a_row_names_the_machine_of_its_rates_though_another_one_resumes(alone, tmp_path):
    lines = (alone[0] / "samples-0.jsonl").read_text("utf-8")
    here = json.loads(lines.splitlines()[0])["machine"]
    elsewhere = {**here, "device_name": "elsewhere"}
    (tmp_path / "samples-0.jsonl").write_text(
        lines.replace(json.dumps(here, ensure_ascii=False), json.dumps(elsewhere)), "utf-8"
    )
    (row,) = run_alone(tmp_path)["rows"]
    assert (row["resumed"], row["machine"]) == (8, elsewhere)
    assert alone[1]["rows"][0]["machine"] == here


def test_a_batch_is_written_before_the_next_one_is_decoded(tmp_path, monkeypatch):
    decode, decoded = shared_exam.evaluate, []

    def killed_in_the_second_batch(model, spec, questions, batch, fit):
        if decoded:
            raise ZeroDivisionError
        decoded.extend(questions)
        return decode(model, spec, questions, batch, fit)

    monkeypatch.setattr(shared_exam, "evaluate", killed_in_the_second_batch)
    with pytest.raises(ZeroDivisionError):
        main([*OPTIONS, "--out", str(tmp_path)])
    assert len(samples(tmp_path)) == len(decoded) > 0


def test_samples_of_another_version_of_the_code_are_decoded_again(tmp_path, monkeypatch):
    found = []
    for version in ("old", "new", "new"):
        monkeypatch.setattr(shared_exam, "code_version", lambda *names, v=version: v)
        found.append(run_alone(tmp_path, "--problems", "2")["rows"][0]["resumed"])
    assert found == [0, 0, 2]


def test_rows_with_one_spec_have_samples_of_their_own_which_they_resume(tmp_path):
    specs, out = tmp_path / "specs.json", tmp_path / "out"
    specs.write_text(json.dumps([{"name": name} for name in "abc"]))
    flags = ("--specs", str(specs), "--timed", "0", "--problems", "2")
    first, again = (run_alone(out, *flags)["rows"] for _ in range(2))
    assert len({key for key, _ in samples(out)}) == 6
    assert [row["resumed"] for row in first + again] == [0] * 3 + [2] * 3
    assert [row["tokens_per_s"] for row in again] == [row["tokens_per_s"] for row in first]


def test_a_sample_of_another_version_is_decoded_again(capsys, tmp_path):
    result = ExamResult("5", True, 1, 1, 1, (7,), "v", 1, 1.0, 1.0, 1.0, 8)
    row = Sample(result, {}).to_dict()
    lines = KeyedLines(tmp_path / "samples-0.jsonl")
    lines.put("same", row)
    lines.put("newer", row | {"result": row["result"] | {"energy": 3}})
    exam = SharedExam(Processes({}), tmp_path)
    assert list(exam._held) == ["same"]
    assert "a sample is decoded again: result.energy is unknown" in capsys.readouterr().err

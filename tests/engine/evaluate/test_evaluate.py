"""The exam as a command."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from engine.bench.suite import read_entries
from engine.config.spec import RunSpec
from engine.evaluate.__main__ import main
from engine.evaluate.comparison import (
    Entry,
    _sit,
    added,
    check_same,
    mcnemar,
    time_prompts,
)
from engine.evaluate.exam import sit, summarise
from engine.models.loading.families import embedded_models
from engine.serve.model_pool import ModelPool
from engine.tiny.corpus import exam_questions
from tests.support.micro import ROOT


def command(*words):
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.fixture(scope="module")
def model():
    return ModelPool(embedded_models(ROOT / "assets")).load(RunSpec())


def test_the_exam_ends_with_one_json_line():
    code, lines, error = command(
        "engine.evaluate", "--model", "assets/models/tiny-llada", "--problems", "3", "--seed", "7",
        "--cache", "dual", "--unmasker", "threshold", "--threshold", "0.8", "--block", "16",
        "--json",
    )  # fmt: skip
    assert code == 0, error
    document = json.loads(lines[-1])
    (row,) = document["rows"]
    assert {"accuracy", "nfe", "tokens_per_s", "spec"} <= set(row)
    assert row["spec"]["cache"] == "dual"
    assert row["spec"]["block_length"] == 16
    assert row["spec"]["knobs"] == {"threshold.threshold": 0.8}
    assert 4 <= row["nfe"] < 64
    assert document["environment"]["checkpoint"]


@pytest.mark.parametrize(
    ("flags", "named"),
    [(("--cache", "nope"), "cache"), (("--steps", "7"), "steps"), (("--block", "48"), "block")],
)
def test_the_exam_refuses_by_name(monkeypatch, flags, named):
    monkeypatch.setattr(sys, "argv", ["evaluate", "--problems", "1", *flags])
    with pytest.raises(SystemExit, match=f"^error: {named}"):
        main()


def test_a_batch_gives_the_answers_of_single_problems(model):
    questions = exam_questions(4, 3)
    spec = RunSpec(gen_length=32, block_length=16, steps=32)
    one = [s.text for s in sit(model, spec, questions, batch=1)]
    assert [s.text for s in sit(model, spec, questions, batch=4)] == one


def test_the_summary_counts(model):
    spec = RunSpec(gen_length=32, block_length=16, steps=32)
    sittings = list(sit(model, spec, exam_questions(3, 3)))
    row = summarise(spec, sittings)
    assert row["correct"] == sum(s.right for s in sittings)
    assert row["nfe"] == 32
    assert row["tokens_per_s"] == pytest.approx(
        1e3 * sum(s.tokens for s in sittings) / sum(s.ms for s in sittings)
    )


def test_many_settings_are_compared_with_the_first(tmp_path):
    specs = [
        {"name": "plain"},
        {"name": "again"},
        {"name": "all at once", "unmasker": "threshold", "threshold.threshold": 0.0},
    ]
    (tmp_path / "specs.json").write_text(json.dumps(specs))
    code, lines, error = command(
        "engine.evaluate", "--specs", str(tmp_path / "specs.json"), "--problems", "3",
        "--gen", "32", "--steps", "16", "--timed", "1", "--timed-shots", "1",
        "--out", str(tmp_path), "--json",
    )  # fmt: skip
    assert code == 0, error
    document = json.loads(lines[-1])
    plain, again, rash = document["rows"]
    assert (again["agreement"], again["p"], again["accuracy"]) == (1, 1, plain["accuracy"])
    assert rash["nfe"] == 1
    assert rash["agreement"] < 1
    assert rash["gflops_per_position"] < plain["gflops_per_position"]
    assert rash["speed"]["nfe"] == 4
    assert rash["speed"]["speed_up"] > 4
    assert json.loads((tmp_path / "table.json").read_text())["rows"] == document["rows"]
    assert "| again |" in (tmp_path / "table.md").read_text()


def a_table(command, **changes):
    row = {"name": "plain", "correct": 2, "problems": 3, "nfe": 4.0, "spec": {}} | changes
    others = [{"name": "kept"}, {"name": "anew", "old": True}]
    where = {"checkpoint": "c"}
    return {"environment": where, "command": command, "rows": [row, *others]}


def test_rows_are_added_to_a_table_whose_first_row_comes_out_alike():
    new = a_table("second") | {"rows": [a_table("")["rows"][0], {"name": "anew"}, {"name": "more"}]}
    whole = added(a_table("first"), new)
    assert [row["name"] for row in whole["rows"]] == ["plain", "kept", "anew", "more"]
    assert whole["rows"][2] == {"name": "anew"}
    assert whole["command"] == "first\nsecond"
    for changes in ({"correct": 1}, {"nfe": 4.5}):
        with pytest.raises(ValueError, match=f"add: .* {next(iter(changes))}"):
            added(a_table("first", **changes), new)


def test_rows_are_not_added_to_a_table_of_other_settings_or_weights():
    check_same(a_table(""), RunSpec(), "c")
    with pytest.raises(ValueError, match=r"add: .* settings"):
        check_same(a_table("", spec={"cache": "dual"}), RunSpec(), "c")
    with pytest.raises(ValueError, match=r"add: .* checkpoint"):
        check_same(a_table(""), RunSpec(), "d")


@pytest.mark.parametrize(
    ("text", "named"),
    [("{", "JSON"), ('[{"name": "x", "cache": "nope"}]', "x: cache"), ("[]", "no entry"),
     ('[{"cache": "dual"}]', "name")],
)  # fmt: skip
def test_a_specs_file_is_refused_by_name(tmp_path, text, named):
    (tmp_path / "specs.json").write_text(text)
    with pytest.raises(ValueError, match="specs: .*" + named):
        read_entries(tmp_path / "specs.json", RunSpec())


@pytest.mark.parametrize(("gained", "lost", "p"), [(0, 0, 1), (0, 5, 0.0625), (3, 3, 1)])
def test_the_paired_test_is_exact(gained, lost, p):
    assert mcnemar(gained, lost) == pytest.approx(p)


def test_every_entry_is_sat_and_timed_in_its_own_number_format(model):
    asked = []

    def load(spec):
        asked.append(spec.dtype)
        return model

    base = RunSpec(gen_length=32, steps=32, knobs={})
    entries = [Entry(d, replace(base, dtype=d)) for d in ("float32", "bfloat16")]
    questions = exam_questions(1, 7, 0)
    for entry in entries:
        _sit(load, entry.spec, questions, 1)
    time_prompts(load, entries, questions)
    assert asked == ["float32", "bfloat16"] * 2

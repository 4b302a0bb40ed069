"""The exam and the benchmark as commands."""

import json
import subprocess
import sys

import pytest

from engine.bench import measure, table
from engine.evaluate import sit, summarise
from engine.library import Library, embedded_models
from engine.spec import RunSpec
from engine.tiny.exam import exam
from tests.micro import ROOT


def command(*words):
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.splitlines(), done.stderr


@pytest.fixture(scope="module")
def model():
    return Library(embedded_models(ROOT / "assets")).load(RunSpec())


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
def test_the_exam_refuses_by_name(flags, named):
    code, _, error = command("engine.evaluate", "--problems", "1", *flags)
    assert code == 1
    assert error.startswith(f"error: {named}")


def test_a_batch_gives_the_answers_of_single_problems(model):
    questions = exam(4, 3)
    spec = RunSpec(gen_length=32, block_length=16, steps=32)
    one = [s.text for s in sit(model, spec, questions, batch=1)]
    assert [s.text for s in sit(model, spec, questions, batch=4)] == one


def test_the_summary_counts(model):
    spec = RunSpec(gen_length=32, block_length=16, steps=32)
    sittings = list(sit(model, spec, exam(3, 3)))
    row = summarise(spec, sittings)
    assert row["correct"] == sum(s.right for s in sittings)
    assert row["nfe"] == 32
    assert row["tokens_per_s"] == pytest.approx(
        1e3 * sum(s.tokens for s in sittings) / sum(s.ms for s in sittings)
    )


def test_the_benchmark_compares_within_a_round(model):
    base = RunSpec(prompt="Mia has 4 pens.", gen_length=16, block_length=8, steps=16)
    again = RunSpec(prompt="Mia has 4 pens.", gen_length=16, block_length=8, steps=16)
    rows = table(measure(model, {"plain": base, "again": again}, rounds=2), 4)
    assert [row["nfe"] for row in rows] == [16, 16]
    assert rows[0]["speed_up"] == 1
    assert rows[1]["same_text"]

"""Prompts that are timed: the length of their answers, and what is refused before the exam."""

import pytest

from engine.batch.settings import NamedSpec
from engine.config.spec import RunSpec
from engine.core.files import ASSETS
from engine.evaluate import comparison
from engine.evaluate.__main__ import main
from engine.evaluate.comparison import time_prompts, timed_length
from engine.models.loading.families import embedded_models
from engine.serve.model_pool import ModelPool
from engine.tiny.corpus import exam_questions
from tests.support.micro import write_checkpoint


@pytest.fixture(scope="module")
def model():
    return ModelPool(embedded_models(ASSETS)).load(RunSpec())


def test_long_prompts_have_answers_of_whole_blocks(model):
    """Blocks of 64 do not divide the usual length of these answers."""
    spec = RunSpec(gen_length=64, block_length=64, steps=1)
    found = time_prompts(lambda spec: model, [NamedSpec("x", spec)], exam_questions(1, 7))
    assert found["x"]["prompts"] == 1


def test_rows_of_different_blocks_are_timed_on_answers_of_one_length(model):
    specs = [
        NamedSpec(str(size), RunSpec(gen_length=64, block_length=size, steps=64 // size))
        for size in (32, 64)
    ]
    found = time_prompts(lambda spec: model, specs, exam_questions(1, 7, 0, "short_problems"))
    assert [found[name]["nfe"] for name in ("32", "64")] == [4, 2]  # of 128 positions
    assert timed_length(specs) == 128
    assert timed_length([NamedSpec(str(n), RunSpec(block_length=n)) for n in (16, 32)]) == 96
    with pytest.raises(ValueError, match=r"^block_length: .* 32 and 64, has 128 positions"):
        timed_length(specs, 127)


@pytest.fixture
def evaluate_short(tmp_path, monkeypatch):
    """Evaluate a row of tiny-llada and one of a model with a shorter context; no exam is begun."""
    monkeypatch.setattr(comparison, "compare", pytest.fail)

    def run(context, *flags):
        short = write_checkpoint(tmp_path / "short", max_sequence_length=context)
        path = tmp_path / "specs.json"
        path.write_text('[{"name": "long", "model": "tiny-llada"}, {"name": "short"}]')
        main(["--model", str(short), "--specs", str(path), "--problems", "1", *flags])

    return run


def test_a_timed_answer_fits_the_context_of_every_row(evaluate_short):
    with pytest.raises(SystemExit, match=r"^error: --timed: .* at least 96 positions, .* has 64;"):
        evaluate_short(64)


def test_a_timed_prompt_and_its_answer_fit_the_context_of_every_row(evaluate_short):
    with pytest.raises(SystemExit, match=r"^error: --timed-shots: a prompt of .* context of 400;"):
        evaluate_short(400, "--timed", "1")


def test_a_timed_prompt_without_worked_examples_cannot_have_fewer(evaluate_short):
    with pytest.raises(SystemExit, match=r"^error: --timed: .* context of 100; give --timed 0$"):
        evaluate_short(100, "--timed-shots", "0")


def test_worked_examples_of_timed_prompts_need_prompts(tmp_path, capsys):
    with pytest.raises(SystemExit):
        main(["--specs", str(tmp_path / "any.json"), "--timed", "0", "--timed-shots", "1"])
    said = "--timed-shots: no prompt is timed with --timed 0; leave it out"
    assert said in capsys.readouterr().err

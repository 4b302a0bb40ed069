"""The causal exam: what its row and its document name, and how it fails."""

import json

import pytest
import torch

from engine.__main__ import main as engine_main
from engine.core.files import ASSETS
from engine.evaluate.causal_exam import evaluate_causal
from engine.models.loading.checkpoint import Checkpoint
from engine.tiny.corpus import exam_questions


def test_the_row_of_the_causal_exam_names_the_model_that_was_examined():
    folder = ASSETS / "models" / "tiny-qwen2-digits"
    row = evaluate_causal(folder, exam_questions(1, 7, 0))
    assert row["spec"]["model"] == row["spec"]["knobs"]["autoregressive.model"] == str(folder)


def test_the_causal_exam_names_the_weights_that_were_examined(capsys):
    folder = ASSETS / "models" / "tiny-qwen2"
    engine_main(["causal-exam", "--folder", str(folder), "--problems", "1", "--json"])
    document = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert document["environment"]["checkpoint"] == Checkpoint(folder).digest()
    assert len(document["rows"]) == 1


def test_running_out_of_memory_ends_the_causal_exam_in_one_line(monkeypatch):
    def load(*given):
        return torch.empty(1 << 60, dtype=torch.uint8)

    monkeypatch.setattr("engine.evaluate.causal_exam.load_guider", load)
    with pytest.raises(SystemExit, match=r"^error: .*memory"):
        engine_main(["causal-exam", "--folder", "any", "--problems", "1"])


def test_more_problems_than_a_family_has_end_the_causal_exam_in_one_line(monkeypatch):
    monkeypatch.setattr("engine.tiny.corpus.MOST_IN_VAIN", 0)
    with pytest.raises(SystemExit, match=r"^error: problems: .* ask for at most so many"):
        engine_main(["causal-exam", "--folder", "any", "--problems", "500"])


def test_a_folder_that_cannot_be_read_ends_the_causal_exam_in_one_line():
    with pytest.raises(SystemExit, match=r"^error: .*File name too long"):
        engine_main(["causal-exam", "--folder", "a" * 300, "--problems", "1"])

"""What the page is told of the embedded models."""

import json

import pytest

from engine.models.loading.families import embedded_models
from engine.tiny import corpus
from engine.tiny.export import read_history
from engine.tiny.suite import describe_suite, families_by_model
from tests.support.micro import ROOT


def test_families_have_a_description_and_a_right_example():
    found = describe_suite({}, corpus.families())
    assert [row["name"] for row in found["families"]] == list(corpus.families())
    for row in found["families"]:
        assert len(row["text"]) > 100
        drawn = corpus.draw(1, 20, "training", row["name"])
        assert (row["question"], row["answer"]) in [(one.question, one.solution) for one in drawn]


def test_training_is_summed_over_the_phases_and_the_families_are_of_the_last(tmp_path):
    phases = [
        {"recipe": {"families": [["balance", 1.0]]}, "tokens": 2_000_000, "step": 40,
         "seconds": 60.0, "curve": [(20, 2.0, 0.5), (40, 1.0, 0.6)]},
        {"recipe": {"families": [["lookup", 1.0]]}, "tokens": 1_000_000, "step": 10,
         "seconds": 80.0, "curve": [(10, 0.5, 0.9)], "device": "cuda"},
    ]  # fmt: skip
    (tmp_path / "training.json").write_text(json.dumps(phases))
    (model,) = describe_suite({"m": tmp_path, "other": tmp_path / "none"}, ())["models"]
    assert model == {
        "name": "m", "families": ["lookup"], "tokens": 3_000_000, "minutes": (1, 1),
        "curve": [(1.0, 2.0), (2.0, 1.0), (3.0, 0.5)],
    }  # fmt: skip


DAMAGED = ["", "{", "{}", "[3]", '[{"recipe": 5}]', '[{"tokens": 1}]']


@pytest.mark.parametrize("text", DAMAGED)
def test_a_training_json_of_something_else_is_no_history_of_a_listed_folder(tmp_path, text):
    (tmp_path / "training.json").write_text(text)
    assert families_by_model({"m": tmp_path}) == {"m": []}
    assert describe_suite({"m": tmp_path}, ())["models"] == []


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_history_is_refused_with_the_name_of_its_file(tmp_path, text):
    (tmp_path / "training.json").write_text(text)
    with pytest.raises(ValueError, match=r"^folder: .*training\.json"):
        read_history(tmp_path)


def test_the_shipped_models_are_described():
    found = describe_suite(embedded_models(ROOT / "assets"), ["short_problems"])
    assert [row["name"] for row in found["models"]] == ["tiny-llada", "tiny-block", "tiny-dream"]
    assert all(row["tokens"] > 10_000_000 and row["curve"] for row in found["models"])
    assert "no world knowledge" in " ".join(found["limits"].split())

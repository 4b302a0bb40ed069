"""The card of a trained model: which tables it shows, and files that it rejects."""

import json
import shutil
import signal

import pytest

from engine.config.spec import RunSpec
from engine.core.files import ASSETS
from engine.models.loading.checkpoint import Checkpoint
from engine.tiny import card
from engine.tiny.train import main
from tests.support.micro import ROOT

MODELS = sorted(path.name for path in (ASSETS / "models").iterdir())


def copy_model(folder):
    for file in ("training.json", "config.json"):
        shutil.copy(ROOT / "assets" / "models" / "tiny-llada" / file, folder)


def write_tables(folder, **checkpoints):
    """A file with the results of `tables` for models by name; returns its path."""
    found = {"problems": 9, "accuracy": 0.5, "standard_error": 0.1, "positions": 48.0}
    row = {
        "spec": {"gen_length": 64, "block_length": 32, "eos": "fill_safe"},
        "families": {"balance": found},
    }
    tables = [
        {"model": model, "checkpoint": checkpoint, "shots": 4}
        | {"blocks": [{"rows": [row | {"name": f"of {model}"}]}]}
        for model, checkpoint in checkpoints.items()
    ]
    (folder / "results.json").write_text(json.dumps({"tables": tables}) + "\n")
    return str(folder / "results.json")


def copy_weights(folder):
    """Copy the weights of tiny-llada; returns their digest."""
    shutil.copy(ROOT / "assets" / "models" / "tiny-llada" / "model.safetensors", folder)
    return Checkpoint(folder).digest()


def test_a_card_shows_the_tables_of_its_model(tmp_path):
    copy_model(tmp_path)
    models = {"tiny-llada": copy_weights(tmp_path), "tiny-dream": "0" * 16}
    exams = write_tables(tmp_path, **models)
    main(["card", "--folder", str(tmp_path), "--exams", exams])
    lines = (tmp_path / "README.md").read_text("utf-8").splitlines()
    (line,) = (line for line in lines if "| of " in line)
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells[:7] == ["Running balance", "of tiny-llada", "48", "32", "fill_safe", "4", "9"]


@pytest.mark.parametrize("name", ["tiny-llada", "tiny-qwen2"])
def test_a_card_explains_block_states_only_where_a_phase_has_them(tmp_path, name):
    for file in ("training.json", "config.json"):
        shutil.copy(ROOT / "assets" / "models" / name / file, tmp_path)
    main(["card", "--folder", str(tmp_path)])
    made = (tmp_path / "README.md").read_text("utf-8")
    assert ("`block states` is" in made) == ("% block states" in made) == (name == "tiny-llada")


def test_an_interrupt_leaves_no_earlier_exam_beside_a_new_card(tmp_path, monkeypatch):
    def write(path, data):
        signal.raise_signal(signal.SIGINT)

    copy_model(tmp_path)
    monkeypatch.setattr(card, "write_atomically", write)
    with pytest.raises(KeyboardInterrupt):
        main(["card", "--folder", str(tmp_path)])
    assert json.loads((tmp_path / "exam.json").read_text("utf-8")) == {"rows": []}


@pytest.mark.parametrize("name", MODELS)
def test_the_cards_of_the_models_have_the_present_explanations(name):
    shipped = (ASSETS / "models" / name / "README.md").read_text("utf-8")
    for text in (card.LIMITS, card.HELD_OUT, card.SIZES):
        assert f"\n{text}" in shipped
    assert (card.BLOCK_STATES in shipped) == ("% block states" in shipped)


@pytest.mark.parametrize("text", ["", "no JSON\n", "[]\n"])
def test_a_card_rejects_a_file_without_exam_results(tmp_path, text):
    (tmp_path / "exam.json").write_text(text)
    copy_model(tmp_path)
    words = ("--folder", str(tmp_path), "--exams", str(tmp_path / "exam.json"))
    with pytest.raises(SystemExit, match=r"error: exams: .* must end with the output"):
        main(["card", *words])
    (tmp_path / "exam.json").unlink()
    with pytest.raises(SystemExit, match=r"error: exams: .* cannot be read: No such file"):
        main(["card", *words])


def evaluated(folder, *models, **environment):
    """A file with the output of `evaluate` for settings of models; returns its path."""
    row = {"family": "balance", "problems": 9, "correct": 5, "accuracy": 0.5, "standard_error": 0.1}
    specs = [RunSpec(model=model).to_dict() for model in models]
    rows = [row | {"spec": spec} for spec in specs]
    path = folder / "evaluated.json"
    path.write_text(json.dumps({"environment": environment, "rows": rows}) + "\n")
    return str(path)


def test_a_card_rejects_an_exam_of_other_weights(tmp_path):
    copy_model(tmp_path)
    own = copy_weights(tmp_path)
    words = ("card", "--folder", str(tmp_path), "--exams")
    for models, checkpoint in ((["model"], "0" * 16), (["model", "tiny-dream"], own)):
        exams = evaluated(tmp_path, *models, checkpoint=checkpoint)
        with pytest.raises(SystemExit, match=r"^error: exams: .* is of another model than "):
            main([*words, exams])
        assert not (tmp_path / "README.md").exists()
    main([*words, evaluated(tmp_path, "model", "model", checkpoint=own)])
    assert (tmp_path / "README.md").read_text("utf-8").count("| Running balance |") == 2


def test_a_card_rejects_tables_of_other_weights_of_its_model(tmp_path):
    copy_model(tmp_path)
    copy_weights(tmp_path)
    exams = write_tables(tmp_path, **{"tiny-llada": "0" * 16})
    with pytest.raises(SystemExit, match=r"^error: exams: .* is of another model than "):
        main(["card", "--folder", str(tmp_path), "--exams", exams])
    assert not (tmp_path / "README.md").exists()


def test_a_card_is_not_written_for_a_folder_of_another_model(tmp_path):
    copy_model(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "mmada"}')
    with pytest.raises(SystemExit, match=r"^error: folder: .* is no model of `train export`"):
        main(["card", "--folder", str(tmp_path)])
    assert not (tmp_path / "README.md").exists()


def test_a_card_does_not_replace_what_it_did_not_write(tmp_path):
    copy_model(tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text("# My notes\n")
    with pytest.raises(SystemExit, match=r"^error: folder: .*README.md is no card of tiny-llada"):
        main(["card", "--folder", str(tmp_path)])
    assert readme.read_text() == "# My notes\n"
    readme.unlink()
    for _ in range(2):  # its own card is renewed
        main(["card", "--folder", str(tmp_path)])
    assert readme.read_text("utf-8").startswith("# tiny-llada\n")


def test_a_card_without_an_exam_drops_no_rows_of_one(tmp_path):
    copy_model(tmp_path)
    own = copy_weights(tmp_path)
    exams = evaluated(tmp_path, "model", checkpoint=own)
    main(["card", "--folder", str(tmp_path), "--exams", exams])
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(SystemExit, match=r"^error: exams: .*exam.json would lose its rows; name"):
        main(["card", "--folder", str(tmp_path)])
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    (tmp_path / "exam.json").unlink()
    main(["card", "--folder", str(tmp_path)])
    assert "Not evaluated yet." in (tmp_path / "README.md").read_text("utf-8")


def test_a_card_needs_the_history_that_an_export_writes(tmp_path):
    copy_model(tmp_path)
    (tmp_path / "training.json").unlink()
    with pytest.raises(SystemExit, match=r"^error: folder: .* has no training.json"):
        main(["card", "--folder", str(tmp_path)])
    assert not (tmp_path / "README.md").exists()

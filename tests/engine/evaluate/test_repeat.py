"""The repeat command: cards of models that are not embedded, and its folder of traces."""

import errno
import json
import os
from dataclasses import replace

import pytest
from PIL import Image

from engine.config.spec import RunSpec
from engine.evaluate import repeat
from engine.models.loading.families import embedded_models
from tests.support.micro import ROOT

HUB = "GSAI-ML/LLaDA-8B-Instruct"
SPEC = RunSpec(model=HUB, prompt="2 + 3", gen_length=8, block_length=8, steps=1)


@pytest.fixture
def card(tmp_path):
    """The file of a card of a model of the Hub."""
    row = {"spec": SPEC.to_dict(), "model": {"digest": "another"}, "results": {"text": ""}}
    path = tmp_path / "card.json"
    path.write_text(json.dumps({"lanes": {"a": row}, "summary": ""}))
    return str(path)


def test_a_folder_stands_for_the_model_of_the_card(card, tmp_path, capsys):
    folder = str(ROOT / "assets" / "models" / "tiny-llada")
    with pytest.raises(SystemExit):
        repeat.main([card, "--model", folder, "--out", str(tmp_path / "new" / "out")])
    assert "lane a: another checkpoint than the card's" in capsys.readouterr().out
    assert (tmp_path / "new" / "out" / "a.npz").is_file()


def test_a_card_of_one_lane_leaves_no_trace_of_another_race(card, tmp_path):
    (tmp_path / "b.npz").write_bytes(b"of another card")
    folder = str(ROOT / "assets" / "models" / "tiny-llada")
    with pytest.raises(SystemExit):
        repeat.main([card, "--model", folder, "--out", str(tmp_path)])
    assert [path.name for path in tmp_path.glob("*.npz")] == ["a.npz"]


def test_the_result_is_printed_if_the_traces_cannot_be_written(card, tmp_path, monkeypatch, capsys):
    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "a.npz"))

    monkeypatch.setattr(repeat, "save_traces", full)
    folder = str(ROOT / "assets" / "models" / "tiny-llada")
    with pytest.raises(SystemExit, match=r"^error: .*No space left on device"):
        repeat.main([card, "--model", folder, "--out", str(tmp_path / "out")])
    assert "lane a: another checkpoint than the card's" in capsys.readouterr().out


def test_an_image_that_no_lane_of_the_card_has_is_named(card, tmp_path, monkeypatch):
    monkeypatch.setattr(repeat, "repeat", lambda *_: pytest.fail("the race was run"))
    Image.new("RGB", (8, 8)).save(tmp_path / "other.png")
    folder = str(ROOT / "assets" / "models" / "tiny-llada")
    with pytest.raises(SystemExit, match=r"^error: --image: .*other.png is no image of this card"):
        repeat.main([card, "--model", folder, "--image", str(tmp_path / "other.png")])


def test_embedded_models_keep_their_folders(tmp_path):
    embedded = embedded_models(ROOT / "assets")
    specs = [SPEC, replace(SPEC, model="tiny-dream")]
    assert repeat.model_folders(tmp_path, specs) == embedded | {HUB: tmp_path}
    assert repeat.model_folders(None, specs) == embedded
    with pytest.raises(ValueError, match=r"^--model: the models of this card are embedded"):
        repeat.model_folders(tmp_path, specs[1:])


def test_a_file_is_refused_as_the_folder_of_traces_before_the_race(card, monkeypatch):
    monkeypatch.setattr(repeat, "repeat", lambda *_: pytest.fail("the race was run"))
    with pytest.raises(SystemExit, match=r"^error: --out: .* cannot be used as a folder"):
        repeat.main([card, "--out", card])


def test_a_card_that_is_not_json_is_named(tmp_path):
    nested = tmp_path / "nested.json"
    nested.write_text("[" * 100_000)
    with pytest.raises(SystemExit, match=r"^error: card: .* is not readable as JSON"):
        repeat.main([str(nested)])

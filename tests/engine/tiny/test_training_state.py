"""The files of a training run: what is taken as its best weights, and damaged files."""

import pytest
import torch

from engine.tiny.train import main
from engine.tiny.training_state import load_state, save_best, save_state


def test_weights_of_an_earlier_phase_are_not_taken_for_those_of_the_last(tmp_path):
    save_best(tmp_path, {"w": torch.ones(2)})
    checked = {"steps": 40, "checks": [[20, 1.0]]}
    save_state(tmp_path, {"model": {"w": torch.zeros(2)}, "phases": [checked]})
    assert load_state(tmp_path, best=True)["model"]["w"].tolist() == [1, 1]
    save_state(tmp_path, {"model": {}, "phases": [checked, {"steps": 60, "checks": []}]})
    with pytest.raises(ValueError, match="no weights of its last phase are validated yet"):
        load_state(tmp_path, best=True)
    assert load_state(tmp_path)["phases"][-1]["steps"] == 60


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"\x80\x04K\x01."])
def test_a_damaged_file_is_named(data, tmp_path):
    (tmp_path / "state.pt").write_bytes(data)
    with pytest.raises(ValueError, match=r"state\.pt: damaged, start the run anew"):
        load_state(tmp_path)


def test_a_device_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SystemExit, match=r"^error: --device: 'tpu' is not available; choose cpu"):
        main(["run", "--device", "tpu", "--out", str(tmp_path), "--tokens", "300", "--steps", "1"])

"""The files of a training run: what is taken as its best weights, and damaged files."""

import pytest
import torch

from engine.tiny import train
from engine.tiny.train import main
from engine.tiny.training_state import load_state, phase_of, save_best, save_state

PHASE = ["--families", "balance:2", "lookup", "--seed", "3", "--lr", "1e-3"]


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


def options(*words):
    """The options of `train run` for a run in the folder `out`."""
    return train._parser().parse_args(["run", "--out", "out", *words])


@pytest.fixture
def interrupted():
    """The state of a run whose second phase was interrupted."""
    state = {"phases": [{"step": 9, "steps": 9}], "optimizers": None}
    phase_of(options(*PHASE), state)["step"] = 5
    return state | {"optimizers": [{}]}


def test_an_interrupted_phase_goes_on_with_its_options(interrupted):
    again = ["--init", "before", "--save-every", "7", "--bf16"]
    assert phase_of(options(*PHASE, *again), interrupted) is interrupted["phases"][1]


@pytest.mark.parametrize(
    ("words", "kept"),
    [("--lr 1e-4", "--lr 0.001"), ("--seed 4 --steps 50", "--steps 1000 --seed 3"),
     ("--tokens 300", "--tokens 4000"), ("--sizes 0.5 1", "--sizes 1.0 1.0"),
     ("--families balance", "--families balance:2.0 lookup:1.0")],
)  # fmt: skip
def test_an_interrupted_phase_refuses_other_options(words, kept, interrupted):
    with pytest.raises(ValueError, match=rf"^the unfinished phase has {kept}; give these"):
        phase_of(options(*PHASE, *words.split()), interrupted)
    new = phase_of(options(*PHASE, *words.split(), "--stop-phase"), interrupted)
    assert new is interrupted["phases"][2]
    assert interrupted["phases"][1]["steps"] == 5


def test_a_phase_is_stopped_only_if_one_is_unfinished(interrupted):
    interrupted["phases"][1]["step"] = interrupted["phases"][1]["steps"]
    with pytest.raises(ValueError, match=r"^--stop-phase: out has no unfinished phase; leave it"):
        phase_of(options(*PHASE, "--stop-phase"), interrupted)


def test_a_run_that_goes_on_takes_no_other_weights(interrupted):
    interrupted["phases"][1]["step"] = interrupted["phases"][1]["steps"]
    with pytest.raises(ValueError, match=r"^--init: out has a run, .* leave it out, or give"):
        phase_of(options(*PHASE, "--init", "before"), interrupted)
    assert phase_of(options(*PHASE), interrupted) is interrupted["phases"][2]

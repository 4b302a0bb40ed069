"""A checkpoint that works for some steps and then gives NaN."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file, save_file

from engine.config.spec import RunSpec
from engine.core.events import RunStarted, StepEvent
from engine.serve.session import Session
from tests.support.micro import write_checkpoint

BROKEN = "broken"
SAID = "nothing could be committed"
EMBEDDING = "model.transformer.wte.weight"


def broken_spec(**changes) -> RunSpec:
    """A run that fails on the broken checkpoint, after its warm-up."""
    shape = {"gen_length": 32, "block_length": 32, "steps": 32}
    return RunSpec(**{"model": BROKEN, "prompt": "How many?"} | shape | changes)


def write_broken(folder: Path) -> int:
    """Write the checkpoint to `folder`/broken; returns how many steps `broken_spec` completes.

    The embedding of a token that the run first commits in a late step is set to NaN.
    """
    for seed in range(20):
        path = write_checkpoint(folder / BROKEN, seed=seed, scale=3.0)
        step, token = _late_token(path)
        if token is None:
            continue
        weights = path / "model.safetensors"
        tensors = load_file(weights)
        tensors[EMBEDDING][token] = float("nan")
        save_file(tensors, weights)
        return step + 1
    raise AssertionError("no such token in twenty checkpoints")


def _late_token(path: Path) -> tuple[int, int | None]:
    seen: set[int] = set()
    for event in Session({BROKEN: path}).run(broken_spec()):
        if isinstance(event, RunStarted):
            seen = set(event.canvas.ravel().tolist())
        elif isinstance(event, StepEvent):
            new = set(event.ids.tolist()) - seen
            if new and event.step >= 6:
                return event.step, min(new)
            seen |= new
    return 0, None

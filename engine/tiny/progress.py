"""The state of a training run: weights, optimisers and the phases so far, in `state.pt`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from engine.tiny import layout, tokenizer
from engine.tiny.network import Network, Shape


def vocabulary_of(phases: list[dict[str, Any]]) -> str:
    """Return the name of the vocabulary that the last phase was trained on."""
    return phases[-1].get("vocabulary", "words") if phases else "words"


def new_network(seed: int, vocabulary: str = "words") -> Network:
    """Make a fresh network; tokens that are whole numbers start from their digits."""
    torch.manual_seed(seed)
    model = Network(Shape(vocab=tokenizer.ROWS[vocabulary]))
    if vocabulary == "words":
        model.seed_numbers(tokenizer.number_ids(tokenizer.build("llada")))
    return model


def save(path: Path, state: dict[str, Any]) -> None:
    """Write a state so that an interruption leaves the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    torch.save(state, part)
    os.replace(part, path)


def start(out: Path, init: Path | None, seed: int, vocabulary: str) -> dict[str, Any]:
    """Return the state to go on from: that of `out`, the weights of `init`, or a fresh one.

    Weights of another vocabulary give their blocks alone; embedding and head start afresh. Raises
    ValueError where the run in `out` has another vocabulary.
    """
    path = out / "state.pt"
    if path.exists():
        state = torch.load(path, map_location="cpu", weights_only=True)
        if (own := vocabulary_of(state["phases"])) != vocabulary:
            raise ValueError(f"{out} has the vocabulary {own}; give --vocabulary {own}")
        return state
    model = new_network(seed, vocabulary).state_dict()
    phases: list[dict[str, Any]] = []
    if init is not None:
        found, phases = _weights(init)
        if vocabulary_of(phases) != vocabulary:
            found |= {name: model[name] for name in ("embed", "head")}
        model = found
    return {"optimizers": None, "step": 0, "phases": phases, "model": model}


def _weights(folder: Path) -> tuple[dict[str, torch.Tensor], list[dict[str, Any]]]:
    """Return the weights and the phases of an exported folder or of a run's."""
    if (folder / layout.HISTORY).exists():
        phases = json.loads((folder / layout.HISTORY).read_text(encoding="utf-8"))
        return layout.read(folder, Shape()), phases
    old = torch.load(folder / "state.pt", map_location="cpu", weights_only=True)
    return old["model"], old["phases"]

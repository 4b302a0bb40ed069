"""The state of a training run: weights, optimizers and the phases so far, in `state.pt`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from engine.tiny import export, tokenizer
from engine.tiny.network import Network, NetworkShape

FILE = "state.pt"
FUSED = {"qkv": ("q", "k", "v"), "gate_up": ("gate", "up")}  # one tensor each in old states


def vocabulary_of(phases: list[dict[str, Any]]) -> str:
    """The name of the vocabulary of the last phase."""
    return phases[-1].get("vocabulary", "words") if phases else "words"


def new_network(seed: int, vocabulary: str = "words") -> Network:
    """A network with random weights; embeddings of numbers are initialised from their digits."""
    torch.manual_seed(seed)
    model = Network(NetworkShape(vocab=tokenizer.ROWS[vocabulary]))
    if vocabulary == "words":
        model.seed_numbers(tokenizer.number_ids(tokenizer.build("llada")))
    return model


def save_state(folder: Path, state: dict[str, Any]) -> None:
    """Write `state.pt` so that an interruption leaves the old file or the new one."""
    folder.mkdir(parents=True, exist_ok=True)
    part = folder / "state.part"
    torch.save(state, part)
    os.replace(part, folder / FILE)


def load_state(folder: Path) -> dict[str, Any]:
    """Read `state.pt`; states saved before `torch.optim.Muon` was used are converted."""
    state = torch.load(folder / FILE, map_location="cpu", weights_only=True)
    if not any(name.endswith(".qkv") for name in state["model"]):
        return state
    model: dict[str, torch.Tensor] = {}
    for name, tensor in state["model"].items():
        stem, _, leaf = name.rpartition(".")
        names = [f"{stem}.{part}" for part in FUSED.get(leaf, ())]
        model |= dict(zip(names, tensor, strict=True)) if names else {name: tensor}
    if state["optimizers"]:
        muon, adamw = state["optimizers"]
        fused = [muon["state"][index]["momentum"] for index in sorted(muon["state"])]
        split = [part for one in fused for part in (one if one.dim() == 3 else one[None])]
        muon = {"state": {i: {"momentum_buffer": part} for i, part in enumerate(split)}}
        state["optimizers"] = [muon, adamw]
    return state | {"model": model}


def initial_state(out: Path, init: Path | None, seed: int, vocabulary: str) -> dict[str, Any]:
    """The state to continue from: that of `out`, the weights of `init`, or random weights.

    Weights of another vocabulary give only their blocks; embedding and head start at random.
    Raises ValueError if the run in `out` has another vocabulary.
    """
    if (out / FILE).exists():
        state = load_state(out)
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
    """The weights and phases of an exported folder or of a run."""
    if (folder / export.HISTORY).exists():
        phases = json.loads((folder / export.HISTORY).read_text(encoding="utf-8"))
        return export.read_weights(folder, NetworkShape()), phases
    state = load_state(folder)
    return state["model"], state["phases"]

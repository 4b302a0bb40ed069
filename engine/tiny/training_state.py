"""The state of a training run: weights, optimizers and the phases so far, in `state.pt`."""

from __future__ import annotations

from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from tokenizers import Tokenizer

from engine.core.device import device_name
from engine.core.files import atomic_file
from engine.tiny import export, tokenizer
from engine.tiny.network import Network, NetworkShape

FILE, BEST, VOCABULARY = "state.pt", "best.pt", "tokenizer.json"


def vocabulary_of(phases: list[dict[str, Any]]) -> str:
    """The name of the vocabulary of the last phase."""
    return phases[-1].get("vocabulary", "words") if phases else "words"


def new_network(seed: int, vocabulary: str = "words") -> Network:
    """A network with random weights; embeddings of numbers are initialised from their digits."""
    torch.manual_seed(seed)
    model = Network(NetworkShape(vocab=tokenizer.ROWS[vocabulary]))
    if vocabulary == "words":
        model.seed_numbers(tokenizer.number_ids(tokenizer.build("llada")))
    model.seed_positions()
    return model


def save_state(folder: Path, state: dict[str, Any]) -> None:
    """Write `state.pt` so that an interruption leaves the old file or the new one."""
    _save(state, folder / FILE)


def _save(found: Any, path: Path) -> None:
    """Save atomically; OSError or RuntimeError if that is impossible, as on a full disk."""
    with atomic_file(path) as file:
        torch.save(found, file)


def save_vocabulary(folder: Path, vocabulary: str) -> None:
    """Write the tokens of a run, by which other runs find the rows of its embedding."""
    tokenizer.save(tokenizer.build("llada", vocabulary), folder / VOCABULARY)


def load_vocabulary(folder: Path) -> Tokenizer:
    """The tokenizer of a run, which another corpus than today's may have made."""
    found: Tokenizer = Tokenizer.from_file(str(folder / VOCABULARY))
    return found


def save_best(folder: Path, model: dict[str, torch.Tensor]) -> None:
    """Write the weights of `best.pt`."""
    _save(model, folder / BEST)


def load_state(folder: Path, best: bool = False) -> dict[str, Any]:
    """Read `state.pt`; `best` takes the weights of `best.pt` in place of the last ones.

    Raises ValueError naming the folder if a file is damaged, or if no weights of the last phase
    were validated yet: `best.pt` then is that of an earlier phase, or missing.
    """
    state: dict[str, Any] = _load(folder / FILE)
    if best:
        if state["phases"] and not state["phases"][-1].get("checks", True):
            raise ValueError(
                f"{folder}: no weights of its last phase are validated yet; continue it"
            )
        state["model"] = _load(folder / BEST)
    return state


def _load(path: Path) -> Any:
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (RuntimeError, LookupError, EOFError, UnpicklingError) as error:
        raise ValueError(f"{path}: damaged, start the run anew ({error})") from None


def continue_on(phase: dict[str, Any], device: str) -> None:
    """Note in an unfinished phase the device on which it goes on, perhaps another one."""
    phase["gpu_seconds"] = export.gpu_seconds(phase)
    name, known = device_name(device), phase.get("device_name", "CPU")
    if name not in known.split(" and "):
        phase["device_name"] = f"{known} and {name}"


def initial_state(out: Path, init: Path | None, seed: int, vocabulary: str) -> dict[str, Any]:
    """The state to continue from: that of `out`, the weights of `init`, or random weights.

    Embedding and head take the rows of the tokens that both vocabularies have. Raises ValueError
    if the run in `out` has another vocabulary.
    """
    if (out / FILE).exists():
        state = load_state(out)
        if (kept := vocabulary_of(state["phases"])) != vocabulary:
            raise ValueError(f"{out} has the vocabulary {kept}; give --vocabulary {kept}")
        if _rows(out) != tokenizer.build("llada", vocabulary).get_vocab():
            raise ValueError(
                f"{out}: the vocabulary has changed; start a new run with --init {out}"
            )
        return state
    model = new_network(seed, vocabulary).state_dict()
    phases: list[dict[str, Any]] = []
    if init is not None:
        found, rows, phases = _weights(init)
        own = tokenizer.build("llada", vocabulary).get_vocab()
        for name in ("embed", "head"):
            known = [token for token in own if token in rows]
            if name == "head":  # rows at random would be likely predictions of a trained network
                model[name][:] = found[name].mean(0)
            model[name][[own[t] for t in known]] = found[name][[rows[t] for t in known]]
            found[name] = model[name]
        model = found
    return {"optimizers": None, "logged": 0, "phases": phases, "model": model}


def _weights(folder: Path) -> tuple[dict[str, torch.Tensor], dict[str, int], list[dict[str, Any]]]:
    """The weights, the rows of the tokens and the phases of an exported folder or of a run.

    Special tokens have the same rows in every family; they are named as LLaDA's.
    """
    if phases := export.read_history(folder):
        written = _rows(folder)
        special = dict(enumerate(tokenizer.SPECIALS["llada"]))
        named = {special.get(i, token): i for token, i in written.items()}
        return export.read_weights(folder, NetworkShape()), named, phases
    state = load_state(folder, best=True)
    return state["model"], _rows(folder), state["phases"]


def _rows(folder: Path) -> dict[str, int]:
    """The rows of the tokens of a run or of an exported folder."""
    found: dict[str, int] = load_vocabulary(folder).get_vocab()
    return found

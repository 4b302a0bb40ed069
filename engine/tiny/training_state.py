"""The state of a training run: weights, optimizers and the phases so far, in `state.pt`."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict, fields
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from tokenizers import Tokenizer

from engine.core.device import device_name
from engine.core.files import atomic_file
from engine.tiny import corpus, export, tokenizer
from engine.tiny.network import Network, NetworkShape
from engine.tiny.training_inputs import Recipe

FILE, BEST, VOCABULARY = "state.pt", "best.pt", "tokenizer.json"
OF_PHASE = ("steps", "seed", "lr", "matrix_lr", "warm", "decay")  # options beside the recipe
# Options that say nothing of a causal network, and their defaults.
OF_MASKED = {
    "copies": 0.0, "shift": 0, "block": 0, "sums": 0.0, "extra": (0, 16, 32), "uniform": 0.2
}  # fmt: skip
# Those of them that say nothing of a network with blocks: all of its states are copies.
WITHOUT_BLOCKS = ("copies", "sums", "extra", "uniform")
TURNS = 5  # most problems in a sample with worked examples, unless --turns says otherwise
PHASE_SEED = 1000  # from the seed of a phase to that of the next one


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


def phase_of(args: Namespace, state: dict[str, Any]) -> dict[str, Any]:
    """The phase to train: the unfinished last one, or a new one from the options.

    Raises ValueError naming an option that makes no phase, or those of which an unfinished phase
    has other values.
    """
    phases = state["phases"]
    if phases and phases[-1]["step"] < phases[-1]["steps"] and state["optimizers"]:
        if not args.stop_phase:
            _check_options(args, phases[-1], len(phases) - 1)
            _continue_on(phases[-1], args.device)
            return phases[-1]
        phases[-1]["steps"] = phases[-1]["step"]
    elif args.stop_phase:
        raise ValueError(f"--stop-phase: {args.out} has no unfinished phase; leave it out")
    if args.init is not None and state["optimizers"]:
        raise ValueError(
            f"--init: {args.out} has a run, which goes on from its own weights; leave it out, or "
            "give another --out"
        )
    phases.append(_new_phase(args, len(phases)))
    return phases[-1]


def _check_options(args: Namespace, phase: dict[str, Any], before: int) -> None:
    """Raise ValueError naming the options of which a phase, after `before` ones, has other values.

    Options of the device, the number format and saving may change within a phase.
    """
    kept = asdict(Recipe(**phase["recipe"])) | {name: phase[name] for name in OF_PHASE}
    kept["seed"] -= PHASE_SEED * before
    other = [
        f"--{name.replace('_', '-')} {_typed(value)}"
        for name, value in kept.items()
        if _typed(value) != _typed(getattr(args, name))
    ]
    if other:
        raise ValueError(
            f"the unfinished phase has {' '.join(other)}; give these options, or add --stop-phase "
            "to begin a new one"
        )


def _typed(value: Any, between: str = " ") -> str:
    """The value of an option as it is typed: the parts of a pair in a list have a colon between."""
    if isinstance(value, list | tuple):
        return between.join(_typed(one, ":") for one in value)
    return str(value)


def _new_phase(args: Namespace, before: int) -> dict[str, Any]:
    """A phase after `before` other ones. Raises ValueError naming an option."""
    if args.sizes[0] > args.sizes[1]:
        raise ValueError(f"--sizes: {args.sizes[0]:g} is above {args.sizes[1]:g}; give MIN first")
    _check_kind(args)
    _check_turns(args)
    recipe = Recipe(**{field.name: getattr(args, field.name) for field in fields(Recipe)})
    return {
        "recipe": asdict(recipe), "vocabulary": args.vocabulary,
        "steps": args.steps, "step": 0, "tokens": 0, "seconds": 0.0,
        "seed": args.seed + PHASE_SEED * before, "lr": args.lr, "matrix_lr": args.matrix_lr,
        "warm": args.warm, "decay": args.decay, "curve": [], "checks": [],
        "device": args.device, "device_name": device_name(args.device), "gpu_seconds": 0.0,
    }  # fmt: skip


def _check_kind(args: Namespace) -> None:
    """Raise ValueError naming an option that says nothing of the kind of network."""
    given = [name for name, usual in OF_MASKED.items()
             if _typed(getattr(args, name)) != _typed(usual)]  # fmt: skip
    if args.kind == "causal" and given:
        (name, *_) = given
        raise ValueError(
            f"--{name}: only masked networks take it; leave out --{name} or --kind causal"
        )
    if args.block and not args.shift:
        raise ValueError("--block: no layout has blocks without a shift; add --shift 1")
    for name in WITHOUT_BLOCKS:
        if args.block and name in given:
            raise ValueError(
                f"--{name}: only networks without blocks take it; leave out --{name} or --block"
            )


def _check_turns(args: Namespace) -> None:
    """Raise ValueError naming `--turns` if it is too low, or if no sample has worked examples."""
    shared = any(corpus.family_named(name).shared_text for name, _ in args.families)
    if args.turns < 2 and (shared or args.few_shot > 0):
        raise ValueError(
            f"--turns: {args.turns} leaves no problem for worked examples; give at least 2"
        )
    if args.turns != TURNS and not shared and not args.few_shot:
        raise ValueError(
            "--turns: no sample has worked examples; give a share of them with --few-shot, or "
            "leave --turns out"
        )


def _continue_on(phase: dict[str, Any], device: str) -> None:
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

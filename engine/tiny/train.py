"""Train the embedded models and write their folders.

    python -m engine train run --kind causal --families balance:2 lookup --steps 600 --out runs/a
    python -m engine train run --copies 0.8 --families balance --out runs/b --init runs/a
    python -m engine train export --run runs/b --family llada --folder tiny-llada
    python -m engine train run --kind causal --vocabulary digits --init tiny-qwen2 --out runs/c
    python -m engine train card --folder tiny-llada --exams results.json

A run folder contains `state.pt`, `best.pt`, `tokenizer.json` and `log.csv`. `run` continues from
the state there: an interrupted phase from its last saved step, with the options that it began with,
a finished one with a new phase, whose options may differ. `--init` starts a new run from the
weights of another run or of an exported folder. The state with the lowest loss on the validation
problems of a phase is kept in `best.pt`; `export` takes it. Works on a CPU (one thread) and on
CUDA, where another process draws the batches; `--bf16` is faster on processors with bfloat16
instructions.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.core.command_line import (
    above_zero,
    command_parser,
    failure,
    not_negative,
    positive,
    share,
)
from engine.core.device import keep_freed_memory
from engine.core.tables import percentage
from engine.tiny import card, corpus, export, tokenizer
from engine.tiny.batches import BatchStream
from engine.tiny.network import Network, NetworkShape
from engine.tiny.training_inputs import Recipe
from engine.tiny.training_state import (
    OF_MASKED,
    TURNS,
    initial_state,
    load_state,
    load_vocabulary,
    phase_of,
    save_best,
    save_state,
    save_vocabulary,
    vocabulary_of,
)
from engine.tiny.validation import Validation, loss_of

WORDS, LOG = "word_problems", "log.csv"
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic iteration, as torch.optim.Muon
ITERATIONS = 5


def orthogonalised(matrices: Tensor) -> Tensor:
    """Matrices [N, A, B] with the same singular vectors and singular values near 1.

    Newton-Schulz iterations; all matrices of a stack are multiplied together.
    """
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / x.flatten(1).norm(dim=1).clamp(min=1e-7)[:, None, None]
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Float32Muon(torch.optim.Muon):
    """`torch.optim.Muon` (Nesterov momentum, no weight decay) with products in float32.

    torch multiplies in bfloat16, which takes 15 times as long on a processor without bfloat16
    instructions: a third of a training step of the embedded models.

    Its state is that of `torch.optim.Muon`: saved states of both can be exchanged.
    """

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update all parameters; `closure` must be None."""
        if closure is not None:
            raise ValueError("closure: not supported")
        for group in self.param_groups:
            alike: dict[torch.Size, list[Tensor]] = defaultdict(list)
            for matrix in group["params"]:
                if matrix.grad is not None:
                    alike[matrix.shape].append(matrix)
            for shape, matrices in alike.items():
                updates = [self._momentum(one, group["momentum"]) for one in matrices]
                lr = group["lr"] * math.sqrt(max(1, shape[0] / shape[1]))
                for one, update in zip(matrices, orthogonalised(torch.stack(updates)), strict=True):
                    one.add_(update, alpha=-lr)

    def _momentum(self, matrix: Tensor, momentum: float) -> Tensor:
        """The gradient of a matrix after Nesterov momentum."""
        assert matrix.grad is not None
        state = self.state[matrix]
        if not state:
            state["momentum_buffer"] = torch.zeros_like(matrix)
        buffer = state["momentum_buffer"].lerp_(matrix.grad, 1 - momentum)
        return matrix.grad.lerp(buffer, momentum)


def optimizers(model: torch.nn.Module, lr: float, matrix_lr: float) -> list[torch.optim.Optimizer]:
    """Muon for the matrices of the MLPs, AdamW for all others.

    Muon's steps have the same size in every direction, which wears away heads that attend to a
    fixed distance.
    """
    named = list(model.named_parameters())
    mlp = ("gate", "up", "down")
    matrices = [p for name, p in named if name.rpartition(".")[2] in mlp]
    others = [p for name, p in named if name.rpartition(".")[2] not in mlp]
    return [
        Float32Muon(matrices, lr=matrix_lr, weight_decay=0.0),
        torch.optim.AdamW(others, lr=lr, betas=(0.9, 0.95), weight_decay=0.0),
    ]


def lr_factor(step: int, steps: int, warm: int, decay: float) -> float:
    """Factor of the learning rates: ramp over `warm` steps, 1, ramp to 0 over the last share."""
    left = (steps - step) / max(1.0, decay * steps)
    return min(1.0, (step + 1) / max(1, warm), left)


def run(args: argparse.Namespace) -> None:
    """Train one phase; the state is saved every `--save-every` steps and at the end."""
    if args.device != "cpu" and not (args.device.startswith("cuda") and torch.cuda.is_available()):
        raise ValueError(f"--device: {args.device!r} is not available; choose cpu")
    if args.device == "cpu":
        torch.set_num_threads(1)
        keep_freed_memory()
    state = initial_state(args.out, args.init, args.seed, args.vocabulary)
    phase, log = phase_of(args, state), args.out / LOG
    if log.exists() and "logged" in state:
        # The steps after the saved one are trained again.
        os.truncate(log, min(state["logged"], log.stat().st_size))
    recipe, vocabulary = Recipe(**phase["recipe"]), vocabulary_of(state["phases"])
    model = Network(NetworkShape(vocab=tokenizer.ROWS[vocabulary])).to(args.device)
    model.load_state_dict(state["model"])
    optims = optimizers(model, phase["lr"], phase["matrix_lr"])
    if state["optimizers"]:
        for optim, saved in zip(optims, state["optimizers"], strict=True):
            groups = optim.state_dict()["param_groups"]
            optim.load_state_dict({"state": saved["state"], "param_groups": groups})
    family = "qwen2" if recipe.kind == "causal" or recipe.shift else "llada"
    words = tokenizer.build(family, vocabulary)
    validation = Validation(words, recipe, family)
    stream = BatchStream(words, recipe, family, phase["seed"])
    save_vocabulary(args.out, vocabulary)
    for _ in _steps(args, phase, model, optims, stream):
        last = phase["step"] == phase["steps"]
        if phase["step"] % args.check_every == 0 or last:
            _validate(args, phase, model, validation)
        if phase["step"] % args.save_every == 0 or last:
            weights = model.state_dict()
            norm = torch.nn.utils.get_total_norm(weights.values()).item()
            check_finite(norm, phase, "norm of the weights")
            state["logged"] = log.stat().st_size if log.exists() else 0
            state |= {"model": weights, "optimizers": [o.state_dict() for o in optims]}
            save_state(args.out, state)


def _steps(
    args: argparse.Namespace,
    phase: dict[str, Any],
    model: Network,
    optims: Sequence[torch.optim.Optimizer],
    stream: BatchStream,
) -> Iterator[None]:
    """Train the rest of a phase; yields after every step."""
    causal, dtype = stream.recipe.kind == "causal", _dtype(args)
    forward = torch.compile(model, dynamic=True) if args.compile else model
    draw = stream.batches if args.device == "cpu" else stream.batches_ahead
    clock, sums = time.time(), torch.zeros(3, device=args.device)
    for batch in draw(phase["step"]):
        if phase["step"] >= phase["steps"]:
            return
        factor = lr_factor(phase["step"], phase["steps"], phase["warm"], phase["decay"])
        for optim, base in zip(optims, (phase["matrix_lr"], phase["lr"]), strict=True):
            for group in optim.param_groups:
                group["lr"] = base * factor
        loss, right = loss_of(forward, batch.to(args.device), causal, dtype)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optim in optims:
            optim.step()
            optim.zero_grad(set_to_none=True)
        phase["step"] += 1
        phase["tokens"] += batch.ids.numel()
        sums += torch.stack((loss.detach(), right, torch.ones_like(right)))
        now = time.time()
        phase["seconds"] += now - clock
        phase["gpu_seconds"] += (now - clock) * (args.device != "cpu")
        clock = now
        if phase["step"] % 20 == 0:
            log_progress(args.out, phase, sums.tolist())
            sums.zero_()
        yield


def _dtype(args: argparse.Namespace) -> torch.dtype:
    return torch.bfloat16 if args.bf16 else torch.float32


def _validate(
    args: argparse.Namespace, phase: dict[str, Any], model: Network, validation: Validation
) -> None:
    """Measure the validation loss; keep the weights if it is the lowest of the phase.

    Raises FloatingPointError if it is not finite.
    """
    found = validation.measure(model, args.device, _dtype(args))
    mean = round(sum(loss for loss, _ in found.values()) / len(found), 4)
    check_finite(mean, phase)
    phase["checks"].append((phase["step"], mean))
    shares = ", ".join(f"{name} {percentage(right)}" for name, (_, right) in found.items())
    print(f"validation at step {phase['step']}: loss {mean:.4f}; right: {shares}", flush=True)
    if mean <= min(loss for _, loss in phase["checks"]):
        save_best(args.out, model.state_dict())


def log_progress(out: Path, phase: dict[str, Any], sums: list[float]) -> None:
    """Print and log the mean loss and accuracy since the last call; keep some for the card.

    `sums` are those of loss and accuracy and the number of steps. Raises FloatingPointError if
    the loss is not finite.
    """
    loss, right = sums[0] / sums[2], sums[1] / sums[2]
    line = (
        f"{phase['recipe']['kind']},{phase['step']},{phase['tokens']},{phase['seconds']:.0f},"
        f"{loss:.4f},{right:.4f}"
    )
    print(line, flush=True)
    with (out / LOG).open("a", encoding="utf-8") as log:
        log.write(line + "\n")
    if phase["step"] % max(20, phase["steps"] // 8 // 20 * 20) == 0:
        phase["curve"].append((phase["step"], round(loss, 4), round(right, 4)))
    check_finite(loss, phase)


def check_finite(value: float, phase: dict[str, Any], what: str = "loss") -> None:
    """Raise FloatingPointError for a value that is not finite, before the weights are saved."""
    if not math.isfinite(value):
        raise FloatingPointError(
            f"the {what} is {value} at step {phase['step']}; give lower --lr and --matrix-lr, and "
            "--stop-phase if the phase was saved before, since it would keep its rates"
        )


def _weighted(text: str) -> tuple[str, float]:
    """A family and its weight, above 0, from `NAME` or `NAME:WEIGHT`."""
    name, _, weight = text.partition(":")
    try:
        found = corpus.family_named(name).name, float(weight or 1)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 0 < found[1] < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: the weight must be above 0")
    return found


def _parser() -> argparse.ArgumentParser:
    top = command_parser("train", __doc__)
    commands = top.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="train one phase, or continue one", alone=True)
    one.add_argument("--kind", choices=("causal", "masked"), default="masked", help="of network")
    one.add_argument(
        "--vocabulary", choices=tuple(tokenizer.ROWS), default="words", help="of the tokenizer"
    )
    one.add_argument(
        "--copies", type=share, help="masked, no blocks: share of batches with noisy copies"
    )
    one.add_argument("--out", type=Path, required=True, help="folder of the run")
    one.add_argument("--init", type=Path, help="run or model folder to take the weights from")
    one.add_argument("--steps", type=positive, default=1000, help="training steps of the phase")
    one.add_argument("--shift", type=int, choices=(0, 1), help="masked: 1 for logits as Dream's")
    one.add_argument("--block", type=not_negative, help="masked: size of blocks, if block-causal")
    one.add_argument(
        "--families", type=_weighted, nargs="+", default=((WORDS, 1.0),), metavar="NAME[:WEIGHT]",
        help=f"families of the problems: {', '.join(corpus.families())}; by default {WORDS}",
    )  # fmt: skip
    one.add_argument(
        "--sizes", type=share, nargs=2, default=(1.0, 1.0), metavar=("MIN", "MAX"),
        help="range of the sizes of the problems, from 0 to 1",
    )  # fmt: skip
    one.add_argument("--few-shot", type=share, default=0.0, help="share with worked examples")
    one.add_argument(
        "--turns", type=positive, default=TURNS, help="most problems in a few-shot sample"
    )
    one.add_argument(
        "--extra",
        type=not_negative,
        nargs="+",
        help="masked, no blocks: positions after the answer",
    )
    one.add_argument(
        "--uniform", type=share, help="masked, no blocks: share masked over all the region"
    )
    one.add_argument(
        "--sums", type=share, help="masked, no blocks: share that predicts a result next"
    )
    one.add_argument(
        "--number-weight", type=above_zero, default=2.0, help="weight of number tokens"
    )
    one.add_argument("--tokens", type=positive, default=4000, help="canvas tokens a batch, about")
    one.add_argument("--lr", type=above_zero, default=2e-3, help="AdamW: all other parameters")
    one.add_argument(
        "--matrix-lr", type=above_zero, default=0.02, help="Muon: the feed-forward matrices"
    )
    one.add_argument("--warm", type=not_negative, default=50, help="steps with rising rates")
    one.add_argument("--decay", type=share, default=0.3, help="share with falling rates")
    one.add_argument("--seed", type=not_negative, default=1, help="of weights and batches")
    one.add_argument("--device", default="cpu", help="cpu or cuda")
    one.add_argument("--save-every", type=positive, default=100, help="steps between saved states")
    one.add_argument("--check-every", type=positive, default=200, help="steps between validations")
    one.add_argument("--bf16", action="store_true", help="activations in bfloat16")
    one.add_argument("--compile", action="store_true", help="compile the network (needs g++)")
    one.add_argument("--stop-phase", action="store_true", help="end the unfinished phase now")
    one.set_defaults(**OF_MASKED)
    for name, text in (("export", "write config, tokenizer and weights"), ("card", "write README")):
        other = commands.add_parser(name, help=text)
        other.add_argument("--folder", type=Path, required=True, help="folder of the model")
        if name == "export":
            other.add_argument("--family", choices=tuple(export.LAYOUTS), required=True)
            other.add_argument("--run", type=Path, required=True, help="folder of the run")
        else:
            text = "results.json of `tables`, or outputs of `evaluate --json`"
            other.add_argument("--exams", type=Path, nargs="*", default=[], help=text)
    return top


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    args = _parser().parse_args(arguments)
    try:
        COMMANDS[args.command](args)
    except (ValueError, OSError, RuntimeError, FloatingPointError) as error:
        raise failure(error, args) from None


def _run(args: argparse.Namespace) -> None:
    torch.set_flush_denormal(True)  # small attention weights would be slow
    try:
        run(args)
    finally:
        torch.set_flush_denormal(False)


def _export(args: argparse.Namespace) -> None:
    state = load_state(args.run, best=True)
    phases, words = state["phases"], load_vocabulary(args.run)
    shape = NetworkShape(vocab=tokenizer.ROWS[vocabulary_of(phases)])
    export.write_checkpoint(state["model"], shape, args.family, args.folder, phases, words)


def _card(args: argparse.Namespace) -> None:
    card.write(args.folder, args.exams)


COMMANDS = {"run": _run, "export": _export, "card": _card}

"""Train the embedded models and write their folders.

    python -m engine train run --kind causal --steps 600 --out runs/causal
    python -m engine train run --copies 0.8 --steps 3000 --out runs/masked --init runs/causal
    python -m engine train run --steps 6000 --out runs/masked
    python -m engine train export --run runs/masked --family llada --folder tiny-llada
    python -m engine train run --kind causal --vocabulary digits --init tiny-qwen2 --out runs/b
    python -m engine train card --family llada --folder tiny-llada --exams results.json

A run folder holds `state.pt` and `log.csv`. `run` goes on from the state it finds there: an
interrupted phase from its last saved step, a finished one with a new phase (options may differ).
`--init` starts a new run from the weights of another run or of an exported folder. Works on a CPU
(one thread) and on CUDA; `--bf16` pays on processors that multiply bfloat16.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from engine.tiny import card, layout, tokenizer
from engine.tiny.muon import optimizers
from engine.tiny.network import Network, Shape
from engine.tiny.progress import save, start, vocabulary_of
from engine.tiny.source import Source
from engine.tiny.states import Batch, Recipe


def rate(step: int, steps: int, warm: int, decay: float) -> float:
    """Learning-rate factor: a ramp of `warm` steps, level, then down to 0 over the last share."""
    left = (steps - step) / max(1.0, decay * steps)
    return min(1.0, (step + 1) / max(1, warm), left)


def loss_of(
    model: Callable[..., torch.Tensor], batch: Batch, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weighted mean loss and the share of right first choices."""
    logits = model(batch.ids, batch.positions, batch.rows, batch.mask, causal)
    each = F.cross_entropy(logits.float(), batch.targets, reduction="none")
    right = (logits.argmax(-1) == batch.targets).float().mean()
    return (each * batch.weights).sum() / batch.weights.sum(), right


def phase_of(args: argparse.Namespace, state: dict[str, Any]) -> dict[str, Any]:
    """Return the phase to work on: the unfinished last one, or a new one from the options."""
    phases = state["phases"]
    if phases and phases[-1]["step"] < phases[-1]["steps"] and state["optimizers"]:
        if args.stop_phase:
            phases[-1]["steps"] = phases[-1]["step"]
        else:
            return phases[-1]
    recipe = Recipe(
        kind=args.kind, copies=args.copies, operations=tuple(args.operations),
        wordings=args.wordings or None, wide=args.wide,
        few_shot=args.few_shot, shots=tuple(args.shots), regions=tuple(args.regions),
        tokens=args.tokens, uniform=args.uniform, sums=args.sums, number_weight=args.number_weight,
        shift=args.shift,
    )  # fmt: skip
    phase = {
        "recipe": asdict(recipe), "vocabulary": args.vocabulary,
        "steps": args.steps, "step": 0, "tokens": 0, "seconds": 0.0,
        "seed": args.seed + 1000 * len(phases), "lr": args.lr, "matrix_lr": args.matrix_lr,
        "warm": args.warm, "decay": args.decay, "curve": [],
    }  # fmt: skip
    phases.append(phase)
    return phase


def run(args: argparse.Namespace) -> None:
    """Train one phase; save now and then, and at its end."""
    if args.device == "cpu":
        torch.set_num_threads(1)
    state = start(args.out, args.init, args.seed, args.vocabulary)
    phase = phase_of(args, state)
    recipe, vocabulary = Recipe(**phase["recipe"]), vocabulary_of(state["phases"])
    causal = recipe.kind == "causal"
    model = Network(Shape(vocab=tokenizer.ROWS[vocabulary])).to(args.device)
    model.load_state_dict(state["model"])
    optims = optimizers(model, phase["lr"], phase["matrix_lr"])
    forward = torch.compile(model, dynamic=True) if args.compile else model
    if state["optimizers"]:
        for optim, saved in zip(optims, state["optimizers"], strict=True):
            optim.load_state_dict(saved)
    family = "qwen2" if causal or recipe.shift else "llada"
    source = Source(tokenizer.build(family, vocabulary), recipe, family, phase["seed"])
    args.out.mkdir(parents=True, exist_ok=True)
    clock, sums = time.time(), [0.0, 0.0, 0]
    for batch in source.batches(phase["step"]):
        if phase["step"] >= phase["steps"]:
            break
        factor = rate(phase["step"], phase["steps"], phase["warm"], phase["decay"])
        for optim, base in zip(optims, (phase["matrix_lr"], phase["lr"]), strict=True):
            for group in optim.param_groups:
                group["lr"] = base * factor
        cast = torch.autocast(args.device, torch.bfloat16, enabled=args.bf16)
        with cast:
            loss, right = loss_of(forward, batch.to(args.device), causal)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with cast:
            for optim in optims:
                optim.step()
                optim.zero_grad(set_to_none=True)
        phase["step"] += 1
        phase["tokens"] += batch.ids.numel()
        sums = [sums[0] + float(loss.detach()), sums[1] + float(right), sums[2] + 1]
        if phase["step"] % 20 == 0:
            now = time.time()
            phase["seconds"] += now - clock
            clock = now
            note(args.out, phase, sums)
            sums = [0.0, 0.0, 0]
        if phase["step"] % args.save_every == 0 or phase["step"] == phase["steps"]:
            state |= {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optims]}
            save(args.out / "state.pt", state)


def note(out: Path, phase: dict[str, Any], sums: list[float]) -> None:
    """Print and log the mean loss and hit rate since the last note; keep a few for the card."""
    loss, right = sums[0] / sums[2], sums[1] / sums[2]
    line = (
        f"{phase['recipe']['kind']},{phase['step']},{phase['tokens']},{phase['seconds']:.0f},"
        f"{loss:.4f},{right:.4f}"
    )
    print(line, flush=True)
    with (out / "log.csv").open("a", encoding="utf-8") as log:
        log.write(line + "\n")
    if phase["step"] % max(20, phase["steps"] // 8 // 20 * 20) == 0:
        phase["curve"].append((phase["step"], round(loss, 4), round(right, 4)))
    if not math.isfinite(loss):
        raise FloatingPointError(f"the loss is {loss} at step {phase['step']}")


def parser() -> argparse.ArgumentParser:
    """Build the command line."""
    top = argparse.ArgumentParser(
        prog="python -m engine train",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    commands = top.add_subparsers(dest="command", required=True)
    one = commands.add_parser("run", help="train one phase, or go on with an interrupted one")
    one.add_argument("--kind", choices=("causal", "masked"), default="masked")
    one.add_argument("--vocabulary", choices=tuple(tokenizer.ROWS), default="words")
    one.add_argument("--copies", type=float, default=0.0, help="masked: share of block states")
    one.add_argument("--out", type=Path, required=True, help="folder of the run")
    one.add_argument("--init", type=Path, help="folder of the run whose weights to start from")
    one.add_argument("--steps", type=int, default=1000)
    one.add_argument("--operations", type=int, nargs=2, default=(2, 5), metavar=("MIN", "MAX"))
    one.add_argument("--shift", type=int, choices=(0, 1), default=0, help="1: logits as Dream's")
    one.add_argument("--wordings", type=int, default=0, help="sentence forms a step (0: all)")
    one.add_argument("--wide", action="store_true", help="numbers up to 120, not 60")
    one.add_argument("--few-shot", type=float, default=0.0, help="share with worked examples")
    one.add_argument("--shots", type=int, nargs="+", default=[256, 400, 512], help="prompt lengths")
    one.add_argument("--regions", type=int, nargs="+", default=[64], help="answer region lengths")
    one.add_argument("--uniform", type=float, default=0.2, help="share masked over all the region")
    one.add_argument("--sums", type=float, default=0.0, help="share that asks for a result next")
    one.add_argument("--number-weight", type=float, default=2.0, help="weight of number tokens")
    one.add_argument("--tokens", type=int, default=4000, help="canvas tokens in a batch, about")
    one.add_argument("--lr", type=float, default=2e-3, help="AdamW: embedding, head, norms")
    one.add_argument("--matrix-lr", type=float, default=0.02, help="Muon: all other matrices")
    one.add_argument("--warm", type=int, default=50)
    one.add_argument("--decay", type=float, default=0.3, help="last share of the steps")
    one.add_argument("--seed", type=int, default=1)
    one.add_argument("--device", default="cpu", help="cpu or cuda")
    one.add_argument("--save-every", type=int, default=100)
    one.add_argument("--bf16", action="store_true", help="multiply in bfloat16")
    one.add_argument("--compile", action="store_true", help="compile the network (needs g++)")
    one.add_argument("--stop-phase", action="store_true", help="end the unfinished phase, go on")
    for name, text in (("export", "write config, tokenizer and weights"), ("card", "write README")):
        other = commands.add_parser(name, help=text)
        other.add_argument("--folder", type=Path, required=True)
        other.add_argument("--family", choices=tuple(layout.LAYOUTS), required=True)
        if name == "export":
            other.add_argument("--run", type=Path, required=True)
        else:
            text = "outputs of python -m engine.evaluate --json"
            other.add_argument("--exams", type=Path, nargs="*", default=[], help=text)
    return top


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; `arguments` default to those of the process."""
    args = parser().parse_args(arguments)
    if args.command == "run":
        run(args)
    elif args.command == "card":
        card.write(args.folder, args.family, args.exams)
    else:
        state = torch.load(args.run / "state.pt", map_location="cpu", weights_only=True)
        phases, vocabulary = state["phases"], vocabulary_of(state["phases"])
        shape = Shape(vocab=tokenizer.ROWS[vocabulary])
        layout.export(state["model"], shape, args.family, args.folder, phases, vocabulary)

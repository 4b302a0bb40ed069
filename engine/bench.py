"""bench: methods side by side in one run, interleaved, on a few-shot prompt of the corpus.

    python -m engine.bench --model assets/models/tiny-llada --rounds 5

Each round decodes the same prompt by every method in turn; figures are medians over the rounds
of the engine's own clocks, the first round (warm-up) left out, and the speed-up is the median of
the rounds' ratios to plain decoding. Prints a table and, last, one JSON document.

With --record LEVEL every method also runs with and without the recorder in turn, on the wall
clock, which does not leave the recorder out; its cost is the median of the rounds' ratios, less 1.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

import torch

from engine import environment
from engine.events import RunFinished
from engine.lane import Lane, LoadedModel
from engine.library import Library
from engine.spec import RunSpec
from engine.tiny.exam import exam

LEVELS = ("steps", "layers", "probe")
THRESHOLD = {"unmasker": "threshold", "knobs": {"threshold.threshold": 0.9}}
METHODS: dict[str, dict[str, Any]] = {
    "plain": {},
    "prefix": {"cache": "prefix"},
    "dual": {"cache": "dual"},
    "threshold": THRESHOLD,
    "prefix + threshold": THRESHOLD | {"cache": "prefix"},
    "dual + threshold": THRESHOLD | {"cache": "dual"},
}


def run_once(model: LoadedModel, spec: RunSpec) -> RunFinished:
    """One run from its first canvas to its end."""
    lane = Lane(model, spec)
    lane.start()
    while not isinstance(event := lane.advance(), RunFinished):
        pass
    return event


def measure(
    model: LoadedModel, specs: Mapping[str, RunSpec], rounds: int
) -> dict[str, list[RunFinished]]:
    """`rounds` runs of every spec, interleaved, after one round that is thrown away."""
    runs: dict[str, list[RunFinished]] = {name: [] for name in specs}
    for round_index in range(rounds + 1):
        for name, spec in specs.items():
            event = run_once(model, spec)
            if round_index:
                runs[name].append(event)
    return runs


def step_seconds(model: LoadedModel, spec: RunSpec) -> float:
    """Wall time of a run's steps, recording included, its start and end not."""
    lane = Lane(model, spec)
    lane.start()
    started = stopped = time.perf_counter()
    while not isinstance(lane.advance(), RunFinished):
        stopped = time.perf_counter()
    return stopped - started


def recording_costs(
    model: LoadedModel, specs: Mapping[str, RunSpec], level: str, rounds: int
) -> dict[str, float]:
    """What share of each method's time recording at `level` adds."""
    ratios: dict[str, list[float]] = {name: [] for name in specs}
    for round_index in range(rounds + 1):
        for name, spec in specs.items():
            levels = (level, "off")
            on, off = (step_seconds(model, dataclasses.replace(spec, record=r)) for r in levels)
            if round_index:
                ratios[name].append(on / off)
    return {name: median(found) - 1 for name, found in ratios.items()}


def table(runs: Mapping[str, list[RunFinished]], answer: int | None) -> list[dict[str, Any]]:
    """One row a method; ratios are to the method named first, round by round."""
    base = next(iter(runs.values()))
    rows = []
    for name, events in runs.items():
        metrics = [event.metrics for event in events]
        pairs = zip(base, events, strict=True)
        ratios = [a.metrics["total_ms"] / b.metrics["total_ms"] for a, b in pairs]
        means = {
            key: median(m[key] for m in metrics)
            for key in ("nfe", "ms_per_step", "total_ms", "tokens_per_s", "positions_per_s")
        }
        rows.append(
            {"method": name, **means}
            | {"speed_up": median(ratios), "speed_up_range": [min(ratios), max(ratios)]}
            | {"same_text": events[0].texts == base[0].texts, "text": events[0].texts[0]}
            | {"answer": answer, "cache_bytes": metrics[0]["cache_bytes"]}
        )
    return rows


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=Path("assets/models/tiny-llada"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--shots", type=int, default=8)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--record", choices=LEVELS, help="also measure what recording costs")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    folders = {args.model.name: args.model}
    problem, prompt = exam(1, args.seed, args.shots)[0]
    base = RunSpec(model=args.model.name, prompt=prompt)
    model = Library(folders).load(base)
    specs = {name: dataclasses.replace(base, **change) for name, change in METHODS.items()}
    rows = table(measure(model, specs, args.rounds), problem.answer)
    if args.record:
        costs = recording_costs(model, specs, args.record, args.rounds)
        rows = [row | {"recording_cost": costs[row["method"]]} for row in rows]
    tokens = len(model.tokenizer.encode_spec(base))
    print(f"{tokens} prompt tokens, {base.gen_length} answer positions, {args.rounds} rounds")
    print(f"{'method':20}{'forwards':>9}{'ms/step':>9}{'tokens/s':>10}{'speed-up':>10}  same text")
    for row in rows:
        cost = f"  recording {row['recording_cost']:+.1%}" if args.record else ""
        print(
            f"{row['method']:20}{row['nfe']:9.0f}{row['ms_per_step']:9.2f}"
            f"{row['tokens_per_s']:10.1f}{row['speed_up']:9.2f}x  {row['same_text']}{cost}"
        )
    where = environment.describe(base, model.digest)
    print(json.dumps({"environment": where, "prompt_tokens": tokens, "rows": rows}))


if __name__ == "__main__":
    main()

"""Write a synthetic trace of a given size, to try files and views of that size without a model.

    python -m engine synthetic --layers 32 --steps 1024 --positions 3072 --out big.npz

The run is dLLM-Cache's schedule with drifts that are drawn at random (engine.trace.synthetic). The
answer has a token for each step, the prompt the other positions. The same numbers and seed give
the same trace. With --measure, prints the time and the peak memory of recording, saving and
loading it. Recording is appending the events and reading the arrays after each step; the time
of making the events is left out. Memory is what Python and numpy allocate (tracemalloc), with what
a file's reader or writer needs; of saving, without the trace itself.
"""

from __future__ import annotations

import argparse
import tracemalloc
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from engine.core.command_line import command_parser, failure, not_negative
from engine.core.events import QUANTITIES, Event
from engine.core.files import check_writable
from engine.core.tables import markdown_table
from engine.trace.file_format import MAX_BYTES
from engine.trace.synthetic import synthetic_events, synthetic_spec
from engine.trace.trace import SMALL_BYTES, Trace

T = TypeVar("T")


@dataclass(frozen=True)
class Cost:
    """Seconds of an action, and the most bytes that it allocated at a time."""

    action: str
    seconds: float
    peak: int


def measured(action: str, work: Callable[[], T]) -> tuple[T, Cost]:
    """What `work` returns, and what it cost."""
    tracemalloc.start()
    try:
        began = perf_counter()
        found = work()
        return found, Cost(action, perf_counter() - began, tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def record(events: Iterable[Event]) -> tuple[Trace, float]:
    """The trace of some events, read after each of them, and the seconds without their making."""
    trace, spent = Trace(), 0.0
    for event in events:
        began = perf_counter()
        trace.append(event)
        trace.arrays()
        spent += perf_counter() - began
    return trace, spent


def measure(events: Iterable[Event], path: Path) -> tuple[int, list[Cost]]:
    """Bytes of the arrays, and the costs of recording events, of saving to `path` and loading."""
    (trace, seconds), recording = measured("record", lambda: record(events))
    held, (_, saving) = trace_bytes(trace), measured("save", partial(trace.save, path))
    del trace
    _, loading = measured("load", lambda: Trace.load(path))
    return held, [replace(recording, seconds=seconds), saving, loading]


def trace_bytes(trace: Trace) -> int:
    """Bytes of a trace's arrays."""
    return sum(array.nbytes for array in trace.arrays().values())


def check_size(layers: int, steps: int, positions: int, most: int) -> None:
    """Raise ValueError if the drifts alone are more than the `most` bytes that a file holds."""
    held = layers * steps * positions * len(QUANTITIES)
    if held > most:
        raise ValueError(
            f"layers: the drifts of {layers} layers, {steps} steps and {positions} positions have "
            f"{held // 1_000_000} MB, and a file holds {most // 1_000_000} MB; lower one of the "
            "three"
        )


def table(held: int, costs: Iterable[Cost]) -> str:
    """The costs as a Markdown table."""
    head = ("action", "seconds", "peak memory", "of the arrays")
    rows = [
        (c.action, f"{c.seconds:.1f}", f"{c.peak / 1e6:.0f} MB", f"{c.peak / held:.2f}x")
        for c in costs
    ]
    return markdown_table(head, rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    args = _parser().parse_args(arguments)
    try:
        spec = synthetic_spec(args.steps, args.probe, args.seed)
        events, costs = synthetic_events(spec, args.layers, args.positions), list[Cost]()
        most = SMALL_BYTES if args.out.suffix == ".json" else MAX_BYTES
        check_size(args.layers, args.steps, args.positions, most)
        check_writable(args.out)
        if args.measure:
            held, costs = measure(events, args.out)
        else:
            trace, _ = record(events)
            trace.save(args.out)
            held = trace_bytes(trace)
    except (ValueError, OSError) as error:
        raise failure(error, args) from None
    size = args.out.stat().st_size
    print(f"{args.out}: {held / 1e6:.1f} MB of arrays, {size / 1e6:.1f} MB on disk")
    if costs:
        print(table(held, costs), end="")


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("synthetic", __doc__)
    parser.add_argument("--layers", type=int, default=32, help="layers of the model")
    parser.add_argument("--steps", type=int, default=1024, help="steps, and tokens of the answer")
    parser.add_argument("--positions", type=int, default=3072, help="prompt and answer")
    parser.add_argument("--probe", action="store_true", help="also probed steps")
    parser.add_argument("--seed", type=not_negative, default=0, help="fixes every random draw")
    parser.add_argument("--measure", action="store_true", help="also time and memory, as a table")
    parser.add_argument("--out", type=Path, required=True, help="the file, .npz, or .json if small")
    return parser


if __name__ == "__main__":
    main()

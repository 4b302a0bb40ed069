"""Write a synthetic trace of a given size, to try files and views of that size without a model.

    python -m engine synthetic --layers 32 --steps 1024 --positions 3072 --out big.npz

The run is dLLM-Cache's schedule with drifts that are drawn at random (engine.trace.synthetic). The
answer has a token for each step, the prompt the other positions. The same numbers and seed give
the same trace.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from engine.core.command_line import command_parser
from engine.trace.synthetic import synthetic_events, synthetic_spec
from engine.trace.trace import Trace


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; `arguments` default to those of the process."""
    args = _parser().parse_args(arguments)
    try:
        trace = Trace()
        for event in synthetic_events(
            synthetic_spec(args.steps, args.probe, args.seed), args.layers, args.positions
        ):
            trace.append(event)
        trace.save(args.out)
    except (ValueError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
    held = sum(array.nbytes for array in trace.arrays().values())
    print(
        f"{args.out}: {held / 1e6:.1f} MB of arrays, {args.out.stat().st_size / 1e6:.1f} MB on disk"
    )


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("synthetic", __doc__)
    parser.add_argument("--layers", type=int, default=32, help="layers of the model")
    parser.add_argument("--steps", type=int, default=1024, help="steps, and tokens of the answer")
    parser.add_argument("--positions", type=int, default=3072, help="prompt and answer")
    parser.add_argument("--probe", action="store_true", help="also probed steps")
    parser.add_argument("--seed", type=int, default=0, help="fixes every random draw")
    parser.add_argument("--out", type=Path, required=True, help="the file, .npz or .json")
    return parser


if __name__ == "__main__":
    main()

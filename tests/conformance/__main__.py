"""The command line: see the docstring of the package."""

import argparse
import sys
from pathlib import Path

import torch

import tests.conformance as package
from engine.models.kernels.choice import ROUTINES
from tests.conformance.cases import CPU, FOLDERS, UnknownCaseError, read_cases
from tests.conformance.compare import compare
from tests.support.fixed_kernels import FixedKernels


def main(arguments: list[str] | None = None) -> int:
    """Compare the folders named on the command line; 1 unless all cases are known and pass."""
    parser = argparse.ArgumentParser(prog="tests.conformance", description=package.__doc__)
    parser.add_argument("folders", metavar="DIR", type=Path, nargs="*", default=list(FOLDERS))
    names = sorted({name for routines in ROUTINES.values() for name in routines})
    parser.add_argument("--kernels", choices=names, help="routine of products and attention")
    parser.add_argument("--device", default=CPU, type=torch.device, help="cpu or cuda")
    args = parser.parse_args(arguments)
    kernels = None if args.kernels is None else FixedKernels(args.kernels)
    counts = {"passed": 0, "failed": 0, "unknown": 0}
    for folder in args.folders:
        for case in read_cases(folder, kernels, args.device):
            try:
                outcome = compare(case)
                name, why = ("failed" if outcome.differences else "passed"), outcome.summary
            except UnknownCaseError as error:
                name, why = "unknown", str(error)
            except Exception as error:  # the other cases still run
                name, why = "failed", f"{type(error).__name__}: {error}"
            counts[name] += 1
            print(f"{name:8}{case.id}: {why}", flush=True)
    print(", ".join(f"{n} {name}" for name, n in counts.items()))
    return 1 if counts["failed"] or counts["unknown"] else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(main())

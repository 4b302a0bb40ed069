"""Measure the drifts that DARE needs and store them in a checkpoint's folder.

    python -m engine calibrate --model assets/models/tiny-llada --base none prefix dual

Decodes a few training problems with each base cache and writes `calibration/BASE-q0.npz`; without
`--base`, with every cache that DARE runs on and that the model's attention allows. Prints the names
of the files. Runs read them instead of measuring. A file holds the digest of the weights and is
ignored after they change.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from engine.cache.base import PolicyContext
from engine.cache.calibration.drift_profile import BINS, DriftProfile, find, save, shipped_path
from engine.catalog import make_policy, policies
from engine.config.spec import RunSpec
from engine.core.command_line import command_parser, failure, thread_count
from engine.core.files import ASSETS, check_writable
from engine.estimate.shape_model import ShapeAdapter
from engine.models.base import ModelInfo
from engine.serve import drift_meter
from engine.serve.loaded_model import policy_context_of
from engine.serve.model_pool import ModelPool


def write_profiles(folder: Path, bases: Sequence[str] = ()) -> list[Path]:
    """Measure the head-0 query drifts of a checkpoint under each base; returns the files.

    Without `bases` under all that the attention of the model allows. OSError, before the drifts are
    measured, if no file can be written there.
    """
    model = ModelPool({folder.name: folder}).load(RunSpec(model=folder.name))
    check_writable(shipped_path(folder, "any", "q0"))
    measure = policy_context_of(model, folder.name).measure
    known, attention = policies(), model.adapter.info.attention
    paths = []
    for base in bases or [one for one in known_bases() if attention in known[one].attention]:
        paths.append(shipped_path(folder, base, "q0"))
        save(replace(measure(base, "q0"), checkpoint=model.digest), paths[-1])
    return paths


def known_bases() -> list[str]:
    """The caches that DARE runs on."""
    return [base for base in drift_meter.BASES if base in policies()]


def calibration_forwards(models: ModelPool, spec: RunSpec, info: ModelInfo) -> int:
    """The most forwards that measure drifts before a run; 0 if all that it needs are known.

    `info` are the sizes of the spec's model. While it is not loaded, a file in its folder counts as
    one of its weights, and drifts that were measured earlier are not known.
    """
    folder, digest, measured = models.drift_sources(spec)
    needed: set[tuple[str, str]] = set()

    def note(base: str, quantity: str) -> DriftProfile:
        needed.add((base, quantity))
        counts = np.ones((info.layers, BINS), np.int64)
        return DriftProfile(base, quantity, counts, counts.sum(1, dtype=np.float64))

    with suppress(RuntimeError):  # of a policy that reads weights: its drifts are not known
        make_policy(spec).prepare(PolicyContext(_shapes(info), "", None, note))
    found = 0
    for base, quantity in needed.difference(measured):
        if find(folder, digest, base, quantity, info.layers) is None:
            found += drift_meter.PROBLEMS * drift_meter.calibration(base, info)[1]
    return found


class _Shapes(ShapeAdapter):
    """A ShapeAdapter whose value weights are a single zero: a policy's work on them is short."""

    def value_weight(self, layer: int) -> tuple[Tensor, Tensor | None]:
        """[1, 1], on the host."""
        return torch.zeros(1, 1), None


@lru_cache(maxsize=4)
def _shapes(info: ModelInfo) -> ShapeAdapter:
    return _Shapes(info, torch.float32)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; `arguments` default to those of the process."""
    parser = command_parser("calibrate", __doc__, alone=True)
    parser.add_argument(
        "--model", type=Path, default=ASSETS / "models" / "tiny-llada",
        help="folder of the checkpoint, by default that of tiny-llada",
    )  # fmt: skip
    parser.add_argument(
        "--base", nargs="+", default=(), choices=known_bases(),
        help="caches that DARE runs on; by default all that the model's attention allows",
    )  # fmt: skip
    parser.add_argument("--threads", type=thread_count, default=1, help="torch threads")
    args = parser.parse_args(arguments)
    torch.set_num_threads(args.threads)
    try:
        print(*write_profiles(args.model, args.base), sep="\n")
    except (ValueError, OSError) as error:
        raise failure(error, args) from None

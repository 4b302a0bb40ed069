"""Measure the drifts that DARE needs and store them in a checkpoint's folder.

    python -m engine calibrate --model assets/models/tiny-llada --base none prefix dual

Decodes a few training problems with each base cache and writes `calibration/BASE-q0.npz`; without
`--base`, with every cache that DARE runs on and that the model's attention allows. Prints the names
of the files. Runs read them instead of measuring. A file holds the digest of the weights and is
ignored after they change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from engine.cache.calibration.drift_profile import save, shipped_path
from engine.catalog import policies
from engine.config.spec import RunSpec
from engine.core.command_line import command_parser, failure, thread_count
from engine.core.files import ASSETS
from engine.distributed.processes import check_alone
from engine.serve.drift_meter import BASES
from engine.serve.loaded_model import policy_context_of
from engine.serve.model_pool import ModelPool


def write_profiles(folder: Path, bases: Sequence[str] = ()) -> list[Path]:
    """Measure the head-0 query drifts of a checkpoint under each base; returns the files.

    Without `bases` under all that the attention of the model allows.
    """
    model = ModelPool({folder.name: folder}).load(RunSpec(model=folder.name))
    measure = policy_context_of(model, folder.name).measure
    known, attention = policies(), model.adapter.info.attention
    paths = []
    for base in bases or [one for one in known_bases() if attention in known[one].attention]:
        paths.append(shipped_path(folder, base, "q0"))
        save(replace(measure(base, "q0"), checkpoint=model.digest), paths[-1])
    return paths


def known_bases() -> list[str]:
    """The caches that DARE runs on."""
    return [base for base in BASES if base in policies()]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; `arguments` default to those of the process."""
    parser = command_parser("calibrate", __doc__)
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
        check_alone()
        print(*write_profiles(args.model, args.base), sep="\n")
    except (ValueError, OSError) as error:
        raise failure(error, args) from None

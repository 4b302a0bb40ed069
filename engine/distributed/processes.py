"""The processes that share a command's work, as started by `accelerate launch` or `torchrun`."""

from __future__ import annotations

import os
from collections.abc import Iterable, MutableMapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from engine.core.command_line import launcher_number, process_count

VISIBLE = "CUDA_VISIBLE_DEVICES"
WAIT_S = 6 * 3600.0  # longest wait for the other processes; one that died is noticed at once


class Processes:
    """This process and the others, each with a model of its own; use it as a context.

    Without a launcher there is one process, and torch.distributed is not started. Objects are
    exchanged over gloo, also on GPUs. If the launcher gives a local rank and no LOCAL_WORLD_SIZE,
    all processes are taken to be on one machine. `wait_s` bounds the wait in `gather` and
    `barrier`. Raises ValueError naming the variable of the launcher that is missing or wrong.
    """

    def __init__(
        self, environment: MutableMapping[str, str] = os.environ, wait_s: float = WAIT_S
    ) -> None:
        self._environment, self._divided = environment, False
        self.count = process_count(environment)
        self.rank = launcher_number(environment, "RANK", 0)
        self.local_rank = launcher_number(environment, "LOCAL_RANK", 0)
        local = self.count if "LOCAL_RANK" in environment else 1
        self.local_count = launcher_number(environment, "LOCAL_WORLD_SIZE", local)
        if self.count < 1 or self.rank >= self.count:
            raise ValueError(f"RANK {self.rank} must be below WORLD_SIZE {self.count}")
        self._store: dist.Store | None = None
        if self.count > 1:
            if not 0 < launcher_number(environment, "MASTER_PORT", 0) < 2**16:
                raise ValueError("MASTER_PORT must be a port from 1 to 65535: it is the launcher's")
            wait = timedelta(seconds=wait_s)
            store, _, _ = next(dist.rendezvous("env://", self.rank, self.count, timeout=wait))
            dist.init_process_group(
                "gloo", store=dist.PrefixStore("group", store), rank=self.rank,
                world_size=self.count, timeout=wait,
            )  # fmt: skip
            self._store = dist.PrefixStore("counts", store)
        self._counts: dict[str, int] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *failure: object) -> None:
        if self._store is not None:
            leave_group()

    @property
    def is_main(self) -> bool:
        """Whether this process prints and writes what all of them found."""
        return self.rank == 0

    def device(self, kind: str) -> str:
        """The device of this process: a GPU of its own if `kind` is "cuda", else `kind`.

        If `kind` is "auto", the processes of a machine divide its GPUs among them, and from then on
        this process sees only its own ones. So this must be called before CUDA is used. Raises
        ValueError if the machine has fewer GPUs than processes, or if `kind` names one GPU, such as
        "cuda:0", for several processes.
        """
        if kind.startswith("cuda:") and self.local_count > 1:
            raise ValueError(
                f"device: {kind} is one GPU for all {self.local_count} processes of this machine; "
                "give cuda, with which each has a GPU of its own"
            )
        if kind not in ("cuda", "auto") or self.count == 1 or self._divided:
            return kind
        found = torch.cuda.device_count()
        if kind == "auto" and not found:
            return kind
        each = found // max(self.local_count, 1)
        if self.local_rank >= found or (kind == "auto" and not each):
            raise ValueError(
                f"process {self.local_rank} of this machine has no GPU of its own: there are "
                f"{found}; start at most {found} a machine (accelerate launch --num_processes)"
            )
        if kind == "cuda":
            return f"cuda:{self.local_rank}"
        visible = self._environment.get(VISIBLE)
        names = visible.split(",") if visible else []
        gpus = names if len(names) == found else [str(i) for i in range(found)]
        own = gpus[self.local_rank * each : (self.local_rank + 1) * each]
        self._environment[VISIBLE], self._divided = ",".join(own), True
        return kind

    def devices(self, kinds: Iterable[str]) -> dict[str, str]:
        """The device of this process by kind; `auto` is first, since it renumbers the GPUs."""
        return {
            kind: self.device(kind) for kind in sorted(set(kinds), key=lambda kind: kind != "auto")
        }

    def share(self, size: int) -> range:
        """The indices, of `size` pieces of work, that this process does: every count-th one."""
        return range(self.rank, size, self.count)

    def gather(self, own: Any) -> list[Any]:
        """What every process gave, in the order of their ranks, on every process.

        Raises RuntimeError if another process ended or did not answer in time.
        """
        if self._store is None:
            return [own]
        found: list[Any] = [None] * self.count
        try:
            dist.all_gather_object(found, own)
        except RuntimeError as error:
            raise RuntimeError(
                f"process {self.rank} of {self.count} lost another one, which the launcher names; "
                f"start the command again to resume ({error})"
            ) from error
        return found

    def barrier(self) -> None:
        """Wait until every process is here; raises RuntimeError as `gather` does."""
        self.gather(None)

    def add(self, name: str, amount: int) -> int:
        """Add to a count that all processes share; returns its new value."""
        if self._store is not None:
            return int(self._store.add(name, amount))
        self._counts[name] = self._counts.get(name, 0) + amount
        return self._counts[name]


def leave_group() -> None:
    """End the threads of torch.distributed: a process that exits while they run may abort."""
    if dist.is_initialized():
        dist.destroy_process_group()

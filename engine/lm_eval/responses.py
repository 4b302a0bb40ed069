"""Answers to the requests of the harness: kept in files as they finish, and summed by task."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from engine.core.files import write_atomically
from engine.distributed.keyed_lines import KeyedLines, read_lines
from engine.distributed.processes import Processes

Place = tuple[str, int, int, int]  # task, document, request of the document, repetition


@dataclasses.dataclass(frozen=True)
class Response:
    """The answer to one request, and its share of the costs of its batch.

    `text` is the whole text before the end of text, or `value` a log-likelihood and whether the
    text is the greedy one. `tokens` are those of the answer, `forwards` the steps until its last
    position was decoded (a step counts once, also if guidance takes two), `ms` is engine time,
    `recomputed` the mean share of rows computed in a forward; `peak_bytes` is None if it is
    unknown. `machine` says where it was measured; `resumed`, that it was read from a file.
    """

    tokens: int
    forwards: int
    ms: float
    machine: Mapping[str, Any]
    text: str = ""
    value: tuple[float, bool] = (0.0, False)
    gflops: float = 0.0
    recomputed: float = 0.0
    peak_bytes: int | None = None
    resumed: bool = False

    @classmethod
    def from_dict(cls, row: Mapping[str, Any]) -> Response:
        """The resumed response of a line; raises ValueError if its fields are wrong."""
        try:
            value = (float(row["value"][0]), bool(row["value"][1]))
            fields: dict[str, Any] = {"value": value, "resumed": True, "text": str(row["text"])}
            fields |= {name: int(row[name]) for name in ("tokens", "forwards")}
            fields |= {name: float(row[name]) for name in ("ms", "gflops", "recomputed")}
            peak = row["peak_bytes"]
            fields |= {"machine": dict(row["machine"])}
            fields |= {"peak_bytes": None if peak is None else int(peak)}
        except (KeyError, IndexError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"a field of a response is wrong: {error!r}") from None
        return cls(**fields)


class Responses:
    """The responses of all processes; with a `folder` they are also kept there.

    With `cards` a run card of each answer that has one is written into its folder `run-cards`.
    Each process appends to a file of its own, and what any file has is not computed again, whatever
    the number of processes was. Only the main process reads the files.
    """

    def __init__(self, processes: Processes, folder: Path | None, cards: bool = False) -> None:
        self._processes, self._lines = processes, None
        self.cards = folder / "run-cards" if folder and cards else None
        self._tasks: set[str] = set()  # in the names of cards
        self._written: set[str] = set()  # names of cards
        self._held: dict[str, Response] = {}
        self._own: dict[Place, Response] = {}
        self._all: dict[Place, Response] = {}
        self._rounds = 0
        if folder is not None:
            if processes.is_main:
                self._read(folder)
            self._lines = KeyedLines(folder / f"responses-{processes.rank}.jsonl")
        self._held = processes.gather(self._held)[0]

    def find(self, key: str) -> Response | None:
        """The response of a key, or None."""
        return self._held.get(key)

    def keep(self, key: str, response: Response) -> None:
        """Keep a new response, and append it to the file before returning."""
        self._held[key] = response
        if self._lines is not None:
            self._lines.put(key, dataclasses.asdict(response))

    def place(self, where: Place, response: Response) -> None:
        """Count a response for its request; a second time has no effect."""
        self._own.setdefault(where, response)

    def start(self, missing: int) -> Progress:
        """Progress of a round of requests that all processes begin together."""
        self._rounds += 1
        work = sum(self._processes.gather(missing))
        return Progress(self._processes, f"requests {self._rounds}", work)

    def put_card(self, where: Place, lane: Mapping[str, Any] | None) -> None:
        """Write the run card of an answer; None: it has none. `end` removes older cards."""
        assert self.cards is not None, "it writes cards"
        self._tasks.add(_task_name(where))
        if lane is not None:
            self._written.add(write_card(self.cards, where, lane))

    def end(self) -> None:
        """End a round: every process learns what the others have.

        Cards of its tasks that an earlier evaluation left are removed.
        """
        for part in self._processes.gather(self._own):
            self._all |= part
        if self.cards is None:
            return
        tasks, written = set[str](), set[str]()
        for own_tasks, own_written in self._processes.gather((self._tasks, self._written)):
            tasks |= own_tasks
            written |= own_written
        for path in self.cards.glob("*-*-*-*.json") if self._processes.is_main else ():
            if path.stem.rsplit("-", 3)[0] in tasks and path.name not in written:
                path.unlink()

    def by_task(self) -> dict[str, dict[str, Any]]:
        """The figures of each task over all processes, see `summarise`."""
        tasks: dict[str, list[Response]] = {}
        for (task, *_), response in sorted(self._all.items(), key=lambda item: item[0]):
            tasks.setdefault(task, []).append(response)
        return {task: summarise(own) for task, own in tasks.items()}

    def _read(self, folder: Path) -> None:
        for path in sorted(folder.glob("responses-*.jsonl")):
            for key, row in read_lines(path):
                try:
                    self._held[key] = Response.from_dict(row)
                except ValueError as error:
                    print(f"{path}: computed again: {error}", file=sys.stderr)


class Progress:
    """Prints the progress of all processes when it grows by a percent."""

    def __init__(self, processes: Processes, name: str, work: int) -> None:
        self._processes, self._name, self._work = processes, name, work

    def add(self, count: int) -> None:
        """Count finished requests of this process."""
        done = self._processes.add(self._name, count)
        if 100 * done // self._work > 100 * (done - count) // self._work:
            print(f"{done} of {self._work} requests", file=sys.stderr, flush=True)


def summarise(responses: Iterable[Response]) -> dict[str, Any]:
    """The figures of one task.

    Sums of `tokens`, `forwards`, `gflops` and `seconds` over all requests; `tokens_per_s` and
    `tokens_per_forward` are quotients of the sums, `recomputed` is a mean, `peak_bytes` a maximum,
    None if it is unknown. `machine` says where the responses were measured, if resumed ones on
    another machine than this one; it and times are None if they come from several machines,
    versions or numbers of threads or processes.
    """
    own = list(responses)
    tokens, forwards = sum(one.tokens for one in own), sum(one.forwards for one in own)
    seconds = sum(one.ms for one in own) / 1e3
    alike = all(one.machine == own[0].machine for one in own)
    peaks = [one.peak_bytes for one in own if one.peak_bytes is not None]
    return {
        "requests": len(own),
        "resumed": sum(one.resumed for one in own),
        "tokens": tokens,
        "forwards": forwards,
        "tokens_per_forward": tokens / forwards if forwards else None,
        "machine": dict(own[0].machine) if alike else None,
        "seconds": seconds if alike else None,
        "tokens_per_s": tokens / seconds if alike and seconds else None,
        "gflops": sum(one.gflops for one in own),
        "recomputed": sum(one.recomputed for one in own) / len(own),
        "peak_bytes": max(peaks, default=None),
    }


def write_card(folder: Path, where: Place, lane: Mapping[str, Any]) -> str:
    """Write the run card of one answer, which `python -m engine repeat` runs again.

    `lane` has the parts `spec`, `model` and `results` of its one lane. The GPU of this process,
    such as `cuda:3`, is `cuda` on the card, which may be repeated where there is one GPU. Returns
    the name of the file.
    """
    (_, document, request, repetition), name = where, _task_name(where)
    spec = lane["spec"]
    own = {**lane, "spec": {**spec, "device": str(spec["device"]).partition(":")[0]}}
    found = {"run": f"{name}-{document}", "lanes": {"a": own}, "summary": {}, "repeat": None}
    path = folder / f"{name}-{document}-{request}-{repetition}.json"
    write_atomically(path, (json.dumps(found, ensure_ascii=False, indent=1) + "\n").encode())
    return path.name


def _task_name(where: Place) -> str:
    """The task of an answer as a part of a file's name."""
    return "".join(c if c.isalnum() or c in "-_" else "_" for c in where[0])

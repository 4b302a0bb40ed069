"""Runs that the server holds: a shelf with a byte budget, and who is running what."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from engine.events import Event
from engine.trace import Trace
from inspector.protocol import LANES, Control, Lane

SHELF_BYTES = 256_000_000
SHELF_S = 6 * 3_600.0
TRACE_BYTES = 24_000  # what a trace takes beside its arrays: spec, pieces, objects; measured
KNOWN_ANSWERS = 2_000
KEPT_RUNS = 63


@dataclass
class Record:
    """One race as it is being run or was run; the lock guards its traces.

    `recorded` holds the traces of the same specs run once more with the recorder on; `parent` is
    the race that lane A was taken from, where lane B goes on from a step of it.
    """

    run_id: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    expected: int | None = None
    state: str = "running"
    message: str = ""
    parent: str = ""
    traces: dict[Lane, Trace] = field(default_factory=lambda: {lane: Trace() for lane in LANES})
    recorded: dict[Lane, Trace] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def copy(self) -> Record:
        """The same traces under an id of their own, for a visitor who adds to them."""
        with self.lock:
            return Record(
                expected=self.expected, state=self.state, message=self.message,
                traces=dict(self.traces), recorded=dict(self.recorded),
            )  # fmt: skip

    def append(self, lane: Lane, event: Event) -> None:
        """Take an event into the lane's trace."""
        with self.lock:
            self.traces[lane].append(event)

    def started(self) -> dict[Lane, Trace]:
        """The lanes that have a canvas."""
        return {lane: trace for lane, trace in self.traces.items() if "spec" in trace.meta}

    @property
    def version(self) -> str:
        """Changes whenever the views have something new to show."""
        levels = [str(trace.meta["spec"].get("record")) for trace in self.recorded.values()]
        return "-".join([self.state, *levels])

    def seen(self, lane: Lane, timed: bool = False) -> Trace | None:
        """The trace that the views of a lane draw: the recorded one, where there is one.

        `timed` asks for the one that was run without the recorder, whose clocks are true.
        """
        recorded = None if timed else self.recorded.get(lane)
        return recorded or self.started().get(lane)

    def nbytes(self) -> int:
        """Bytes of the traces held, about."""
        with self.lock:
            held = [*self.started().values(), *self.recorded.values()]
            arrays = [array.nbytes for trace in held for array in trace.arrays().values()]
            return sum(arrays) + TRACE_BYTES * len(held)


class Shelf:
    """Records by id, with a byte budget and a time to live.

    The least recently used are dropped when the budget is spent, and any that nobody has used for
    `life` seconds; what is pinned stays.
    """

    def __init__(
        self,
        budget: int = SHELF_BYTES,
        life: float = SHELF_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._budget, self._life, self._clock = budget, life, clock
        self._records: OrderedDict[str, tuple[Record, int, float]] = OrderedDict()
        self._pinned: dict[str, Record] = {}
        self._lock = threading.Lock()

    def pin(self, record: Record) -> None:
        """Hold a record of the app's own for good, whoever drops it."""
        self._pinned[record.run_id] = record

    def put(self, record: Record) -> None:
        """File a record, or weigh it again; the newest always stays."""
        size = record.nbytes()
        with self._lock:
            self._use(record, size)
            while len(self._records) > 1 and self._held() > self._budget:
                self._records.popitem(last=False)

    def get(self, run_id: object) -> Record | None:
        """The record of that id, if it is one and still held; ids may come from anybody."""
        with self._lock:
            self._expire()
            if not isinstance(run_id, str) or run_id not in self._records:
                return self._pinned.get(run_id) if isinstance(run_id, str) else None
            record, size, _ = self._records[run_id]
            self._use(record, size)
            return record

    def drop(self, run_id: str) -> None:
        """Forget a record."""
        with self._lock:
            self._records.pop(run_id, None)

    def __len__(self) -> int:
        return len(self._records)

    def _use(self, record: Record, size: int) -> None:
        self._records[record.run_id] = (record, size, self._clock())
        self._records.move_to_end(record.run_id)
        self._expire()

    def _expire(self) -> None:
        oldest = self._clock() - self._life
        while self._records and next(iter(self._records.values()))[2] < oldest:
            self._records.popitem(last=False)

    def _held(self) -> int:
        return sum(size for _, size, _ in self._records.values())


class Desk:
    """The live run of each visitor, and the latest runs that each has seen."""

    def __init__(self) -> None:
        self._live: dict[str, tuple[str, Control]] = {}
        self._seen: OrderedDict[str, list[str]] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, visitor: str, run_id: str, control: Control) -> None:
        """Make this the visitor's live run; an earlier one is stopped."""
        with self._lock:
            earlier = self._live.pop(visitor, None)
            self._live[visitor] = (run_id, control)
            self._remember(visitor, run_id)
        if earlier:
            earlier[1].stop()

    def show(self, visitor: str, run_id: str) -> None:
        """Remember what the visitor looks at without a live run."""
        with self._lock:
            self._remember(visitor, run_id)

    def end(self, visitor: str, run_id: str) -> bool:
        """Forget the live run, if it is still this one; whether the visitor may ask for it yet."""
        with self._lock:
            if self._live.get(visitor, ("",))[0] == run_id:
                del self._live[visitor]
            return run_id in self._seen.get(visitor, [])

    def control(self, visitor: str) -> Control | None:
        """The flags of the visitor's live run."""
        live = self._live.get(visitor)
        return live[1] if live else None

    def last(self, visitor: str) -> str | None:
        """The id of the visitor's latest run."""
        with self._lock:
            return self._seen.get(visitor, [None])[-1]

    def leave(self, visitor: str) -> list[str]:
        """The visitor is gone: stop what runs, and say which runs nobody will ask for again."""
        control = self.control(visitor)
        if control:
            control.stop()
        with self._lock:
            return self._seen.pop(visitor, [])

    def _remember(self, visitor: str, run_id: str) -> None:
        earlier = [run for run in self._seen.get(visitor, []) if run != run_id]
        self._seen[visitor] = [*earlier[-KEPT_RUNS:], run_id]
        self._seen.move_to_end(visitor)
        while len(self._seen) > 10_000:
            self._seen.popitem(last=False)


class Answers:
    """The right answers of prompts that the app itself set."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, int] = OrderedDict()
        self._lock = threading.Lock()

    def learn(self, prompt: str, answer: int | None) -> None:
        """Remember an answer; the oldest are forgotten."""
        if answer is None:
            return
        with self._lock:
            self._known[prompt.strip()] = answer
            while len(self._known) > KNOWN_ANSWERS:
                self._known.popitem(last=False)

    def expected(self, prompt: str) -> int | None:
        """The right answer to a prompt, if it is known."""
        return self._known.get(prompt.strip())

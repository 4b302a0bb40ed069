"""Runs held in memory by the server: the store of races, live runs by visitor, known problems."""

from __future__ import annotations

import hashlib
import secrets
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

from engine.core.control import LIFETIME_S
from engine.core.events import Event, QueueFullError
from engine.trace.trace import Trace
from inspector.protocol import LANES, Control, Lane
from inspector.server.visitor_address import visitor_address

MIN_STORE_BYTES = 1_000_000_000  # three of the largest imports of a public page
TRACE_BYTES = 24_000  # measured size of a trace beside its arrays, meta and pieces
PIECE_BYTES = 113  # measured size of the bytes of a token id in memory, beside its arrays
KNOWN_PROBLEMS = 2_000
KEPT_RUNS = 63
KEPT_VISITORS = 10_000
# Far above the engine's limit of waiting runs: paused runs, which do not wait, count here too.
RUN_SLOTS, SLOTS_OF_AN_ADDRESS = 152, 76
GONE = "This run is no longer in memory. Run it again."
NO_RUN = "This lane has no run."
NO_SLOT = (
    "queue: too many runs from your network address go on or are paused; stop one of them, then "
    "try again"
)
NO_ROOM = (
    "record: this recording may take {:.0f} MB of memory; those{} that go on or are paused may "
    "take {:.0f} MB, and at most {:.0f} MB are allowed; stop one of them, or wait for its end, "
    "then try again"
)


@dataclass
class RaceRecord:
    """One race, running or finished.

    Attributes:
        run_id: random id; whoever knows it can read the race.
        expected: the right answer to the prompt, if it is known.
        state: `running` (also if it waits or is paused), `done`, `stopped`, `failed`, `memory`,
            `example` or `imported`.
        message: why the race failed, or empty.
        parent: for a branch, the id of the race that lane A comes from; otherwise empty.
        origin: for a branch, the settings of the race that was not a branch, as a query.
        branches: the branches that lead here from that race (see page_data.links).
        bundled: the name of the bundled recorded run that lane B shows; otherwise empty.
        traces: the timed trace of each lane.
        recorded: traces of the same specs, run again with the recorder on.
        record_next: whether the race may still be recorded after its run without being asked.
        lock: guards the traces.
    """

    run_id: str = field(default_factory=lambda: secrets.token_urlsafe(18))
    expected: str | None = None
    state: str = "running"
    message: str = ""
    parent: str = ""
    origin: str = ""
    branches: tuple[str, ...] = ()
    bundled: str = ""
    traces: dict[Lane, Trace] = field(default_factory=lambda: {lane: Trace() for lane in LANES})
    recorded: dict[Lane, Trace] = field(default_factory=dict)
    record_next: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def copy(self) -> RaceRecord:
        """A new record with its own id and the same traces, so that recordings can be added."""
        with self.lock:
            return RaceRecord(
                expected=self.expected, state=self.state, message=self.message,
                parent=self.parent, origin=self.origin, branches=self.branches,
                bundled=self.bundled, traces=dict(self.traces), recorded=dict(self.recorded),
            )  # fmt: skip

    def snapshot(self) -> RaceRecord:
        """The race so far: the same id, and traces that later events do not change.

        It has a lock of its own, so that whoever reads it for long delays nobody.
        """
        with self.lock:
            traces, recorded = (
                {lane: trace.snapshot() for lane, trace in held.items()}
                for held in (self.traces, self.recorded)
            )
            return replace(self, traces=traces, recorded=recorded, lock=threading.Lock())

    def append(self, lane: Lane, event: Event) -> None:
        """Append an event to the lane's trace."""
        with self.lock:
            self.traces[lane].append(event)

    def started(self) -> dict[Lane, Trace]:
        """The traces of the lanes that have started, by lane."""
        return {lane: trace for lane, trace in self.traces.items() if "spec" in trace.meta}

    @property
    def version(self) -> str:
        """A string that changes whenever the data of the views changes."""
        specs = [trace.meta["spec"] for trace in self.recorded.values()]
        kept = [str(spec.get("record")) for spec in specs]
        probed = [".".join(map(str, spec.get("probe_at") or ())) for spec in specs]
        text = "-".join([self.state, *map("".join, zip(kept, probed, strict=True))])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def trace_for_views(self, lane: Lane, timed: bool = False) -> Trace | None:
        """The trace that the views of a lane draw: the recorded one if it exists.

        With `timed`, the trace that was run without the recorder. Its times contain no recording.
        """
        recorded = None if timed else self.recorded.get(lane)
        return recorded or self.started().get(lane)

    def nbytes(self) -> int:
        """Approximate size of all traces in bytes."""
        with self.lock:
            held = [*self.started().values(), *self.recorded.values()]
            arrays = [array.nbytes for trace in held for array in trace.arrays().values()]
            beside = [
                TRACE_BYTES
                + memory_of(trace.meta)
                + PIECE_BYTES * (len(trace.pieces) + len(trace.guider_pieces))
                for trace in held
            ]
            return sum(arrays) + sum(beside)


def memory_of(document: object) -> int:
    """The bytes of memory of a JSON document: 40 times those of its text if it is all brackets."""
    size, left = 0, [document]
    while left:
        value = left.pop()
        size += sys.getsizeof(value)
        if isinstance(value, Mapping):
            left += [*value, *value.values()]
        elif isinstance(value, (list, tuple)):
            left += value
    return size


def store_bytes(trace_bytes: int) -> int:
    """The budget of a store of races whose traces have at most so many bytes."""
    return max(MIN_STORE_BYTES, len(LANES) * trace_bytes)


class RunStore:
    """Race records by id, with a limit in bytes and a lifetime.

    When their sizes exceed `budget` bytes, the least recently used of the records that take more
    than an equal share of it are dropped, so that a visitor's large files do not displace the runs
    of others; if only the newest takes more, the least recently used of all. Every record is
    dropped when it was not used for `lifetime` seconds. Pinned records stay.
    """

    def __init__(
        self,
        budget: int = MIN_STORE_BYTES,
        lifetime: float = LIFETIME_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._budget, self._lifetime, self._clock = budget, lifetime, clock
        self._records: OrderedDict[str, tuple[RaceRecord, int, float]] = OrderedDict()
        self._pinned: dict[str, RaceRecord] = {}
        self._lock = threading.Lock()

    def pin(self, record: RaceRecord) -> None:
        """Keep a record for the lifetime of the store; `drop` does not remove it."""
        self._pinned[record.run_id] = record

    def is_pinned(self, record: RaceRecord) -> bool:
        """Whether a record was pinned; all visitors share it."""
        return record.run_id in self._pinned

    def put(self, record: RaceRecord) -> None:
        """Add a record, or update its size. The newest record is never dropped."""
        size = record.nbytes()
        with self._lock:
            self._use(record, size)
            while len(self._records) > 1 and self._held() > self._budget:
                del self._records[self._next_to_drop()]

    def get(self, run_id: object) -> RaceRecord | None:
        """The record of an id, or None if there is none. `run_id` may be any untrusted value."""
        with self._lock:
            self._expire()
            if not isinstance(run_id, str) or run_id not in self._records:
                return self._pinned.get(run_id) if isinstance(run_id, str) else None
            record, size, _ = self._records[run_id]
            self._use(record, size)
            return record

    def drop(self, run_id: str) -> None:
        """Remove a record, unless it is pinned."""
        with self._lock:
            self._records.pop(run_id, None)

    def __len__(self) -> int:
        return len(self._records)

    def _use(self, record: RaceRecord, size: int) -> None:
        self._records[record.run_id] = (record, size, self._clock())
        self._records.move_to_end(record.run_id)
        self._expire()

    def _expire(self) -> None:
        oldest = self._clock() - self._lifetime
        while self._records and next(iter(self._records.values()))[2] < oldest:
            self._records.popitem(last=False)

    def _next_to_drop(self) -> str:
        """The id of the record to drop for lack of memory; never that of the newest."""
        share = self._budget / len(self._records)
        *others, _ = self._records
        return next((one for one in others if self._records[one][1] > share), others[0])

    def _held(self) -> int:
        return sum(size for _, size, _ in self._records.values())


class RunControls:
    """The controls of the runs of all visitors, made by `make`, so that all can be stopped.

    The owner of a run is the network address of its visitor. At most SLOTS_OF_AN_ADDRESS runs of a
    known address go on or are paused, which leaves room for those of other visitors. Their
    recordings, which the store of races holds only once they have ended, may take `budget` bytes
    together, and half of it from a known address. The first one may take more.
    """

    def __init__(self, make: Callable[[], Control], budget: int = MIN_STORE_BYTES) -> None:
        self._make, self._budget = make, budget
        self._made: WeakKeyDictionary[Control, int] = WeakKeyDictionary()  # bytes of the recording
        self._lock = threading.Lock()

    def new(self, recorded: int = 0, replaced: Control | None = None) -> Control:
        """A control for a new run of the visitor who called this listener.

        The run records at most `recorded` bytes, and stops the run of the control `replaced`.
        Raises QueueFullError if too many go on already, or record too much.
        """
        control = self._make()
        control.owner = owner = visitor_address()
        with self._lock:
            live = [one for one in self._made if one.state != "stopped" and one is not replaced]
            own = [one for one in live if one.owner == owner]
            if owner and len(own) >= SLOTS_OF_AN_ADDRESS:
                raise QueueFullError(NO_SLOT)
            if owner:
                self._check_room(recorded, own, self._budget // 2, " from your network address")
            self._check_room(recorded, live, self._budget)
            self._made[control] = recorded
        return control

    def stop(self) -> None:
        """Stop every run before its next step."""
        with self._lock:
            for control in self._made:
                control.stop()

    def _check_room(
        self, recorded: int, live: Iterable[Control], most: int, whose: str = ""
    ) -> None:
        """Raise QueueFullError if a recording needs more memory than others leave of `most`."""
        held = sum(self._made[one] for one in live)
        if recorded and held and held + recorded > most:
            raise QueueFullError(NO_ROOM.format(recorded / 1e6, whose, held / 1e6, most / 1e6))


class LiveRuns:
    """The live run of each visitor, and the ids of the latest runs that each visitor was shown."""

    def __init__(self) -> None:
        self._live: dict[str, Control] = {}
        self._seen: OrderedDict[str, list[str]] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, visitor: str, run_id: str, control: Control) -> None:
        """Set the visitor's live run. An earlier live run of the same visitor is stopped."""
        with self._lock:
            earlier = self._live.pop(visitor, None)
            self._live[visitor] = control
            self._remember(visitor, run_id)
        if earlier:
            earlier.stop()

    def show(self, visitor: str, run_id: str) -> None:
        """Remember a run that the visitor is shown without running it."""
        with self._lock:
            self._remember(visitor, run_id)

    def end(self, visitor: str, run_id: str, control: Control) -> bool:
        """Clear the live run if `control` is still its control.

        The id does not tell: a race that is recorded again, or a batch that is continued, keeps it.
        Returns whether a visitor is still here who was shown the run.
        """
        with self._lock:
            if self._live.get(visitor) is control:
                del self._live[visitor]
            return any(run_id in shown for shown in self._seen.values())

    def control(self, visitor: str) -> Control | None:
        """The control of the visitor's live run, if there is one."""
        return self._live.get(visitor)

    def last(self, visitor: str) -> str | None:
        """The id of the visitor's latest run."""
        with self._lock:
            return self._seen.get(visitor, [None])[-1]

    def is_shared(self, visitor: str, run_id: str) -> bool:
        """Whether another visitor was shown a run too."""
        with self._lock:
            return any(run_id in shown for who, shown in self._seen.items() if who != visitor)

    def leave(self, visitor: str) -> list[str]:
        """Stop the live run of a visitor who left.

        Returns the ids of the runs that nobody else was shown: a visitor keeps a run when somebody
        else leaves who knew its id.
        """
        control = self.control(visitor)
        if control:
            control.stop()
        with self._lock:
            own = self._seen.pop(visitor, [])
            others = {run_id for shown in self._seen.values() for run_id in shown}
            return [run_id for run_id in own if run_id not in others]

    def _remember(self, visitor: str, run_id: str) -> None:
        earlier = [run for run in self._seen.get(visitor, []) if run != run_id]
        self._seen[visitor] = [*earlier[-KEPT_RUNS:], run_id]
        self._seen.move_to_end(visitor)
        while len(self._seen) > KEPT_VISITORS:
            self._seen.popitem(last=False)


@dataclass(frozen=True)
class KnownProblem:
    """The right answer of a prompt, and the tokens of its worked answer with the end of text."""

    answer: str
    answer_tokens: int


class KnownProblems:
    """What is known of the prompts that the app generated, by prompt."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, KnownProblem] = OrderedDict()
        self._lock = threading.Lock()

    def learn(self, problem: Mapping[str, Any]) -> None:
        """Store a problem of the session; above the limit the oldest entries are removed."""
        known = KnownProblem(problem["answer"], problem["answer_tokens"])
        with self._lock:
            self._known[problem["prompt"].strip()] = known
            while len(self._known) > KNOWN_PROBLEMS:
                self._known.popitem(last=False)

    def get(self, prompt: str) -> KnownProblem | None:
        """What is known of a prompt, or None."""
        return self._known.get(prompt.strip())

    def expected(self, prompt: str) -> str | None:
        """The right answer to a prompt, or None if it is not known."""
        known = self.get(prompt)
        return known.answer if known else None

    def fill_in(self, record: RaceRecord) -> None:
        """Set the right answer of a record that has traces, if that of its prompt is known."""
        spec = next(iter(record.traces.values())).meta["spec"]
        record.expected = self.expected(str(spec.get("prompt", "")))

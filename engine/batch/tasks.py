"""Tasks of a page or an API: work in parts that continue each other, held in memory by id."""

from __future__ import annotations

import secrets
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, ClassVar, Generic, TypeVar

from engine.core.control import LIFETIME_S, Control, StoppedError
from engine.core.events import QueueFullError, Waiting

NOT_STARTED = ("new", "estimated")  # states of tasks that hold no results but an estimate
E = TypeVar("E")
T = TypeVar("T", bound="Task")


class Task:
    """Work that somebody starts, stops and continues; what it computed is kept.

    `kind` is its name in messages. `state` is `new`, `running`, `done`, `stopped` (by somebody),
    `estimated` (its time was measured), `limit` (the time is used up, or too many other runs
    wait) or `failed`; `message` says why. Whoever knows `id` can read it. `owner` is that of the
    Control of the latest part. A part may compute for `seconds`; None: any time.
    """

    kind: ClassVar[str]

    def __init__(self, seconds: float | None = None) -> None:
        self.id = secrets.token_urlsafe(18)
        self.state, self.message, self.owner = "new", "", ""
        self._seconds, self._used = seconds, 0.0
        self._lock = threading.Lock()

    def _part(self, control: Control, work: Callable[[], Iterator[E]]) -> Iterator[E]:
        """The events of a part of the work. Raises ValueError if another part is running."""
        if not self._lock.acquire(blocking=False):
            raise ValueError(f"{self.kind}: it is running; stop it first, or wait")
        try:
            self.state, self.message, self._used = "running", "", 0.0
            self.owner = control.owner
            yield from work()
        except QueueFullError as error:  # what was computed is kept, so it can be continued
            self.state, self.message = "limit", str(error)
        except StoppedError:
            self.state = "stopped"
            if self._over:
                self._stop_at_limit()
        except Exception:
            self.state = "failed"
            raise
        finally:
            if self.state == "running":
                self.state = "stopped"
            self._lock.release()

    def _timed(self, events: Iterable[E]) -> Iterator[E]:
        """The events, with their time counted as used, except that of `Waiting`."""
        mark = time.monotonic()
        for event in events:
            now = time.monotonic()
            self._used += 0 if isinstance(event, Waiting) else now - mark
            mark = now
            yield event

    @property
    def _over(self) -> bool:
        """Whether the time of this part is used up."""
        return self._seconds is not None and self._used > self._seconds

    def _stop_at_limit(self) -> None:
        """Say that the time of this part is used up."""
        self.state = "limit"
        self.message = (
            f"seconds: the {self._seconds:.0f} s that a {self.kind} may compute at once on this "
            "public page are used up; nothing is lost, continue it"
        )


class TaskStore(Generic[T]):
    """Tasks of one kind by id.

    Tasks are dropped if LIFETIME_S is over since they were last used, and while `too_many` says so
    of all that are held: first those that were not started, then those of the owner who holds most,
    of these the ones used longest ago. Neither the newest nor one that is running is dropped.
    """

    def __init__(
        self, kind: str, too_many: Callable[[Collection[T]], bool], clock: Callable[[], float]
    ) -> None:
        self._kind, self._too_many, self._clock = kind, too_many, clock
        self._held: OrderedDict[str, tuple[T, float]] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, task: T) -> T:
        """Hold a new task."""
        with self._lock:
            self._held[task.id] = task, self._clock()
            self._drop()
        return task

    def get(self, name: Any) -> T:
        """The task of an id, which may be any untrusted value. Raises ValueError if it is gone."""
        with self._lock:
            self._drop()
            if isinstance(name, str) and name in self._held:
                found, _ = self._held.pop(name)
                self._held[name] = found, self._clock()
                return found
        raise ValueError(f"{self._kind}: it is no longer in memory; start it again")

    def _drop(self) -> None:
        oldest = self._clock() - LIFETIME_S
        for task in self._idle():
            if self._held[task.id][1] < oldest:
                del self._held[task.id]
        while (idle := self._idle()) and self._too_many([one for one, _ in self._held.values()]):
            tasks = Counter(task.owner for task, _ in self._held.values())
            rank = [(task.state in NOT_STARTED, tasks[task.owner]) for task in idle]
            del self._held[idle[rank.index(max(rank))].id]  # of equals the one used longest ago

    def _idle(self) -> list[T]:
        """The tasks that may be dropped, the one used longest ago first."""
        tasks = [task for task, _ in self._held.values()]
        return [task for task in tasks[:-1] if task.state != "running"]

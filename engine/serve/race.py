"""Race: lanes are loaded, share the models' lock and take turns step by step."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from engine.config.spec import RunSpec
from engine.core.control import MAX_PAUSE, Control, StoppedError
from engine.core.events import Event, RunFinished, Waiting
from engine.core.progress import with_progress
from engine.generate.branch import BranchPoint
from engine.serve.fair_queue import FairQueue, RunLock
from engine.serve.lane import AnyLane, make_lane
from engine.serve.loaded_model import LoadedModel, prepare_policies
from engine.serve.model_pool import ModelPool
from engine.vision import run_images

T = TypeVar("T")
HEARTBEAT = 0.2  # seconds between Waiting events


def wait_for_lock(lock: RunLock, control: Control) -> Iterator[Waiting]:
    """Yield Waiting events until the lock is held or the run is stopped."""
    while not lock.acquire(HEARTBEAT) and control.state != "stopped":
        yield lock.waiting()


@contextmanager
def without_runs(queue: FairQueue, control: Control | None = None) -> Iterator[None]:
    """Waits until no run computes, and lets none begin within.

    Raises QueueFullError if too many wait already, StoppedError if `control` is stopped before.
    """
    control = control or Control()
    queue.check_room(control.owner)
    lock = RunLock(queue, owner=control.owner)
    try:
        deque(wait_for_lock(lock, control), maxlen=0)
        if control.state == "stopped":
            raise StoppedError
        yield
    finally:
        lock.release()


def wait_while_paused(lock: RunLock, control: Control) -> Iterator[Waiting]:
    """Yield Waiting events while the run is paused, the lock released, and until it is held again.

    A run that is paused for more than MAX_PAUSE is stopped.
    """
    if control.state == "paused" and not control.take_turn():
        lock.release()
        deadline = time.monotonic() + MAX_PAUSE
        yield Waiting("paused")
        while not control.take_turn(HEARTBEAT) and control.state != "stopped":
            if time.monotonic() > deadline:
                control.stop()
            yield Waiting("paused")
    yield from wait_for_lock(lock, control)


def tagged(name: str, events: Generator[Waiting, None, T]) -> Generator[tuple[str, Event], None, T]:
    """The events with the name of their lane; returns the generator's value."""
    while True:
        try:
            yield name, next(events)
        except StopIteration as end:
            return end.value


def load_lanes(
    models: ModelPool,
    specs: Mapping[str, RunSpec],
    points: Mapping[str, BranchPoint | None],
    pictures: run_images.Pictures,
    control: Control,
) -> Generator[tuple[str, Event], None, dict[str, AnyLane] | None]:
    """Load the models of the specs and warm up a lane of each; None if the run is stopped."""
    lanes: dict[str, AnyLane] = {}
    encoded: run_images.Encoded = {}  # lanes of the same model share the rows of an image
    for name, spec in specs.items():
        tokens = len(models.prompt(spec) or ())
        loading = models.load_with_progress(spec, tokens)
        model = yield from tagged(name, with_progress(loading, "loading", spec.model, control))
        if model is None:
            return None
        prompt = models.run_prompt(spec)
        vision = model.vision if isinstance(model, LoadedModel) else None
        placed = () if prompt is None else prompt.images
        encoding = run_images.encode_images(vision, placed, pictures, encoded)
        images = yield from tagged(name, with_progress(encoding, "images", "", control))
        if images is None:
            return None
        if isinstance(model, LoadedModel):
            preparing = with_progress(
                prepare_policies(model, spec), "calibrating", spec.model, control
            )
            if (yield from tagged(name, preparing)) is None:
                return None
        lanes[name] = make_lane(model, spec, points[name], images)
        yield name, Waiting("warmup", what=spec.model)
        lanes[name].warm_up()
    return lanes


def run_lanes(
    lanes: Mapping[str, AnyLane], lock: RunLock, control: Control
) -> Iterator[tuple[str, Event]]:
    """Run lanes to their ends; the lane with the least engine time takes the next step.

    Only one lane computes at a time, so each runs at its own speed.
    """
    running = dict(lanes)
    lock.start_clock()
    while running:
        first = next(iter(running))
        for waiting in wait_while_paused(lock, control):
            yield first, waiting
        name = min(running, key=lambda lane: running[lane].clock)
        stopped = control.state == "stopped"
        event = running[name].finish("stopped") if stopped else running[name].advance()
        if isinstance(event, RunFinished):
            del running[name]
        else:
            lock.done += 1
        yield name, event

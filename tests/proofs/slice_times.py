"""Time, size and memory of every slice of a run of 8 billion parameters' size.

    python -m tests.proofs.slice_times [LAYERS STEPS POSITIONS]

It prints one row a slice: milliseconds by the clock, on a processor and from the cache, kilobytes
and those with gzip. It fails if a slice is beyond one of the bounds, which count the time on a
processor, because another program may hold the machine.
"""

from __future__ import annotations

import argparse
import resource
import sys
import threading
import time

import psutil

from inspector.handlers.slice_service import SliceService
from inspector.run_store import RaceRecord
from tests.inspector.slices_of import service_of
from tests.support.big_trace import make_big_trace

SHAPE = (32, 1024, 3072)
MAX_MS, MAX_BYTES, MAX_MEMORY = 100, 2_000_000, 1.2
ROUNDS = 3


def requests(layers: int, steps: int, positions: int) -> list[dict[str, str | int]]:
    """The parameters of each slice, heat maps with and without a screen's width."""
    layer, step, prompt = layers // 2, steps // 2, positions // 3
    screen = {"width": 1000, "height": 400}
    zoom = {"step_from": step, "step_to": min(step + 100, steps)}
    zoom |= {"position_from": positions // 6, "position_to": positions // 3}
    of_layer, of_step = {"quantity": "v", "layer": layer}, {"quantity": "v", "step": step}
    return [
        {"view": "frame"},
        {"view": "why"},
        {"view": "token", "position": prompt + 7},
        {"view": "plan", "layer": layer},
        {"view": "plan", "step": step},
        {"view": "plan", "part": "map", **of_layer},
        {"view": "plan", "part": "map", **of_layer, **screen},
        {"view": "plan", "part": "counts", "position_from": prompt},
        {"view": "drift", **of_layer},
        {"view": "drift", **of_layer, **screen},
        {"view": "drift", **of_layer, **zoom},
        {"view": "drift", **of_step},
        {"view": "drift", "part": "counts", "quantity": "v"},
        {"view": "drift", "part": "counts", "quantity": "v", "code": 100},
        {"view": "drift", "part": "counts", "quantity": "v", "code": 100, "position_from": prompt},
        {"view": "schedule", "part": "kinds"},
        {"view": "schedule", "part": "portion"},
        {"view": "queries", "part": "facts"},
        {"view": "queries", "part": "histogram", "layer": layer},
        {"view": "queries", "part": "reuse"},
        {"view": "queries", "part": "age", **of_layer},
        {"view": "queries", "part": "age", **of_layer, **screen},
        {"view": "scatter", "x": "v", "y": "ffn", "layer": layer},
        {"view": "scatter", "x": "v", "y": "ffn"},
        {"view": "scatter", "x": "q0", "y": "k"},
        {"view": "similarity", "part": "facts"},
        {"view": "similarity", "part": "map", **of_layer, "group": 1},
        {"view": "similarity", "part": "map", **of_layer, "group": 1, "width": 90, "height": 90},
        {"view": "similarity", "part": "row", **of_layer, "index": min(steps, 256) - 1},
        {"view": "error", "part": "facts"},
        {"view": "error", "part": "map", "quantity": "v", "probe": 3},
        {"view": "error", "part": "map", "quantity": "v", "layer": layer},
        {"view": "error", "part": "mean", "quantity": "v"},
        {"view": "error", "part": "recall", "quantity": "v"},
        {"view": "error", "part": "bound", "layer": layer},
        {"view": "error", "part": "predictions", "probe": 3},
        {"view": "lens", "part": "facts"},
        {"view": "lens", "part": "map", "probe": 3, "pass": "run", "position_from": prompt},
        {"view": "lens", "part": "ids", "probe": 3},
        {"view": "lens", "part": "layers", "probe": 3},
        {"view": "candidates", "part": "map", "position_from": prompt},
        {"view": "candidates", "part": "list", "step": step},
        {"view": "guider", "part": "facts"},
        {"view": "guider", "part": "map"},
        {"view": "guider", "part": "step", "step": step},
        {"view": "guider", "part": "points"},
    ]


def resident() -> int:
    """Bytes that this process holds in memory."""
    return int(psutil.Process().memory_info().rss)


def main() -> int:
    """Print the table; the exit status is 1 if a slice is beyond a bound."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, usual in zip(("layers", "steps", "positions"), SHAPE, strict=True):
        parser.add_argument(name, type=int, nargs="?", default=usual)
    shape = tuple(vars(parser.parse_args()).values())
    before = resident()
    record = RaceRecord(state="done", traces={"a": make_big_trace(*shape, prompt=shape[2] // 3)})
    arrays = sum(array.nbytes for array in record.traces["a"].arrays().values())
    service, held, most, failed = service_of(record), resident(), [0], False
    stop = threading.Event()
    watch = threading.Thread(target=lambda: most.append(_most(stop)), daemon=True)
    watch.start()
    base = {"run": record.run_id, "lane": "a", "version": record.version}
    print(f"arrays {arrays / 1e6:.0f} MB, resident with them {(held - before) / 1e6:.0f} MB")
    for asked in requests(*shape):
        given = {name: str(value) for name, value in (base | asked).items()}
        rounds = [_timed(service_of(record), given) for _ in range(ROUNDS)]
        wall, cpu = (min(times) for times in zip(*rounds, strict=True))
        whole, body = len(service.slice(given).data), service.slice(given, True)
        cached, _ = _timed(service, given)
        beyond = cpu > MAX_MS or whole > MAX_BYTES
        failed |= beyond
        name = " ".join(f"{key}={value}" for key, value in asked.items())
        print(
            f"{wall:6.1f} {cpu:6.1f} {cached:5.2f} ms {whole / 1e3:7.1f} "
            f"{len(body.data) / 1e3:6.1f} kB  {name}{'  BEYOND' * beyond}"
        )
    stop.set()
    watch.join()
    peak = (max(most) - before) / arrays
    print(f"peak {peak:.2f} of the arrays; process {resource.getrusage(0).ru_maxrss // 1024} MB")
    return int(failed or peak > MAX_MEMORY)


def _timed(service: SliceService, given: dict[str, str]) -> tuple[float, float]:
    """Milliseconds of a slice with gzip: by the clock, and of this thread on a processor."""
    start = time.perf_counter(), time.thread_time()
    service.slice(given, True)
    return 1e3 * (time.perf_counter() - start[0]), 1e3 * (time.thread_time() - start[1])


def _most(stop: threading.Event) -> int:
    """The most memory until `stop`, looked at every few milliseconds."""
    most = 0
    while not stop.wait(0.02):
        most = max(most, resident())
    return most


if __name__ == "__main__":
    sys.exit(main())

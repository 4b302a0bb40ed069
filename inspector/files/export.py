"""Traces as files: what a visitor takes away and brings back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import numpy as np

from engine.config.spec import RunSpec
from engine.trace.trace import MAX_BYTES, Trace
from inspector.files.replay import replay_page
from inspector.files.run_card import run_card
from inspector.files.tables import steps_table, tokens_table
from inspector.page_data.messages import Title
from inspector.protocol import LANES, Lane
from inspector.run_store import RaceRecord

RECORDED = "-recorded"


def write_race(record: RaceRecord, folder: Path, title: Title) -> list[str]:
    """Write all that a race gives, and return the paths.

    Of each lane the timed trace and the recorded one, as `.npz` and, where small, as `.json`,
    and its numbers as two tables; of the race a run card and a page that replays it.
    """
    head = f"driftscope-{record.run_id[:8]}"
    with record.lock:
        traces: dict[str, Trace] = dict(record.started())
        traces |= {lane + RECORDED: trace for lane, trace in record.recorded.items()}
        files: dict[str, bytes] = {}
        for name, trace in traces.items():
            files |= _trace_files(f"{head}-{name}", trace)
        for lane in record.started():
            trace = record.trace_for_views(lane) or traces[lane]
            files[f"{head}-{lane}-steps.csv"] = steps_table(trace).encode()
            files[f"{head}-{lane}-tokens.csv"] = tokens_table(trace).encode()
        card = json.dumps(run_card(record), ensure_ascii=False, indent=1)
        files[f"{head}-run-card.json"] = card.encode()
    files[f"{head}-replay.html"] = replay_page(record, title).encode()
    return [_write(folder / name, data) for name, data in files.items()]


def _trace_files(name: str, trace: Trace) -> dict[str, bytes]:
    """The forms of a trace that its size allows."""
    out = {}
    for suffix in ("npz", "json"):
        try:
            data = trace.to_bytes() if suffix == "npz" else trace.to_json().encode()
        except ValueError:
            continue
        out[f"{name}.{suffix}"] = data
    return out


def _write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def read_race(paths: Iterable[str | Path]) -> RaceRecord:
    """One or two trace files as a record; ValueError says what is wrong and the remedy.

    Beside each may be that of the same run recorded, which has its name and `-recorded`.
    """
    files = sorted((Path(path) for path in paths), key=lambda path: path.name)
    if sum(path.stat().st_size for path in files) > 2 * MAX_BYTES:
        raise ValueError(f"trace: the files are larger than {2 * MAX_BYTES // 1_000_000} MB")
    timed, recorded = _pairs(files)
    if not 1 <= len(timed) <= len(LANES):
        raise ValueError(
            "trace: give one file, or two to compare them, each with its -recorded one if you like"
        )
    record = RaceRecord(state="imported")
    for lane, path in zip(LANES, timed, strict=False):
        record.traces[lane] = _checked(Trace.load(path))
        if path.stem in recorded:
            record.recorded[lane] = _checked(Trace.load(recorded[path.stem]))
            _check_same(lane, record.traces[lane], record.recorded[lane])
    return record


def _pairs(files: list[Path]) -> tuple[list[Path], Mapping[str, Path]]:
    """The files that fill a lane, and those recorded of one of them by its stem."""
    stems = {path.stem for path in files}
    whose = {path: path.stem.removesuffix(RECORDED) for path in files}
    recorded = {whose[p]: p for p in files if whose[p] != p.stem and whose[p] in stems}
    return [path for path in files if whose[path] not in stems - {path.stem}], recorded


def _check_same(lane: Lane, timed: Trace, recorded: Trace) -> None:
    """Refuse a recording of another run than the one beside it."""
    one, other = ([t.canvas_at(t.steps), t.step_map()] for t in (timed, recorded))
    if not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True)):
        raise ValueError(
            f"trace: the recorded run of lane {lane.upper()} is not the timed one, its tokens "
            "differ; give the files apart"
        )


def _checked(trace: Trace) -> Trace:
    """A trace that the views can draw: one with an answer and a readable spec."""
    if trace.arrays()["prompt_mask"].all():
        raise ValueError("trace: nothing in it was decoded; export it again after a run")
    RunSpec.from_dict(trace.meta["spec"])
    return trace


def reader(folder: Path) -> Callable[[str], Trace]:
    """A function that reads a bundled trace of a folder by name, and keeps the latest read."""
    return lru_cache(32)(lambda name: Trace.load(folder / f"{name}.npz"))


def read_example(folder: Path) -> RaceRecord | None:
    """The finished race that the page opens with, and its record, if they are there."""
    paths = [folder / f"{lane}.npz" for lane in LANES]
    if not all(path.is_file() for path in paths):
        return None
    recorded = [folder / f"{lane}{RECORDED}.npz" for lane in LANES]
    record = read_race([*paths, *(path for path in recorded if path.is_file())])
    record.state = "example"
    return record

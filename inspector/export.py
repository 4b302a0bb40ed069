"""Traces as files: what a visitor takes away and brings back."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from engine.spec import RunSpec
from engine.trace import MAX_BYTES, Trace
from inspector.protocol import LANES
from inspector.shelf import Record


def write_race(record: Record, folder: Path) -> list[str]:
    """Write each lane as `.npz`, and as `.json` where it is small; return the paths."""
    out = []
    with record.lock:
        for lane, trace in record.started().items():
            for suffix in ("npz", "json"):
                path = folder / f"driftscope-{record.run_id[:8]}-{lane}.{suffix}"
                try:
                    trace.save(path)
                except ValueError:
                    continue
                out.append(str(path))
    return out


def read_race(paths: Iterable[str | Path]) -> Record:
    """One or two trace files as a record; ValueError says what is wrong and the remedy."""
    files = [Path(path) for path in paths]
    if not 1 <= len(files) <= len(LANES):
        raise ValueError("trace: give one file, or two to compare them")
    if sum(path.stat().st_size for path in files) > 2 * MAX_BYTES:
        raise ValueError(f"trace: the files are larger than {2 * MAX_BYTES // 1_000_000} MB")
    record = Record(state="imported")
    for lane, path in zip(LANES, sorted(files, key=lambda p: p.name), strict=False):
        record.traces[lane] = _checked(Trace.load(path))
    return record


def _checked(trace: Trace) -> Trace:
    """A trace that the views can draw: one with an answer and a readable spec."""
    if trace.arrays()["prompt_mask"].all():
        raise ValueError("trace: nothing in it was decoded; export it again after a run")
    RunSpec.from_dict(trace.meta["spec"])
    return trace


def read_example(folder: Path) -> Record | None:
    """The finished race that the page opens with, if one is recorded there."""
    paths = [folder / f"{lane}.npz" for lane in LANES]
    if not all(path.is_file() for path in paths):
        return None
    record = read_race(paths)
    record.state = "example"
    return record

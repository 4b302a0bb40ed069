"""Export and import of races: trace files, tables, the run card and the replay page."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import numpy as np

from engine.config.spec import RunSpec
from engine.trace.file_format import MAX_BYTES, NARROWER
from engine.trace.foreign.build import traces_of
from engine.trace.foreign.document import ForeignRun
from engine.trace.foreign.reader import load_run
from engine.trace.trace import Trace
from inspector.files.column_notes import STEPS, SUMMARY, TOKENS
from inspector.files.file_kinds import kind_of
from inspector.files.replay import Caches, replay_page
from inspector.files.run_card import run_card
from inspector.files.summary import summary_table
from inspector.files.tables import steps_table, tokens_table, written
from inspector.page_data import foreign
from inspector.page_data.messages import Title
from inspector.protocol import LANES, Lane
from inspector.run_store import RaceRecord

RECORDED = "-recorded"
MOST_MEMORY = 5  # of an import, in largest files: four traces, and what is beside their arrays


def write_race(
    record: RaceRecord,
    folder: Path,
    title: Title,
    caches: Caches = (),
    limit: int = MAX_BYTES,
) -> list[str]:
    """Write the files of a race to `folder` and return their paths.

    For each lane: the timed and the recorded trace as `.npz` and, if small enough, as `.json`. For
    the race: all tables in one archive, a run card and a replay page. A race that still runs ends
    in them at its last step so far. Raises ValueError naming the lane whose trace is too large for
    a file of `limit` bytes.
    """
    record, head = record.snapshot(), f"driftscope-{record.run_id[:8]}"
    if record.state == "running":
        record.state = "stopped"
    traces: dict[str, Trace] = dict(record.started())
    traces |= {lane + RECORDED: trace for lane, trace in record.recorded.items()}
    files: dict[str, bytes] = {}
    paths: list[str] = []
    for name, trace in traces.items():
        paths += _write_trace(folder / f"{head}-{name}", name, trace, limit)
    files[f"{head}-tables.zip"] = tables_archive(record, title)
    card = json.dumps(run_card(record), ensure_ascii=False, indent=1)
    files[f"{head}-run-card.json"] = card.encode()
    files[f"{head}-replay.html"] = replay_page(record, title, caches=caches).encode()
    return [*paths, *(_write(folder / name, data) for name, data in files.items())]


def tables_archive(record: RaceRecord, title: Title) -> bytes:
    """All tables of a race as a ZIP archive: the lanes, their steps and tokens, and the columns.

    `columns.csv` has a note on each column of the others.
    """
    tables = {"summary.csv": summary_table(record, title)}
    notes = [("summary.csv", *note) for note in SUMMARY.items()]
    for lane, timed in record.started().items():
        trace = record.trace_for_views(lane) or timed
        steps, tokens = steps_table(trace, timed), tokens_table(trace)
        for name, text, known in (("steps", steps, STEPS), ("tokens", tokens, TOKENS)):
            tables[f"{lane}-{name}.csv"] = text
            columns = text.partition("\n")[0].split(",")
            notes += [(f"{lane}-{name}.csv", column, known[column]) for column in columns]
    tables["columns.csv"] = written(("table", "column", "meaning"), notes)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in tables.items():
            archive.writestr(name, text.encode())
    return out.getvalue()


def _write_trace(path: Path, name: str, trace: Trace, limit: int) -> list[str]:
    """Write a trace as `.npz` and, if it is small, as `.json`; returns the paths.

    `name` is its lane, with RECORDED if it is the recorded trace. Raises ValueError naming both.
    """
    paths = [f"{path}.npz"]
    try:
        trace.save(paths[0], limit)
    except ValueError as error:
        kind = "recording" if name.endswith(RECORDED) else "trace"
        raise ValueError(f"Lane {name[0].upper()}, {kind}: {error}") from None
    with suppress(ValueError):  # too large for JSON
        paths.append(_write(Path(f"{path}.json"), trace.to_json().encode()))
    return paths


def _write(path: Path, data: bytes) -> str:
    path.write_bytes(data)
    return str(path)


def read_race(paths: Iterable[str | Path], limit: int = MAX_BYTES) -> RaceRecord:
    """Read one or two traces as a race.

    With each file its recorded trace may be given; it has the same name with `-recorded` added.
    Runs of other engines (engine.trace.foreign) are read as well. A file may have at most `limit`
    bytes, and the race may take MOST_MEMORY times as many in memory: texts and token ids take up to
    forty times the bytes that they have in a file.
    Raises ValueError, which says what is wrong and what to do.
    """
    files = sorted((Path(path) for path in paths), key=lambda path: path.name)
    if sum(path.stat().st_size for path in files) > 2 * limit:
        remedy = f"{NARROWER} and export again"
        if len(files) > 1:
            remedy = "import one run alone, or leave out the -recorded files"
        raise ValueError(f"trace: the files are larger than {2 * limit // 1_000_000} MB; {remedy}")
    timed, recorded = _pairs(files)
    if not 1 <= len(timed) <= len(LANES):
        raise ValueError(
            "trace: give one file, or two to compare; each may come with its -recorded file"
        )
    record = RaceRecord(state="imported")
    traces = traces_of([_loaded(path, limit) for path in timed])
    for lane, path, trace in zip(LANES, timed, traces, strict=False):
        record.traces[lane] = _checked(trace)
        if path.stem in recorded:
            record.recorded[lane] = _checked(_recording(recorded[path.stem], limit))
            _check_same(lane, record.traces[lane], record.recorded[lane])
    if (taken := record.nbytes()) > MOST_MEMORY * limit:
        remedy = "shorten the texts in it"
        if len(files) > 1:
            remedy = "import one run alone, without its -recorded file"
        raise ValueError(
            f"trace: the runs take {taken // 1_000_000} MB of memory, more than "
            f"{MOST_MEMORY * limit // 1_000_000}; {remedy}"
        )
    return record


def _loaded(path: Path, limit: int) -> Trace | ForeignRun:
    """The run of a file; ValueError says what the file is, if that is known, or what is wrong."""
    try:
        return Trace.load(path, limit)
    except ValueError as error:
        run = _foreign(path)
        if run is not None:
            return run
        kind = kind_of(path)
        if kind:
            raise ValueError(f"{path.name} is {kind}.") from None
        raise ValueError(f"{path.name}: {error}") from None


def _foreign(path: Path) -> ForeignRun | None:
    """The run of another engine in a file, None if it has none; ValueError names the file."""
    try:
        return load_run(path)
    except ValueError as error:
        raise ValueError(f"{path.name}: {error}") from None


def _recording(path: Path, limit: int) -> Trace:
    """The trace of a `-recorded` file, which only this engine writes."""
    found = _loaded(path, limit)
    if isinstance(found, ForeignRun):
        raise ValueError(f"{path.name} is a run of another engine; import it without -recorded.")
    return found


def _pairs(files: list[Path]) -> tuple[list[Path], Mapping[str, Path]]:
    """The files of the timed traces, and the recorded file of each by its stem."""
    stems = {path.stem for path in files}
    whose = {path: path.stem.removesuffix(RECORDED) for path in files}
    recorded = {whose[p]: p for p in files if whose[p] != p.stem and whose[p] in stems}
    return [path for path in files if whose[path] not in stems - {path.stem}], recorded


def _check_same(lane: Lane, timed: Trace, recorded: Trace) -> None:
    """Raise ValueError if `recorded` has other tokens than `timed`."""
    one, other = ([t.canvas_at(t.steps), t.step_map()] for t in (timed, recorded))
    if not all(np.array_equal(a, b) for a, b in zip(one, other, strict=True)):
        raise ValueError(
            f"trace: the recorded run of lane {lane.upper()} has other tokens than the timed run; "
            "import the two files separately"
        )


def _checked(trace: Trace) -> Trace:
    """The trace, if the views can draw it; ValueError if it has no answer or an invalid spec."""
    if trace.arrays()["prompt_mask"].all():
        raise ValueError("trace: it has no decoded tokens; export it again after a run")
    if foreign.facts(trace) is None:
        RunSpec.from_dict(trace.meta["spec"])
    return trace


def cached_reader(folder: Path) -> Callable[[str], Trace]:
    """A function that reads a trace of `folder` by name and caches the latest 32."""
    return lru_cache(32)(lambda name: Trace.load(folder / f"{name}.npz"))


def read_example(folder: Path) -> RaceRecord | None:
    """The recorded race that the page shows at first, or None if its files are missing."""
    paths = [folder / f"{lane}.npz" for lane in LANES]
    if not all(path.is_file() for path in paths):
        return None
    recorded = [folder / f"{lane}{RECORDED}.npz" for lane in LANES]
    record = read_race([*paths, *(path for path in recorded if path.is_file())])
    record.state = "example"
    return record

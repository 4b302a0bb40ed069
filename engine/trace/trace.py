"""Trace: a run as arrays, growing while it runs, for replay, and saved without pickle.

The arrays are those of engine.trace.schema.

`meta` (JSON): version, spec, model, environment, facts, guider (RunStarted.guider), reason, texts,
answer, metrics and message (RunFinished; older versions have no answer), `images`
(RunStarted.images) if the prompt has any, `stops` (RunStarted.stops) if the run has any, and
`foreign` if another engine decoded it (engine.trace.foreign). Of a branch, `meta.spec.start` names
the parent, `canvas` includes the tokens committed before that step, and `meta.steps_before` is
RunStarted.steps_before.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from engine.config.blocks import BlockGrid
from engine.core.events import RunFinished, RunStarted, StepEvent, Waiting
from engine.core.files import atomic_file
from engine.core.regions import REGIONS, recomputed_kinds, region_rows
from engine.trace import columns
from engine.trace.cells import EVERY, full_cells, known_layers
from engine.trace.file_format import MAX_BYTES, NARROWER, VERSION, read_document
from engine.trace.growing import GrowingArray
from engine.trace.npz import check_meta_size, write_npz
from engine.trace.schema import MAX_POSITIONS, MAX_STEPS, SCHEMA, check_arrays, empty_arrays

SMALL_BYTES = 2_000_000
FIRST_ROWS = 64  # for which memory is reserved in arrays whose length is not known
PER_STEP = ("S", "R", "A", "D", "U", "changed")  # dimensions of the schema that count steps


class Trace:
    """The record of a run of one sequence: append its events, then read its arrays."""

    def __init__(self) -> None:
        self.meta: dict[str, Any] = {"version": VERSION, "reason": "running"}
        self._arrays = empty_arrays()
        self._growing: dict[str, GrowingArray] = {}
        self._max_steps = 0
        self._pieces: dict[int, bytes] = {}
        self._guider_pieces: dict[int, bytes] = {}
        self._packed: dict[str, dict[str, np.ndarray]] = {}  # both as arrays, once asked for

    def append(self, event: Waiting | RunStarted | StepEvent | RunFinished) -> None:
        """Add the next event of the run; `Waiting` is ignored."""
        if isinstance(event, RunStarted):
            self._start(event)
        elif isinstance(event, StepEvent):
            self._step(event)
        elif isinstance(event, RunFinished):
            self.meta |= {"reason": event.reason, "texts": list(event.texts)}
            self.meta |= {"metrics": dict(event.metrics), "message": event.message}
            self.meta["answer"] = [int(i) for i in event.answer]
            if event.similarity is not None:
                self._arrays |= columns.of_similarity(event.similarity)

    @property
    def steps(self) -> int:
        """Steps recorded so far."""
        return len(self._growing["rows"] if "rows" in self._growing else self._arrays["rows"])

    @property
    def prompt_length(self) -> int:
        """Positions of the prompt, which come first."""
        return int(self._arrays["prompt_mask"].sum())

    @property
    def steps_before(self) -> int:
        """Steps of the runs that a branch continues; 0 of any other run.

        Older files do not say it: of them, those of the parent alone.
        """
        start = self.meta.get("spec", {}).get("start")
        own = start.get("step") if isinstance(start, Mapping) else 0
        found = self.meta.get("steps_before", own)
        return found if type(found) is int else 0

    @property
    def pieces(self) -> Mapping[int, bytes]:
        """Bytes of every token id that the run has shown."""
        return self._pieces

    @property
    def guider_pieces(self) -> Mapping[int, bytes]:
        """Bytes of every guider token id that the run has shown."""
        return self._guider_pieces

    def arrays(self) -> dict[str, np.ndarray]:
        """Every array of the schema; of a growing trace, the rows so far."""
        pieces = self._packed_pieces("", self._pieces)
        return self._rows() | pieces | self._packed_pieces("guider_", self._guider_pieces)

    @property
    def layers(self) -> int:
        """Layers of the model, as far as plans or drifts were recorded; 0 without them."""
        return known_layers(self._rows())

    def cells(
        self,
        name: str,
        steps: slice = EVERY,
        layers: slice = EVERY,
        quantities: slice = EVERY,
        positions: slice = EVERY,
    ) -> np.ndarray:
        """Drift codes at all places, blank where none was recorded; see `cells.full_cells`.

        `name` is `drift`, `probe_error`, `probe_moved` or `similarity`; or, with one quantity,
        `expert_changes` or `probe_expert_changes`, which hold numbers of experts.
        """
        return full_cells(self._rows(), name, steps, layers, quantities, positions)

    def snapshot(self) -> Trace:
        """A trace with the same arrays, not copied, that later events do not change."""
        found = Trace()
        found.meta, found._arrays = dict(self.meta), self.arrays()
        found._pieces, found._guider_pieces = dict(self._pieces), dict(self._guider_pieces)
        found._packed = dict(self._packed)
        return found

    @property
    def block_causal(self) -> bool:
        """Whether the run's model attends block by block, on a grid from position 0 on."""
        return self.meta["model"].get("attention") == "block_causal"

    @property
    def commit_calls(self) -> np.ndarray:
        """Whether a step only computed known rows for the cache (StepView.fills), bool [S].

        A run without a cache has no such step. Within its block it has the number of the next one.
        A run that was stopped may end with one: the first step of its block, which commits nothing.
        """
        arrays = self.arrays()
        block, within = arrays["block"], arrays["block_step"]
        calls = np.zeros(len(block), bool)
        if self.block_causal and len(block):
            calls[:-1] = (block[1:] == block[:-1]) & (within[1:] == within[:-1])
            first, last = (block[-2:-1] != block[-1]).all(), len(block) - 1
            cached = self.meta["spec"].get("cache", "none") != "none"
            calls[-1] = cached and first and not (arrays["commit_step"] == last).any()
        return calls

    def rows_in_sight(self) -> np.ndarray:
        """The number of rows, from the first, that each step attends to, int32 [S].

        Without a cache so many enter the step. A commit call attends to no row of the block that it
        comes before. Raises ValueError if the run's block length is unknown.
        """
        length, blocks = len(self.arrays()["canvas"]), self.arrays()["block"]
        if not self.block_causal:
            return np.full(len(blocks), length, np.int32)
        start, size = self._grid()
        seen = blocks.astype(np.int64) + ~self.commit_calls
        return np.minimum(start + size * seen, length).astype(np.int32)

    @property
    def logit_shift(self) -> int:
        """Rows by which the row whose logits give a token precedes it (ModelInfo.logit_shift)."""
        return int(self.meta["model"].get("logit_shift") == 1)

    @property
    def region_shift(self) -> int:
        """Rows from a row to the token whose region it belongs to (ModelInfo.region_shift)."""
        return 0 if self.block_causal else self.logit_shift

    def shared(self, size: int) -> int:
        """The positions of the first block that hold tokens of the prompt, for blocks of `size`."""
        return self.prompt_length % size if self.block_causal else 0

    def canvas_at(self, step: int) -> np.ndarray:
        """Token ids [T] before step `step`; `canvas_at(steps)` is the final canvas."""
        arrays = self.arrays()
        canvas = arrays["canvas"].copy()
        before = arrays["commit_step"] < step
        canvas[arrays["commit_position"][before]] = arrays["commit_id"][before]
        return canvas

    def step_map(self) -> np.ndarray:
        """The step [T] that committed each position; -1 if none did."""
        arrays = self.arrays()
        steps = np.full(arrays["canvas"].shape, -1, np.int32)
        steps[arrays["commit_position"]] = arrays["commit_step"]
        return steps

    def recompute_map(self, part: Any = slice(None)) -> np.ndarray:
        """Rows recomputed, bool [R, L, 4, T]; R is 0 unless the plans were recorded.

        `part` is an index into the plan [R, L, 4]: a whole map has 8 times the bytes of the plan.
        """
        arrays = self.arrays()
        plan = arrays["plan"][part]
        return np.unpackbits(plan, axis=-1, count=len(arrays["canvas"])).view(bool)

    def recomputed_kinds(self) -> np.ndarray:
        """Kinds of prompt, block and rest by the rows recomputed, uint8 [R, 3] (events.KINDS).

        `full`: every row, layer and site of the region was recomputed; `partial`: some; `reuse`:
        none; `frozen`: none in this or any later step. An empty region is `full`. Raises
        ValueError if the run's block length is unknown.
        """
        arrays = self.arrays()

        def areas(step: int) -> np.ndarray:
            return self.region_rows(np.array([step]))[0]

        return recomputed_kinds(arrays["plan"], areas, len(arrays["canvas"]))

    def region_rows(self, steps: np.ndarray) -> np.ndarray:
        """The rows of prompt, current block and rest in `steps`, bool [n, 3, T].

        Raises ValueError if the run's block length is unknown.
        """
        arrays, prompt, shift = self.arrays(), self.prompt_length, self.region_shift
        length, (first, size) = len(arrays["canvas"]), self._grid()
        starts = [first + size * int(index) for index in arrays["block"][steps]]
        found = np.empty((len(starts), len(REGIONS), length), bool)
        for rows, low in zip(found, starts, strict=True):  # in place: all may have 200 MB
            rows[:] = region_rows(prompt, slice(low, low + size), length, shift)
        return found

    def _grid(self) -> tuple[int, int]:
        """The first row of the first block, and the rows of a block."""
        prompt, size = self.prompt_length, self.meta["spec"].get("block_length")
        if type(size) is not int or not 1 <= size <= MAX_POSITIONS:
            raise ValueError("trace: meta.spec.block_length is missing")
        answer = len(self._arrays["canvas"]) - prompt
        return BlockGrid.of(prompt, answer, size, self.block_causal).start, size

    def to_bytes(self, limit: int = MAX_BYTES) -> bytes:
        """The trace as a compressed .npz file; ValueError if a reader with `limit` refuses it."""
        buffer = io.BytesIO()
        self._write(buffer, limit)
        return buffer.getvalue()

    def to_json(self) -> str:
        """A small trace as a JSON document.

        Raises ValueError if no run has started, if its arrays are larger than SMALL_BYTES or if its
        meta is too large.
        """
        arrays = self.arrays()
        if sum(a.nbytes for a in arrays.values()) > SMALL_BYTES:
            raise ValueError("trace: too large for JSON; save it as .npz")
        meta = self._document()
        rows = {k: {"shape": a.shape, "data": _plain(a)} for k, a in arrays.items()}
        return f'{{"meta": {meta}, "arrays": {json.dumps(rows)}}}'

    def save(self, path: Path | str, limit: int = MAX_BYTES) -> None:
        """Write a file, as JSON if its name ends in `.json`, else as .npz array by array.

        Raises ValueError if no run has started, or if a reader with `limit` would refuse the file.
        """
        path = Path(path)
        with atomic_file(path) as file:
            if path.suffix == ".json":
                file.write(self.to_json().encode())
            else:
                self._write(file, limit)

    @classmethod
    def load(cls, path: Path | str, limit: int = MAX_BYTES) -> Trace:
        """Read a file written by `save`, of at most `limit` bytes packed and unpacked.

        Its size, names, types, shapes and ranges are checked; ValueError says what is wrong.
        """
        with Path(path).open("rb") as file:
            return cls._read(file, os.fstat(file.fileno()).st_size, limit)

    @classmethod
    def from_bytes(cls, data: bytes, limit: int = MAX_BYTES) -> Trace:
        """As `load`, from the bytes of a file."""
        return cls._read(io.BytesIO(data), len(data), limit)

    @classmethod
    def _read(cls, file: IO[bytes], size: int, limit: int) -> Trace:
        try:
            return cls.of_arrays(*read_document(file, size, limit))
        except ValueError as error:
            remedy = "" if ";" in str(error) else "; export it again"
            raise ValueError(f"{error}{remedy}") from None

    @classmethod
    def of_arrays(cls, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Trace:
        """A trace of its meta and of all arrays of the schema, which are checked: ValueError."""
        trace = cls()
        trace.meta = meta
        trace._arrays = check_arrays(arrays, meta["model"].get("vocab_size"))
        trace._pieces = columns.to_pieces("", trace._arrays)
        trace._guider_pieces = columns.to_pieces("guider_", trace._arrays)
        trace._arrays |= columns.of_pieces("", {}) | columns.of_pieces("guider_", {})
        return trace

    def _write(self, file: IO[bytes], limit: int) -> None:
        arrays, meta = self.arrays(), self._document().encode()
        held = len(meta) + sum(array.nbytes for array in arrays.values())
        if held > limit - SMALL_BYTES:
            raise ValueError(
                f"trace: its {held // 1_000_000} MB are too large for a file of at most "
                f"{limit // 1_000_000} MB; {NARROWER}"
            )
        write_npz(file, meta, arrays)

    def _document(self) -> str:
        """`meta` as JSON; ValueError if no run has started or the document is too large."""
        if "model" not in self.meta:
            raise ValueError("trace: no run has started; append the events of a run first")
        document = json.dumps(self.meta)
        check_meta_size(len(document))
        return document

    def _start(self, event: RunStarted) -> None:
        if event.canvas.shape[0] != 1:
            raise ValueError("trace: holds one sequence; record the runs of a batch one by one")
        self.meta |= {"spec": dict(event.spec), "model": dict(event.model)}
        self.meta |= {"environment": dict(event.environment), "facts": dict(event.facts)}
        self.meta |= {"guider": dict(event.guider)}
        if event.images:
            self.meta |= {"images": [dict(image) for image in event.images]}
        if event.steps_before:
            self.meta |= {"steps_before": event.steps_before}
        if event.stops:
            self.meta |= {"stops": [list(series) for series in event.stops]}
        for name in ("canvas", "prompt_mask", "fixed_mask"):
            self._arrays[name] = getattr(event, name)[0]
        self._pieces |= event.pieces
        self._max_steps = _max_steps(event.spec)

    def _step(self, event: StepEvent) -> None:
        guided = len(self._growing.get("guided_count", ()))
        if event.guided is not None and guided < self.steps:
            self._add(columns.without_guider(self.steps - guided))
        elif event.guided is None and guided:
            self._add(columns.without_guider(1))
        self._add(columns.of_step(event, self._probes))
        found = event.recording
        if found is not None and found.cells is not None:
            self._arrays |= columns.of_cells(found.cells)
        if found is not None and found.probe is not None and found.probe.lens is not None:
            self._arrays["lens_position"] = found.probe.lens.positions
        self._pieces |= event.pieces
        if event.guided is not None:
            self._guider_pieces |= event.guided.pieces

    def _add(self, new: Mapping[str, np.ndarray]) -> None:
        """Append rows to the growing arrays."""
        for name, rows in new.items():
            if name not in self._growing:
                per_step = SCHEMA[name][1][0] in PER_STEP
                capacity = self._max_steps if per_step else FIRST_ROWS
                self._growing[name] = GrowingArray(SCHEMA[name][0], capacity)
            self._growing[name].append(rows)

    def _packed_pieces(self, prefix: str, pieces: Mapping[int, bytes]) -> dict[str, np.ndarray]:
        """`columns.of_pieces`, made again only if there are more: a run may have shown a million.

        Pieces are never changed or removed.
        """
        found = self._packed.get(prefix)
        if found is None or len(found[f"{prefix}piece_id"]) != len(pieces):
            found = self._packed[prefix] = columns.of_pieces(prefix, pieces)
        return found

    def _rows(self) -> dict[str, np.ndarray]:
        """The arrays without those of the token bytes."""
        return self._arrays | {name: array.rows for name, array in self._growing.items()}

    @property
    def _probes(self) -> int:
        """Probed steps so far."""
        return len(self._growing.get("probe_step", ()))


def _max_steps(spec: Mapping[str, Any]) -> int:
    """The most steps that a run of a spec takes; FIRST_ROWS if the spec does not say."""
    sizes = [spec.get(name) for name in ("steps", "gen_length")]
    known = [size for size in sizes if type(size) is int and 0 < size <= MAX_STEPS]
    return max(known, default=FIRST_ROWS)


def _plain(array: np.ndarray) -> list:
    if array.dtype.kind != "f":
        return array.ravel().tolist()
    return [x if math.isfinite(x) else None for x in array.ravel().tolist()]

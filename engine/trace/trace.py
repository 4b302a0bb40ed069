"""Trace: a run as arrays, growing while it runs, for replay, and saved without pickle.

The arrays are those of engine.trace.schema.

`meta` (JSON): version, spec, model, environment, facts, guider (RunStarted.guider), reason, texts,
metrics, message. Of a branch, `meta.spec.start` names the parent and `canvas` includes the tokens
committed before that step.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.core.events import RunFinished, RunStarted, StepEvent, Waiting
from engine.core.regions import recomputed_kinds, region_rows
from engine.trace import columns
from engine.trace.file_format import MAX_BYTES, VERSION, read_document
from engine.trace.schema import MAX_POSITIONS, check_arrays, empty_arrays

SMALL_BYTES = 2_000_000


class Trace:
    """The record of a run of one sequence: append its events, then read its arrays."""

    def __init__(self) -> None:
        self.meta: dict[str, Any] = {"version": VERSION, "reason": "running"}
        self._parts: dict[str, list[np.ndarray]] = {}
        self._arrays: dict[str, np.ndarray] = {}
        self._pieces: dict[int, bytes] = {}
        self._guider_pieces: dict[int, bytes] = {}

    def append(self, event: Waiting | RunStarted | StepEvent | RunFinished) -> None:
        """Add the next event of the run; `Waiting` is ignored."""
        if isinstance(event, RunStarted):
            self._start(event)
        elif isinstance(event, StepEvent):
            self._step(event)
        elif isinstance(event, RunFinished):
            self.meta |= {"reason": event.reason, "texts": list(event.texts)}
            self.meta |= {"metrics": dict(event.metrics), "message": event.message}
            if event.similarity is not None:
                self._add(columns.of_similarity(event.similarity))

    @property
    def steps(self) -> int:
        """Steps recorded so far."""
        return self._count("rows") or len(self._arrays.get("rows", ()))

    @property
    def pieces(self) -> Mapping[int, bytes]:
        """Bytes of every token id that the run has shown."""
        return self._pieces

    @property
    def guider_pieces(self) -> Mapping[int, bytes]:
        """Bytes of every guider token id that the run has shown."""
        return self._guider_pieces

    def arrays(self) -> dict[str, np.ndarray]:
        """Every array of the schema; see the table of this module."""
        if self._parts:
            self._parts = {name: [_joined(parts)] for name, parts in self._parts.items()}
            self._arrays = empty_arrays() | {name: part for name, (part,) in self._parts.items()}
        pieces = columns.of_pieces("", self._pieces)
        return self._arrays | pieces | columns.of_pieces("guider_", self._guider_pieces)

    def snapshot(self) -> Trace:
        """A trace with the same arrays, not copied, that later events do not change."""
        found = Trace()
        found.meta, found._arrays = dict(self.meta), self.arrays()
        found._pieces, found._guider_pieces = dict(self._pieces), dict(self._guider_pieces)
        return found

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
        areas = self.region_rows(np.arange(len(arrays["plan"])))
        return recomputed_kinds(arrays["plan"], areas, len(arrays["canvas"]))

    def region_rows(self, steps: np.ndarray) -> np.ndarray:
        """The rows of prompt, current block and rest in `steps`, bool [n, 3, T].

        Raises ValueError if the run's block length is unknown.
        """
        arrays, size = self.arrays(), self.meta["spec"].get("block_length")
        if type(size) is not int or not 1 <= size <= MAX_POSITIONS:
            raise ValueError("trace: meta.spec.block_length is missing")
        prompt, length = int(arrays["prompt_mask"].sum()), len(arrays["canvas"])
        shift = int(self.meta["model"].get("logit_shift") == 1)
        starts = [prompt + size * int(index) for index in arrays["block"][steps]]
        found = [region_rows(prompt, slice(lo, lo + size), length, shift) for lo in starts]
        return np.reshape(np.array(found, bool), (-1, 3, length))

    def to_bytes(self) -> bytes:
        """The trace as a compressed .npz file; ValueError if it is too large to be read again."""
        if sum(array.nbytes for array in self.arrays().values()) > MAX_BYTES - SMALL_BYTES:
            raise ValueError(
                f"trace: larger than {MAX_BYTES // 1_000_000} MB; record at a lower level or "
                "decode a shorter answer"
            )
        meta = np.frombuffer(json.dumps(self.meta).encode(), np.uint8)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, meta=meta, **self.arrays())  # type: ignore[arg-type]
        return buffer.getvalue()

    def to_json(self) -> str:
        """A small trace as a JSON document; ValueError if it is larger than SMALL_BYTES."""
        arrays = self.arrays()
        if sum(a.nbytes for a in arrays.values()) > SMALL_BYTES:
            raise ValueError("trace: too large for JSON; save it as .npz")
        rows = {k: {"shape": a.shape, "data": _plain(a)} for k, a in arrays.items()}
        return json.dumps({"meta": self.meta, "arrays": rows})

    def save(self, path: Path | str) -> None:
        """Write a file, as JSON if its name ends in `.json`, else as .npz."""
        path = Path(path)
        data = self.to_json().encode() if path.suffix == ".json" else self.to_bytes()
        path.write_bytes(data)

    @classmethod
    def load(cls, path: Path | str) -> Trace:
        """Read a file written by `save`; ValueError says what is wrong with it."""
        path = Path(path)
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"trace: the file is larger than {MAX_BYTES // 1_000_000} MB")
        return cls.from_bytes(path.read_bytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> Trace:
        """Read the bytes of a file; its size, names, types, shapes and ranges are checked."""
        if len(data) > MAX_BYTES:
            raise ValueError(f"trace: the file is larger than {MAX_BYTES // 1_000_000} MB")
        meta, arrays = read_document(data)
        trace = cls()
        trace.meta = meta
        trace._arrays = check_arrays(arrays, trace.meta["model"].get("vocab_size"))
        trace._pieces = columns.to_pieces("", trace._arrays)
        trace._guider_pieces = columns.to_pieces("guider_", trace._arrays)
        return trace

    def _start(self, event: RunStarted) -> None:
        if event.canvas.shape[0] != 1:
            raise ValueError("trace: holds one sequence; record the runs of a batch one by one")
        self.meta |= {"spec": dict(event.spec), "model": dict(event.model)}
        self.meta |= {"environment": dict(event.environment), "facts": dict(event.facts)}
        self.meta |= {"guider": dict(event.guider)}
        for name in ("canvas", "prompt_mask", "fixed_mask"):
            self._parts[name] = [getattr(event, name)[0]]
        self._pieces |= event.pieces

    def _step(self, event: StepEvent) -> None:
        self._add(columns.of_step(event, self._count("probe_step")))
        self._pieces |= event.pieces
        if event.guided is not None:
            self._guider_pieces |= event.guided.pieces

    def _add(self, new: Mapping[str, np.ndarray]) -> None:
        for name, value in new.items():
            self._parts.setdefault(name, []).append(value)

    def _count(self, name: str) -> int:
        return sum(map(len, self._parts.get(name, ())))


def _joined(parts: list[np.ndarray]) -> np.ndarray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _plain(array: np.ndarray) -> list:
    if array.dtype.kind != "f":
        return array.ravel().tolist()
    return [None if np.isnan(x) else x for x in array.ravel().tolist()]

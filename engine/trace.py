"""Trace: a finished or growing run as arrays, replayable and saved without pickle.

One schema, version 1. S steps, T positions, C commits, L layers, N candidates, P pieces, Z bytes.

| field | dtype | shape | unit |
|---|---|---|---|
| canvas | int32 | T | token ids before the first step |
| prompt_mask, fixed_mask | bool | T | prompt; given answer tokens |
| block, block_step | int32 | S | index |
| kind | uint8 | S | index into events.KINDS |
| rows, forwards, masks_left | int32 | S | count |
| forward_ms, decide_ms | float64 | S | milliseconds |
| flops | int64 | S, 5 | FLOPs by part (events.PARTS), all sequences and guidance branches |
| recomputed | float64 | S | share of token-layers recomputed |
| commit_step, commit_position, commit_id | int32 | C | step, position, token id |
| commit_confidence | float32 | C | probability; NaN where filled |
| piece_id | int32 | P | token id |
| piece_end | int32 | P | end offset in piece_bytes |
| piece_bytes | uint8 | Z | raw bytes of the tokens |
| plan | uint8 | R, L, 4, ceil(T/8) | bits of recomputed rows, sites k v attn ffn; R is S or 0 |
| candidate_step, candidate_position | int32 | N | step, position |
| candidate_id | int32 | N, K | token ids, best first |
| candidate_prob | float32 | N, K | probability |

`meta` (JSON): version, spec, model, environment, reason, texts, metrics, message.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from engine.events import KINDS, REASONS, RunFinished, RunStarted, StepEvent, Waiting
from engine.schema import SCHEMA, check_arrays, empty_arrays

VERSION = 1
MAX_BYTES = 64_000_000
SMALL_BYTES = 2_000_000


class Trace:
    """The record of one sequence's run; `append` its events, then read arrays and frames."""

    def __init__(self) -> None:
        self.meta: dict[str, Any] = {"version": VERSION, "reason": "running"}
        self._parts: dict[str, list[np.ndarray]] = {}
        self._arrays: dict[str, np.ndarray] = {}
        self._pieces: dict[int, bytes] = {}

    def append(self, event: Waiting | RunStarted | StepEvent | RunFinished) -> None:
        """Take the next event of the run; `Waiting` leaves no trace."""
        if isinstance(event, RunStarted):
            self._start(event)
        elif isinstance(event, StepEvent):
            self._step(event)
        elif isinstance(event, RunFinished):
            self.meta |= {"reason": event.reason, "texts": list(event.texts)}
            self.meta |= {"metrics": dict(event.metrics), "message": event.message}

    @property
    def steps(self) -> int:
        """Steps recorded so far."""
        return len(self._parts.get("rows", ())) or len(self._arrays.get("rows", ()))

    @property
    def pieces(self) -> Mapping[int, bytes]:
        """Raw bytes of every token id that the run has shown."""
        return self._pieces

    def arrays(self) -> dict[str, np.ndarray]:
        """Every array of the schema; see the module's table."""
        if self._parts:
            joined = {name: np.concatenate(parts) for name, parts in self._parts.items()}
            self._arrays = empty_arrays() | joined
        ids = sorted(self._pieces)
        data = [self._pieces[i] for i in ids]
        return self._arrays | {
            "piece_id": np.array(ids, np.int32),
            "piece_end": np.cumsum([len(b) for b in data], dtype=np.int32),
            "piece_bytes": np.frombuffer(b"".join(data), np.uint8),
        }

    def canvas_at(self, step: int) -> np.ndarray:
        """Token ids [T] before step `step` (so `steps` gives the last canvas)."""
        arrays = self.arrays()
        canvas = arrays["canvas"].copy()
        before = arrays["commit_step"] < step
        canvas[arrays["commit_position"][before]] = arrays["commit_id"][before]
        return canvas

    def step_map(self) -> np.ndarray:
        """Step [T] at which each position was committed; -1 where it never was."""
        arrays = self.arrays()
        steps = np.full(arrays["canvas"].shape, -1, np.int32)
        steps[arrays["commit_position"]] = arrays["commit_step"]
        return steps

    def recompute_map(self) -> np.ndarray:
        """Rows recomputed, bool [R, L, 4, T]; R is 0 unless the plans were recorded."""
        arrays = self.arrays()
        return np.unpackbits(arrays["plan"], axis=-1, count=len(arrays["canvas"])).astype(bool)

    def to_bytes(self) -> bytes:
        """The trace as a compressed .npz document."""
        meta = np.frombuffer(json.dumps(self.meta).encode(), np.uint8)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, meta=meta, **self.arrays())  # type: ignore[arg-type]
        return buffer.getvalue()

    def to_json(self) -> str:
        """A small trace as one JSON document; ValueError where it is not small."""
        arrays = self.arrays()
        if sum(a.nbytes for a in arrays.values()) > SMALL_BYTES:
            raise ValueError("trace: too large for JSON; save it as .npz")
        rows = {k: {"shape": a.shape, "data": _plain(a)} for k, a in arrays.items()}
        return json.dumps({"meta": self.meta, "arrays": rows})

    def save(self, path: Path | str) -> None:
        """Write `.npz`, or `.json` where the name ends so."""
        path = Path(path)
        data = self.to_json().encode() if path.suffix == ".json" else self.to_bytes()
        path.write_bytes(data)

    @classmethod
    def load(cls, path: Path | str) -> Trace:
        """Read what `save` wrote; ValueError says what is wrong with the file."""
        path = Path(path)
        if path.stat().st_size > MAX_BYTES:
            raise ValueError(f"trace: the file is larger than {MAX_BYTES // 1_000_000} MB")
        return cls.from_bytes(path.read_bytes())

    @classmethod
    def from_bytes(cls, data: bytes) -> Trace:
        """Read a document of either form, checked in size, names, types, shapes and ranges."""
        if len(data) > MAX_BYTES:
            raise ValueError(f"trace: the file is larger than {MAX_BYTES // 1_000_000} MB")
        try:
            meta, arrays = _read_npz(data) if data[:2] == b"PK" else _read_json(data)
        except Exception:  # zipfile, numpy and json raise a dozen kinds on damaged bytes
            raise ValueError("trace: the file is damaged or not a trace; export it again") from None
        trace = cls()
        trace.meta = _checked_meta(meta)
        trace._arrays = check_arrays(arrays, trace.meta["model"].get("vocab_size"))
        ends = [0, *trace._arrays["piece_end"].tolist()]
        raw = trace._arrays["piece_bytes"].tobytes()
        trace._pieces = {
            int(i): raw[lo:hi]
            for i, lo, hi in zip(trace._arrays["piece_id"], ends, ends[1:], strict=False)
        }
        return trace

    def _start(self, event: RunStarted) -> None:
        if event.canvas.shape[0] != 1:
            raise ValueError("trace: one sequence a trace; record the runs of a batch apart")
        self.meta |= {"spec": dict(event.spec), "model": dict(event.model)}
        self.meta["environment"] = dict(event.environment)
        for name in ("canvas", "prompt_mask", "fixed_mask"):
            self._parts[name] = [getattr(event, name)[0]]
        self._pieces |= event.pieces

    def _step(self, event: StepEvent) -> None:
        n = len(event.positions)
        row = {
            "block": event.block, "block_step": event.block_step, "kind": KINDS.index(event.kind),
            "rows": event.rows, "forwards": event.forwards, "masks_left": event.masks_left,
            "forward_ms": event.forward_ms, "decide_ms": event.decide_ms,
            "flops": event.flops, "recomputed": event.recomputed,
        }  # fmt: skip
        new = {name: np.array([value], SCHEMA[name][0]) for name, value in row.items()}
        new |= {"commit_step": np.full(n, event.step, np.int32), "commit_id": event.ids}
        new |= {"commit_position": event.positions, "commit_confidence": event.confidence}
        if event.recording is not None:
            seen = event.recording
            new |= {"plan": seen.plan[None], "candidate_position": seen.positions}
            new["candidate_step"] = np.full(len(seen.positions), event.step, np.int32)
            new |= {"candidate_id": seen.top_ids, "candidate_prob": seen.top_probs}
        for name, value in new.items():
            self._parts.setdefault(name, []).append(value)
        self._pieces |= event.pieces


def _plain(array: np.ndarray) -> list:
    if array.dtype.kind != "f":
        return array.ravel().tolist()
    return [None if np.isnan(x) else x for x in array.ravel().tolist()]


def _read_npz(data: bytes) -> tuple[Any, dict[str, np.ndarray]]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if len(archive.infolist()) > len(SCHEMA) + 1:
            raise ValueError
        if sum(info.file_size for info in archive.infolist()) > MAX_BYTES:
            raise ValueError
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        found = {name: arrays[name] for name in arrays.files}
    if not all(isinstance(array, np.ndarray) for array in found.values()):
        raise ValueError  # numpy hands a member that is no array over as bytes
    return json.loads(found.pop("meta").tobytes()), found


def _read_json(data: bytes) -> tuple[Any, dict[str, np.ndarray]]:
    document = json.loads(data)
    arrays = {}
    for name, item in document["arrays"].items():
        dtype = SCHEMA[name][0]
        flat = [np.nan if x is None else x for x in item["data"]]
        arrays[name] = np.array(flat, dtype).reshape(item["shape"])
    return document["meta"], arrays


def _checked_meta(meta: Any) -> dict[str, Any]:
    if not isinstance(meta, dict) or meta.get("version") != VERSION:
        raise ValueError(f"trace: version {VERSION} expected")
    if meta.get("reason") not in (*REASONS, "running"):
        raise ValueError("trace: meta.reason is unknown")
    for name in ("spec", "model", "environment"):
        if not isinstance(meta.get(name), dict):
            raise ValueError(f"trace: meta.{name} is missing")
    for name, kind in (("texts", list), ("metrics", dict), ("message", str)):
        if not isinstance(meta.get(name, kind()), kind):
            raise ValueError(f"trace: meta.{name} should be a {kind.__name__}")
    return meta

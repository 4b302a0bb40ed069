"""Document: the bytes of a trace file, read into meta and arrays and checked in size and form."""

from __future__ import annotations

import io
import json
import math
import zipfile
from typing import Any

import numpy as np

from engine.events import REASONS
from engine.schema import LATER, MAX_LAYERS, SCHEMA, empty_arrays

VERSION = 2
MAX_BYTES = 64_000_000
MAX_FACTS, MAX_NAME = 16, 32


def read(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The meta and the arrays of a document of either form and version, as of this version.

    Nothing is unpacked that exceeds MAX_BYTES. Raises ValueError saying what is wrong.
    """
    try:
        meta, arrays = _read_npz(data) if data[:2] == b"PK" else _read_json(data)
    except Exception:  # zipfile, numpy and json raise a dozen kinds on damaged bytes
        raise ValueError("trace: the file is damaged or not a trace; export it again") from None
    meta = _checked_meta(meta)
    if meta["version"] == 1:
        odd, new = sorted(set(arrays) & set(LATER)), empty_arrays()
        if odd:
            raise ValueError(f"trace: version 1 has no field {odd[0]!r}")
        arrays |= {name: new[name] for name in LATER}
    return meta | {"version": VERSION}, arrays


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
    version = meta.get("version") if isinstance(meta, dict) else None
    if type(version) is not int or not 1 <= version <= VERSION:
        raise ValueError(f"trace: version 1 to {VERSION} expected")
    if meta.get("reason") not in (*REASONS, "running"):
        raise ValueError("trace: meta.reason is unknown")
    for name in ("spec", "model", "environment"):
        if not isinstance(meta.get(name), dict):
            raise ValueError(f"trace: meta.{name} is missing")
    for name, kind in (("texts", list), ("metrics", dict), ("message", str)):
        if not isinstance(meta.get(name, kind()), kind):
            raise ValueError(f"trace: meta.{name} should be a {kind.__name__}")
    _check_facts(meta.setdefault("facts", {}))
    return meta


def _check_facts(facts: Any) -> None:
    if not isinstance(facts, dict) or len(facts) > MAX_FACTS:
        raise ValueError(f"trace: meta.facts should be a dict of at most {MAX_FACTS} names")
    for name, numbers in facts.items():
        few = isinstance(numbers, list) and len(numbers) <= MAX_LAYERS
        if len(name) > MAX_NAME or not few or not all(map(_is_finite, numbers)):
            raise ValueError(
                f"trace: meta.facts should hold lists of at most {MAX_LAYERS} finite numbers"
            )


def _is_finite(x: Any) -> bool:
    return (type(x) is float and math.isfinite(x)) or (type(x) is int and abs(x) < 2**53)

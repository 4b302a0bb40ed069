"""Reading of trace files (.npz or JSON) into meta and arrays, with checks of size and form."""

from __future__ import annotations

import json
import math
import re
from typing import IO, Any

import numpy as np

from engine.config.images import MAX_IMAGES, SIDE, image_rows
from engine.config.validation import MAX_STOPS
from engine.core.events import PARTS, REASONS
from engine.trace.npz import BadArchive, check_meta_size, read_npz
from engine.trace.schema import (
    ADDED_AFTER,
    MAX_LAYERS,
    MAX_POSITIONS,
    OLD_PARTS,
    SCHEMA,
    empty_arrays,
)

VERSION = 7
NARROWER = (
    "narrow record_every, record_layers, record_quantities or record_positions, record at a lower "
    "level or decode a shorter answer"
)
MAX_BYTES = 1_600_000_000  # of a file and of its arrays, unless a caller has another limit
MAX_JSON_BYTES = 16_000_000  # more than the largest trace that Trace.to_json accepts
MAX_STEPS_BEFORE = 2**31 - 1  # branches of branches have no other limit
MAX_FACTS, MAX_NAME, MAX_TEXT = 16, 32, 1_000
MAX_FACT = 2.0**53
IMAGE = {
    "name": str, "width": int, "height": int, "mode": str, "first": int, "rows": int, "crops": int,
    "grid": list, "map": list,
}  # fmt: skip
MODEL_NUMBERS = ("d_model", "n_heads", "logit_shift")  # that a what-if computes with
FOREIGN = {"method": str, "machine": str, "timed": bool, "texts": bool, "prompt": bool}
FOREIGN_SPEC = {
    "prompt": str, "model": str, "gen_length": int, "block_length": int, "steps": int,
}  # fmt: skip
SURROGATE = re.compile("[\ud800-\udfff]")
BY_TEXT = "by_text"  # bool, in newer files


def read_document(
    file: IO[bytes], size: int, limit: int
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The meta and the arrays of a trace file of `size` bytes, converted to the current version.

    Files, and archives that unpack to more than `limit` bytes, are refused unread. Raises
    ValueError saying what is wrong.
    """
    if size > limit:
        raise ValueError(
            f"trace: the file is larger than {limit // 1_000_000} MB; {NARROWER} and export again"
        )
    packed = file.read(2) == b"PK"
    file.seek(0)
    if not packed and size > MAX_JSON_BYTES:
        most = MAX_JSON_BYTES // 1_000_000
        raise ValueError(f"trace: as JSON larger than {most} MB; export it as .npz")
    try:
        if packed:
            text, arrays = read_npz(file, size, limit)
            meta = json.loads(text)
        else:
            meta, arrays = _read_json(file.read())
    except BadArchive:
        raise
    except Exception:  # zipfile, numpy and json raise a dozen kinds on damaged bytes
        raise ValueError("trace: the file is damaged or not a trace; export it again") from None
    meta = _checked_meta(meta)
    return meta | {"version": VERSION}, _upgraded(arrays, meta["version"])


def _upgraded(arrays: dict[str, np.ndarray], version: int) -> dict[str, np.ndarray]:
    """The arrays of an older version in the current one; ValueError for a field added later."""
    later = ADDED_AFTER.get(version, ())
    unknown, new = sorted(set(arrays) & set(later)), empty_arrays()
    if unknown:
        raise ValueError(f"trace: version {version} has no field {unknown[0]!r}")
    arrays = arrays | {name: new[name] for name in later}
    if version < 3 and "flops" in arrays:
        flops = arrays["flops"] if arrays["flops"].size else new["flops"][:, :OLD_PARTS]
        if flops.shape[1:] != (OLD_PARTS,):
            raise ValueError(f"trace: version {version} has {OLD_PARTS} parts of flops")
        arrays["flops"] = np.pad(flops, ((0, 0), (0, len(PARTS) - OLD_PARTS)))
    if version < 4 and np.ndim(arrays.get("drift", 0)) == 4 and len(arrays["drift"]):
        arrays |= _all_cells(arrays["drift"])
    return arrays


def _all_cells(drift: np.ndarray) -> dict[str, np.ndarray]:
    """The indices of every cell of `drift` [S, L, QUANTITIES, T], as version 4 records them."""
    names = ("drift_step", "recorded_layer", "recorded_quantity", "recorded_position")
    sizes = [min(size, MAX_POSITIONS + 1) for size in drift.shape]  # more is refused later
    return {n: np.arange(size, dtype=np.int32) for n, size in zip(names, sizes, strict=True)}


def _read_json(data: bytes) -> tuple[Any, dict[str, np.ndarray]]:
    document = json.loads(data)
    check_meta_size(len(json.dumps(document["meta"])))
    arrays = {}
    for name, item in document["arrays"].items():
        if name not in SCHEMA:
            raise BadArchive(f"trace: field {name[:40]!a} is unknown; export it again")
        try:
            arrays[name] = _json_array(item, SCHEMA[name][0])
        except Exception:  # numpy raises several kinds
            raise BadArchive(
                f"trace: {name} should have data of type {SCHEMA[name][0]} and their shape; "
                "export it again"
            ) from None
    return document["meta"], arrays


def _json_array(item: Any, dtype: str) -> np.ndarray:
    if "float" not in dtype and not all(type(x) in (int, bool) for x in item["data"]):
        raise ValueError("not whole")
    flat = [np.nan if x is None else x for x in item["data"]]
    return np.array(flat, dtype).reshape(item["shape"])


def _checked_meta(meta: Any) -> dict[str, Any]:
    version = meta.get("version") if isinstance(meta, dict) else None
    if type(version) is not int or not 1 <= version <= VERSION:
        raise ValueError(f"trace: version 1 to {VERSION} expected")
    if meta.get("reason") not in (*REASONS, "running"):
        raise ValueError("trace: meta.reason is unknown")
    _check_texts(meta)
    for name in ("spec", "model", "environment"):
        if not isinstance(meta.get(name), dict):
            raise ValueError(f"trace: meta.{name} is missing")
    _check_model(meta["model"])
    size = meta["spec"].get("block_length", 1)
    if type(size) is not int or not 1 <= size <= MAX_POSITIONS:
        raise ValueError(f"trace: meta.spec.block_length should be 1 to {MAX_POSITIONS}")
    for name, kind in (("texts", list), ("answer", list), ("metrics", dict), ("message", str)):
        if not isinstance(meta.get(name, kind()), kind):
            raise ValueError(f"trace: meta.{name} should be a {kind.__name__}")
    if not all(type(token) is int for token in meta.get("answer", ())):
        raise ValueError("trace: meta.answer should be a list of token ids")
    before = meta.get("steps_before", 0)
    if type(before) is not int or not 0 <= before <= MAX_STEPS_BEFORE:
        raise ValueError(f"trace: meta.steps_before should be 0 to {MAX_STEPS_BEFORE}")
    _check_facts(meta.setdefault("facts", {}))
    _check_guider(meta.setdefault("guider", {}))
    _check_stops(meta.get("stops", []))
    if "images" in meta:
        _check_images(meta["images"])
    if "foreign" in meta:
        _check_foreign(meta["foreign"], meta["spec"])
    return meta


def _check_model(model: dict[str, Any]) -> None:
    """Check the types of what a what-if computes with; older files lack some of it."""
    whole = all(type(model.get(name, 0)) is int for name in MODEL_NUMBERS)
    if not whole or not isinstance(model.get("block_sizes", []), list):
        names = ", ".join(MODEL_NUMBERS)
        raise ValueError(f"trace: meta.model should have whole numbers {names}, a list block_sizes")


def _check_texts(meta: dict[str, Any]) -> None:
    """Check that the page can be sent every text: UTF-8 has no lone surrogate."""
    for name, value in meta.items():
        if not (_is_text(name) and _is_text(value)):
            shown = ascii(name[:MAX_NAME])[1:-1]
            raise ValueError(
                f"trace: meta.{shown} holds half a character (a lone surrogate); export it again"
            )


def _is_text(document: Any) -> bool:
    """Whether UTF-8 has every text of a JSON document."""
    left = [document]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            left += [*value, *value.values()]
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str) and SURROGATE.search(value):
            return False
    return True


def _check_stops(stops: Any) -> None:
    """Check the texts that end the answer (events.RunStarted.stops)."""
    few = isinstance(stops, list) and len(stops) <= MAX_STOPS
    listed = few and all(isinstance(one, list) and 0 < len(one) <= MAX_TEXT for one in stops)
    if not listed or not all(type(token) is int for one in stops for token in one):
        raise ValueError(
            f"trace: meta.stops should list the token ids of at most {MAX_STOPS} stop texts"
        )


def _check_images(images: Any) -> None:
    """Check the images of a prompt (events.RunStarted.images)."""
    few = isinstance(images, list) and len(images) <= MAX_IMAGES
    if not few or not all(map(_is_image, images)):
        raise ValueError(
            f"trace: meta.images should list at most {MAX_IMAGES} images with {', '.join(IMAGE)}"
        )


def _is_image(image: Any) -> bool:
    if not isinstance(image, dict) or image.keys() != IMAGE.keys():
        return False
    pairs = [image[name] for name in ("grid", "map")]
    known = all(type(image[name]) is kind for name, kind in IMAGE.items()) and all(
        isinstance(pair, list) and len(pair) == 2 for pair in pairs
    )
    sizes = [n for pair in pairs for n in pair] if known else []
    numbers = [*sizes, *(image[name] for name, kind in IMAGE.items() if kind is int)]
    return (
        known
        and all(type(n) is int and 0 <= n <= MAX_POSITIONS for n in numbers)
        and len(image["name"]) <= MAX_TEXT
        and (image["mode"] == "anyres" or (image["mode"] == "pad" and image["map"] == [SIDE, SIDE]))
        and image["first"] + image["rows"] <= MAX_POSITIONS
        and image["rows"] == image_rows(image["mode"], *image["map"])
    )


def _check_foreign(foreign: Any, spec: dict[str, Any]) -> None:
    """Check what a trace says of a run that another engine decoded, and its settings."""
    named = isinstance(foreign, dict) and foreign.keys() - {BY_TEXT} == FOREIGN.keys()
    kinds = FOREIGN | {BY_TEXT: bool}
    if not named or not all(type(x) is kinds[n] and _is_plain(x) for n, x in foreign.items()):
        raise ValueError(f"trace: meta.foreign should have {', '.join(FOREIGN)} and nothing else")
    known = all(type(value) is FOREIGN_SPEC.get(name) for name, value in spec.items())
    if not known or not all(_is_plain(x) for x in spec.values() if type(x) is int):
        raise ValueError(
            f"trace: meta.spec of another engine's run may have {', '.join(FOREIGN_SPEC)} as texts "
            "and whole numbers, and nothing else"
        )


def _check_guider(guider: Any) -> None:
    few = isinstance(guider, dict) and len(guider) <= MAX_FACTS
    if not few or not all(len(n) <= MAX_NAME and _is_plain(x) for n, x in guider.items()):
        raise ValueError(f"trace: meta.guider should be a dict of at most {MAX_FACTS} plain values")


def _is_plain(x: Any) -> bool:
    short = isinstance(x, str) and len(x) <= MAX_TEXT
    return short or type(x) is bool or (type(x) is int and abs(x) < 2**53)


def _check_facts(facts: Any) -> None:
    if not isinstance(facts, dict) or len(facts) > MAX_FACTS:
        raise ValueError(f"trace: meta.facts should be a dict of at most {MAX_FACTS} names")
    for name, numbers in facts.items():
        few = isinstance(numbers, list) and len(numbers) <= MAX_LAYERS
        if len(name) > MAX_NAME or not few or not all(map(_is_small, numbers)):
            raise ValueError(
                f"trace: meta.facts should hold lists of at most {MAX_LAYERS} numbers "
                f"of at most {MAX_FACT:.0e}"
            )


def _is_small(x: Any) -> bool:
    return (type(x) is int or (type(x) is float and math.isfinite(x))) and abs(x) < MAX_FACT

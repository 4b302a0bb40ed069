"""The canvas of a lane as plain data: token ids, regions and token texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from engine.trace.trace import Trace
from inspector.page_data import foreign
from inspector.page_data.sizes import counted, size

TEXT_LIMIT = 20_000


def generation(trace: Trace) -> np.ndarray:
    """The positions of the answer, in reading order."""
    return np.flatnonzero(~trace.arrays()["prompt_mask"])


def block_length(trace: Trace) -> int:
    """Positions of a block; if the spec does not tell, all behind the prompt are one."""
    given = _whole(trace.meta["spec"].get("block_length")) or 0
    return given if given > 0 else max(len(generation(trace)), 1)


def known(trace: Trace) -> np.ndarray:
    """Answer tokens that are known before the first step, bool [T].

    These are the fixed tokens and, in a branch, the tokens that the parent decoded. If the model's
    mask id is unknown, only the fixed tokens.
    """
    arrays, mask = trace.arrays(), _whole(trace.meta["model"].get("mask_id"))
    decoded = np.False_ if mask is None else arrays["canvas"] != mask
    return ~arrays["prompt_mask"] & (arrays["fixed_mask"] | decoded)


def canvas_ids(trace: Trace) -> list[int]:
    """The token ids that the canvas has in some step; those of candidates come with their views."""
    arrays = trace.arrays()
    found: list[int] = np.unique(np.append(arrays["canvas"], arrays["commit_id"])).tolist()
    return found


def lane_start(trace: Trace, title: str) -> dict[str, Any]:
    """The data of a lane before its first step: title, prompt, sizes, model, environment.

    `length` counts all positions after the prompt, `answer` those of the answer, without a suffix
    and the rest of the last block. `canvas` maps indices in the answer to the token ids that are
    known before the first step; `given` are the indices of those that the settings give, so that
    a branch cannot mask them again. A branch continues a run after `before` steps
    (Trace.steps_before); `branch` has the ids that it changed first, by index in the answer (-1:
    masked again), and is None for any other run. `lacks` names what a run of another engine does
    not know (`foreign.lacks`).
    """
    arrays, model, spec = trace.arrays(), trace.meta["model"], trace.meta["spec"]
    shown = generation(trace)
    canvas, before = arrays["canvas"][shown], known(trace)[shown]
    branch = _edits(spec.get("start"))
    block = block_length(trace)
    return {
        "title": title if branch is None else f"{title}, from step {trace.steps_before + 1}",
        "before": trace.steps_before,
        "branch": branch,
        "prompt": arrays["canvas"][arrays["prompt_mask"]].tolist(),
        **({"images": trace.meta["images"]} if trace.meta.get("images") else {}),
        "canvas": {int(i): int(canvas[i]) for i in np.flatnonzero(before)},
        "given": np.flatnonzero(arrays["fixed_mask"][shown]).tolist(),
        "length": len(shown),
        "answer": min(_whole(spec.get("gen_length")) or len(shown), len(shown)),
        "block": block,
        "shared": trace.shared(block),
        "record": _short(spec.get("record")),
        "mask": _whole(model.get("mask_id")),
        "stop": stop_ids(model),
        "model": _short(model.get("name")),
        "vocabulary": _short(model.get("vocabulary")),
        "environment": environment(trace.meta["environment"]),
        "memory": memory(trace.meta["environment"]),
        "lacks": foreign.lacks(trace),
    }


def stop_ids(model: Mapping[str, Any]) -> list[int]:
    """The token ids that end a text."""
    given = model.get("stop_ids")
    ids = [*given] if isinstance(given, list | tuple) else []
    found = {_whole(i) for i in [*ids, model.get("eos_id")]}
    return sorted(i for i in found if i is not None)


def pieces(raw: Mapping[int, bytes], ids: Iterable[int]) -> dict[str, str | list[int]]:
    """Token texts by id: a string if the bytes are valid UTF-8, otherwise the list of bytes."""
    return {str(i): _piece(raw[i]) for i in ids if i in raw}


def environment(found: Mapping[str, Any]) -> str:
    """Device, data type, threads and torch version of a run, in one line."""
    threads = _whole(found.get("threads"))
    parts = [found.get("device"), found.get("device_name"), found.get("dtype")]
    parts.append(None if threads is None else counted(threads, "thread"))
    parts.append(f"torch {found['torch']}" if found.get("torch") else None)
    return " · ".join(_short(part) for part in parts if part)


def memory(found: Mapping[str, Any]) -> str:
    """Free device memory before and after the model was loaded; empty if unknown."""
    counts = [_whole(found.get(f"free_{when}_bytes")) for when in ("before", "after")]
    if None in counts:
        return ""
    before, after = (size(count or 0) for count in counts)
    return f"{before} were free before the model was loaded, {after} after"


def answer_text(trace: Trace) -> str:
    """The decoded answer of a finished run."""
    texts = trace.meta.get("texts")
    first = texts[0] if isinstance(texts, list) and texts else ""
    return first[:TEXT_LIMIT] if isinstance(first, str) else ""


def question(prompt: str) -> tuple[str, int]:
    """The last paragraph of a prompt, and the number of paragraphs before it."""
    parts = [part.strip() for part in prompt.split("\n\n") if part.strip()]
    if not parts:
        return "", 0
    return parts[-1].removeprefix("Question:").strip(), len(parts) - 1


def _piece(raw: bytes) -> str | list[int]:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)


def _edits(start: Any) -> dict[int, int] | None:
    """The edits of a branch by index in the answer; None if a run is no branch."""
    if not isinstance(start, Mapping):
        return None
    edits = start.get("edits")
    pairs = [tuple(pair) for pair in edits] if isinstance(edits, list) else []
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and {*map(type, pair)} == {int}}


def _whole(value: Any) -> int | None:
    return value if type(value) is int else None


def _short(value: Any) -> str:
    return str(value or "")[:80]

"""Traces of foreign runs: the arrays they have, and the facts that say what they lack.

What a run does not have is 0 in the arrays; `meta.foreign` says which of them are known, and every
reader of times, rows and FLOPs asks it first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from engine.trace.file_format import VERSION
from engine.trace.foreign.document import ForeignRun, Token
from engine.trace.metrics import steps_to_reveal
from engine.trace.schema import SCHEMA, empty_arrays
from engine.trace.trace import Trace


def placeholder(token: int) -> str:
    """What stands for a token whose text is not known."""
    return f"⟨{token}⟩"


class Numbering:
    """Ids of token texts, shared by the lanes of a race so that equal texts have equal ids."""

    def __init__(self, known: Iterable[tuple[int, bytes]] = ()) -> None:
        """Begin with known ids and their texts; the lowest id of a text counts."""
        pairs = sorted(known)
        self._ids: dict[str, int] = {}
        for token, piece in pairs:
            self._ids.setdefault(piece.decode(errors="replace"), token)
        self._free = 1 + max((token for token, _ in pairs), default=-1)

    def id_of(self, text: str) -> int:
        """The id of a text; a new text gets the next free one."""
        if text not in self._ids:
            self._ids[text] = self._free
            self._free += 1
        return self._ids[text]


def traces_of(lanes: Sequence[Trace | ForeignRun]) -> list[Trace]:
    """The traces of a race's lanes.

    Ids are kept where both lanes have those of one model, by its name, and no texts in place of
    them. Otherwise foreign runs whose texts are all known get ids by text, so that the lanes are
    compared by their texts. A run that names no end of text has that of the other lane.
    """
    same = len(lanes) > 1 and len({_model(lane) for lane in lanes}) == 1 and bool(_model(lanes[0]))
    same = same and all(isinstance(lane, Trace) or _has_ids(lane) for lane in lanes)
    native = [lane for lane in lanes if isinstance(lane, Trace)]
    numbering = Numbering(pair for trace in native for pair in trace.pieces.items())
    ends = {text for lane in lanes for text in _end_texts(lane)}
    out = []
    for lane in lanes:
        if isinstance(lane, Trace):
            out.append(lane)
            continue
        run = lane
        if not run.end_tokens:
            found = sorted((t for t in run.tokens if run.text_of(t) in ends), key=str)
            run = replace(run, end_tokens=tuple(found))
        keeps = _has_ids(run) and (same or len(lanes) == 1 or not run.is_spelt)
        out.append(trace_of(run, None if keeps else numbering))
    return out


def _has_ids(run: ForeignRun) -> bool:
    return not any(isinstance(token, str) for token in run.tokens)


def _end_texts(lane: Trace | ForeignRun) -> set[str]:
    """The texts of the tokens that end a lane's text."""
    if isinstance(lane, ForeignRun):
        return {text for token in lane.end_tokens if (text := lane.text_of(token))}
    model = lane.meta["model"]
    given = model.get("stop_ids")
    stops = [*(given if isinstance(given, list) else ()), model.get("eos_id")]
    return {
        lane.pieces[i].decode(errors="replace")
        for i in stops
        if type(i) is int and i in lane.pieces
    }


def trace_of(run: ForeignRun, numbering: Numbering | None = None) -> Trace:
    """The trace of a foreign run; ids are the run's own, or by text with a `numbering`."""
    ids: dict[Token, int] = {}
    for token in sorted(run.tokens, key=str):
        text = run.text_of(token)
        ids[token] = int(token) if numbering is None else numbering.id_of(str(text))
    mask = 1 + max(ids.values(), default=-1)
    texts = {ids[token]: run.text_of(token) for token in ids}
    pieces = {i: (placeholder(i) if text is None else text).encode() for i, text in texts.items()}
    stops = sorted({ids[token] for token in run.end_tokens})
    metrics, end = _metrics(run)
    shown = [token for token in _final(run)[:end] if token is not None]
    answer = "".join(run.text_of(token) or "" for token in shown)
    meta = {
        "version": VERSION,
        "reason": "done" if None not in _final(run)[:end] else "stopped",
        "spec": {
            "prompt": run.prompt, "model": run.model, "gen_length": len(run.start),
            "block_length": run.block_length, "steps": len(run.commits),
        },
        "model": {
            "name": run.model, "vocab_size": mask + 1, "mask_id": mask, "stop_ids": stops,
        },
        "environment": {"device_name": run.machine} if run.machine else {},
        "facts": {}, "guider": {}, "metrics": metrics, "message": "",
        "texts": [answer] if run.is_spelt else [],
        "foreign": {
            "method": run.method, "machine": run.machine, "timed": run.seconds is not None,
            "texts": run.is_spelt, "prompt": bool(run.prompt or run.prompt_tokens),
            "by_text": numbering is not None,
        },
    }  # fmt: skip
    return Trace.of_arrays(meta, _arrays(run, ids, mask, pieces))


def _model(lane: Trace | ForeignRun) -> str:
    return lane.model if isinstance(lane, ForeignRun) else str(lane.meta["model"].get("name", ""))


def _final(run: ForeignRun) -> list[Token | None]:
    canvas = list(run.start)
    for step in run.commits:
        for place, token in step:
            canvas[place] = token
    return canvas


def _arrays(
    run: ForeignRun, ids: dict[Token, int], mask: int, pieces: dict[int, bytes]
) -> dict[str, np.ndarray]:
    prompt, count = len(run.prompt_tokens), len(run.commits)
    canvas = [ids[token] for token in run.prompt_tokens]
    canvas += [mask if token is None else ids[token] for token in run.start]
    given = [False] * prompt + [token is not None for token in run.start]
    counts = [len(step) for step in run.commits]
    flat = [pair for step in run.commits for pair in step]
    sure = [run.confidences[place] for place, _ in flat]
    block, block_step = _blocks(run)
    known: dict[str, Any] = {
        "canvas": canvas,
        "prompt_mask": np.arange(len(canvas)) < prompt,
        "fixed_mask": given,
        "block": block,
        "block_step": block_step,
        "masks_left": given.count(False) - prompt - np.cumsum(counts),
        "forward_ms": np.array(run.seconds or [0.0] * count) * 1e3,
        "commit_step": np.repeat(np.arange(count), counts),
        "commit_position": [prompt + place for place, _ in flat],
        "commit_id": [ids[token] for _, token in flat],
        "commit_confidence": [np.nan if value is None else value for value in sure],
        "piece_id": sorted(pieces),
        "piece_end": np.cumsum([len(pieces[i]) for i in sorted(pieces)]),
        "piece_bytes": np.frombuffer(b"".join(pieces[i] for i in sorted(pieces)), np.uint8),
    }
    arrays = empty_arrays()
    for name in ("kind", "rows", "forwards", "decide_ms", "flops", "recomputed"):
        arrays[name] = np.zeros((count, *arrays[name].shape[1:]), SCHEMA[name][0])
    return arrays | {name: np.array(value, SCHEMA[name][0]) for name, value in known.items()}


def _blocks(run: ForeignRun) -> tuple[list[int], list[int]]:
    """The block of each step, that of its first commit, and the number of the step within it."""
    block: list[int] = []
    within: list[int] = []
    for step in run.commits:
        last = block[-1] if block else 0
        block.append(min((place // run.block_length for place, _ in step), default=last))
        within.append(within[-1] + 1 if within and block[-1] == last else 0)
    return block, within


def _metrics(run: ForeignRun) -> tuple[dict[str, float], int]:
    """The metrics that a foreign run has, and the place at which its text ends."""
    final, ends = _final(run), {*run.end_tokens}
    end = next((i for i, token in enumerate(final) if token in ends), len(final))
    revealed = np.full(len(final), -1)
    for number, step in enumerate(run.commits):
        revealed[[place for place, _ in step]] = number
    tokens, text = int((revealed[:end] >= 0).sum()), steps_to_reveal(revealed[:end])
    found: dict[str, float] = {
        "nfe": len(run.commits), "text_nfe": text, "tokens": tokens,
        "positions": int((revealed >= 0).sum()),
    }  # fmt: skip
    if run.seconds is not None:
        total = sum(run.seconds)
        found |= {
            "total_ms": 1e3 * total, "ms_per_step": 1e3 * total / len(run.commits),
            "text_ms": 1e3 * sum(run.seconds[:text]), "tokens_per_s": tokens / total,
            "positions_per_s": found["positions"] / total,
        }  # fmt: skip
    return found, end

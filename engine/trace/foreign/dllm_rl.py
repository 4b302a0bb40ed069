"""The trace viewer of dLLM-RL: the text of each answer token and the step that unmasked it.

The format is that of the page which `sample/get_trace_viewer.py` writes in
https://github.com/Gen-Verse/dLLM-RL (commit 10b4fd1, 2026-01-28) for a run of SDAR or TraDo on
JetEngine: HTML with a script element `data` of JSON, `pieces` [A] texts, `step_map` [A], the step
of each token from 1 (`first_unmask_times` of the engine; 0 if it has none) and `is_special` [A].
The JSON alone is read as well. Neither the prompt nor the model is in it.
"""

from __future__ import annotations

from typing import Any

from engine.trace.foreign.document import FORMAT, VERSION

METHOD = "dLLM-RL on JetEngine"
DATA, END = '<script id="data" type="application/json">', "</script>"


def embedded(page: str) -> str | None:
    """The JSON text in a page of the viewer; None if the page is another one."""
    _, start, rest = page.partition(DATA)
    text, end, _ = rest.partition(END)
    return text if start and end else None


def recognises(data: Any) -> bool:
    """Whether parsed JSON is the data of the viewer."""
    return isinstance(data, dict) and {"pieces", "step_map", "is_special"} <= data.keys()


def convert(data: dict[str, Any]) -> dict[str, Any]:
    """The data of the viewer as a document of the format `driftscope-run`.

    Special tokens end the text where the first of them stands that is followed by special tokens
    only; the text has no end if that token also stands before it. Raises ValueError naming the
    field if the lists do not fit.
    """
    pieces, when, special = (data[name] for name in ("pieces", "step_map", "is_special"))
    lists = all(isinstance(one, list) for one in (pieces, when, special))
    if not lists or not len(pieces) == len(when) == len(special):
        raise ValueError("step_map: pieces, step_map and is_special should be lists of one length")
    if 0 in when:
        raise ValueError(
            f"step_map: token {when.index(0) + 1} has step 0, which the engine writes for a token "
            "whose step it does not know; run it again without a forced end"
        )
    tail = len(special)
    while tail and special[tail - 1] is True:
        tail -= 1
    ends = [piece for piece in pieces[tail : tail + 1] if piece and piece not in pieces[:tail]]
    return {
        "format": FORMAT, "version": VERSION, "method": METHOD, "tokens": pieces,
        "step_map": when, "end_tokens": ends,
    }  # fmt: skip

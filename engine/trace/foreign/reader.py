"""Reading of foreign runs: which format a file has, and its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from engine.trace.file_format import MAX_JSON_BYTES
from engine.trace.foreign import d3llm, dllm_rl, strict_json
from engine.trace.foreign.document import ForeignRun, read_run

NAMES = (b'"format"', b'"trajectory"', b'"step_map"')  # one of them is in a file of each format


def load_run(path: Path) -> ForeignRun | None:
    """The run of a file of at most MAX_JSON_BYTES; None if it has none of the known formats.

    Raises ValueError naming the field and the remedy for a file of a known format that is broken.
    """
    size = path.stat().st_size
    if size > MAX_JSON_BYTES and path.suffix != ".npz":
        raise ValueError(
            f"file: as JSON larger than {MAX_JSON_BYTES // 10**6} MB; export a trace as .npz, or "
            "take one run out of the file with python -m engine convert"
        )
    text = b"PK" if size > MAX_JSON_BYTES else path.read_bytes()
    if text[:2] == b"PK" or not any(name in text for name in NAMES):
        return None
    document = as_document(parsed(text))
    return None if document is None else read_run(document)


def parsed(text: bytes) -> Any:
    """The JSON of a file, or in a page of dLLM-RL's viewer; ValueError if it is neither."""
    if text.lstrip()[:1] == b"<":
        inner = dllm_rl.embedded(text.decode(errors="replace"))
        if inner is None:
            raise ValueError("file: an HTML page without a run; the viewer of dLLM-RL has one")
        return strict_json.load(inner)
    return strict_json.load(text)


def as_document(data: Any, sample: int | None = None) -> dict[str, Any] | None:
    """A document of the format `driftscope-run` from parsed JSON of a known format, else None.

    `sample` counts from 1; without it, a file must have one sample only.
    """
    own = isinstance(data, dict) and "format" in data
    if sample not in (None, 1) and (own or dllm_rl.recognises(data)):
        raise ValueError(f"sample: the file has one run, no number {sample}; leave the option out")
    if own:
        return data
    if dllm_rl.recognises(data):
        return dllm_rl.convert(data)
    if not d3llm.recognises(data):
        return None
    if sample is None and d3llm.samples(data) > 1:
        raise ValueError(
            f"file: it has {d3llm.samples(data)} trajectories; choose one with "
            "python -m engine convert FILE --sample 1 --out run.json"
        )
    return d3llm.convert(data, sample or 1)

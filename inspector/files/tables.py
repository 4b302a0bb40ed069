"""Tables of a trace as CSV: one row per step, and one row per position."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from engine.core.drift_codes import NOT_EVALUATED
from engine.core.events import GUIDED, KINDS, PARTS, SITES
from engine.core.regions import REGIONS
from engine.trace.trace import Trace
from inspector.page_data import compare, foreign
from inspector.page_data.tokens import block_length, known
from inspector.views.schedule import rows_done

UNKNOWN = ("kind", "rows", "forward", "decide", "recomputed", "flops")  # of foreign runs
FORMULA = ("=", "+", "-", "@")


def safe(cell: Any) -> Any:
    """A cell value that a spreadsheet does not read as a formula.

    Numbers stay as they are; None and numbers that are not finite become empty. Every line break
    is a line feed, which the writer puts in quotes: a bare carriage return would begin a row.
    """
    if isinstance(cell, str):
        cell = cell.replace("\r\n", "\n").replace("\r", "\n")
        begins = cell.lstrip().startswith(FORMULA) or cell[:1] in ("\t", "\n")
        return "'" + cell if begins else cell
    if isinstance(cell, float) and not np.isfinite(cell):
        return ""
    return "" if cell is None else cell


def written(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table as CSV text with a header row."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([safe(cell) for cell in row] for row in rows)
    return out.getvalue()


def steps_table(trace: Trace, timed: Trace | None = None) -> str:
    """The table of steps: all arrays with one or a few values per step.

    Steps and blocks are numbered from 1; a branch counts on from its parent. Times are in ms. They
    are those of `timed`, the same run without the recorder, by default those of the trace itself,
    and empty if layers were recorded during that run.
    Cells that a run of another engine does not know are empty. The table has columns of shares by
    site and kinds by region if plans were recorded, and columns of the guider if there was one.
    """
    arrays = trace.arrays()
    columns: dict[str, list[Any]] = {}
    columns["step"] = [trace.steps_before + step + 1 for step in range(trace.steps)]
    columns["block"] = (arrays["block"] + 1).tolist()
    columns["block_step"] = (arrays["block_step"] + 1).tolist()
    columns["kind"] = [KINDS[kind] for kind in arrays["kind"]]
    for name in ("rows", "forwards", "masks_left"):
        columns[name] = arrays[name].tolist()
    times = _times(timed or trace, trace.steps)
    columns |= {name: times.pop(name) for name in ("forward_ms", "decide_ms")}
    columns["recomputed"] = arrays["recomputed"].tolist()
    columns["committed"] = np.bincount(arrays["commit_step"], minlength=trace.steps).tolist()
    for i, part in enumerate(PARTS):
        columns[f"flops_{part}"] = arrays["flops"][:, i].tolist()
    columns |= _guided(arrays) | times  # those of the guider
    if foreign.facts(trace) is not None:
        unknown = [name for name in columns if name.startswith(UNKNOWN)]
        columns |= dict.fromkeys(unknown, [None] * trace.steps)
    columns |= _planned(trace, arrays) | _experts(trace, arrays)
    return written([*columns], zip(*columns.values(), strict=True))


def _times(trace: Trace, steps: int) -> dict[str, list[Any]]:
    """The columns of times of a run; empty if layers were recorded or it has another `steps`."""
    arrays = trace.arrays()
    found = {name: arrays[name] for name in ("forward_ms", "decide_ms")}
    if len(arrays["guided_count"]):
        found["guider_ms"], found["guider_prefill_ms"] = arrays["guided_ms"].T
    known = compare.timed(trace) and trace.steps == steps
    return {name: own.tolist() if known else [None] * steps for name, own in found.items()}


def _guided(arrays: dict[str, np.ndarray]) -> dict[str, list[Any]]:
    """Columns of the guider's counts per step, if the run had a guider."""
    if not len(arrays["guided_count"]):
        return {}
    out = {f"guider_{name}": arrays["guided_count"][:, i].tolist() for i, name in enumerate(GUIDED)}
    return out | {"guider_nll": arrays["guided_nll"].astype(float).tolist()}


def _planned(trace: Trace, arrays: dict[str, np.ndarray]) -> dict[str, list[Any]]:
    """Columns of what each step recomputed, if plans were recorded."""
    out: dict[str, list[Any]] = {}
    if len(arrays["plan"]):
        share = rows_done(trace, 0, len(arrays["canvas"])).mean(1) / len(arrays["canvas"])
        out |= {f"share_{site}": share[:, i].tolist() for i, site in enumerate(SITES)}
        if "block_length" in trace.meta["spec"]:
            out |= _kinds("done", trace.recomputed_kinds())
    if len(arrays["planned"]):
        out |= _kinds("planned", arrays["planned"])
    if len(arrays["probe_step"]):
        probed = set(arrays["probe_step"].tolist())
        out["probed"] = [int(step in probed) for step in range(trace.steps)]
    return out


def _experts(trace: Trace, arrays: dict[str, np.ndarray]) -> dict[str, list[Any]]:
    """Columns of the changes of experts, over all layers, if they were recorded."""
    if not len(arrays["expert_changes"]):
        return {}
    rows, changed, mean = [], [], []
    for step in range(trace.steps):
        found = trace.cells("expert_changes", slice(step, step + 1))
        counts = found[found != NOT_EVALUATED]  # changed experts of each row computed again
        rows.append(len(counts))
        changed.append(float((counts > 0).mean()) if len(counts) else None)
        mean.append(float(counts.mean()) if len(counts) else None)
    return {"expert_rows": rows, "expert_changed": changed, "expert_changes": mean}


def _kinds(name: str, codes: np.ndarray) -> dict[str, list[Any]]:
    return {
        f"{name}_{region}": [KINDS[code] for code in codes[:, i]]
        for i, region in enumerate(REGIONS)
    }


def tokens_table(trace: Trace) -> str:
    """The table of positions: part, block, token id, text, step and confidence of its commit.

    Positions, blocks and steps are numbered from 1; a branch counts on from its parent. If plans
    were recorded, `recomputed_k` and so on are the numbers of (step, layer) pairs in which the row
    was recomputed.
    """
    arrays = trace.arrays()
    ids, when, parts = trace.canvas_at(trace.steps), trace.step_map(), _parts(trace)
    sure = np.full(len(ids), np.nan)
    sure[arrays["commit_position"]] = arrays["commit_confidence"]
    start, given = trace.prompt_length, known(trace) | arrays["prompt_mask"]
    size = block_length(trace)
    counts = _times_recomputed(trace) if len(arrays["plan"]) else None
    head = ["position", "part", "block", "id", "text", "given", "step", "confidence"]
    head += [f"recomputed_{site}" for site in SITES if counts is not None]
    rows = []
    for i, token in enumerate(ids.tolist()):
        block = (i - start + trace.shared(size)) // size + 1 if parts[i] == "answer" else None
        row = [i + 1, parts[i], block, token, _text(trace, token), int(given[i])]
        row += [trace.steps_before + int(when[i]) + 1 if when[i] >= 0 else None]
        rows.append([*row, float(sure[i]), *([] if counts is None else counts[:, i].tolist())])
    return written(head, rows)


def _times_recomputed(trace: Trace) -> np.ndarray:
    """The number of (step, layer) pairs that recomputed each row, by site, int64 [4, T]."""
    counts = np.zeros((len(SITES), len(trace.arrays()["canvas"])), np.int64)
    for step in range(trace.steps):  # one by one: a map has eight times the bytes of the plan
        counts += trace.recompute_map(step).sum(0)
    return counts


def _parts(trace: Trace) -> list[str]:
    """The part of each position; the given text after the answer is the `suffix`."""
    prompt, spec = trace.arrays()["prompt_mask"], trace.meta["spec"]
    length = spec.get("gen_length")
    ends = type(length) is int and length > 0 and spec.get("suffix")
    end = trace.prompt_length + length if ends else len(prompt)
    return ["prompt" if at else "answer" if i < end else "suffix" for i, at in enumerate(prompt)]


def _text(trace: Trace, token: int) -> str:
    """A token as text; bytes and characters that cannot be printed are shown as escapes."""
    raw = trace.pieces.get(token, b"").decode(errors="backslashreplace")
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in raw)

"""What a file is that was imported as a trace but is none, as far as its content tells."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

from engine.config.run_card import is_card
from engine.trace.file_format import MAX_JSON_BYTES
from engine.trace.npz import BoundedReads

HTML = b"<!doctype html"
REMEDY = "import the traces (.npz) that Prepare files made"


def kind_of(path: Path) -> str:
    """What a file is and what to import in its place; empty for a trace or a damaged file."""
    try:
        if zipfile.is_zipfile(path):
            with path.open("rb") as file, zipfile.ZipFile(BoundedReads(file)) as archive:
                trace = "meta.npy" in archive.namelist()
            return "" if trace else f"an archive without a trace; {REMEDY}"
        with path.open("rb") as file:
            if file.read(len(HTML)).lower() == HTML:
                return f"a web page; open a replay of Driftscope in a browser, or {REMEDY}"
        if path.stat().st_size > MAX_JSON_BYTES:
            return ""
        return _json_kind(json.loads(path.read_bytes()))
    except (ValueError, RecursionError, NotImplementedError, zipfile.BadZipFile):
        return ""


def _json_kind(document: Any) -> str:
    if not isinstance(document, dict):
        return f"a JSON file without a trace; {REMEDY}"
    if {"meta", "arrays"} <= document.keys():
        return ""
    if is_card(document):
        name = str(document.get("run", ""))[:8]
        return (
            "a run card: the settings and results of a race, without its steps; import the traces "
            f"of the same run, driftscope-{name}-a.npz and driftscope-{name}-b.npz"
        )
    if "gen_length" in document or document.keys() == {"a", "b"}:
        return "settings of a run, without its steps; import a trace (.npz) of the run"
    return f"a JSON file without a trace; {REMEDY}"

"""Files: what a visitor exports, imports, and looks at from the recorded runs of the app."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Any

import gradio as gr

from inspector import export
from inspector.handlers import Handlers, plain_words, visitor
from inspector.shelf import Record
from inspector.views import messages

KEPT_EXPORTS = 16
PLAIN = "plain"
READY = "Ready: traces, tables, a run card, and a page that replays the race without a server."


class Files:
    """Exports and imports of the handlers' visitors; `examples` is a folder of recorded runs."""

    def __init__(self, handlers: Handlers, examples: Path | None = None) -> None:
        self._handlers = handlers
        self._folder = tempfile.TemporaryDirectory(prefix="driftscope-")
        self._methods = examples / "methods" if examples else None
        self._trace = export.reader(self._methods or Path())

    def export(self, request: gr.Request) -> tuple[list[str] | None, str]:
        """The visitor's last race as files."""
        record = self._handlers.current(request)
        if record is None or not record.started():
            return None, "Nothing to export: press Run first."
        root = Path(self._folder.name)
        kept = sorted(root.iterdir(), key=lambda path: path.stat().st_mtime)
        for old in kept[: max(0, len(kept) - KEPT_EXPORTS + 1)]:
            shutil.rmtree(old, ignore_errors=True)
        folder = root / secrets.token_hex(8)
        folder.mkdir()
        return export.write_race(record, folder, self._handlers.form.words.title), READY

    def import_files(self, request: gr.Request, paths: list[str] | None) -> tuple[Any, str]:
        """Look at traces from files; nothing is computed."""
        if not paths:
            return gr.skip(), ""
        try:
            document = self._show(export.read_race(paths), request)
        except Exception as error:
            return gr.skip(), f"Not imported. {plain_words(error)}"
        return document, "Imported. Nothing is computed; the times are those of the file."

    def recorded(self) -> list[tuple[str, str]]:
        """Title and name of every method with a recorded run, as the catalog orders them."""
        paths = self._methods.glob("*.npz") if self._methods else ()
        found = {path.stem for path in paths}
        if PLAIN not in found:
            return []
        rows = [row for rows in self._handlers.form.words.methods.values() for row in rows]
        return [(str(row["title"]), row["name"]) for row in rows if row["name"] in found]

    def show_recorded(self, request: gr.Request, name: Any) -> Any:
        """Plain decoding beside a method's recorded run; nothing is computed."""
        if name not in [known for _, known in self.recorded()]:
            return gr.skip()
        try:
            record = Record(state="example")
            record.traces = {"a": self._trace(PLAIN), "b": self._trace(name)}
            prompt = str(record.traces["a"].meta["spec"].get("prompt", ""))
            record.expected = self._handlers.answers.expected(prompt)
            return self._show(record, request)
        except (ValueError, OSError) as error:
            return messages.notice("failed", f"This recorded run cannot be shown ({error}).")

    def _show(self, record: Record, request: gr.Request) -> str:
        document = messages.whole(record, self._handlers.form.words.title)
        self._handlers.shelf.put(record)
        self._handlers.desk.show(visitor(request), record.run_id)
        return document

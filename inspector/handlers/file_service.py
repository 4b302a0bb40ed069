"""File service: export and import of races, and the bundled recorded runs."""

from __future__ import annotations

import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import gradio as gr
from gradio.utils import get_upload_folder

from engine.trace.trace import Trace
from inspector.files import export
from inspector.files.run_card import race_of_file
from inspector.handlers.page_handlers import BUTTONS, Handlers, error_text, visitor_id
from inspector.page_data import compare, links, messages
from inspector.page_data.plan import race_plans
from inspector.run_store import RaceRecord
from inspector.server.upload_folder import EXPORTS

KEPT_EXPORTS = 40
MOST_EXPORTED = 10  # of all exports, in largest trace files; a race has up to four of these
PLAIN = "plain"
CARD = (
    "A run card: its race runs in the Run tab. A card of a single lane runs in lane B, beside "
    "plain decoding of its prompt."
)
RECORDED = "Choose a method to see its recorded run beside plain decoding. Nothing is run."
UNKNOWN_RUN = (
    "This page has no recorded run of the name in the link. Choose one under Recorded runs."
)
BUSY = "A run is going on: stop it or wait for its end, then choose again."
IMPORTED = "Imported. Nothing is computed. Times, if there are any, are those in the file."
READY = (
    "Ready: traces, a ZIP of all tables with a note on each column, a run card, and a page that "
    "replays the race without a server."
)


class FileService:
    """Handlers of exports, imports and recorded runs.

    `examples` is the folder of the bundled recorded runs, None if there are none.
    """

    def __init__(self, handlers: Handlers, examples: Path | None = None) -> None:
        self._handlers = handlers
        uploads = Path(get_upload_folder())
        uploads.mkdir(0o700, parents=True, exist_ok=True)
        self._folder = tempfile.TemporaryDirectory(prefix=EXPORTS, dir=uploads)
        self._exports: dict[Path, str] = {}  # the visitor of each, the oldest first
        self._lock = threading.Lock()
        self._methods = examples / "methods" if examples else None
        self._trace = export.cached_reader(self._methods or Path())

    @property
    def folder(self) -> Path:
        """The folder of all exports. Gradio may serve its files, and need not copy them."""
        return Path(self._folder.name)

    def export(self, request: gr.Request, run_id: Any) -> tuple[list[str] | None, str]:
        """Write the race of an id to files; returns their paths, or None, and a note."""
        try:
            record = self._handlers.shown(run_id)
        except ValueError as error:
            return None, f"Nothing to export. {error}"
        folder = self._new_folder(visitor_id(request))
        catalog = self._handlers.form.catalog
        caches, limit = catalog.methods["cache"], catalog.trace_bytes
        try:
            paths = export.write_race(record, folder, catalog.title, caches, limit)
            self._drop_beyond(MOST_EXPORTED * limit, folder)
            return paths, READY
        except OSError as error:
            said = f"The files cannot be written ({error.strerror}). Try again later."
        except Exception as error:
            said = error_text(error)
        shutil.rmtree(folder, ignore_errors=True)
        return None, f"Not exported. {said}"

    def _new_folder(self, who: str) -> Path:
        """A folder for a visitor's export.

        The visitor's exports but the last one are deleted, and of all visitors' those that are
        older than the last KEPT_EXPORTS.
        """
        folder = self.folder / secrets.token_hex(8)
        folder.mkdir(parents=True)  # empty folders may have been removed
        with self._lock:
            own = [path for path, owner in self._exports.items() if owner == who]
            self._exports[folder] = who
            extra = len(self._exports) - KEPT_EXPORTS
            old = dict.fromkeys([*own[:-1], *list(self._exports)[: max(extra, 0)]])
            for path in old:
                del self._exports[path]
        for path in old:
            shutil.rmtree(path, ignore_errors=True)
        return folder

    def _drop_beyond(self, limit: int, newest: Path) -> None:
        """Delete the oldest exports, but not `newest`, until all have at most `limit` bytes."""
        old = []
        with self._lock:
            sizes = {path: _bytes_in(path) for path in self._exports}
            held = sum(sizes.values())
            for path, size in sizes.items():
                if held > limit and path != newest:
                    held -= size
                    del self._exports[path]
                    old.append(path)
        for path in old:
            shutil.rmtree(path, ignore_errors=True)

    def import_files(self, request: gr.Request, paths: list[str] | None) -> tuple[Any, str, Any]:
        """Show traces from uploaded files; returns a message for the page, a note and the upload.

        Refused files leave the upload, so that they are not read again with the next ones.
        """
        if not paths:
            return gr.skip(), "", gr.skip()
        if self._handlers.is_live(request):
            return gr.skip(), f"Not imported. {BUSY}", None
        try:
            if race_of_file(paths) is not None:
                return gr.skip(), CARD, gr.skip()
            document = self._show(
                export.read_race(paths, self._handlers.form.catalog.trace_bytes), request
            )
        except Exception as error:
            return gr.skip(), f"Not imported. {error_text(error)}", None
        return document, IMPORTED, gr.skip()

    def run_card(self, request: gr.Request, paths: list[str] | None) -> Iterator[list[Any]]:
        """Run the race of an uploaded run card.

        Nothing is run for other files, for a wrong card, and while a run of the visitor goes on.
        """
        session = self._handlers.session
        if self._handlers.is_live(request):
            yield [gr.skip()] * (1 + len(BUTTONS))
            return
        try:
            race = race_of_file(paths) if paths else None
            if race is not None:
                race = session.resolve(race)
                race_plans(session, race)
        except Exception as error:
            text = f"The race of this card cannot run. {error_text(error)}"
            yield self._handlers.refusal(visitor_id(request), text)
            return
        if race is None:
            yield [gr.skip()] * (1 + len(BUTTONS))
            return
        yield from self._handlers.run_race(race, visitor_id(request))

    def recorded(self) -> list[tuple[str, str]]:
        """(title, name) of every method with a recorded run, in the order of the catalog."""
        paths = self._methods.glob("*.npz") if self._methods else ()
        found = {path.stem for path in paths}
        if PLAIN not in found:
            return []
        rows = [row for rows in self._handlers.form.catalog.methods.values() for row in rows]
        return [(str(row["title"]), row["name"]) for row in rows if row["name"] in found]

    def choose_recorded(self, request: gr.Request, name: Any) -> tuple[Any, Any]:
        """Show a chosen recorded run, unless a run of the visitor goes on.

        Returns a message and an update of the list.
        """
        if self._handlers.is_live(request):
            return gr.skip(), gr.update(value="", info=BUSY)
        return self.show_recorded(request, name), gr.update(info=RECORDED)

    def show_recorded(self, request: gr.Request, name: Any) -> Any:
        """Show plain decoding in lane A and a method's recorded run in lane B."""
        if name not in [known for _, known in self.recorded()]:
            return gr.skip()
        try:
            record = RaceRecord(state="example", bundled=name)
            challenger = self._trace(name)
            record.traces = {"a": self._plain(challenger), "b": challenger}
            return self._show(record, request)
        except (ValueError, OSError) as error:
            return messages.notice("failed", f"This recorded run cannot be shown ({error}).")

    def show_linked(self, request: gr.Request) -> tuple[Any, Any]:
        """Show the recorded run that the page's link names; returns a message and its name.

        If the run is unknown, the message says so, unless the link also has settings to run.
        """
        name = request.query_params.get("recorded")
        if name in [one for _, one in self.recorded()]:
            return self.show_recorded(request, name), name
        if not name or any(map(links.is_setting, dict(request.query_params))):
            return gr.skip(), gr.skip()
        return messages.notice("failed", UNKNOWN_RUN), gr.skip()

    def _plain(self, challenger: Trace) -> Trace:
        """Plain decoding by the challenger's end-of-text rule, if it was recorded."""
        name = f"{PLAIN}_{compare.end_of_text_rule(challenger)}"
        recorded = self._methods is not None and (self._methods / f"{name}.npz").is_file()
        return self._trace(name if recorded else PLAIN)

    def _show(self, record: RaceRecord, request: gr.Request) -> str:
        self._handlers.known_problems.fill_in(record)
        document = messages.whole(record, self._handlers.form.catalog.title)
        self._handlers.store.put(record)
        self._handlers.live_runs.show(visitor_id(request), record.run_id)
        return document


def _bytes_in(folder: Path) -> int:
    """The bytes of the files in a folder; 0 if it was removed."""
    with suppress(OSError):
        return sum(path.stat().st_size for path in folder.iterdir())
    return 0

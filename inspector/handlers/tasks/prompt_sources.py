"""Where the prompts of a tab come from: typed text, an uploaded file, or problems of a family."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gradio as gr

from engine.config.spec import MAX_PROMPT_FILE_BYTES
from inspector.handlers.page_handlers import error_text, visitor_id
from inspector.handlers.uploads import UnreadUploads
from inspector.page_data.sizes import counted

TYPED, FILE, PROBLEMS = "typed", "file", "problems"
KEPT_FILES = 256
KEPT_BYTES = 8 * MAX_PROMPT_FILE_BYTES  # of the files of all visitors
NO_FILE = "prompts: no file was uploaded; choose one, or type the prompts"
Count = Callable[[Mapping[str, Any]], tuple[int, int]]


class PromptSources:
    """The prompts that visitors chose, and the files that they uploaded.

    `count` gives the numbers of prompts and of known answers of a source; ValueError names what is
    wrong with it. `uploads` reads the files.
    """

    def __init__(self, count: Count, uploads: UnreadUploads) -> None:
        self._count, self._uploads = count, uploads
        self._files: OrderedDict[str, bytes] = OrderedDict()
        self._lock = threading.Lock()

    def take_file(self, request: gr.Request, path: str | None) -> str:
        """Read an uploaded JSONL file; returns what it holds, or what is wrong with it."""
        who = visitor_id(request)
        self.leave(who)
        if not path:
            return ""
        try:
            data = self._uploads.read(Path(path), MAX_PROMPT_FILE_BYTES)
            prompts, answers = self._count({"file": data})
        except Exception as error:
            return f"Not read. {error_text(error)}"
        with self._lock:
            self._files[who] = data
            while len(self._files) > KEPT_FILES or self._bytes() > KEPT_BYTES:
                self._files.popitem(last=False)
        return f"{counted(prompts, 'prompt')}, {answers} with an answer."

    def _bytes(self) -> int:
        return sum(map(len, self._files.values()))

    def leave(self, who: str) -> None:
        """Drop the file of a visitor."""
        with self._lock:
            self._files.pop(who, None)

    def chosen(
        self, who: str, source: Any, text: Any, problems: Mapping[str, Any]
    ) -> dict[str, Any]:
        """The chosen source as the engine takes it. ValueError if the file is missing."""
        if source == PROBLEMS:
            return {"problems": problems}
        if source != FILE:
            return {"text": text if isinstance(text, str) else ""}
        data = self._files.get(who)
        if data is None:
            raise ValueError(NO_FILE)
        return {"file": data}

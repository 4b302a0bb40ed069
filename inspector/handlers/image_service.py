"""ImageService: the images that visitors add to their prompts, in memory and never on disk."""

from __future__ import annotations

import base64
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from engine.config.images import MAX_IMAGES, ImageRef
from engine.config.spec import RunSpec
from inspector.handlers.uploads import read_upload
from inspector.protocol import Picture, Session

KEPT_BYTES = 256_000_000
LIFETIME_S = 3_600.0
NOT_AN_UPLOAD = "images: no file was uploaded; choose a PNG, JPEG, WebP, BMP or GIF file"
NEEDED = "{} is needed again: a link holds only the name of an image. Add the same file."
ErrorText = Callable[[Exception], str]


@dataclass(frozen=True)
class _Kept:
    """A picture, its owner and when it was used last."""

    picture: Picture
    used: float


class ImageService:
    """The pictures of each page load or API client, by their names.

    A picture is kept while its page is open and at most an hour after its last use; beyond
    KEPT_BYTES the ones used longest ago are dropped. Nobody gets the picture of another visitor.
    Files of more than `most` bytes are not read to their end, and files outside the folder
    `uploads` are neither read nor deleted.
    """

    def __init__(self, session: Session, most: int, error_text: ErrorText, uploads: Path) -> None:
        self._session, self._most, self._error_text = session, most, error_text
        self._uploads = uploads.resolve()
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, who: str, path: str | Path) -> str:
        """Read an uploaded image file, which is deleted; returns the picture's name.

        Raises ValueError naming `images`.
        """
        return self._keep(who, self._picture(path))

    def example(self, who: str) -> str:
        """Give the visitor the example image; returns its name."""
        return self._keep(who, self._session.example_image())

    def given(self, who: str, specs: Sequence[RunSpec]) -> dict[str, Picture]:
        """The visitor's pictures that the specs name; those that are gone are left out."""
        names = dict.fromkeys(name for spec in specs for name in spec.images)
        found = {name: self._get(who, name) for name in names}
        return {name: picture for name, picture in found.items() if picture is not None}

    def leave(self, who: str) -> None:
        """Drop the pictures of a visitor."""
        self._replace(who, ())

    # Handlers of the page.

    def take(self, paths: Any, who: str) -> tuple[Any, str]:
        """Read uploaded files; returns the names for the form, and HTML of them or the fault.

        All files are deleted, and their pictures are kept only if every file was read.
        """
        files = paths if isinstance(paths, list) else [paths] if paths else []
        try:
            if len(files) > MAX_IMAGES:
                raise ValueError(f"images: {len(files)} files; at most {MAX_IMAGES}")
            pictures = [self._picture(path) for path in files]
            names = [self._keep(who, picture) for picture in pictures]
            self._replace(who, names)
            return " ".join(names), self.shown(who, " ".join(names))
        except Exception as error:
            return gr.skip(), _note(self._error_text(error))
        finally:
            for path in files:
                with suppress(OSError, ValueError):
                    self._file(path).unlink()

    def shown(self, who: str, names: Any) -> str:
        """HTML of the images that a form names."""
        listed = str(names or "").split()[:MAX_IMAGES]
        return "".join(self._figure(who, name) for name in listed)

    def _figure(self, who: str, name: str) -> str:
        picture = self._get(who, name)
        if picture is None:
            return _note(NEEDED.format(name[:60]))
        ref = ImageRef.parse(name)
        data = base64.b64encode(picture.thumbnail()).decode()
        return (
            f'<figure class="ds-image" data-image="{escape(name)}"><img alt="The image of the '
            f'prompt" src="data:image/png;base64,{data}"><figcaption>{ref.width} × {ref.height} '
            f"pixels, {ref.digest[:8]}</figcaption></figure>"
        )

    def _picture(self, path: str | Path) -> Picture:
        """The picture of an uploaded file, which is deleted. Raises ValueError naming `images`."""
        try:
            data = read_upload(self._file(path), self._most)
        except OSError:
            raise ValueError(NOT_AN_UPLOAD) from None
        return self._session.read_image(data)

    def _file(self, path: str | Path) -> Path:
        """The path without links. Raises ValueError unless it is in the folder of the uploads."""
        try:
            file = Path(path).resolve()
        except (OSError, RuntimeError):
            raise ValueError(NOT_AN_UPLOAD) from None
        if not file.is_relative_to(self._uploads):
            raise ValueError(NOT_AN_UPLOAD)
        return file

    def _keep(self, who: str, picture: Picture) -> str:
        name = str(picture.ref)
        with self._lock:
            self._kept[who, name] = _Kept(picture, time.monotonic())
            self._kept.move_to_end((who, name))
            self._expire()
        return name

    def _replace(self, who: str, names: Sequence[str]) -> None:
        """Drop the pictures of a visitor but these."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == who and key[1] not in names]:
                del self._kept[key]

    def _get(self, who: str, name: str) -> Picture | None:
        with self._lock:
            self._expire()
            kept = self._kept.get((who, name))
            if kept is None:
                return None
            self._kept[who, name] = _Kept(kept.picture, time.monotonic())
            self._kept.move_to_end((who, name))
            return kept.picture

    def _expire(self) -> None:
        """Drop what was not used for long; the newest picture stays if the memory is exceeded."""
        oldest = time.monotonic() - LIFETIME_S
        while self._kept:
            first = next(iter(self._kept.values()))
            held = sum(len(kept.picture.png) for kept in self._kept.values())
            if first.used >= oldest and (held <= KEPT_BYTES or len(self._kept) == 1):
                break
            self._kept.popitem(last=False)


def _note(text: str) -> str:
    return f'<p class="ds-refusal" role="alert">{escape(text)}</p>'

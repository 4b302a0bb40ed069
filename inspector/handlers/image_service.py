"""ImageService: the images that visitors add to their prompts, in memory and never on disk."""

from __future__ import annotations

import base64
import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import gradio as gr

from engine.config.images import MAX_IMAGES, ImageRef
from engine.config.spec import RunSpec
from inspector.handlers.uploads import UnreadUploads
from inspector.protocol import Picture, Session

KEPT_BYTES = 512_000_000  # of all visitors; at least VISITOR_BYTES
VISITOR_BYTES = 256_000_000
AT_ONCE = 2  # images that are decoded at the same time; one takes up to 400 MB meanwhile
REMEMBERED = 1_000  # names of dropped pictures
LIFETIME_S = 3_600.0
NOT_AN_UPLOAD = "images: no file was uploaded; choose a PNG, JPEG, WebP, BMP or GIF file"
NEEDED = "{} is needed again: a link holds only the name of an image. {}"
ADD, CHOOSE = "Add the same file.", "Choose a model that takes images, then add the same file."
NEEDED_BY_RUN = (
    "images: {} is needed again, because a link, a trace and a run card hold only the name of an "
    "image. In Settings, choose the model {}, add the same file, and then try again"
)
DROPPED = (
    "images: {} was dropped, because newer images needed its place in memory. Add the same file; "
    "images that are scaled down to 2304 x 2304 take less memory, and a model sees no more."
)
ErrorText = Callable[[Exception], str]
Key = tuple[str, str]  # visitor and name


@dataclass(frozen=True)
class _Kept:
    """A picture, its owner and when it was used last."""

    picture: Picture
    used: float


class ImageService:
    """The pictures of each page load or API client, by their names.

    A picture is kept while its page is open and at most an hour after its last use. Nobody gets the
    picture of another visitor. Images of one upload that take more than VISITOR_BYTES are refused.
    Beyond VISITOR_BYTES of a visitor, the pictures that they used longest ago are dropped; beyond
    KEPT_BYTES of all, those of whoever holds most, but not the newest of the visitor who adds one.
    Files of more than `most` bytes are not read to their end, and files outside `folder`
    are neither read nor deleted; `uploads` reads the others.
    """

    def __init__(
        self,
        session: Session,
        most: int,
        error_text: ErrorText,
        folder: Path,
        uploads: UnreadUploads,
    ) -> None:
        self._session, self._most, self._error_text = session, most, error_text
        self._folder, self._uploads = folder.resolve(), uploads
        self._kept: OrderedDict[Key, _Kept] = OrderedDict()
        self._dropped: OrderedDict[Key, None] = OrderedDict()  # for lack of memory
        self._lock = threading.Lock()
        self._decoding = threading.BoundedSemaphore(AT_ONCE)

    def read(self, who: str, path: str | Path) -> str:
        """Read an uploaded image file, which is deleted; returns the picture's name.

        Raises ValueError naming `images`.
        """
        return self._keep(who, [self._picture(path)])[0]

    def example(self, who: str) -> str:
        """Give the visitor the example image; returns its name."""
        return self._keep(who, [self._session.example_image()])[0]

    def given(self, who: str, specs: Sequence[RunSpec]) -> dict[str, Picture]:
        """The visitor's pictures that the specs name; those that are unknown are left out.

        Raises ValueError naming `images` for one that was dropped for lack of memory.
        """
        names = dict.fromkeys(name for spec in specs for name in spec.images)
        found = {name: self._get(who, name) for name in names}
        for name, picture in found.items():
            if picture is None and (who, name) in self._dropped:
                raise ValueError(DROPPED.format(name))
        return {name: picture for name, picture in found.items() if picture is not None}

    def complete(self, who: str, specs: Sequence[RunSpec]) -> dict[str, Picture]:
        """The visitor's pictures that the specs of a run of the page name.

        Raises ValueError naming `images` for one that is missing; the message says where it can be
        added, because the form may have a model without an upload.
        """
        found = self.given(who, specs)
        for spec in specs:
            for name in spec.images:
                if name not in found:
                    raise ValueError(NEEDED_BY_RUN.format(name, spec.model))
        return found

    def leave(self, who: str) -> None:
        """Drop the pictures of a visitor."""
        with self._lock:
            self._forget(who, ())
            for key in [key for key in self._dropped if key[0] == who]:
                del self._dropped[key]

    # Handlers of the page.

    def take(self, paths: Any, who: str, before: Any = "") -> tuple[Any, str]:
        """Read uploaded files; returns the names for the form, and HTML of the images.

        All files are deleted, and their pictures are kept only if every file was read. Otherwise
        the form keeps the names `before`, and the HTML shows those images and the fault.
        """
        files = paths if isinstance(paths, list) else [paths] if paths else []
        unread = iter(files)
        try:
            if len(files) > MAX_IMAGES:
                raise ValueError(f"images: {len(files)} files; at most {MAX_IMAGES}")
            pictures = [self._picture(path) for path in unread]
            names = self._keep(who, pictures, alone=True)
            return " ".join(names), self.shown(who, " ".join(names))
        except Exception as error:
            return gr.skip(), self.shown(who, before) + _note(self._error_text(error))
        finally:
            for path in unread:
                with suppress(ValueError):
                    self._uploads.delete(self._file(path))

    def shown(self, who: str, names: Any, offered: bool = True) -> str:
        """HTML of the images that a form names; `offered`: its model takes images."""
        listed = str(names or "").split()[:MAX_IMAGES]
        return "".join(self._figure(who, name, ADD if offered else CHOOSE) for name in listed)

    def _figure(self, who: str, name: str, remedy: str) -> str:
        picture = self._get(who, name)
        if picture is None:
            said = DROPPED if (who, name) in self._dropped else NEEDED
            return _note(said.format(name[:60], remedy))
        ref = ImageRef.parse(name)
        with self._decoding:
            data = base64.b64encode(picture.thumbnail()).decode()
        return (
            f'<figure class="ds-image" data-image="{escape(name)}"><img alt="The image of the '
            f'prompt" src="data:image/png;base64,{data}"><figcaption>{ref.width} × {ref.height} '
            f"pixels, {ref.digest[:8]}</figcaption></figure>"
        )

    def _picture(self, path: str | Path) -> Picture:
        """The picture of an uploaded file, which is deleted. Raises ValueError naming `images`."""
        with self._decoding:
            try:
                data = self._uploads.read(self._file(path), self._most)
            except OSError:
                raise ValueError(NOT_AN_UPLOAD) from None
            return self._session.read_image(data)

    def _file(self, path: str | Path) -> Path:
        """The path without links. Raises ValueError unless it is in the folder of the uploads."""
        try:
            file = Path(path).resolve()
        except (OSError, RuntimeError):
            raise ValueError(NOT_AN_UPLOAD) from None
        if not file.is_relative_to(self._folder):
            raise ValueError(NOT_AN_UPLOAD)
        return file

    def _keep(self, who: str, pictures: Sequence[Picture], alone: bool = False) -> list[str]:
        """Keep the pictures of a prompt, `alone` instead of the visitor's others; their names.

        Raises ValueError naming `images` if they take more memory than a visitor may hold.
        """
        added = {(who, str(picture.ref)): picture for picture in pictures}
        _check_size(list(added.values()))
        with self._lock:
            if alone:
                self._forget(who, [name for _, name in added])
            for key, picture in added.items():
                self._kept[key] = _Kept(picture, time.monotonic())
                self._kept.move_to_end(key)
                self._dropped.pop(key, None)
            self._expire()
            self._make_room(who, list(added))
        return [str(picture.ref) for picture in pictures]

    def _make_room(self, who: str, added: Sequence[Key]) -> None:
        """Drop pictures until the memory suffices; those just added by `who` stay."""
        mine = [key for key in self._kept if key[0] == who and key not in added]
        while self._held()[who] > VISITOR_BYTES and mine:
            self._drop(mine.pop(0))
        current = {*[*mine, *added][-MAX_IMAGES:]}  # maybe of one prompt
        while (held := self._held()).total() > KEPT_BYTES:
            spare = [key for key in self._kept if key not in current]
            if not spare:
                break
            self._drop(max(spare, key=lambda key: held[key[0]]))  # the first of equals: the oldest

    def _held(self) -> Counter[str]:
        """Bytes that each visitor holds."""
        held: Counter[str] = Counter()
        for (who, _), kept in self._kept.items():
            held[who] += len(kept.picture.png)
        return held

    def _drop(self, key: Key) -> None:
        """Drop a picture for lack of memory, which is remembered."""
        del self._kept[key]
        self._dropped[key] = None
        if len(self._dropped) > REMEMBERED:
            self._dropped.popitem(last=False)

    def _forget(self, who: str, names: Sequence[str]) -> None:
        """Drop the pictures of a visitor but these."""
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
        """Drop what was not used for long."""
        oldest = time.monotonic() - LIFETIME_S
        while self._kept and next(iter(self._kept.values())).used < oldest:
            self._kept.popitem(last=False)


def _check_size(pictures: Sequence[Picture]) -> None:
    """Raise ValueError unless the pictures of a prompt fit into the memory of a visitor."""
    size = sum(len(picture.png) for picture in pictures)
    if size > VISITOR_BYTES:
        found, fewer = ("it takes", "") if len(pictures) == 1 else ("they take", "add fewer, or ")
        raise ValueError(
            f"images: packed as PNG, {found} {size / 1e6:.0f} MB of memory, and at most "
            f"{VISITOR_BYTES / 1e6:.0f} MB are kept for a visitor; {fewer}scale down to 2304 x "
            "2304 (nothing is lost: a model sees no more)"
        )


def _note(text: str) -> str:
    return f'<p class="ds-refusal" role="alert">{escape(text)}</p>'

"""ImageRef: how a spec, a run card, a link or a trace names an image, without its pixels."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

MAX_SIDE = 16_384  # pixels
MAX_IMAGES = 4
SIDE = 27  # patches of a side of a crop
_REF = re.compile(r"([1-9]\d{0,4})x([1-9]\d{0,4})-([0-9a-f]{32})")


class ImageRef(NamedTuple):
    """The size of an image in pixels, and 32 hex digits of SHA-256 over its size and pixels.

    Written as `640x480-<digest>`. The size gives the rows that the image takes on the canvas, so a
    run is planned without the image. The image itself is handed to a run beside its spec.
    """

    width: int
    height: int
    digest: str

    def __str__(self) -> str:
        return f"{self.width}x{self.height}-{self.digest}"

    @classmethod
    def parse(cls, text: Any) -> ImageRef:
        """Read what `str` writes. Raises ValueError naming `images`."""
        found = _REF.fullmatch(text) if isinstance(text, str) else None
        if found is None or max(int(found[1]), int(found[2])) > MAX_SIDE:
            raise ValueError(
                f"images: {str(text)[:60]!r} does not name an image; it should read WIDTHxHEIGHT-"
                "DIGEST, as it is shown where the image was added"
            )
        return cls(int(found[1]), int(found[2]), found[3])


def image_rows(mode: str, across: int, down: int) -> int:
    """Rows of an image on the canvas, by its mode and the size of its map in patches.

    In mode `pad` one crop and a newline; in mode `anyres` one crop of the whole image, and the map,
    each row of which ends with a newline.
    """
    return SIDE * SIDE + (1 if mode == "pad" else down * (across + 1))


def checked_images(given: Any) -> tuple[str, ...]:
    """The names of images. Raises ValueError naming `images` unless each is one, and few are."""
    if not isinstance(given, list | tuple):
        raise ValueError("images: expected a list of names of images")
    if len(given) > MAX_IMAGES:
        raise ValueError(f"images: {len(given)} images; at most {MAX_IMAGES}")
    return tuple(str(ImageRef.parse(one)) for one in given)

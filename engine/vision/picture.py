"""Picture: an uploaded image file, checked and decoded. Files are hostile."""

from __future__ import annotations

import hashlib
import io
import math
import warnings
from dataclasses import dataclass
from typing import NamedTuple

from PIL import Image, ImageOps

from engine.config.images import MAX_SIDE, ImageRef

FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
THUMBNAIL = 240
WHITE = (255, 255, 255)
OPENING_READS = 10_000  # a file with little beside its pixels takes about a hundred


class PictureLimits(NamedTuple):
    """The most bytes of an image file and the most pixels of the image."""

    file_bytes: int = 20_000_000
    pixels: int = 40_000_000


@dataclass(frozen=True)
class Picture:
    """An image in RGB, as PNG without any metadata of the uploaded file; `ref` names it."""

    ref: ImageRef
    png: bytes

    def rgb(self) -> Image.Image:
        """The pixels, 8 bits for each of three channels."""
        with Image.open(io.BytesIO(self.png), formats=("PNG",)) as image:
            return image.convert("RGB")

    def thumbnail(self) -> bytes:
        """The image as PNG with at most THUMBNAIL pixels a side."""
        small, out = self.rgb(), io.BytesIO()
        small.thumbnail((THUMBNAIL, THUMBNAIL))
        small.save(out, "PNG")
        return out.getvalue()

    @classmethod
    def of_image(cls, image: Image.Image) -> Picture:
        """A picture of an RGB image that is trusted."""
        assert image.mode == "RGB", "its pixels are digested as RGB"
        sha = hashlib.sha256(f"{image.width}x{image.height}".encode() + image.tobytes())
        out = io.BytesIO()
        image.save(out, "PNG", compress_level=1)
        return cls(ImageRef(image.width, image.height, sha.hexdigest()[:32]), out.getvalue())


def read_picture(data: bytes, limits: PictureLimits | None = None) -> Picture:
    """The picture of an image file: rotated as its EXIF data says, transparency on white.

    The size in the file's header is checked before its pixels are decoded. Raises ValueError naming
    `images` for a file that is too large, truncated, animated, damaged or no image.
    """
    limits = limits or PictureLimits()
    if len(data) > limits.file_bytes:
        raise ValueError(
            f"images: the file has {len(data) / 1e6:.1f} MB, and at most "
            f"{limits.file_bytes / 1e6:g} MB are read; save it smaller"
        )
    file = _Parts(data)
    try:
        with warnings.catch_warnings(), Image.open(file, formats=FORMATS) as image:
            warnings.simplefilter("ignore")  # of sizes, which are checked here
            file.left = math.inf
            _check_size(image, limits)
            _check_still(image, data)
            image.load()
            return Picture.of_image(_on_white(ImageOps.exif_transpose(image)))
    except Image.DecompressionBombError:
        raise ValueError(_too_many_pixels("more pixels than the library decodes", limits)) from None
    except _RefusedError as refused:
        raise ValueError(str(refused)) from None
    except Exception as error:  # PIL raises a dozen kinds on damaged bytes
        raise ValueError(_unreadable(error)) from None


class _RefusedError(Exception):
    """An image that is readable and not accepted."""


class _Parts(io.BytesIO):
    """The bytes of an image file, of which at most `left` parts are read.

    PIL joins the comments of a GIF and the EXIF data of a JPEG part by part, so that the time grows
    with the square of their number.
    """

    left: float = OPENING_READS

    def read(self, size: int | None = -1) -> bytes:
        """The next part. Raises _RefusedError if there are too many."""
        self.left -= 1
        if self.left < 0:
            raise _RefusedError(
                "images: the file has too many parts beside its pixels; save it again without "
                "its metadata"
            )
        return super().read(size)


def _check_size(image: Image.Image, limits: PictureLimits) -> None:
    width, height = image.size
    if width * height > limits.pixels:
        found = f"{width} x {height}, {width * height / 1e6:.0f} million pixels"
        raise _RefusedError(_too_many_pixels(found, limits))
    if not 1 <= min(width, height) <= max(width, height) <= MAX_SIDE:
        raise _RefusedError(
            f"images: it has {width} x {height} pixels; each side must have 1 to {MAX_SIDE}"
        )


def _too_many_pixels(found: str, limits: PictureLimits) -> str:
    return (
        f"images: it has {found}, and at most {limits.pixels / 1e6:g} million are decoded; scale "
        "it down (nothing is lost: a model sees at most 2304 x 2304)"
    )


def _check_still(image: Image.Image, data: bytes) -> None:
    frames = _gif_frames(data) if image.format == "GIF" else getattr(image, "n_frames", 1)
    if frames > 1 and image.format != "MPO":  # a JPEG with further pictures, such as a preview
        raise _RefusedError(
            f"images: an animation of {frames} frames; save the frame you mean as PNG or JPEG"
        )


def _gif_frames(data: bytes) -> int:
    """The number of frames of a GIF; PIL would also read what stands between them."""
    at, frames = 13 + _palette_bytes(data[10]), 0
    while at < len(data) - 10 and data[at] in b"!,":
        if data[at] == ord(","):
            frames += 1
            at += 11 + _palette_bytes(data[at + 9])
        else:
            at += 2
        while at < len(data) and data[at]:
            at += 1 + data[at]
        at += 1
    return frames


def _palette_bytes(flags: int) -> int:
    """The size of the colour table that `flags` of a GIF announce."""
    return 3 << ((flags & 7) + 1) if flags & 128 else 0


def _on_white(image: Image.Image) -> Image.Image:
    """The image in RGB; what is transparent becomes white."""
    if image.mode in ("I", "F") or image.mode.startswith("I;"):
        raise _RefusedError("images: it has more than 8 bits a channel; save it with 8 bits")
    if not image.has_transparency_data:
        return image.convert("RGB")
    alpha = image.convert("RGBA")
    ground = Image.new("RGBA", alpha.size, (*WHITE, 255))
    return Image.alpha_composite(ground, alpha).convert("RGB")


def _unreadable(error: Exception) -> str:
    if isinstance(error, OSError) and "truncated" in str(error):
        return "images: the file is truncated; copy or download it again"
    return (
        "images: the file is damaged or no image that is read here; give a PNG, JPEG, WebP, BMP or "
        "GIF file"
    )

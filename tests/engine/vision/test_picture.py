"""Image files: what is read, and what is refused by name."""

import io
import struct
import time
import zlib

import numpy as np
import pytest
from PIL import Image

from engine.config.images import ImageRef, checked_images
from engine.vision.picture import Picture, PictureLimits, read_picture
from tests.support.llada_v import image_file, plain


def png_header(width, height):
    """A PNG that names a size and has almost no pixels."""

    def chunk(kind, data):
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IDAT", zlib.compress(b"\0" * 1000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + body + chunk(b"IEND", b"")


def animation(kind):
    frames = [plain(8, 8, (n, 0, 0)) for n in (0, 90, 180)]
    return image_file(frames[0], kind, save_all=True, append_images=frames[1:])


NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (300, 300, 3), dtype=np.uint8))
COMMENTS = b"!\xfe\x01A\0" * 1_000_000
REFUSED = {
    "a GIF of a million comments": (
        b"GIF89a" + struct.pack("<HHBBB", 8, 8, 0, 0, 0) + COMMENTS,
        "too many parts",
    ),
    "fifty megapixels": (png_header(10_000, 5_000), "50 million pixels.*at most 40"),
    "a bomb": (png_header(100_000, 100_000), "10000 million pixels|library decodes"),
    "a long side": (png_header(20_000, 10), "each side must have 1 to 16384"),
    "a truncated JPEG": (image_file(NOISE, "JPEG")[:4_000], "truncated"),
    "a truncated PNG": (image_file(NOISE)[:4_000], "truncated|damaged"),
    "an animated GIF": (animation("GIF"), "animation of 3 frames"),
    "an animated WebP": (animation("WEBP"), "animation of 3 frames"),
    "16 bits": (image_file(Image.new("I;16", (4, 4))), "8 bits"),
    "text": (b"<svg onload=alert(1)>", "damaged or no image"),
    "nothing": (b"", "damaged or no image"),
    "PDF": (b"%PDF-1.4 %%EOF", "damaged or no image"),
    "many bytes": (b"\0" * 20_000_001, "at most 20 MB"),
}


def test_comments_behind_the_pixels_of_a_gif_are_not_read():
    image, began = plain(8, 8), time.monotonic()
    assert read_picture(image_file(image, "GIF")[:-1] + COMMENTS + b";").ref[:2] == (8, 8)
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("kind", REFUSED)
def test_hostile_files_are_refused_by_name(kind):
    data, words = REFUSED[kind]
    with pytest.raises(ValueError, match=f"^images: .*({words})"):
        read_picture(data)


def test_formats_that_pillow_reads_and_we_do_not_are_refused():
    for kind in ("TIFF", "ICO", "PPM", "TGA", "EPS"):
        with pytest.raises(ValueError, match=r"^images: .*no image that is read here"):
            read_picture(image_file(plain(16, 16), kind))


def test_the_first_picture_of_a_jpeg_with_several_is_read():
    """Cameras store previews and depths behind it (Multi-Picture Format)."""
    data = image_file(NOISE, "MPO", save_all=True, append_images=[plain(20, 10)])
    assert data[:3] == image_file(NOISE, "JPEG")[:3]
    assert read_picture(data).ref[:2] == NOISE.size


def test_limits_are_those_given():
    data = image_file(plain(100, 100))
    with pytest.raises(ValueError, match="100 x 100"):
        read_picture(data, PictureLimits(pixels=9_999))
    assert read_picture(data, PictureLimits(pixels=10_000)).ref[:2] == (100, 100)


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "BMP", "GIF"])
def test_lossless_formats_of_the_same_pixels_have_one_name(kind):
    options = {"lossless": True} if kind == "WEBP" else {}
    image = Image.effect_noise((20, 10), 64).convert("RGB")  # grey, so that GIF keeps it
    assert read_picture(image_file(image, kind, **options)) == Picture.of_image(image)


def test_a_photo_is_turned_by_its_exif_and_loses_its_metadata():
    image, exif = plain(30, 20, (10, 200, 30)), Image.Exif()
    image.paste((250, 0, 0), (0, 0, 10, 10))
    exif[0x0112] = 6  # turned by a quarter clockwise
    exif[0x010E] = "where it was taken"
    found = read_picture(image_file(image, "JPEG", exif=exif, quality=95, subsampling=0))
    assert found.ref[:2] == (20, 30)
    corner = found.rgb().getpixel((16, 3))
    assert corner[0] > 200
    assert b"where it was taken" not in found.png
    assert not Image.open(io.BytesIO(found.png)).getexif()


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_becomes_white(mode):
    image = Image.new("RGBA", (4, 4), (0, 0, 0, 0))
    image.paste((10, 20, 30, 255), (0, 0, 2, 4))
    found = read_picture(image_file(image.convert(mode))).rgb()
    assert found.getpixel((3, 3)) == (255, 255, 255)
    assert max(found.getpixel((0, 0))) < 40


def test_a_name_is_read_as_it_is_written_and_others_are_refused():
    ref = Picture.of_image(plain(30, 20)).ref
    assert ImageRef.parse(str(ref)) == ref
    assert checked_images([str(ref)]) == (str(ref),)
    wrong = ("", "x", "30x20", "0x20-" + "0" * 32, "30x20-" + "g" * 32, "99999x1-" + "0" * 32, 7)
    for name in (*wrong, "../" + str(ref)):
        with pytest.raises(ValueError, match=r"^images: "):
            checked_images([name])
    with pytest.raises(ValueError, match="at most 4"):
        checked_images([str(ref)] * 5)


def test_another_pixel_gives_another_name():
    image = plain(30, 20)
    before = Picture.of_image(image).ref
    image.putpixel((29, 19), (0, 0, 0))
    assert Picture.of_image(image).ref != before

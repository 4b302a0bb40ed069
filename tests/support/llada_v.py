"""The small LLaDA-V checkpoint of the recordings, image files and sessions for tests."""

import io
import shutil
from pathlib import Path

from PIL import Image
from safetensors.torch import load_file, save_file

from engine.serve.session import Session
from tests.support.browser import ROOT

MICRO = ROOT / "tests" / "goldens" / "llada-v" / "models" / "llada-v-micro-21"
NAME = MICRO.name


def image_file(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    """An image as the bytes of a file."""
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def plain(width: int, height: int, colour=(200, 60, 60)) -> Image.Image:
    """An image of one colour."""
    return Image.new("RGB", (width, height), colour)


def open_session(**options) -> Session:
    """A session with the small LLaDA-V and the embedded tiny LLaDA."""
    folders = {NAME: MICRO, "tiny-llada": ROOT / "assets/models/tiny-llada"}
    return Session(folders, **options)


def changed_copy(folder: Path, change) -> Path:
    """A copy of the checkpoint whose tensors were changed by `change`, a function of their dict."""
    shutil.copytree(MICRO, folder)
    tensors = load_file(MICRO / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return folder

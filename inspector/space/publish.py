"""Make one commit of this repository that can be pushed to a Hugging Face Space.

The Hub refuses a git push that contains a binary file outside LFS and Xet, or a file over 10 MB.
`python -m inspector.space` makes the branch `space`: one commit without a parent, with the files
that the app needs and without tests. Each binary file is stored as base64 text, with `.b64` added
to its name. `unpack` restores these files when the app starts.
"""

from __future__ import annotations

import base64
import io
import os
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUFFIX = ".b64"
KEPT = ("app.py", "LICENSE", "README.md", "requirements.txt")
FOLDERS = ("assets/", "engine/", "inspector/")
PICTURES = ".png"  # used only by the README
TRAINING = "assets/training/"  # weights that the app does not load
LINE = 76 * 1024
HARDWARE = {"cpu": "cpu-basic", "gpu": "l40sx1", "zero": "zero-a10g"}
ZERO_TORCH = "torch>=2.9,<2.12"  # ZeroGPU supports torch up to 2.11
MODELS = re.compile(r"^(models|preload_from_hub):\n(- .*\n)+", re.M)


def unpack(folder: Path) -> None:
    """Restore every packed file under a folder, unless the restored file already exists."""
    for packed in folder.rglob("*" + SUFFIX):
        plain = packed.with_name(packed.name.removesuffix(SUFFIX))
        if not plain.exists():
            part = plain.with_name(plain.name + ".part")
            part.write_bytes(base64.b64decode(packed.read_bytes()))
            part.replace(plain)


def is_binary(data: bytes) -> bool:
    """Whether bytes are not text: they contain a NUL or are not valid UTF-8."""
    try:
        return "\0" in data.decode()
    except UnicodeDecodeError:
        return True


def packed(data: bytes) -> bytes:
    """Encode bytes as lines of base64."""
    text = base64.b64encode(data)
    return b"".join(text[i : i + LINE] + b"\n" for i in range(0, len(text), LINE))


def readme(text: str, kind: str) -> str:
    """The README with the front matter of a kind of Space; a CPU Space lists no models."""
    end = text.index("\n---\n") + 1
    front, rest = text[:end], text[end:]
    front = re.sub(r"(?m)^suggested_hardware: .*$", f"suggested_hardware: {HARDWARE[kind]}", front)
    return (MODELS.sub("", front) if kind == "cpu" else front) + rest


def files(kind: str) -> Iterator[tuple[str, bytes]]:
    """Path and bytes of every file of a Space, taken from HEAD."""
    with tarfile.open(fileobj=io.BytesIO(git("archive", "HEAD"))) as found:
        for member in found:
            name, held = member.name, found.extractfile(member)
            kept = name in KEPT or (name.startswith(FOLDERS) and not name.startswith(TRAINING))
            if held is None or not kept or name.endswith(PICTURES):
                continue
            data = held.read()
            if name == "README.md":
                data = readme(data.decode(), kind).encode()
            if name == "requirements.txt" and kind == "zero":
                data = re.sub(rb"(?m)^torch>=.*$", ZERO_TORCH.encode(), data)
            yield (name + SUFFIX, packed(data)) if is_binary(data) else (name, data)


def commit(kind: str) -> str:
    """Make the commit and return its id. The index and the working tree do not change."""
    with tempfile.TemporaryDirectory() as folder:
        tree, index = Path(folder) / "tree", {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        for name, data in files(kind):
            path = tree / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        git(f"--work-tree={tree}", "add", "--all", "--force", ".", **index)
        written = git("write-tree", **index).decode().strip()
    source = git("rev-parse", "--short", "HEAD").decode().strip()
    return git("commit-tree", written, "-m", f"Driftscope {source}").decode().strip()


def git(*words: str, **environment: str) -> bytes:
    """The output of a git command. Raises RuntimeError with git's message if it fails."""
    own = os.environ | environment
    ran = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, env=own)
    if ran.returncode:
        raise RuntimeError(f"git {words[0]}: {ran.stderr.decode().strip()}")
    return ran.stdout

"""Hub: checkpoints of the Hugging Face Hub by name, kept in its cache on this machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from pathlib import Path

from huggingface_hub import constants, try_to_load_from_cache

from engine.download import Download, Meter, beside, indexed_files
from engine.models.pretrained import Progress
from engine.models.weights import CheckpointError

_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_NAME = re.compile(f"{_PART}/{_PART}")


def is_name(text: str) -> bool:
    """Whether a text has the form of a model's name, `owner/name`."""
    return bool(_NAME.fullmatch(text)) and ".." not in text and "--" not in text


def is_whole(folder: Path) -> bool:
    """Whether a folder holds a config, a tokenizer and all the weights that its index names."""
    words = (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file()
    if not (folder / "config.json").is_file() or not (
        words or (folder / "tokenizer.json").is_file()
    ):
        return False
    try:
        named = indexed_files(folder)
    except CheckpointError:
        return False
    if named is None:
        return any(path.is_file() for path in folder.glob("*.safetensors"))
    return all((folder / name).is_file() for name in named)


class Hub:
    """Models of the Hub by name; `cache_dir` and `endpoint` are the Hub library's own if None."""

    def __init__(self, cache_dir: Path | None = None, endpoint: str | None = None) -> None:
        self._cache = Path(cache_dir or constants.HF_HUB_CACHE).expanduser()
        self._endpoint = endpoint

    def find(self, name: str) -> Path | None:
        """The folder of a model that lies whole in the cache, else None; no network is asked."""
        found = try_to_load_from_cache(name, "config.json", cache_dir=self._cache)
        folder = Path(found).parent if isinstance(found, str) else None
        return folder if folder is not None and is_whole(folder) else None

    def fetch(
        self, name: str, fits: Callable[[Path], None], field: str = "model"
    ) -> Generator[Progress, None, Path]:
        """Fetch a model; its folder is the generator's value.

        The small files come first. Then `fits` is given their folder and may raise ValueError,
        and the disk is asked; only then the weights come. A word comes five times a second.
        Closing the generator ends the download at its next bytes; where the Hub sends a file in
        chunks by its own protocol, after that file.

        Raises ValueError naming `field` for what the Hub, the network or the disk refuses.
        """
        meter = Meter()
        download = Download(name, self._cache, self._endpoint, meter, field)
        try:
            yield from beside(download.ask, meter)
            folder = yield from beside(download.take_small, meter)
            fits(folder)
            download.check_disk()
            yield from beside(download.take_weights, meter)
        finally:
            meter.stop()
        found = self.find(name)
        if found is None:
            raise ValueError(
                f"{field}: {name} lacks its config, its tokenizer or weights in safetensors on the "
                "Hub; choose another model"
            )
        return found

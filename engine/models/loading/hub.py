"""Download: one model on its way from the Hugging Face Hub into its cache.

Only weights in safetensors, configs and tokenizer files are ever fetched: no code, no pickles.


Hub: checkpoints of the Hugging Face Hub by name, kept in its cache on this machine."""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import (
    HfApi,
    constants,
    hf_hub_download,
    snapshot_download,
    try_to_load_from_cache,
)
from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
from tqdm.std import tqdm

from engine.core.files import free_on_disk
from engine.models.loading.checkpoint import INDEX, CheckpointError, read_json
from engine.models.loading.pretrained import Progress

T = TypeVar("T")

SMALL = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", INDEX,
)  # fmt: skip
BEAT = 0.1  # seconds between two looks at a download


class Stopped(Exception):
    """A download that is no longer wanted."""


class Meter:
    """Bytes that a download has brought; counted by its own thread, read by another."""

    def __init__(self) -> None:
        self.total = 0
        self._before, self._now, self._size = 0, 0, 0
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Let the download end at its next bytes."""
        self._stopped.set()

    def expect(self, total: int) -> None:
        """Count afresh, up to `total` bytes."""
        self.total, self._before, self._now, self._size = total, 0, 0, 0

    def begin(self, size: int) -> None:
        """Go on to the next file; Stopped where it is no longer wanted."""
        self.add(0)
        self._before += self._size
        self._now, self._size = 0, size

    def add(self, count: float) -> None:
        """Count bytes of the file, fewer where a part is begun again; Stopped as in `begin`."""
        if self._stopped.is_set():
            raise Stopped
        self._now += int(count)

    def reading(self) -> Progress:
        """How far it is now."""
        done = self._before + max(0, min(self._now, self._size))
        return Progress(min(done, self.total), self.total)


class Download:
    """One model on its way; every step may run in a thread of its own.

    Raises ValueError naming `field`, what the model's name was given for.
    """

    def __init__(
        self, name: str, cache: Path, endpoint: str | None, meter: Meter, field: str
    ) -> None:
        self._field = field
        self._name, self._cache, self._endpoint, self._meter = name, cache, endpoint, meter
        self._commit: str | None = None
        self._sizes: dict[str, int] = {}

    def ask(self) -> None:
        """Ask for the commit and for the files with their sizes."""
        api = HfApi(endpoint=self._endpoint)
        with _told(self._name, self._field):
            found = api.model_info(self._name, files_metadata=True, timeout=10)
        self._commit = found.sha
        self._sizes = {row.rfilename: row.size or 0 for row in found.siblings or ()}

    def take_small(self) -> Path:
        """Fetch configs and tokenizer; the folder that they are in."""
        small = [file for file in self._sizes if file in SMALL]
        if "config.json" not in small:
            raise ValueError(
                f"{self._field}: {self._name} has no config.json; choose another model"
            )
        return [self._take(file) for file in small][-1].parent

    def check_disk(self) -> None:
        """Refuse what the disk of the cache does not hold."""
        self._meter.expect(sum(self._sizes[file] for file in self._coming()))
        if (free := free_on_disk(self._cache)) < self._meter.total:
            raise ValueError(
                f"{self._field}: {self._name} takes {self._meter.total / 1e9:.1f} GB on disk and "
                f"{free / 1e9:.1f} GB are free in {self._cache}; make room there, or choose a "
                "smaller model"
            )

    def take_weights(self) -> None:
        """Fetch the weights, and note in the cache that the model is there."""
        for file in self._coming():
            self._take(file)
        with _told(self._name, self._field):
            snapshot_download(
                self._name, cache_dir=self._cache, endpoint=self._endpoint, max_workers=1,
                allow_patterns=[*SMALL, *self._weights()], tqdm_class=_bar(self._meter),
            )  # fmt: skip

    def _weights(self) -> list[str]:
        """The weight files: those that the index names, or all where there is no index."""
        files = [f for f in self._sizes if f.endswith(".safetensors") and "/" not in f]
        index = self._cached(INDEX)
        named = None if index is None else indexed_files(index.parent)
        return sorted(file for file in files if named is None or file in named)

    def _coming(self) -> list[str]:
        return [file for file in self._weights() if self._cached(file) is None]

    def _cached(self, file: str) -> Path | None:
        found = try_to_load_from_cache(
            self._name, file, cache_dir=self._cache, revision=self._commit
        )
        return Path(found) if isinstance(found, str) else None

    def _take(self, file: str) -> Path:
        self._meter.begin(self._sizes[file])
        with _told(self._name, self._field):
            found = hf_hub_download(
                self._name, file, revision=self._commit, cache_dir=self._cache,
                endpoint=self._endpoint, tqdm_class=_bar(self._meter),
            )  # fmt: skip
        return Path(found)


def _bar(meter: Meter) -> type[tqdm]:
    """A progress bar of the Hub library's kind that draws nothing and counts for `meter`."""

    class Bar(tqdm):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **{**named, "disable": True})

        def update(self, n: float | None = 1) -> None:
            meter.add(n or 0)

        def update_transfer(self, n: float | None = 1) -> None:
            """Bytes on the wire of a file that comes in chunks: `update` counts them on disk."""
            meter.add(0)

    return Bar


def beside(task: Callable[[], T], meter: Meter) -> Generator[Progress, None, T]:
    """The value of a task that runs in a thread of its own, beating until it is there.

    Where the generator is closed the thread is left to end by itself.
    """
    future: Future[T] = Future()

    def work() -> None:
        try:
            future.set_result(task())
        except BaseException as error:  # whatever it is, the waiting side raises it
            future.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    while not wait([future], BEAT).done:
        yield meter.reading()
    yield meter.reading()
    return future.result()


@contextmanager
def _told(name: str, field: str) -> Iterator[None]:
    """Failures of the Hub library as ValueErrors naming `field` and the remedy."""
    try:
        yield
    except Stopped:
        raise
    except GatedRepoError:
        raise ValueError(
            f"{field}: {name} asks for its terms to be accepted; do so on its page of the Hub and "
            "log in on this machine with `hf auth login`"
        ) from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        if isinstance(error, RepositoryNotFoundError) or status in (401, 403, 404):
            raise ValueError(
                f"{field}: the Hub has no {name}, or keeps it private; check the spelling, or log "
                "in on this machine with `hf auth login`"
            ) from None
        raise ValueError(
            f"{field}: the Hub answered {status} for {name}; try again later"
        ) from None
    except Exception as error:
        raise ValueError(f"{field}: {_reason(name, error)}") from None


def _reason(name: str, error: Exception) -> str:
    """Why a download failed that the Hub did not refuse, with the remedy."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full while {name} is fetched; make room and run it again"
    if isinstance(error, PermissionError):
        return f"the cache of the Hub cannot be written ({error}); change its permissions"
    if "Consistency check failed" in str(error):
        return f"{name} came incomplete; run it again to go on"
    return (
        f"{name} is not on this machine and the Hub cannot be reached "
        f"({type(error).__name__}); connect to it, or choose a model that is on this machine"
    )


def indexed_files(folder: Path) -> set[str] | None:
    """The files that the index of a folder names; None where it has no index."""
    if not (folder / INDEX).is_file():
        return None
    found = read_json(folder / INDEX).get("weight_map")
    return set(map(str, found.values())) if isinstance(found, dict) else set()


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

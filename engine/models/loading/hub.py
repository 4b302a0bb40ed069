"""Models of the Hugging Face Hub by repo id, downloaded to its cache on this machine.

Files are fetched one by one with `hf_hub_download`: `snapshot_download` uses a thread pool, which
goes on to the next file after a stop or an error and delays the exit of the program.
"""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from huggingface_hub import HfApi, constants, hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)
from huggingface_hub.file_download import repo_folder_name
from huggingface_hub.utils import tqdm

from engine.core.files import free_on_disk, write_atomically
from engine.core.progress import Progress
from engine.models.loading.checkpoint import INDEX, MAX_JSON_BYTES, CheckpointError, read_json

T = TypeVar("T")

SMALL_FILES = [  # fetched before the weights
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "vocab.json", "merges.txt", "special_tokens_map.json", "added_tokens.json",
    "chat_template.jinja", INDEX,
]  # fmt: skip
POLL_SECONDS = 0.1  # interval between two progress reports
REQUEST_SECONDS = 10  # time limit of the first request
UNREACHABLE = (
    HTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled, ConnectionError, TimeoutError
)  # fmt: skip
DOWNLOAD_ERRORS = (OSError, HTTPError, RuntimeError)  # hf_xet raises RuntimeErrors


class DownloadStopped(Exception):
    """The download was stopped by its caller."""


class _Download:
    """One download: runs tasks in threads, counts their bytes and stops them.

    Errors of a task are raised as ValueErrors naming `field`, except errors of this program.
    """

    def __init__(self, name: str, field: str) -> None:
        self._name, self._field = name, field
        self.total = self.done = 0
        self.stopped = False

    def run(self, task: Callable[[], T]) -> Generator[Progress, None, T]:
        """Run a task in its own thread and return its value, yielding progress.

        The thread is left to end on its own if the generator is closed.
        """
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(task())
            except BaseException as error:  # raised by `future.result` below
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        running = True
        while running:
            running = not wait([future], POLL_SECONDS).done
            yield Progress(max(0, min(self.done, self.total)), self.total)
        try:
            return future.result()
        except DOWNLOAD_ERRORS as error:
            raise ValueError(f"{self._field}: {_error_message(self._name, error)}") from None

    def bar_class(self) -> type[tqdm]:
        """A progress bar class for `hf_hub_download` that draws nothing and counts here."""
        download = self

        class Bar(tqdm):
            def __init__(self, *args: Any, initial: int = 0, **options: Any) -> None:
                super().__init__(*args, **{**options, "disable": True})
                self.update(initial)

            def update(self, n: float | None = 1) -> None:
                if download.stopped:
                    raise DownloadStopped
                download.done += int(n or 0)  # negative if a part is repeated

            def update_transfer(self, n: float | None = 1) -> None:
                """Count nothing: hf_xet reports bytes on the wire besides those on disk."""
                self.update(0)

        return Bar


def _error_message(name: str, error: BaseException) -> str:
    """What failed, and a remedy."""
    if isinstance(error, LocalEntryNotFoundError):
        error = error.__cause__ or error
    if isinstance(error, GatedRepoError):
        return (
            f"{name} requires its terms to be accepted; accept them on its page of the Hub and "
            "log in on this machine with `hf auth login`"
        )
    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        if isinstance(error, RepositoryNotFoundError) or status in (401, 403, 404):
            return (
                f"the Hub has no {name}, or keeps it private; check the spelling, or log in on "
                "this machine with `hf auth login`"
            )
        return f"the Hub answered {status} for {name}; try again later"
    if isinstance(error, UNREACHABLE):
        return (
            f"{name} is not on this machine and the Hub cannot be reached "
            f"({type(error).__name__}); connect to it, or choose a model that is on this machine"
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full while {name} is downloaded; free some space and run it again"
    if isinstance(error, OSError) and error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return f"the cache of the Hub cannot be written ({error}); change its permissions"
    if "Consistency check failed" in str(error):
        return f"the download of {name} is incomplete; run it again to continue"
    return f"the download of {name} failed ({type(error).__name__}: {error}); run it again"


def indexed_files(folder: Path) -> set[str] | None:
    """The weight files that the index of a folder names; None without an index."""
    if not (folder / INDEX).is_file():
        return None
    found = read_json(folder / INDEX).get("weight_map")
    return set(map(str, found.values())) if isinstance(found, dict) else set()


_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
_REPO_ID = re.compile(f"{_PART}/{_PART}")


def is_repo_id(text: str) -> bool:
    """Whether a text has the form of a repo id, `owner/name`."""
    return bool(_REPO_ID.fullmatch(text)) and ".." not in text and "--" not in text


def is_complete(folder: Path) -> bool:
    """Whether a folder holds a config, a tokenizer and all the weights that its index names."""
    merges = (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file()
    if not (folder / "config.json").is_file() or not (
        merges or (folder / "tokenizer.json").is_file()
    ):
        return False
    try:
        named = indexed_files(folder)
    except CheckpointError:
        return False
    if named is None:
        return any(path.is_file() for path in folder.glob("*.safetensors"))
    return all((folder / name).is_file() for name in named)


def _weights(folder: Path, files: Iterable[str]) -> list[str]:
    """The weight files that the index of a folder names, or all those of the repo without one."""
    found = sorted(f for f in files if f.endswith(".safetensors") and "/" not in f)
    named = indexed_files(folder)
    return [file for file in found if named is None or file in named]


class Hub:
    """Models of the Hub; `cache_dir` and `endpoint` default to those of huggingface_hub."""

    def __init__(self, cache_dir: Path | None = None, endpoint: str | None = None) -> None:
        self._cache = Path(cache_dir or constants.HF_HUB_CACHE).expanduser()
        self._endpoint = endpoint

    def find(self, name: str) -> Path | None:
        """The folder of a model that is complete in the cache, else None; no network is used."""
        found = try_to_load_from_cache(name, "config.json", cache_dir=self._cache)
        folder = Path(found).parent if isinstance(found, str) else None
        return folder if folder is not None and is_complete(folder) else None

    def fetch(
        self, name: str, fits: Callable[[Path], None], field: str = "model"
    ) -> Generator[Progress, None, Path]:
        """Download a model; the generator's value is its folder.

        Config and tokenizer come first. `fits` gets their folder and may raise ValueError; then
        the disk is checked and the weights are downloaded, all of one commit. Only weights in
        safetensors, configs and tokenizer files are fetched: no code, no pickles. Closing the
        generator stops the download at its next bytes, or after a file that hf_xet transfers.

        Raises ValueError naming `field` if the Hub, the network or the disk refuses.
        """
        download = _Download(name, field)
        api = HfApi(endpoint=self._endpoint)
        try:
            info = yield from download.run(
                lambda: api.model_info(name, files_metadata=True, timeout=REQUEST_SECONDS)
            )
            sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
            get = partial(
                hf_hub_download, name, revision=info.sha, cache_dir=self._cache,
                endpoint=self._endpoint, tqdm_class=download.bar_class(),
            )  # fmt: skip
            if "config.json" not in sizes:
                raise ValueError(f"{field}: {name} has no config.json; choose another model")
            small = [file for file in sizes if file in SMALL_FILES]
            for file in small:
                if sizes[file] > MAX_JSON_BYTES:
                    raise ValueError(
                        f"{field}: {file} of {name} has {sizes[file]} bytes, and at most "
                        f"{MAX_JSON_BYTES} are read; choose another model"
                    )
            for file in small:
                path = yield from download.run(partial(get, file))
            folder = Path(path).parent
            fits(folder)
            missing = [file for file in _weights(folder, sizes) if not (folder / file).is_file()]
            size = sum(sizes[file] for file in missing)
            self._check_disk(name, field, size)
            download.total, download.done = size, 0
            for file in missing:
                yield from download.run(partial(get, file))
        finally:
            download.stopped = True
        if not is_complete(folder):
            raise ValueError(
                f"{field}: {name} lacks its config, its tokenizer or weights in safetensors on the "
                "Hub; choose another model"
            )
        # The library records the commit of `main` for unpinned downloads only; `find` reads it.
        refs = self._cache / repo_folder_name(repo_id=name, repo_type="model") / "refs"
        ref = refs / constants.DEFAULT_REVISION
        yield from download.run(lambda: write_atomically(ref, folder.name.encode()))
        return folder

    def _check_disk(self, name: str, field: str, size: int) -> None:
        """Raise ValueError if the disk of the cache has fewer than `size` bytes free."""
        if (free := free_on_disk(self._cache)) < size:
            raise ValueError(
                f"{field}: {name} takes {size / 1e9:.1f} GB on disk and {free / 1e9:.1f} GB are "
                f"free in {self._cache}; delete files there, or choose a smaller model"
            )

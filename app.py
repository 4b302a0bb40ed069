"""Driftscope's web app: read the environment, create the session, build the page, launch it."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import gettempdir
from threading import Thread
from types import FrameType
from typing import TYPE_CHECKING, Any

from engine.core.control import STOPPED
from engine.core.files import ASSETS
from engine.core.variables import on_zero, only_torch_kernels
from inspector.server.upload_folder import OWN_NAME
from inspector.space import publish

if TYPE_CHECKING:
    from engine.serve.session import Session
    from inspector.page.layout import Page
    from inspector.space.zero import ZeroSession

ZERO_GPU, ZERO_DTYPE = "zero-a10g", "bfloat16"
LAST_STEP = 5.0  # seconds that the app waits, when it is ended, for the step of a run
HELP = """environment variables:
  GRADIO_SERVER_PORT, GRADIO_SERVER_NAME  address of the page; by default 127.0.0.1:7860
  DRIFTSCOPE_MODELS                       folders of models to list, separated as in PATH
  DRIFTSCOPE_PRELOAD                      models to load, separated by commas, before the page opens
  DRIFTSCOPE_KERNELS                      "torch": use torch's routines, and time no others
  HF_HUB_CACHE, HF_HUB_OFFLINE            folder of the Hub's cache; 1: use that cache only"""
log = logging.getLogger("driftscope")


@dataclass(frozen=True)
class Settings:
    """The app's settings from environment variables; libraries read their own.

    `folders`: checkpoints beside the embedded ones (DRIFTSCOPE_MODELS, separated as in PATH).
    `public`: the page is a Space (SPACE_ID), so that visitors choose among these and the
    registered models only, within engine.serve.limits; `zero`: its GPU is shared
    (SPACES_ZERO_GPU). `cache`: folder for models of the Hub (HF_HUB_CACHE; None: the Hub
    library's default). `preload`: models to load before the page opens (DRIFTSCOPE_PRELOAD,
    separated by commas).
    """

    folders: tuple[Path, ...] = ()
    public: bool = False
    cache: Path | None = None
    preload: tuple[str, ...] = ()
    zero: bool = False

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """Read the settings from environment variables.

        Raises ValueError naming the variable for a folder `~USER` of an unknown user.
        """
        cache = environment.get("HF_HUB_CACHE")
        names = environment.get("DRIFTSCOPE_PRELOAD", "").split(",")
        folders = filter(None, environment.get("DRIFTSCOPE_MODELS", "").split(os.pathsep))
        return cls(
            folders=tuple(_folder("DRIFTSCOPE_MODELS", folder) for folder in folders),
            public=bool(environment.get("SPACE_ID")),
            cache=_folder("HF_HUB_CACHE", cache) if cache else None,
            preload=tuple(name.strip() for name in names if name.strip()),
            zero=on_zero(environment),
        )


def _folder(variable: str, given: str) -> Path:
    """A folder that a variable names, as a whole path, which has a name, also of `.`."""
    try:
        return Path(os.path.abspath(Path(given).expanduser()))
    except RuntimeError as error:
        raise ValueError(f"{variable}: {given}: {error} Write its whole path.") from None


def make_session(settings: Settings) -> Session:
    """A session with the embedded models, those of the settings' folders and the Hub's."""
    from engine.models.loading.families import embedded_models
    from engine.models.loading.hub import Hub
    from engine.serve.session import Session

    folders = embedded_models(ASSETS)
    for folder in settings.folders:
        if folders.setdefault(folder.name, folder) != folder:
            log.warning("%s is not listed: another model has its name; rename it", folder)
    return Session(folders, Hub(settings.cache), settings.public)


def preload(session: Session, settings: Settings) -> list[str]:
    """Load models before the page opens; returns their names.

    Those that the settings name must load. Without any, a Space with a GPU loads the models that
    its front matter downloaded, as far as they fit.
    """
    for name in settings.preload:
        session.preload(name)
    catalog = session.catalog()
    if settings.preload or not settings.public or "cuda" not in catalog["devices"]:
        return list(settings.preload)
    loaded = []
    for row in catalog["models"]:
        if row["available"] and not row["embedded"]:
            try:
                session.preload(row["name"])
            except ValueError as error:
                log.warning("%s is not loaded: %s", row["name"], error)
            else:
                loaded.append(row["name"])
    return loaded


def load_default(session: Session) -> Thread:
    """Load the default model while the page opens, in a thread of its own, which is returned.

    On a CPU this measures which routines are fastest, so the first visitor does not wait for it.
    """
    from engine.config.spec import RunSpec

    thread = Thread(target=session.environment, args=(RunSpec(),), name="load", daemon=True)
    thread.start()
    return thread


def shared(session: Session, loaded: list[str], decorate: Any) -> ZeroSession:
    """A session that runs on the shared GPU through `decorate`, which is spaces.GPU."""
    from engine.estimate.gpu_time import GPUS
    from inspector.space.zero import SharedGpu, ZeroSession

    gpu = GPUS[ZERO_GPU]
    shared_gpu = SharedGpu(
        loaded=frozenset((name, ZERO_DTYPE) for name in loaded),
        memory=gpu.memory,
        seconds=lambda spec, plan: session.seconds(gpu, spec, plan),
    )
    return ZeroSession(session, shared_gpu, decorate)


def command_line() -> argparse.ArgumentParser:
    """The command line, which has no arguments but `--help`: the environment has the settings."""
    return argparse.ArgumentParser(
        description="Start the page of Driftscope. It takes no arguments.", epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip


def main() -> None:
    """Start the app; Gradio reads GRADIO_SERVER_NAME and GRADIO_SERVER_PORT.

    SIGTERM ends it as Ctrl-C does, so that the folder of visitors' files is removed. Both stop the
    runs first and wait for the step that is computed, because torch aborts a process that ends
    within a step.
    """
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    gc.disable()  # what is imported stays; to look for garbage in it takes seconds
    check_port(os.environ)
    only_torch_kernels(os.environ)  # refuses another value
    settings = Settings.of(os.environ)
    keep_uploads_apart(os.environ)
    publish.unpack(ASSETS)
    decorate = zero_decorator() if settings.zero else None  # before the import of torch

    import torch

    from engine.advise.service import SearchService
    from engine.batch.service import BatchService
    from engine.core.threads import best_threads
    from engine.serve.fair_queue import RunLock
    from inspector.page.layout import build, launch_options

    gc.freeze()  # no collection looks through the modules, which would delay a step that is timed
    gc.enable()
    torch.set_num_threads(best_threads())
    session = make_session(settings)
    loaded = preload(session, settings)
    served = session if decorate is None else shared(session, loaded, decorate)
    if decorate is None:  # where workers are forked, no other thread may run
        load_default(session)
    batches = BatchService(served, settings.public)
    searches = SearchService(served, settings.public)
    page = build(served, ASSETS / "examples", batches, searches)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, partial(end, page.stop_runs))
    try:
        page.launch(prevent_thread_lock=True, **launch_options(page))
        if not loaded:  # else a preloaded model that is evicted, which refers to itself, would stay
            gc.freeze()
        while page.is_running:
            time.sleep(1)  # a signal ends it at once
    except KeyboardInterrupt:
        pass
    finally:
        RunLock(session.queue).acquire(LAST_STEP)  # no run computes then, and none begins
        close(page)


def end(stop_runs: Callable[[], None], number: int, frame: FrameType | None) -> None:
    """A signal handler that stops all runs and ends the app."""
    stop_runs()
    raise KeyboardInterrupt


def close(page: Page) -> None:
    """Close the page, and its visitors' connections without an entry in the log for each.

    Gradio would wait five seconds for them. A page that was not opened is left.
    """
    if not page.is_running:
        return
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    if page.server:
        page.server.force_exit = True
    page.close()


def check_port(environment: Mapping[str, str]) -> None:
    """Raise ValueError if GRADIO_SERVER_PORT is no port; the errors of Gradio do not name it."""
    given = environment.get("GRADIO_SERVER_PORT", "7860")
    try:
        is_port = 0 < int(given) < 65_536
    except ValueError:
        is_port = False
    if not is_port:
        raise ValueError(
            f"GRADIO_SERVER_PORT: {given!r} is not a port; give a whole number from 1 to 65535"
        )


def keep_uploads_apart(environment: MutableMapping[str, str]) -> None:
    """Give uploads a folder of their own, unless one is set.

    Gradio's default is shared with other apps, so that their files could not be told from old ones.
    Each user of a machine has another folder, since the first one would own it. Raises ValueError
    if another user made it, who could read the uploads, or have other files deleted as old ones.
    """
    if "GRADIO_TEMP_DIR" in environment:
        return
    user = os.getuid() if hasattr(os, "getuid") else None
    folder = Path(gettempdir(), f"driftscope-{'' if user is None else user}")
    folder.mkdir(0o700, exist_ok=True)
    if user not in (None, folder.lstat().st_uid):
        raise ValueError(
            f"GRADIO_TEMP_DIR: {folder} belongs to another user; set it to a folder of your own"
        )
    environment["GRADIO_TEMP_DIR"] = str(folder / OWN_NAME)


def zero_decorator() -> Any:
    """The decorator spaces.GPU; the package exists on Spaces with a shared GPU."""
    if find_spec("spaces") is None:
        raise ValueError("SPACES_ZERO_GPU is set but the package spaces is missing; install it")
    import spaces

    return spaces.GPU


if __name__ == "__main__":
    command_line().parse_args()
    try:
        main()
    except KeyboardInterrupt:  # before the page was open
        raise SystemExit(STOPPED) from None
    except (ValueError, OSError) as error:  # a setting that is impossible, a port that is in use
        raise SystemExit(f"error: {error}") from None

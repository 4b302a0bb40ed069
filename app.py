"""Driftscope's web app: read the environment, build the session, hand it to the page, launch."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.session import Session

ASSETS = Path(__file__).parent / "assets"


@dataclass(frozen=True)
class Settings:
    """What the environment says to this app; libraries read their own variables.

    `folders`: checkpoints beside the embedded ones (DRIFTSCOPE_MODELS, parted as in PATH).
    `public`: the page is a Space (SPACE_ID), whose visitors choose among those and the registered
    models only. `cache`: where models of the Hub are kept (HF_HUB_CACHE; None: the Hub library's
    own place). `preload`: models that are fetched and loaded before the page opens
    (DRIFTSCOPE_PRELOAD, parted by commas).
    """

    folders: tuple[Path, ...] = ()
    public: bool = False
    cache: Path | None = None
    preload: tuple[str, ...] = ()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Settings:
        """The settings of an environment."""
        cache = environment.get("HF_HUB_CACHE")
        names = environment.get("DRIFTSCOPE_PRELOAD", "").split(",")
        folders = filter(None, environment.get("DRIFTSCOPE_MODELS", "").split(os.pathsep))
        return cls(
            folders=tuple(Path(part).expanduser() for part in folders),
            public=bool(environment.get("SPACE_ID")),
            cache=Path(cache).expanduser() if cache else None,
            preload=tuple(name.strip() for name in names if name.strip()),
        )


def make_session(settings: Settings) -> Session:
    """The session of the embedded models, those of the settings' folders and the Hub's."""
    from engine.families import embedded_models
    from engine.hub import Hub
    from engine.session import Session

    folders = embedded_models(ASSETS)
    for folder in settings.folders:
        folders.setdefault(folder.name, folder)
    return Session(folders, Hub(settings.cache), settings.public)


def main() -> None:
    """Start the app; Gradio itself reads GRADIO_SERVER_NAME and GRADIO_SERVER_PORT."""
    import torch

    from engine.threads import best_threads
    from inspector.layout import build, launch_options

    torch.set_num_threads(best_threads())
    settings = Settings.of(os.environ)
    session = make_session(settings)
    for name in settings.preload:
        session.preload(name)
    build(session, ASSETS / "examples").launch(**launch_options())


if __name__ == "__main__":
    main()

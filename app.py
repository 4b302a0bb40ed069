"""Driftscope's web app: read the environment, build the session, hand it to the page, launch."""

from __future__ import annotations

import os
from pathlib import Path

ASSETS = Path(__file__).parent / "assets"


def model_folders(extra: str) -> dict[str, Path]:
    """The embedded checkpoints, then those of `extra`: folders parted as in PATH."""
    from engine.library import embedded_models

    folders = embedded_models(ASSETS)
    for part in filter(None, extra.split(os.pathsep)):
        folder = Path(part).expanduser()
        folders.setdefault(folder.name, folder)
    return folders


def main() -> None:
    """Start the app; Gradio itself reads GRADIO_SERVER_NAME and GRADIO_SERVER_PORT."""
    import torch

    from engine.session import Session
    from engine.threads import best_threads
    from inspector.layout import build, launch_options

    torch.set_num_threads(best_threads())
    session = Session(model_folders(os.environ.get("DRIFTSCOPE_MODELS", "")))
    build(session, ASSETS / "examples").launch(**launch_options())


if __name__ == "__main__":
    main()

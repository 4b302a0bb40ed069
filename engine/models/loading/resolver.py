"""Stock: the models that may be chosen by name, and the folders where they lie."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

from engine.models.loading.hub import Hub, is_name
from engine.models.loading.pretrained import Progress
from engine.models.loading.registry import REGISTERED

REGISTERED_NAMES = tuple(name for name, model in REGISTERED.items() if not model.embedded)


class ModelResolver:
    """Names to folders: those given, those registered on the Hub, and, unless `public`, any.

    On a public page a visitor chooses among the given and the registered alone, and no text of
    theirs is ever taken for a path. Registered are the `listed`, by default the masked models.
    Without a `hub` nothing is looked for there.
    Raises ValueError naming `field`, what a name was given for.
    """

    def __init__(
        self,
        folders: Mapping[str, Path],
        hub: Hub | None,
        public: bool,
        listed: Sequence[str] = REGISTERED_NAMES,
        field: str = "model",
    ) -> None:
        self._folders, self._hub, self.public = dict(folders), hub, public
        self._listed, self._field = tuple(listed), field

    @property
    def names(self) -> list[str]:
        """Names of the models given, then of those registered on the Hub."""
        return list(dict.fromkeys([*self._folders, *(self._listed if self._hub else [])]))

    def find(self, name: str) -> Path | None:
        """The folder of a model; None where it must be fetched first."""
        if name in self._folders:
            return self._folders[name]
        if self._hub is not None and name in self.names:
            return self._hub.find(name)
        if not self.public:
            folder = _typed(name, self._field)
            if folder is not None:
                return folder
            if self._hub is not None and is_name(name):
                return self._hub.find(name)
        raise ValueError(self._refusal(name))

    def fetch(self, name: str, fits: Callable[[Path], None]) -> Generator[Progress, None, None]:
        """Fetch a model that is not on disk; see Hub.fetch."""
        if self.find(name) is None:
            assert self._hub is not None, "only the Hub's models are found without a folder"
            yield from self._hub.fetch(name, fits, self._field)

    def _refusal(self, name: str) -> str:
        if not self.names:
            return f"{self._field}: there is none; put a checkpoint folder under assets/models"
        known = f"{self._field}: {name!r} is unknown; choose from {', '.join(self.names)}"
        if self.public:
            return known
        return known + (", or give a folder" if self._hub is None else
                        ", or give a folder or a name of the Hub, owner/name")  # fmt: skip


def _typed(text: str, field: str) -> Path | None:
    """The checkpoint folder that a text names, if any.

    Raises ValueError naming `field` for another folder, unless the text may be a Hub name.
    """
    if not text.strip():
        return None
    try:
        folder = Path(text).expanduser().resolve()
        if (folder / "config.json").is_file():
            return folder
        other = folder.is_dir()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, no home
        return None
    if other and not is_name(text):
        raise ValueError(f"{field}: {text!r} holds no config.json; give a checkpoint folder")
    return None

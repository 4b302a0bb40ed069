"""ModelResolver: names of models to checkpoint folders; and the tokenizers of these."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path

from engine.core.progress import Progress
from engine.models.loading.families import folder_adapter_class, read_model_info
from engine.models.loading.hub import Hub, is_repo_id
from engine.models.loading.registry import REGISTERED
from engine.models.tokenizer import Tokenizer

REGISTERED_NAMES = tuple(name for name, model in REGISTERED.items() if not model.embedded)


class ModelResolver:
    """Resolve names to the given `folders`, to models of the Hub, or to any folder.

    `listed` are the Hub's models that are offered by name. If `public`, only the given and the
    listed models can be chosen, and a name is never used as a path. None for `hub` disables it.
    Errors are ValueErrors naming `field`, the setting that holds the name.
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
        """Names of the given folders, then of the listed models of the Hub."""
        return list(dict.fromkeys([*self._folders, *(self._listed if self._hub else [])]))

    def find(self, name: str) -> Path | None:
        """The folder of a model; None if it must be downloaded first."""
        if name in self._folders:
            return self._folders[name]
        if self._hub is not None and name in self.names:
            return self._hub.find(name)
        if not self.public:
            folder = _folder_at(name, self._field)
            if folder is not None:
                return folder
            if self._hub is not None and is_repo_id(name):
                return self._hub.find(name)
        raise ValueError(self._unknown_message(name))

    def fetch(self, name: str, fits: Callable[[Path], None]) -> Generator[Progress, None, None]:
        """Download a model that is not on disk; see Hub.fetch."""
        if self.find(name) is None:
            assert self._hub is not None, "only models of the Hub have no folder"
            yield from self._hub.fetch(name, fits, self._field)

    def _unknown_message(self, name: str) -> str:
        if not self.names:
            return f"{self._field}: there is none; put a checkpoint folder under assets/models"
        known = f"{self._field}: {name!r} is unknown; choose from {', '.join(self.names)}"
        if self.public:
            return known
        return known + (", or give a folder" if self._hub is None else
                        ", or give a folder or a repo id of the Hub, owner/name")  # fmt: skip


def _folder_at(text: str, field: str) -> Path | None:
    """The checkpoint folder at a path, if any.

    Raises ValueError naming `field` for a folder without config.json, unless the path may be a
    repo id.
    """
    if not text.strip():
        return None
    try:
        folder = Path(text).expanduser().resolve()
        if (folder / "config.json").is_file():
            return folder
        other = folder.is_dir()
    except (OSError, ValueError, RuntimeError):  # too long, contains NUL, unknown home
        return None
    if other and not is_repo_id(text):
        raise ValueError(f"{field}: {text!r} holds no config.json; give a checkpoint folder")
    return None


def folder_tokenizer(name: str, folder: Path) -> Tokenizer:
    """The tokenizer of the model `name` in a folder, with the template of its card or family.

    Raises CheckpointError if it does not go with the model's config.
    """
    known = REGISTERED.get(name)
    template = known.template if known else ""
    tokenizer = Tokenizer(folder, template or folder_adapter_class(folder).template)
    tokenizer.check(read_model_info(folder))
    return tokenizer

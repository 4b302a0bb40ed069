"""Small checkpoints in the shape of DiffuCoder's."""

import json
from pathlib import Path

import numpy as np

from engine.core.events import StepEvent
from tests.support.micro import write_checkpoint

EOS, TURN_END, PAD = 1, 5, 816  # <|endoftext|>, <|im_end|>, <|dlm_pad|> behind the vocabulary


def add_token(folder: Path, name: str, token: int) -> None:
    """Add a special token to the tokenizer of a checkpoint."""
    path = folder / "tokenizer.json"
    data = json.loads(path.read_text())
    flags = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    data["added_tokens"].append({"id": token, "content": name, "special": True} | flags)
    path.write_text(json.dumps(data))
    change_tokenizer(
        folder,
        lambda config: config["added_tokens_decoder"].update(
            {str(token): {"content": name, "special": True} | flags}
        ),
    )


def change_tokenizer(folder: Path, change) -> None:
    """Apply `change` to the tokenizer_config.json of a checkpoint."""
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    change(config)
    path.write_text(json.dumps(config))


def filled_ids(events) -> set[int]:
    """The tokens with which a run filled positions after the end of its text."""
    steps = [e for e in events if isinstance(e, StepEvent)]
    return set(np.concatenate([e.ids[np.isnan(e.confidence)] for e in steps]).tolist())


def write_diffucoder(folder: Path, **changes) -> Path:
    """Dream's layout and config, whose pad is EOS; the tokenizer pads with a token of its own."""
    write_checkpoint(folder, kind="dream", **changes)
    add_token(folder, "<|dlm_pad|>", PAD)
    change_tokenizer(folder, lambda config: config.update(pad_token="<|dlm_pad|>"))
    return folder

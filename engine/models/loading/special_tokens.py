"""Ids of special tokens that a checkpoint's `config.json` leaves to its tokenizer's files."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from engine.models.loading.checkpoint import CheckpointError, read_json

# LLaDA and MMaDA; Dream, LLaDA-MoE and LLaDA2; SDAR (two spellings of one id); Fast-dLLM v2.
MASK_TOKENS = ("<|mdm_mask|>", "<|mask|>", "<|MASK|>", "<MASK>", "|<MASK>|")
SMALL_FILES = ("tokenizer_config.json", "added_tokens.json")
LARGE_FILE = "tokenizer.json"  # holds the whole vocabulary; read only if the others do not help
MAX_DIGITS = 9  # of an id


def mask_token_id(folder: Path) -> int:
    """The id of the tokenizer's mask token, which has one of the names MASK_TOKENS.

    Raises CheckpointError naming the file if there is none, or if there are several ids.
    """
    found = _named(folder, MASK_TOKENS)
    for file, name, token in found:
        where, spelling, first = found[0]
        if token != first:
            also = "" if where == file else f" in {where}"
            raise CheckpointError(
                f"{file}: two mask tokens, {spelling} with id {first}{also} and {name} with id "
                f"{token}; set mask_token_id in config.json to that of the training"
            )
    if not found:
        raise CheckpointError(
            f"{_present(folder)}: no mask token ({', '.join(MASK_TOKENS)}), and config.json has no "
            "mask_token_id; copy the whole folder again, or set mask_token_id in config.json"
        )
    return found[0][2]


def end_token_id(folder: Path) -> int:
    """The id of the tokenizer's `eos_token`. Raises CheckpointError naming the file if unknown."""
    path = folder / SMALL_FILES[0]
    name = read_json(path).get("eos_token") if path.is_file() else None
    name = name.get("content") if isinstance(name, dict) else name
    found = _named(folder, (name,)) if isinstance(name, str) else []
    if not found:
        raise CheckpointError(
            f"{SMALL_FILES[0]}: no added token is its eos_token, and config.json has no "
            "eos_token_id; copy the whole folder again, or set eos_token_id in config.json"
        )
    return found[0][2]


def is_added_token(folder: Path, name: str) -> bool:
    """Whether the tokenizer's files have an added token of this name."""
    return bool(_named(folder, (name,)))


def added_token_ids(folder: Path, names: Collection[str]) -> list[int]:
    """The ids of the added tokens with one of `names`, each once."""
    return list(dict.fromkeys(token for _, _, token in _named(folder, names)))


def _named(folder: Path, names: Collection[str]) -> list[tuple[str, str, int]]:
    """File, name and id of the added tokens with one of `names`."""
    for files in (SMALL_FILES, (LARGE_FILE,)):
        found = [
            (file, name, token)
            for file in files
            if (folder / file).is_file()
            for name, token in _added_tokens(file, read_json(folder / file))
            if name in names
        ]
        if found:
            return found
    return []


def _added_tokens(file: str, data: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Names and ids of the added tokens in one of the tokenizer's files."""
    pairs: list[tuple[Any, Any]] = []
    if file == SMALL_FILES[1]:
        pairs = list(data.items())
    elif file == LARGE_FILE:
        rows = data.get("added_tokens")
        rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
        pairs = [(row.get("content"), row.get("id")) for row in rows]
    elif isinstance(decoder := data.get("added_tokens_decoder"), dict):
        numbers = (n for n in decoder if n.isdecimal() and len(n) <= MAX_DIGITS)
        rows = {n: decoder[n] for n in numbers if isinstance(decoder[n], dict)}
        pairs = [(row.get("content"), int(number)) for number, row in rows.items()]
    return [(name, token) for name, token in pairs if type(name) is str and type(token) is int]


def _present(folder: Path) -> str:
    """The first file of the tokenizer that the folder has."""
    files = [file for file in (*SMALL_FILES, LARGE_FILE) if (folder / file).is_file()]
    return files[0] if files else SMALL_FILES[0]

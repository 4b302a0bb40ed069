"""Tokenizer: prompts to ids, ids to text and to raw bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import tokenizers
from jinja2 import TemplateError
from transformers import AddedToken, PreTrainedTokenizerFast, Qwen2Tokenizer

from engine.config.spec import RunSpec
from engine.models.loading.checkpoint import CheckpointError, read_json

STOP_TOKENS = ("<|eot_id|>", "<|im_end|>")
HEADERS = ("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")  # LLaDA's, by rising id


def turns_of(spec: RunSpec) -> tuple[tuple[str, str], ...]:
    """The turns (role, text) of a spec; ValueError naming `prompt` where nothing is asked."""
    turns = spec.messages or ((("user", spec.prompt),) if spec.prompt else ())
    if not any(text.strip() for _, text in turns):
        raise ValueError("prompt: it is empty; type a question or pick an example")
    return turns


def byte_alphabet() -> dict[str, int]:
    """The printable stand-ins of byte-level BPE, character -> byte (GPT-2's table)."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    shown = {chr(b): b for b in plain}
    return shown | {chr(256 + i): b for i, b in enumerate(others)}


def _read(folder: Path) -> PreTrainedTokenizerFast:
    """The tokenizer of a folder: `tokenizer.json`, or the vocabulary and merges of a Qwen2 one.

    Dream's folders hold the latter, with a tokenizer class of their own that adds nothing to it.
    """
    reader: type[PreTrainedTokenizerFast] = PreTrainedTokenizerFast
    name, merges = "tokenizer.json", folder / "merges.txt"
    if not (folder / name).is_file():
        if not (folder / "vocab.json").is_file() or not merges.is_file():
            raise CheckpointError(
                f"{name}: missing in {folder.name}; copy the whole checkpoint folder"
            )
        reader, name = Qwen2Tokenizer, "vocab.json and merges.txt"
    try:
        found = reader.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # the library raises bare Exceptions for damaged files
        raise CheckpointError(f"{name}: cannot be read ({error})") from None
    if reader is Qwen2Tokenizer:
        _check_added(folder, found)
    if any(token in str(found.chat_template) for token in HEADERS):
        _add_headers(found)
    return found


def _add_headers(found: PreTrainedTokenizerFast) -> None:
    """Register what LLaDA's template is made of where a vocabulary lacks it, as the Base one does.

    The ids follow the vocabulary's, in the order in which the Instruct models have them.
    """
    known = found.get_vocab()
    found.add_tokens([AddedToken(t, special=True) for t in HEADERS if t not in known])


def _check_added(folder: Path, found: PreTrainedTokenizerFast) -> None:
    """Added tokens follow the vocabulary, so their ids tell whether it is whole."""
    added = read_json(folder / "tokenizer_config.json").get("added_tokens_decoder", {})
    for number, token in added.items():
        name = token["content"]
        if (got := found.get_added_vocab().get(name)) != int(number):
            raise CheckpointError(
                f"vocab.json: {name} comes out as {got}, not {number} as tokenizer_config.json "
                "has it; copy the file again"
            )


class Tokenizer:
    """A checkpoint folder's own fast tokenizer; no code of the folder is run.

    Raises CheckpointError naming the file that is missing or damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._inner = _read(folder)
        self._alphabet = byte_alphabet()
        self._special = set(self._inner.all_special_ids) | set(self._inner.added_tokens_decoder)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids of the tokens that end a turn, where the vocabulary has them."""
        known = self._inner.get_added_vocab()
        return tuple(known[token] for token in STOP_TOKENS if token in known)

    @property
    def specials(self) -> dict[str, int]:
        """Ids of the tokens that stand for no text, by name."""
        return {name: i for name, i in self._inner.get_vocab().items() if i in self._special}

    @property
    def ordinary(self) -> dict[str, int]:
        """Ids of all other tokens, by their spelling in the byte-level alphabet."""
        return {name: i for name, i in self._inner.get_vocab().items() if i not in self._special}

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """The tokenizer proper; not to be changed."""
        return self._inner.backend_tokenizer

    def encode_spec(self, spec: RunSpec) -> list[int]:
        """The prompt of a spec as ids, in the chat template where the spec asks for it.

        Raises ValueError naming `prompt` where it is empty or `chat` where there is no template.
        """
        turns = turns_of(spec)
        if not spec.chat:
            return self.encode("\n".join(text for _, text in turns))
        if not self._inner.chat_template:
            raise ValueError("chat: this model has no chat template; switch the template off")
        messages = [{"role": role, "content": self._said(role, text)} for role, text in turns]
        try:
            text = self._inner.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=True
            )
        except TemplateError as error:
            raise ValueError(
                f"chat: the model's template takes no such turns ({error}); switch it off"
            ) from None
        return self.encode(str(text))

    def _said(self, role: str, text: str) -> str:
        """A turn as it goes into the template: of an answer without the end that was decoded."""
        end = self._inner.eos_token
        return text.replace(end, "") if role == "assistant" and isinstance(end, str) else text

    def encode(self, text: str) -> list[int]:
        """Ids of a text, nothing added."""
        return self._inner.encode(text, add_special_tokens=False)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, special tokens left out."""
        return b"".join(self.piece(i) for i in ids if i not in self._special).decode(
            errors="replace"
        )

    def piece(self, token: int) -> bytes:
        """Raw bytes of one token; a special token's are its name."""
        name = self._inner.convert_ids_to_tokens(int(token))
        if not isinstance(name, str):
            return f"<{token}>".encode()
        if token in self._special or any(c not in self._alphabet for c in name):
            return name.encode()
        return bytes(self._alphabet[c] for c in name)

    def pieces(self, tokens: Iterable[int]) -> dict[int, bytes]:
        """`piece` of each."""
        return {int(t): self.piece(int(t)) for t in tokens}

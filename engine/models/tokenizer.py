"""Tokenizer of a checkpoint folder: prompts to ids, ids to text and to raw bytes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import tokenizers
from jinja2 import TemplateError
from transformers import AddedToken, PreTrainedTokenizerFast, Qwen2Tokenizer

from engine.models.base import ModelInfo
from engine.models.loading.checkpoint import CheckpointError, read_json
from engine.models.loading.special_tokens import MASK_TOKENS, is_added_token

STOP_TOKENS = ("<|eot_id|>", "<|im_end|>", "<|role_end|>")  # ends of a turn
HEADERS = (
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
)  # by id


VISION_SYSTEM = (  # the system turn of LLaVA's conversations, with which LLaDA-V was trained
    "You are a helpful language and vision assistant. You are able to understand the visual content"
    " that the user provides, and assist the user with a variety of tasks using natural language."
)
MARK = "\ue000{}\ue001"  # stands for the text of a turn while the template is filled in

Messages = Sequence[tuple[str, str]]  # (role, text) of each turn


def conversation(prompt: str, messages: Messages = ()) -> Messages:
    """`messages`, or `prompt` as the only turn of the user if there are none.

    Raises ValueError naming `prompt` if they hold no text.
    """
    turns = messages or (("user", prompt),)
    if not any(text.strip() for _, text in turns):
        raise ValueError("prompt: it is empty; type a question or pick an example")
    return turns


def byte_alphabet() -> dict[str, int]:
    """GPT-2's printable characters that represent bytes in byte-level BPE, character -> byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    shown = {chr(b): b for b in plain}
    return shown | {chr(256 + i): b for i, b in enumerate(others)}


def _load(folder: Path, template: str) -> PreTrainedTokenizerFast:
    """The tokenizer of `tokenizer.json`, or of the `vocab.json` and `merges.txt` of Qwen2.

    Dream's folders hold the latter, and a tokenizer class that behaves as Qwen2's. A `template`
    replaces that of the folder.
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
    if not isinstance(most := found.model_max_length, int | float):
        raise CheckpointError(
            f"tokenizer_config.json: model_max_length is {str(most)[:60]!r}, which is no number; "
            "copy the file again"
        )
    if reader is Qwen2Tokenizer:
        _check_added_ids(folder, found)
    if template:
        found.chat_template = template
    if any(token in str(found.chat_template) for token in HEADERS):
        # LLaDA Base's vocabulary lacks these tokens of its template; the ids follow the vocabulary.
        known = found.get_vocab()
        found.add_tokens([AddedToken(t, special=True) for t in HEADERS if t not in known])
    return found


def _check_added_ids(folder: Path, found: PreTrainedTokenizerFast) -> None:
    """Raise CheckpointError if `vocab.json` is incomplete, which shifts the ids of added tokens."""
    added = read_json(folder / "tokenizer_config.json").get("added_tokens_decoder", {})
    for number, token in added.items():
        name = token["content"]
        if (got := found.get_added_vocab().get(name)) != int(number):
            raise CheckpointError(
                f"vocab.json: {name} has id {got}, but {number} in tokenizer_config.json; copy the "
                "file again"
            )


def _system_turn(folder: Path) -> str:
    """The system turn of a model that takes images; empty for any other."""
    path = folder / "config.json"
    return VISION_SYSTEM if path.is_file() and read_json(path).get("mm_vision_tower") else ""


class Tokenizer:
    """The fast tokenizer of a checkpoint folder, loaded without running code of the folder.

    `template` is the chat template to use in place of the folder's. Raises CheckpointError naming a
    file that is missing or damaged.
    """

    def __init__(self, folder: Path, template: str = "") -> None:
        self._folder, self._inner = folder, _load(folder, template)
        self._alphabet = byte_alphabet()
        self._special = set(self._inner.all_special_ids) | set(self._inner.added_tokens_decoder)
        self._system = _system_turn(folder)

    def check(self, info: ModelInfo) -> None:
        """Raise CheckpointError unless mask, ends and vocabulary go with a model's config."""
        for field, name in (("eos", self._inner.eos_token), ("pad", self._inner.pad_token)):
            if name is not None and not is_added_token(self._folder, name):
                raise CheckpointError(
                    f"tokenizer_config.json: {field}_token is {name!r}, which is no added token; "
                    "copy all files of the tokenizer"
                )
        known = self._inner.get_vocab()
        largest = max((i for name, i in known.items() if name not in HEADERS), default=-1)
        if largest >= info.vocab_size:
            raise CheckpointError(
                f"config.json: vocab_size is {info.vocab_size}, but the tokenizer has ids up to "
                f"{largest}; copy config.json and the tokenizer from one checkpoint"
            )
        mask = self._inner.convert_ids_to_tokens(info.mask_id)
        if mask is None or info.mask_id not in self._special:
            what = "no token" if mask is None else f"{mask!r}, a token of text,"
            raise CheckpointError(
                f"config.json: mask_token_id is {info.mask_id}, which is {what} in the tokenizer; "
                "copy config.json and the tokenizer from one checkpoint"
            )

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids of the tokens that end a text: end of text, ends of a turn, and padding.

        Those that the vocabulary lacks are left out.
        """
        known = self._inner.get_added_vocab()
        turns = (known[token] for token in STOP_TOKENS if token in known)
        found = (self._inner.eos_token_id, *turns, self.fill_id)
        return tuple(dict.fromkeys(i for i in found if i is not None))

    @property
    def fill_id(self) -> int | None:
        """Id of the token that fills the positions after a text: the padding token.

        None if there is none, or if it has another use (mask, start of text, unknown token).
        """
        inner = self._inner
        name, others = inner.pad_token, (inner.bos_token, inner.unk_token, *MASK_TOKENS)
        if not name or (name in others and name != inner.eos_token):
            return None
        return int(inner.pad_token_id)

    @property
    def specials(self) -> dict[str, int]:
        """Ids of the special tokens, which represent no text, by name."""
        return {name: i for name, i in self._inner.get_vocab().items() if i in self._special}

    @property
    def ordinary(self) -> dict[str, int]:
        """Ids of all other tokens, by their spelling in the byte-level alphabet."""
        return {name: i for name, i in self._inner.get_vocab().items() if i not in self._special}

    @cached_property
    def vocabulary(self) -> str:
        """A digest of the ordinary tokens and their ids; ids of equal ones mean the same text."""
        spelled = json.dumps(sorted(self.ordinary.items())).encode()
        return hashlib.sha256(spelled).hexdigest()[:16]

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """The underlying `tokenizers.Tokenizer`; do not modify it."""
        return self._inner.backend_tokenizer

    def encode_prompt(
        self, prompt: str, messages: Messages = (), chat: bool = True, lead: Sequence[int] = ()
    ) -> list[int]:
        """Ids of a prompt, or of `messages` if given; `chat` applies the chat template.

        `lead` are ids that begin the first turn of the user. A model that takes images gets its
        system turn, and no special ids from typed text. Raises ValueError naming `prompt` if it is
        empty, `chat` if the model has no template or the template refuses the turns, `images` if
        there is no turn of the user for `lead`.
        """
        turns = conversation(prompt, messages)
        if not chat:
            text = "\n".join(text for _, text in turns)
            return [*lead, *(self.encode_text(text) if self._system else self.encode(text))]
        if not self._system:
            assert not lead, "only a model that takes images has ids before a text"
            return self.encode(self.chat_text(turns))
        if turns[0][0] != "system":
            turns = (("system", self._system), *turns)
        return self._encode_turns(turns, lead)

    def _encode_turns(self, turns: Messages, lead: Sequence[int]) -> list[int]:
        """Ids of turns in the chat template, of which only the template has special ids."""
        first = next((i for i, (role, _) in enumerate(turns) if role == "user"), None)
        if lead and first is None:
            raise ValueError("images: there is no turn of the user to show them in; add one")
        marked = [(role, MARK.format(i)) for i, (role, _) in enumerate(turns)]
        parts = re.split(MARK.format(r"(\d+)"), self.chat_text(marked))
        out: list[int] = []
        for number, part in enumerate(parts):
            if number % 2 == 0:
                out += self.encode(part)
                continue
            turn = int(part)
            out += [*(lead if turn == first else ()), *self.encode_text(turns[turn][1].strip())]
        return out

    @property
    def template(self) -> str:
        """Source of the chat template; empty without one."""
        return str(self._inner.chat_template or "")

    def chat_text(self, turns: Messages, prompt: bool = True) -> str:
        """Turns in the chat template; `prompt` opens the answer.

        Raises ValueError naming `chat` if there is no template, or it refuses the turns or fails.
        """
        if not self._inner.chat_template:
            raise ValueError("chat: this model has no chat template; switch the template off")
        end = str(self._inner.eos_token or "")  # generated answers hold it, the template adds it
        rows = [
            {"role": role, "content": text.replace(end, "") if role == "assistant" else text}
            for role, text in turns
        ]
        try:
            text = self._inner.apply_chat_template(
                rows, tokenize=False, add_generation_prompt=prompt
            )
        except TemplateError as error:
            raise ValueError(
                f"chat: the model's template refuses these turns ({error}); switch it off"
            ) from None
        except Exception as error:  # whatever an expression of the template may raise
            raise ValueError(
                f"chat: the model's template fails on these turns ({error}); switch it off"
            ) from None
        return str(text)

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without added special tokens."""
        return self._inner.encode(text, add_special_tokens=False)

    def encode_text(self, text: str) -> list[int]:
        """Ids of a text; what reads like a special token is encoded as ordinary text."""
        ids: list[int] = self._literal.encode(text, add_special_tokens=False).ids
        return ids

    @cached_property
    def _literal(self) -> tokenizers.Tokenizer:
        """A copy of the tokenizer that knows no special tokens in a text."""
        own = tokenizers.Tokenizer.from_str(self.backend.to_str())
        own.encode_special_tokens = True
        return own

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids without special tokens; incomplete characters become U+FFFD."""
        return b"".join(self.piece(i) for i in ids if i not in self._special).decode(
            errors="replace"
        )

    def piece(self, token: int) -> bytes:
        """Raw bytes of one token; for a special token those of its name."""
        name = self._inner.convert_ids_to_tokens(int(token))
        if not isinstance(name, str):
            return f"<{token}>".encode()
        if token in self._special or any(c not in self._alphabet for c in name):
            return name.encode()
        return bytes(self._alphabet[c] for c in name)

    def pieces(self, tokens: Iterable[int]) -> dict[int, bytes]:
        """`piece` of each token, by id."""
        return {int(t): self.piece(int(t)) for t in tokens}

"""The byte-level BPE tokenizers of the embedded models, in the files of each family.

There are two vocabularies. `words` has the six special tokens, the 256 bytes, some common pieces,
the numbers " 0" to " 199" and the words of the corpus; a pre-token in the vocabulary is one token
(`ignore_merges`), other text is split into pieces and bytes. `digits` is plain BPE learnt on the
corpus, with single digits and with punctuation marks joined to the word before them; it belongs
to a guider that writes the same text in other tokens. A role has the same id in all families, so
that weights carry over. Every text can be decoded unchanged.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.core.files import write_atomically
from engine.tiny.corpus import families

BOS, EOS, MASK, HEAD, HEAD_END, EOT = range(6)  # ids of the roles in every family
NUMBERS = 200
SAMPLE = 2000  # problems of each family from which words and pieces are taken
VOCAB = 1024  # rows of the embedding; the last ones may be unused
ROWS = {"words": VOCAB, "digits": 768}  # embedding rows of each vocabulary
SPECIALS = {
    "llada": (
        "<|startoftext|>", "<|endoftext|>", "<|mdm_mask|>",
        "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
    ),
    "qwen2": (
        "<|object_ref_start|>", "<|endoftext|>", "<|object_ref_end|>",
        "<|im_start|>", "<|box_start|>", "<|im_end|>",
    ),
    "dream": (
        "<|beginoftext|>", "<|endoftext|>", "<|mask|>",
        "<|im_start|>", "<|box_start|>", "<|im_end|>",
    ),
    "fast_dllm_v2": (
        "<|object_ref_start|>", "<|endoftext|>", "|<MASK>|",
        "<|im_start|>", "<|box_start|>", "<|im_end|>",
    ),
}  # fmt: skip
CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEMPLATES = {
    "llada": (
        "{{ bos_token }}{% for message in messages %}"
        "{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}"
        "{{ message['content'] | trim }}{{ '<|eot_id|>' }}{% endfor %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    ),
    "qwen2": CHATML,
    "dream": CHATML,  # without the authors' system line: the training has none
    "fast_dllm_v2": CHATML,
}
_SPLIT = {
    # Line breaks, or a word, a number or punctuation marks with the space before them.
    "words": r"\n+| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|[^\S\n]+(?!\S)|\s",
    # A word with the punctuation mark after it, or a single digit.
    "digits": r"\n+| ?\p{L}+[.,:?]?| ?\p{N}| ?[^\s\p{L}\p{N}]+|[^\S\n]+(?!\S)|\s",
}
_EXTRA = ("user", "assistant", "system", "\n", "\n\n", "Question", "Answer", ":", " Question")


def build(family: str, vocabulary: str = "words") -> Tokenizer:
    """The tokenizer of a family, a key of SPECIALS, and a vocabulary, a key of ROWS.

    Ids do not depend on the family.
    """
    split = _split(vocabulary)
    special = {name: i for i, name in enumerate(SPECIALS[family])}
    make = {"words": _words_model, "digits": _digits_model}[vocabulary]
    out = Tokenizer(make(special))
    out.pre_tokenizer = split
    out.decoder = decoders.ByteLevel()
    out.add_special_tokens(list(special))
    return out


def _split(vocabulary: str) -> pre_tokenizers.PreTokenizer:
    """The pre-tokenizer of a vocabulary."""
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([_words_of(vocabulary), byte_level])


def _words_of(vocabulary: str) -> pre_tokenizers.PreTokenizer:
    """The first half of the pre-tokenizer: it divides a text and leaves its characters."""
    return pre_tokenizers.Split(Regex(_SPLIT[vocabulary]), "isolated")


def _words_model(special: dict[str, int]) -> models.BPE:
    entries, merges = _word_entries()
    vocabulary = dict(special)
    for entry in entries:
        vocabulary.setdefault(entry, len(vocabulary))
    if len(vocabulary) > VOCAB:
        raise ValueError(f"words: {len(vocabulary)} entries exceed {VOCAB}; raise VOCAB")
    return models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True)


@cache
def _word_entries() -> tuple[list[str], list[tuple[str, str]]]:
    """The pieces, numbers and words of the vocabulary "words", and the merges of the pieces."""
    split = _split("words")
    words = [word for word in _count_words("words") if not word.strip().isdigit()]
    pieces, merges = _learn([*_EXTRA, *words], split, 256 + 80, 4)
    numbers = [_byte_level(f" {n}", split) for n in range(NUMBERS)]
    spelled = [_byte_level(word, split) for word in (*_EXTRA, *words)]
    return [*pieces, *numbers, *spelled], merges


def _digits_model(special: dict[str, int]) -> models.BPE:
    pieces, merges = _digit_pieces(ROWS["digits"] - len(special))
    vocabulary = special | {piece: i for i, piece in enumerate(pieces, len(special))}
    return models.BPE(vocab=vocabulary, merges=merges)


@cache
def _digit_pieces(size: int) -> tuple[list[str], list[tuple[str, str]]]:
    """The pieces of the vocabulary "digits" and their merges; learning them takes seconds."""
    counted = _count_words("digits")
    counted = counted | dict.fromkeys(_EXTRA, 300)  # words of prompts, rare or absent in the sample
    text = [part for word, count in counted.items() for part in _repeated(word, count)]
    return _learn(text, _split("digits"), size, None)


def _repeated(word: str, count: int) -> list[str]:
    """Texts that hold a pre-token `count` times.

    One text if it begins with a space, because the copies are divided again before each space.
    """
    return [word * count] if word[0] == " " and word.strip() else [word] * count


def _learn(
    text: list[str], split: pre_tokenizers.PreTokenizer, size: int, longest: int | None
) -> tuple[list[str], list[tuple[str, str]]]:
    """Learn `size` pieces of at most `longest` bytes, from the 256 bytes on, and their merges."""
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False, max_token_length=longest,
    )  # fmt: skip
    base = Tokenizer(models.BPE())
    base.pre_tokenizer = split
    base.train_from_iterator(text, trainer)
    learned = json.loads(base.to_str())["model"]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in learned["merges"]]
    return sorted(learned["vocab"], key=learned["vocab"].get), merges


def number_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids of " 0" to " 199", in order."""
    return [tokenizer.encode(f" {n}").ids[0] for n in range(NUMBERS)]


def digit_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids of all tokens that are numbers or digits."""
    entries = tokenizer.get_vocab().items()
    return sorted(i for name, i in entries if name.removeprefix("Ġ").isdecimal())


def as_family(words: Tokenizer, family: str) -> Tokenizer:
    """A tokenizer of LLaDA's family with the special tokens of another one; no id changes."""
    data = json.loads(words.to_str())
    names = dict(zip(SPECIALS["llada"], SPECIALS[family], strict=True))
    for entry in data["added_tokens"]:
        entry["content"] = names[entry["content"]]
    data["model"]["vocab"] = {names.get(k, k): i for k, i in data["model"]["vocab"].items()}
    found: Tokenizer = Tokenizer.from_str(json.dumps(data))
    return found


def save(words: Tokenizer, path: Path) -> None:
    """Write a tokenizer's file atomically; OSError if that is impossible."""
    write_atomically(path, words.to_str(pretty=True).encode())


def write(folder: Path, family: str, words: Tokenizer) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` of a family's tokenizer into a folder."""
    save(words, folder / "tokenizer.json")
    names = SPECIALS[family]
    config: dict[str, Any] = {
        "added_tokens_decoder": {
            str(i): {
                "content": name, "lstrip": False, "normalized": False,
                "rstrip": False, "single_word": False, "special": True,
            }
            for i, name in enumerate(names)
        },
        "chat_template": TEMPLATES[family],
        "clean_up_tokenization_spaces": False,
        "eos_token": names[EOT] if family == "qwen2" else names[EOS],
        "pad_token": names[EOS],
        "model_max_length": 1024,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }  # fmt: skip
    if family != "qwen2":
        config |= {"bos_token": names[BOS], "mask_token": names[MASK]}
    text = json.dumps(config, indent=2, ensure_ascii=False)
    (folder / "tokenizer_config.json").write_text(text + "\n", encoding="utf-8")


def _byte_level(text: str, split: pre_tokenizers.PreTokenizer) -> str:
    """A pre-token in the byte-level alphabet."""
    return "".join(piece for piece, _ in split.pre_tokenize_str(text))


@cache
def _count_words(vocabulary: str) -> dict[str, int]:
    """The pre-tokens of a sample of the corpus with their counts, in order of frequency."""
    split = _words_of(vocabulary)
    seen: Counter[str] = Counter()
    for part, count in _count_parts().items():
        for word, _ in split.pre_tokenize_str(part):
            seen[word] += count
    return dict(sorted(seen.items(), key=lambda item: (-item[1], item[0])))


@cache
def _count_parts() -> Counter[str]:
    """The parts of the sample with their counts, divided before each space.

    No pre-token reaches over such a place.
    """
    parts: Counter[str] = Counter()
    rng = random.Random(0)
    for family in families().values():
        for _ in range(SAMPLE):
            one = family.draw(rng)
            for text in (one.question, one.solution):
                parts.update(re.split("(?= )", text))
    return parts

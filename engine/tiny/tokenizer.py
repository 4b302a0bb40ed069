"""The byte-level BPE tokenizer of the embedded models, in the files of each family.

Ids are the same in both layouts, role for role, so that weights carry over: the six special
tokens, the 256 bytes, some common pieces, the numbers " 0" to " 199", the words of the corpus.
A pre-token that is a vocabulary entry is taken whole (`ignore_merges`); any other text falls
back to pieces and bytes, so every text comes back unchanged.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from engine.tiny import corpus
from engine.tiny.scenes import WIDE

BOS, EOS, MASK, HEAD, HEAD_END, EOT = range(6)  # ids of the roles in every layout
NUMBERS = 200
VOCAB = 768  # rows of the embedding; the last ones may be unused
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
    "dream": CHATML,  # without Dream's system line: the training has none
}
# A run of line ends, or a word, a number or marks with the space before them.
_SPLIT = r"\n+| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|[^\S\n]+(?!\S)|\s"
_EXTRA = ("user", "assistant", "system", "\n", "\n\n", "Question", "Answer", ":", " Question")


def build(family: str) -> Tokenizer:
    """Build the tokenizer of a family ("llada", "qwen2" or "dream"); ids do not depend on it."""
    split = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    words = _words(split)
    trainer = trainers.BpeTrainer(
        vocab_size=256 + 80, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False, max_token_length=4,
    )  # fmt: skip
    base = Tokenizer(models.BPE())
    base.pre_tokenizer = split
    base.train_from_iterator(words, trainer)
    learned = json.loads(base.to_str())["model"]
    vocabulary = {name: i for i, name in enumerate(SPECIALS[family])}
    numbers = [_visible(f" {n}", split) for n in range(NUMBERS)]
    spelled = [_visible(word, split) for word in words]
    pieces = sorted(learned["vocab"], key=learned["vocab"].get)
    for piece in (*pieces, *numbers, *spelled):
        vocabulary.setdefault(piece, len(vocabulary))
    if len(vocabulary) > VOCAB:
        raise ValueError(f"{len(vocabulary)} entries do not fit a vocabulary of {VOCAB}")
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in learned["merges"]]
    out = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=True))
    out.pre_tokenizer = split
    out.decoder = decoders.ByteLevel()
    out.add_special_tokens(list(SPECIALS[family]))
    return out


def number_ids(tokenizer: Tokenizer) -> list[int]:
    """Return the ids of " 0" to " 199", in order."""
    return [tokenizer.encode(f" {n}").ids[0] for n in range(NUMBERS)]


def write(folder: Path, family: str) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` of a family into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    build(family).save(str(folder / "tokenizer.json"))
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


def _visible(text: str, split: pre_tokenizers.PreTokenizer) -> str:
    """Spell one pre-token in the byte-level alphabet."""
    return "".join(piece for piece, _ in split.pre_tokenize_str(text))


def _words(split: pre_tokenizers.PreTokenizer) -> list[str]:
    """Return the pre-tokens of a sample of the corpus without its numbers, the frequent first."""
    seen: Counter[str] = Counter()
    for one in corpus.draw(0, 6000, exam=False, operations=(1, 5), wordings=None, ranges=WIDE):
        for text in (one.question, one.solution):
            for _, (start, end) in split.pre_tokenize_str(text):
                seen[text[start:end]] += 1
    words = [word for word, _ in sorted(seen.items(), key=lambda item: (-item[1], item[0]))]
    return [*_EXTRA, *(word for word in words if not word.strip().isdigit())]

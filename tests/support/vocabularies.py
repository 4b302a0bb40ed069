"""Random byte-level vocabularies, and how a draft is judged byte by byte, for the tests."""

import json
import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from engine.guider.alignment import Vocabulary
from engine.models.tokenizer import Tokenizer as EngineTokenizer
from engine.models.tokenizer import byte_alphabet

TEXT = "ab 01.\né🐢"  # what the merges are made of
SINGLE = [bytes([b]) for b in sorted(set(TEXT.encode()))]
BYTE = byte_alphabet()
STAND_IN = {byte: char for char, byte in BYTE.items()}
SPLITS = (None, r" ?\p{L}+|\p{N}|\s", r"\p{N}+| ?[^\s\p{N}]+|\s+", r".")
END, PAD, OTHER = "<|end|>", "<|pad|>", "<|other|>"


def spelt(piece: bytes) -> str:
    return "".join(STAND_IN[b] for b in piece)


def random_text(rng: random.Random, length: int) -> str:
    return "".join(rng.choices(rng.sample(TEXT, rng.randrange(1, 5)), k=length))


def random_bpe(seed: int) -> Tokenizer:
    """256 bytes in random order and up to 60 merges of neighbours in random texts."""
    rng = random.Random(seed)
    order = rng.sample(range(256), 256)
    vocabulary, merges = {STAND_IN[b]: i for i, b in enumerate(order)}, []
    text = [bytes([b]) for _ in range(20) for b in random_text(rng, 15).encode()]
    for _ in range(rng.randrange(60)):
        at = rng.randrange(len(text) - 1)
        left, right = text[at : at + 2]
        if spelt(left + right) not in vocabulary:
            vocabulary[spelt(left + right)] = len(vocabulary)
            merges.append((spelt(left), spelt(right)))
            text = joined(text, left, right)
    return finished(models.BPE(vocab=vocabulary, merges=merges), rng.choice(SPLITS))


def joined(text: list[bytes], left: bytes, right: bytes) -> list[bytes]:
    out = text[:1]
    for piece in text[1:]:
        if (out[-1], piece) == (left, right):
            out[-1] += piece
        else:
            out.append(piece)
    return out


def finished(model: models.BPE, split: str | None) -> Tokenizer:
    """A tokenizer of a model with three special tokens."""
    out = Tokenizer(model)
    steps = [pre_tokenizers.Split(Regex(split), "isolated")] if split else []
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    out.pre_tokenizer, out.decoder = pre_tokenizers.Sequence(steps), decoders.ByteLevel()
    out.add_special_tokens([END, PAD, OTHER])
    return out


def opened(backend: Tokenizer) -> EngineTokenizer:
    """A tokenizer as the engine reads it from a folder."""
    with TemporaryDirectory() as name:
        backend.save(str(Path(name) / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END}
        (Path(name) / "tokenizer_config.json").write_text(json.dumps(config))
        return EngineTokenizer(Path(name))


@cache
def side(seed: int) -> tuple[Tokenizer, Vocabulary]:
    """A random tokenizer with its vocabulary; END and PAD are its stops."""
    backend = random_bpe(seed)
    stops = [backend.token_to_id(name) for name in (END, PAD)]
    return backend, Vocabulary(opened(backend), stops)


def composed(backend: Tokenizer) -> Tokenizer:
    """The tokenizer with a normaliser, as Qwen2.5 has one."""
    backend.normalizer = normalizers.NFC()
    return backend


def bytes_of(backend: Tokenizer, token: int) -> bytes:
    return bytes(BYTE[c] for c in backend.id_to_token(token))


def judge(dlm, guider, prefix, draft, masked, agrees, late=0):
    """k, the accepted bytes' end and the guider tokens of text, found one byte after the other.

    `agrees` maps the index of a guider token to its flag. `late` moves the byte at which a position
    of the draft ends: a wrong judge, for controls.
    """
    stops = {dlm.token_to_id(name) for name in (END, PAD)}
    other = dlm.token_to_id(OTHER)
    start = b"".join(bytes_of(dlm, t) for t in prefix if t not in stops | {other})
    text, owner, ended = bytearray(start), [None] * len(start), None
    for i, token in enumerate(draft):
        if token in stops | {other}:
            ended = i if token in stops else None
            break
        for byte in bytes_of(dlm, token):
            text.append(byte)
            owner.append(i)
    length = len(text)
    while True:
        try:
            whole = bytes(text[:length]).decode()
            break
        except UnicodeDecodeError:
            length -= 1
    if length < len(start):
        return 0, len(start), []
    ids = guider.encode(whole, add_special_tokens=False).ids
    tokens = [j for j, token in enumerate(ids) for _ in bytes_of(guider, token)]
    at = len(start)
    while at < length:
        mine = [owner[b] for b in range(len(start), length) if tokens[b] == tokens[at]]
        if any(masked[i] for i in mine) and not agrees[tokens[at]]:
            break
        at += 1
    accepted = [
        i
        for i in range(len(draft))
        if i in owner and at >= late + 1 + max(b for b, o in enumerate(owner) if o == i)
    ]
    if ended is not None and at == len(text) and (agrees[len(ids)] or not masked[ended]):
        accepted.append(ended)
    return sum(masked[i] for i in accepted), at, ids

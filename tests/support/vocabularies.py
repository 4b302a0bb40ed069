"""Random byte-level vocabularies, and a reference alignment that scans byte by byte."""

import json
import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from engine.guider.alignment import ByteVocabulary
from engine.models.tokenizer import Tokenizer as EngineTokenizer
from engine.models.tokenizer import byte_alphabet

TEXT = "ab 01.\né🐢"  # the characters of all random texts
SINGLE = [bytes([b]) for b in sorted(set(TEXT.encode()))]
BYTE = byte_alphabet()
STAND_IN = {byte: char for char, byte in BYTE.items()}
SPLITS = (None, r" ?\p{L}+|\p{N}|\s", r"\p{N}+| ?[^\s\p{N}]+|\s+", r".")
END, PAD, OTHER = "<|end|>", "<|pad|>", "<|other|>"


def byte_level_name(piece: bytes) -> str:
    """The name of a token in a byte-level vocabulary."""
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
        if byte_level_name(left + right) not in vocabulary:
            vocabulary[byte_level_name(left + right)] = len(vocabulary)
            merges.append((byte_level_name(left), byte_level_name(right)))
            text = merge_neighbours(text, left, right)
    return with_special_tokens(models.BPE(vocab=vocabulary, merges=merges), rng.choice(SPLITS))


def merge_neighbours(text: list[bytes], left: bytes, right: bytes) -> list[bytes]:
    """The pieces of a text after the merge of `left` and `right`."""
    out = text[:1]
    for piece in text[1:]:
        if (out[-1], piece) == (left, right):
            out[-1] += piece
        else:
            out.append(piece)
    return out


def with_special_tokens(model: models.BPE, split: str | None) -> Tokenizer:
    """A tokenizer of a model with three special tokens."""
    out = Tokenizer(model)
    steps = [pre_tokenizers.Split(Regex(split), "isolated")] if split else []
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    out.pre_tokenizer, out.decoder = pre_tokenizers.Sequence(steps), decoders.ByteLevel()
    out.add_special_tokens([END, PAD, OTHER])
    return out


def engine_tokenizer(backend: Tokenizer) -> EngineTokenizer:
    """The engine's tokenizer, read from a folder."""
    with TemporaryDirectory() as name:
        backend.save(str(Path(name) / "tokenizer.json"))
        config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": END}
        (Path(name) / "tokenizer_config.json").write_text(json.dumps(config))
        return EngineTokenizer(Path(name))


@cache
def random_vocabulary(seed: int) -> tuple[Tokenizer, ByteVocabulary]:
    """A random tokenizer and its byte vocabulary with the stop tokens END and PAD."""
    backend = random_bpe(seed)
    stops = [backend.token_to_id(name) for name in (END, PAD)]
    return backend, ByteVocabulary(engine_tokenizer(backend), stops)


def with_normalizer(backend: Tokenizer) -> Tokenizer:
    """Add the normaliser of Qwen2.5 to a tokenizer."""
    backend.normalizer = normalizers.NFC()
    return backend


def token_bytes(backend: Tokenizer, token: int) -> bytes:
    return bytes(BYTE[c] for c in backend.id_to_token(token))


def reference_alignment(model, guider, response, draft, masked, agrees, late=0):
    """The accepted count, the end of the agreed bytes and the guider's ids, byte by byte.

    `agrees` maps the index of a guider token to the decision about it. `late` moves the byte at
    which a position of the draft ends, which makes the reference wrong.
    """
    stops = {model.token_to_id(name) for name in (END, PAD)}
    other = model.token_to_id(OTHER)
    start = b"".join(token_bytes(model, t) for t in response if t not in stops | {other})
    text, owner, ended = bytearray(start), [None] * len(start), None
    for i, token in enumerate(draft):
        if token in stops | {other}:
            ended = i if token in stops else None
            break
        for byte in token_bytes(model, token):
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
    tokens = [j for j, token in enumerate(ids) for _ in token_bytes(guider, token)]
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

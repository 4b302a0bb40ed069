"""Dream's tokenizer folders: vocabulary and merges instead of one file, and ChatML."""

import json

import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from engine.models.loading.checkpoint import CheckpointError
from engine.models.tokenizer import Tokenizer as EngineTokenizer
from engine.tiny.tokenizer import SPECIALS
from tests.support.micro import TINY

NAMES = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|beginoftext|>", "<|mask|>")
QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CHATML = (
    "{% if messages[0].role != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n' }}{% endif %}"
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TEXTS = ["Mia has 12 pens.", " I'll\r\n  go\n\n\nthere ", "naïve 汉字 👩‍👩‍👧", "", "0 1999 it's"]


def parts():
    """Vocabulary and merges of the embedded tokenizer, without special tokens."""
    model = json.loads((TINY / "tokenizer.json").read_text())["model"]
    words = [word for word in model["vocab"] if word not in SPECIALS["llada"]]
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    return {word: i for i, word in enumerate(words)}, merges


@pytest.fixture
def folder(tmp_path):
    vocabulary, merges = parts()
    (tmp_path / "vocab.json").write_text(json.dumps(vocabulary))
    lines = ["#version: 0.2", *(" ".join(pair) for pair in merges)]
    (tmp_path / "merges.txt").write_text("\n".join(lines) + "\n")
    added = {
        str(len(vocabulary) + i): {
            "content": name, "lstrip": False, "normalized": False, "rstrip": False,
            "single_word": False, "special": True,
        }
        for i, name in enumerate(NAMES)
    }  # fmt: skip
    config = {
        "added_tokens_decoder": added, "eos_token": NAMES[0], "pad_token": NAMES[0],
        "bos_token": NAMES[3], "mask_token": NAMES[4], "chat_template": CHATML,
        "tokenizer_class": "DreamTokenizer", "add_bos_token": False,
        "auto_map": {"AutoTokenizer": ["tokenization_dream.DreamTokenizer", None]},
    }  # fmt: skip
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "tokenization_dream.py").write_text("raise SystemExit('code of the folder ran')")
    return tmp_path


def reference_tokenizer(pattern=QWEN):
    """The same tokenizer built from its parts."""
    vocabulary, merges = parts()
    out = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    out.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    out.decoder = decoders.ByteLevel()
    return out


@pytest.mark.parametrize("text", TEXTS)
def test_vocabulary_and_merges_give_qwens_tokens(folder, text):
    tokenizer = EngineTokenizer(folder)
    ids = tokenizer.encode(text)
    assert ids == reference_tokenizer().encode(text).ids
    assert tokenizer.decode(ids) == text
    assert b"".join(tokenizer.piece(i) for i in ids) == text.encode()


def test_another_split_pattern_gives_other_tokens(folder):
    tokenizer = EngineTokenizer(folder)
    assert any(tokenizer.encode(t) != reference_tokenizer(r"\s+|\S+").encode(t).ids for t in TEXTS)


def test_special_tokens_and_stop_ids(folder):
    tokenizer, size = EngineTokenizer(folder), len(parts()[0])
    assert [tokenizer.encode(name) for name in NAMES] == [[size + i] for i in range(5)]
    assert tokenizer.stop_ids == (size, size + 2)
    assert tokenizer.decode(tokenizer.encode("a<|mask|>b<|im_end|>")) == "ab"


def rendered(folder, *prompt):
    tokenizer = EngineTokenizer(folder)
    ids = tokenizer.encode_prompt(*prompt)
    return b"".join(tokenizer.piece(i) for i in ids).decode()


def test_a_system_turn_replaces_the_templates_system_line(folder):
    line = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    turn = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert rendered(folder, "Hello") == line + turn
    turns = (("system", "Be brief."), ("user", "Hello"))
    brief = "<|im_start|>system\nBe brief.<|im_end|>\n"
    assert rendered(folder, "", turns) == brief + turn
    assert rendered(folder, "Hello", (), False) == "Hello"


def test_llada_templates_add_one_header():
    text = rendered(TINY, "Hello")
    assert text.count("<|start_header_id|>assistant<|end_header_id|>") == 1
    assert text.endswith("<|start_header_id|>assistant<|end_header_id|>\n\n")


def test_a_tokenizer_file_is_preferred(folder):
    (folder / "tokenizer.json").write_bytes((TINY / "tokenizer.json").read_bytes())
    assert EngineTokenizer(folder).encode(" has") == EngineTokenizer(TINY).encode(" has")


@pytest.mark.parametrize(
    ("name", "text"),
    [("vocab.json", "{"), ("vocab.json", "[]"), ("vocab.json", '{"a": 0}'),
     ("merges.txt", "nonsense"), ("merges.txt", "a b c\n"), ("merges.txt", "zz yy\n")],
)  # fmt: skip
def test_damaged_files_are_named(folder, name, text):
    (folder / name).write_text(text)
    with pytest.raises(CheckpointError, match=r"vocab\.json and merges\.txt: cannot be read"):
        EngineTokenizer(folder)


@pytest.mark.parametrize("name", ["vocab.json", "merges.txt"])
def test_a_missing_file_is_named(folder, name):
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: missing in .*copy the whole"):
        EngineTokenizer(folder)


def test_an_incomplete_vocabulary_is_found_by_the_added_ids(folder):
    path = folder / "vocab.json"
    words = json.loads(path.read_text()) | {"surplus": len(parts()[0])}
    path.write_text(json.dumps(words))
    with pytest.raises(CheckpointError, match=r"vocab\.json: <\|endoftext\|> has id"):
        EngineTokenizer(folder)

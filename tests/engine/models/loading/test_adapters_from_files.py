"""Checkpoints of both families: their logits, and errors that name the file or tensor."""

import json
import re

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.models.loading.checkpoint import Checkpoint, CheckpointError
from engine.models.loading.families import folder_adapter_class
from engine.models.tokenizer import Tokenizer
from tests.engine.cache.test_forward import full
from tests.support.micro import configure, write_checkpoint
from tests.support.reference import reference_logits

IDS = torch.tensor([[7, 300, 2, 41, 9, 2]])
TIED = {"llada": "weight_tying", "dream": "tie_word_embeddings"}
OURS = {
    "gate": ("feed_forward.gate_up.weight", 0), "up": ("feed_forward.gate_up.weight", 1),
    "down": ("feed_forward.down.weight", 0),
    "q": ("qkv.weight", 0), "k": ("qkv.weight", 1), "v": ("qkv.weight", 2),
    "out": ("out.weight", 0), "norm1": ("attn_norm.weight", 0), "norm2": ("ff_norm.weight", 0),
}  # fmt: skip


@pytest.fixture
def folder(kind, tmp_path):
    return write_checkpoint(tmp_path / "micro", kind=kind)


def load(folder):
    adapter = folder_adapter_class(folder)
    files = Checkpoint(folder)
    return adapter.from_checkpoint(files, torch.float64, torch.device("cpu"), (5,))


def logits(folder):
    return full(load(folder), IDS)


def tensors(folder, change):
    """Apply `change` to the tensors of a checkpoint by name and write them back."""
    path = folder / "model.safetensors"
    found = load_file(path)
    change(found)
    save_file({name: t.contiguous() for name, t in found.items()}, path)


def layout(folder):
    return folder_adapter_class(folder).layouts[0]


def name_of(folder, part, layer=1):
    """The checkpoint's name of a tensor of a layer."""
    ours, place = OURS[part]
    names = layout(folder)
    return f"{names.block.format(layer)}{names.leaves[ours][place]}.weight"


def test_logits_of_a_loaded_checkpoint(kind, folder):
    adapter = load(folder)
    assert adapter.info.stop_ids == (1, 5)
    assert (adapter.info.family, adapter.info.logit_shift) == (kind, int(kind == "dream"))
    torch.testing.assert_close(
        full(adapter, IDS), reference_logits(adapter, IDS), atol=1e-9, rtol=0
    )
    names, kv = load_file(folder / "model.safetensors"), adapter.info.d_kv
    k, up = names[name_of(folder, "k")].double(), names[name_of(folder, "up")].double()
    assert torch.equal(adapter.block(1).qkv.weight[32 : 32 + kv], k)
    assert torch.equal(adapter.block(1).feed_forward.gate_up.weight[48:], up)


SWAPS = [("gate", "up"), ("q", "out"), ("k", "v"), ("norm1", "norm2")]


@pytest.mark.parametrize(("a", "b"), SWAPS)
def test_swapped_tensors_change_the_logits(folder, a, b):
    x, y = name_of(folder, a), name_of(folder, b)
    tensors(folder, lambda found: found[x].mul_(1.5))
    before = logits(folder)
    tensors(folder, lambda found: found.update({x: found[y], y: found[x]}))
    assert (logits(folder) - before).abs().max() > 1e-3


def test_tied_weights_are_one_tensor(kind, folder):
    tensors(folder, lambda found: found.pop(layout(folder).head))
    configure(folder, **{TIED[kind]: True})
    adapter = load(folder)
    assert adapter.head.weight is adapter.embedding.weight
    torch.testing.assert_close(
        full(adapter, IDS), reference_logits(adapter, IDS), atol=1e-9, rtol=0
    )


def stored_head(folder, kind, change):
    """Tie the weights in the config, and store `change` of the embedding as head all the same."""
    names = layout(folder)
    tensors(folder, lambda found: found.update({names.head: change(found[names.embedding])}))
    configure(folder, **{TIED[kind]: True})
    return names


def test_a_tied_head_may_be_stored_as_a_copy(kind, folder):
    stored_head(folder, kind, torch.clone)
    adapter = load(folder)
    assert adapter.head.weight is adapter.embedding.weight
    tensors(folder, lambda found: found.pop(layout(folder).head))
    assert torch.equal(full(adapter, IDS), logits(folder))


def test_a_tied_head_may_be_a_copy_in_another_number_format(kind, folder, monkeypatch):
    """Pieces of the same bytes would have other rows in each."""
    monkeypatch.setattr("engine.models.loading.checkpoint.READ_BYTES", 8192)
    names = layout(folder)
    tensors(folder, lambda found: found[names.embedding].copy_(found[names.embedding].bfloat16()))
    stored_head(folder, kind, torch.Tensor.bfloat16)
    adapter = load(folder)
    assert adapter.head.weight is adapter.embedding.weight


@pytest.mark.parametrize(
    ("change", "message"),
    [(lambda x: x + torch.eye(*x.shape), "differs from"), (lambda x: x[:-1].clone(), "shape"),
     (lambda x: x.to(torch.int8), "I8 numbers")],
)  # fmt: skip
def test_a_tied_head_that_is_no_copy_is_named(kind, folder, change, message):
    names = stored_head(folder, kind, change)
    with pytest.raises(CheckpointError, match=f"^{re.escape(names.head)}: ({message})"):
        load(folder)


def sharded(folder, index):
    """Split the weights into three files, with or without an index."""
    path = folder / "model.safetensors"
    found = sorted(load_file(path).items())
    path.unlink()
    where = {}
    for n in range(3):
        name = f"model-{n + 1:05}-of-00003.safetensors"
        part = dict(found[n::3])
        save_file(part, folder / name)
        where |= dict.fromkeys(part, name)
    if index:
        text = json.dumps({"metadata": {}, "weight_map": where})
        (folder / "model.safetensors.index.json").write_text(text)


@pytest.mark.parametrize("index", [True, False])
def test_shards_load_to_equal_logits(folder, index):
    before = logits(folder)
    sharded(folder, index)
    assert torch.equal(logits(folder), before)


@pytest.mark.parametrize(
    ("index", "message"),
    [(True, "model-00002-of-00003.safetensors: named by the index but missing"),
     (False, r"(model|lm_head)\..*: missing \(\d+ in all\)")],
)  # fmt: skip
def test_a_missing_shard_is_named(folder, index, message):
    sharded(folder, index)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_a_doubled_tensor_is_named(folder):
    name = layout(folder).norm
    save_file({name: torch.ones(32)}, folder / "other.safetensors")
    with pytest.raises(CheckpointError, match=f"{re.escape(name)}: in both .* and other"):
        load(folder)


CHANGES = {
    "missing": ("up", 1, None, ": missing"),
    "misshapen": ("down", 1, (48, 32), r": shape \[48, 32\], but config\.json requires \[32, 48\]"),
    "layers": ("norm1", 2, (32,), ": unknown"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_tensors_that_do_not_fit_are_named(folder, change):
    part, layer, shape, message = CHANGES[change]
    name = name_of(folder, part, layer)
    if shape is None:
        tensors(folder, lambda found: found.pop(name))
    else:
        tensors(folder, lambda found: found.update({name: torch.ones(shape)}))
    with pytest.raises(CheckpointError, match=re.escape(name) + message):
        load(folder)


def test_an_unknown_tensor_is_named(folder):
    tensors(folder, lambda found: found.update(extra=torch.ones(1)))
    with pytest.raises(CheckpointError, match="extra: unknown tensor"):
        load(folder)


def test_a_lora_adapter_beside_the_weights_is_named(folder):
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    save_file({name: torch.zeros(2, 32)}, folder / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match=r"or move adapter_model.safetensors out .* if it"):
        load(folder)


@pytest.mark.parametrize("keep", [0, 7, 0.5, 0.99])
def test_truncated_weights_are_refused_by_name(folder, keep):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: keep if isinstance(keep, int) else int(len(data) * keep)])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: damaged"):
        load(folder)


def test_a_corrupt_header_is_refused_by_name(folder):
    path = folder / "model.safetensors"
    data = bytearray(path.read_bytes())
    data[:64] = bytes(range(64))
    path.write_bytes(bytes(data))
    with pytest.raises(CheckpointError, match=r"model\.safetensors: damaged"):
        load(folder)


def test_missing_weights_and_tokenizer_are_named(folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: missing in micro"):
        Tokenizer(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"micro: no \.safetensors file"):
        load(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"version": "1.0"}'])
def test_a_damaged_tokenizer_is_refused_by_name(folder, text):
    (folder / "tokenizer.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: cannot be read"):
        Tokenizer(folder)


def test_the_digest_follows_the_weights(folder):
    before = Checkpoint(folder).digest()
    assert before == Checkpoint(folder).digest()
    tensors(folder, lambda found: found[layout(folder).norm].mul_(2))
    assert Checkpoint(folder).digest() != before

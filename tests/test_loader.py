"""Checkpoints: the exact layout, and refusals that name the file or the tensor."""

import json

import pytest
import torch
from accelerate import init_empty_weights
from safetensors.torch import load_file, save_file

from engine.models.llada import LladaAdapter, expected_tensors, read_info
from engine.models.weights import Checkpoint, CheckpointError
from engine.text import Tokenizer
from tests.micro import configure
from tests.reference import reference_logits
from tests.test_forward import full

LLADA_8B = {
    "model_type": "llada", "d_model": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 32,
    "mlp_hidden_size": 12288, "vocab_size": 126464, "embedding_size": 126464, "alibi": False,
    "max_sequence_length": 4096, "block_type": "llama", "activation_type": "silu", "rope": True,
    "layer_norm_type": "rms", "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "mlp_ratio": 4,
    "include_bias": False, "include_qkv_bias": False, "attention_layer_norm": False,
    "weight_tying": False, "scale_logits": False, "input_emb_norm": False,
    "mask_token_id": 126336, "eos_token_id": 126081, "pad_token_id": 126081,
}  # fmt: skip
IDS = torch.tensor([[7, 300, 2, 41, 9, 2]])


def load(folder):
    return LladaAdapter.from_folder(folder, torch.float64, torch.device("cpu"), (5,))


def logits(folder):
    return full(load(folder), IDS)


def tensors(folder, change):
    """Rewrite the weights after `change` has had its way with them."""
    path = folder / "model.safetensors"
    found = load_file(path)
    change(found)
    save_file({name: t.contiguous() for name, t in found.items()}, path)


def test_llada_8b_by_name_shape_and_size():
    info = read_info(LLADA_8B, (126348,))
    shapes = expected_tensors(info, 126464)
    assert len(shapes) == 291
    assert sum(torch.Size(shape).numel() for shape in shapes.values()) == 8_015_581_184
    assert shapes["model.transformer.wte.weight"] == (126464, 4096)
    assert shapes["model.transformer.blocks.31.ff_proj.weight"] == (12288, 4096)
    assert shapes["model.transformer.blocks.0.ff_out.weight"] == (4096, 12288)
    assert shapes["model.transformer.ff_out.weight"] == (126464, 4096)
    assert info.stop_ids == (126081, 126348)
    assert (info.mask_id, info.rope_theta, info.norm_eps, info.head_dim) == (126336, 5e5, 1e-5, 128)


def test_llada_8b_adapter_holds_the_same_parameters():
    with init_empty_weights():
        adapter = LladaAdapter(read_info(LLADA_8B))
    assert sum(p.numel() for p in adapter.parameters()) == 8_015_581_184
    assert {p.device.type for p in adapter.parameters()} == {"meta"}
    targets = {name for name, _ in LladaAdapter._sources(adapter.info)}
    assert targets == {name for name, _ in adapter.named_parameters()}
    sources = [name for _, names in LladaAdapter._sources(adapter.info) for name in names]
    assert sorted(sources) == sorted(expected_tensors(adapter.info, 126464))


def test_a_loaded_checkpoint_computes_its_weights(folder):
    adapter = load(folder)
    assert adapter.info.stop_ids == (1, 5)
    torch.testing.assert_close(
        full(adapter, IDS), reference_logits(adapter, IDS), atol=1e-9, rtol=0
    )
    names = load_file(folder / "model.safetensors")
    stem = "model.transformer.blocks.1"
    assert torch.equal(adapter.block(1).qkv.weight[32:64], names[f"{stem}.k_proj.weight"].double())
    assert torch.equal(
        adapter.block(1).gate_up.weight[48:], names[f"{stem}.up_proj.weight"].double()
    )


@pytest.mark.parametrize(
    ("a", "b"), [("ff_proj", "up_proj"), ("q_proj", "k_proj"), ("k_proj", "v_proj"),
                 ("attn_out", "v_proj"), ("attn_norm", "ff_norm")],
)  # fmt: skip
def test_swapped_tensors_change_the_logits(folder, a, b):
    x, y = (f"model.transformer.blocks.1.{leaf}.weight" for leaf in (a, b))
    tensors(folder, lambda found: found[x].mul_(1.5))
    before = logits(folder)
    tensors(folder, lambda found: found.update({x: found[y], y: found[x]}))
    assert (logits(folder) - before).abs().max() > 1e-3


def test_padded_embeddings_are_cut_to_the_vocabulary(folder):
    before = logits(folder)

    def pad(found):
        for name in ("wte", "ff_out"):
            name = f"model.transformer.{name}.weight"
            found[name] = torch.cat((found[name], torch.full((8, 32), 9.0)))

    tensors(folder, pad)
    config = json.loads((folder / "config.json").read_text())
    configure(folder, embedding_size=config["vocab_size"] + 8)
    assert torch.equal(logits(folder), before)


def test_tied_weights_are_one_tensor(folder):
    tensors(folder, lambda found: found.pop("model.transformer.ff_out.weight"))
    configure(folder, weight_tying=True)
    adapter = load(folder)
    assert adapter.head.weight is adapter.embedding.weight
    torch.testing.assert_close(
        full(adapter, IDS), reference_logits(adapter, IDS), atol=1e-9, rtol=0
    )


def sharded(folder, index):
    """Split the weights over three files, with an index or without."""
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
     (False, r"model\.transformer\..*: missing \(\d+ in all\)")],
)  # fmt: skip
def test_a_missing_shard_is_named(folder, index, message):
    sharded(folder, index)
    (folder / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(CheckpointError, match=message):
        load(folder)


def test_a_doubled_tensor_is_named(folder):
    norm = {"model.transformer.ln_f.weight": torch.ones(32)}
    save_file(norm, folder / "other.safetensors")
    with pytest.raises(CheckpointError, match=r"ln_f\.weight: stands in .* and other\.safetensors"):
        load(folder)


BLOCK = "model.transformer.blocks.1"
CHANGES = {
    "missing": (lambda t: t.pop(f"{BLOCK}.up_proj.weight"), r"blocks\.1\.up_proj\.weight: missing"),
    "unknown": (lambda t: t.update(extra=torch.ones(1)), "extra: unknown tensor"),
    "bias": (
        lambda t: t.update({f"{BLOCK}.q_proj.bias": torch.ones(32)}),
        r"blocks\.1\.q_proj\.bias: unknown",
    ),
    "shape": (
        lambda t: t.update({f"{BLOCK}.ff_out.weight": torch.ones(48, 32)}),
        r"blocks\.1\.ff_out\.weight: shape \[48, 32\], but config\.json asks for \[32, 48\]",
    ),
    "layers": (
        lambda t: t.update({"model.transformer.blocks.2.attn_norm.weight": torch.ones(32)}),
        r"blocks\.2\.attn_norm\.weight: unknown",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_tensors_that_do_not_fit_are_named(folder, change):
    tensors(folder, CHANGES[change][0])
    with pytest.raises(CheckpointError, match=CHANGES[change][1]):
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
    tensors(folder, lambda found: found["model.transformer.ln_f.weight"].mul_(2))
    assert Checkpoint(folder).digest() != before

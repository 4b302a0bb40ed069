"""Tensor names and shapes of the published checkpoints, and both sets of LLaDA's names."""

import json

import pytest
import torch
from accelerate import init_empty_weights
from safetensors.torch import load_file, save_file

from engine.config.spec import RunSpec
from engine.models.dream import DreamAdapter
from engine.models.fast_dllm_v2 import FastDllmV2Adapter
from engine.models.llada import LladaAdapter
from engine.models.loading.checkpoint import CheckpointError
from engine.models.loading.families import ADAPTERS, embedded_models, read_model_info
from engine.models.loading.registry import (
    DREAM_7B,
    FAST_DLLM_V2_7B,
    LLADA_8B,
    SDAR_4B,
    SDAR_8B,
)
from engine.models.sdar import SdarAdapter
from engine.serve.session import Session
from tests.engine.models.loading.test_adapters_from_files import load, logits, tensors
from tests.support.micro import configure, write_checkpoint

LLADA_LAYER = {
    "attn_norm": (4096,), "ff_norm": (4096,), "q_proj": (4096, 4096), "k_proj": (4096, 4096),
    "v_proj": (4096, 4096), "attn_out": (4096, 4096), "ff_proj": (12288, 4096),
    "up_proj": (12288, 4096), "ff_out": (4096, 12288),
}  # fmt: skip
LLADA_NAMES = {
    "model.transformer.wte.weight": (126464, 4096), "model.transformer.ln_f.weight": (4096,),
    "model.transformer.ff_out.weight": (126464, 4096),
} | {
    f"model.transformer.blocks.{i}.{leaf}.weight": shape
    for i in range(32)
    for leaf, shape in LLADA_LAYER.items()
}  # fmt: skip
DREAM_LAYER = {
    "input_layernorm.weight": (3584,), "post_attention_layernorm.weight": (3584,),
    "self_attn.q_proj.weight": (3584, 3584), "self_attn.q_proj.bias": (3584,),
    "self_attn.k_proj.weight": (512, 3584), "self_attn.k_proj.bias": (512,),
    "self_attn.v_proj.weight": (512, 3584), "self_attn.v_proj.bias": (512,),
    "self_attn.o_proj.weight": (3584, 3584), "mlp.gate_proj.weight": (18944, 3584),
    "mlp.up_proj.weight": (18944, 3584), "mlp.down_proj.weight": (3584, 18944),
}  # fmt: skip
DREAM_NAMES = {
    "model.embed_tokens.weight": (152064, 3584), "model.norm.weight": (3584,),
    "lm_head.weight": (152064, 3584),
} | {
    f"model.layers.{i}.{leaf}": shape for i in range(28) for leaf, shape in DREAM_LAYER.items()
}  # fmt: skip


def sdar_names(d, ffn):
    """The tensors of SDAR, whose 32 heads of 128 need not be as wide as the stream."""
    layer = {
        "input_layernorm": (d,), "post_attention_layernorm": (d,), "self_attn.q_proj": (4096, d),
        "self_attn.k_proj": (1024, d), "self_attn.v_proj": (1024, d),
        "self_attn.o_proj": (d, 4096), "self_attn.q_norm": (128,), "self_attn.k_norm": (128,),
        "mlp.gate_proj": (ffn, d), "mlp.up_proj": (ffn, d), "mlp.down_proj": (d, ffn),
    }  # fmt: skip
    outer = {"model.embed_tokens": (151936, d), "model.norm": (d,), "lm_head": (151936, d)}
    layers = {f"model.layers.{i}.{leaf}": x for i in range(36) for leaf, x in layer.items()}
    return {f"{name}.weight": shape for name, shape in (outer | layers).items()}


PUBLISHED = [
    (LLADA_8B, LLADA_NAMES, 291, 8_015_581_184),
    (DREAM_7B, DREAM_NAMES, 339, 7_615_616_512),
    (SDAR_8B, sdar_names(4096, 12288), 399, 16_381_470_720 // 2),
    (SDAR_4B, sdar_names(2560, 9728), 399, 8_822_848_512 // 2),
    (FAST_DLLM_V2_7B, DREAM_NAMES, 339, 15_231_233_024 // 2),
]
NAMES = ["llada", "dream", "sdar-8b", "sdar-4b", "fast-dllm-v2"]


@pytest.mark.parametrize(("config", "names", "count", "size"), PUBLISHED, ids=NAMES)
def test_the_published_tensors_by_name_and_shape(config, names, count, size):
    family = ADAPTERS[config["model_type"]]
    info, layout = family.read_info(config), family.layouts[0]
    expected = layout.expected(info, family.embedding_rows(config, info))
    assert expected == names
    assert len(expected) == count
    assert sum(torch.Size(shape).numel() for shape in expected.values()) == size
    with init_empty_weights():
        adapter = family(info)
    assert sum(p.numel() for p in adapter.parameters()) == size
    assert {p.device.type for p in adapter.parameters()} == {"meta"}
    assert set(layout.sources(info)) == {name for name, _ in adapter.named_parameters()}
    fused = [name for parts in layout.sources(info).values() for name in parts]
    assert sorted(fused) == sorted(expected)


def test_model_info_of_llada_8b():
    info = LladaAdapter.read_info(LLADA_8B, (126348,))
    assert info.stop_ids == (126081, 126348)
    assert (info.mask_id, info.rope_theta, info.norm_eps, info.head_dim) == (126336, 5e5, 1e-5, 128)
    assert (info.logit_shift, info.qkv_bias, info.max_length) == (0, False, 4096)


def test_model_info_of_dream_7b():
    info = DreamAdapter.read_info(DREAM_7B, (151645,))
    assert info.stop_ids == (151643, 151645)
    assert (info.mask_id, info.rope_theta, info.norm_eps, info.head_dim) == (151666, 1e6, 1e-6, 128)
    assert (info.logit_shift, info.qkv_bias, info.d_kv) == (1, True, 512)
    assert info.max_length == 2048
    assert DreamAdapter.read_info(DREAM_7B | {"max_position_embeddings": 700}).max_length == 700


def test_model_info_of_block_models():
    sdar = SdarAdapter.read_info(SDAR_8B, (151645,))
    assert (sdar.attention, sdar.block_size, sdar.block_sizes) == (
        "block_causal", 4, (4, 8, 16, 32, 64),
    )  # fmt: skip
    assert (sdar.qk_norm, sdar.qkv_bias, sdar.logit_shift, sdar.head_dim) == (True, False, 0, 128)
    assert sdar.stop_ids == (151643, 151645)
    own = SdarAdapter.read_info({**SDAR_8B, "block_size": 24})
    assert (own.block_size, own.block_sizes) == (24, (4, 8, 16, 24, 32, 64))
    fast = FastDllmV2Adapter.read_info(FAST_DLLM_V2_7B)
    assert (fast.attention, fast.block_size, fast.block_sizes) == ("block_causal", 32, (32,))
    assert (fast.qk_norm, fast.qkv_bias, fast.logit_shift) == (False, True, 1)
    with pytest.raises(CheckpointError, match="bd_size should be a whole number"):
        FastDllmV2Adapter.read_info({**FAST_DLLM_V2_7B, "bd_size": "32"})


@pytest.mark.parametrize("spelling", ["<|MASK|>", "<MASK>", "|<MASK>|", "<|mdm_mask|>"])
def test_a_mask_that_the_config_lacks_is_read_from_the_tokenizer(tmp_path, spelling):
    (tmp_path / "config.json").write_text(json.dumps({**FAST_DLLM_V2_7B, "mask_token_id": None}))
    tokens = {"added_tokens_decoder": {"151665": {"content": spelling}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(tokens))
    assert read_model_info(tmp_path).mask_id == 151665


LLAMA_NAMES = {
    "model.transformer.wte": "model.embed_tokens", "model.transformer.ln_f": "model.norm",
    "model.transformer.ff_out": "lm_head", "attn_out": "self_attn.o_proj",
    "q_proj": "self_attn.q_proj", "k_proj": "self_attn.k_proj", "v_proj": "self_attn.v_proj",
    "ff_proj": "mlp.gate_proj", "up_proj": "mlp.up_proj", "ff_out": "mlp.down_proj",
    "attn_norm": "input_layernorm", "ff_norm": "post_attention_layernorm",
}  # fmt: skip


def converted(name):
    """The name that LLaDA-V's converter gives a LLaDA tensor."""
    stem = name.removesuffix(".weight")
    if ".blocks." not in stem:
        return LLAMA_NAMES[stem] + ".weight"
    *_, layer, leaf = stem.split(".")
    return f"model.layers.{layer}.{LLAMA_NAMES[leaf]}.weight"


def rename(folder):
    path = folder / "model.safetensors"
    found = {converted(name): tensor for name, tensor in load_file(path).items()}
    save_file(found, path)


def test_llada_with_llamas_tensor_names_has_equal_logits(folder):
    before = logits(folder)
    rename(folder)
    assert torch.equal(logits(folder), before)
    gate, up = (f"model.layers.1.mlp.{name}_proj.weight" for name in ("gate", "up"))
    tensors(folder, lambda found: found.update({gate: found[up], up: found[gate]}))
    assert (logits(folder) - before).abs().max() > 1e-3


def test_a_mixture_of_both_sets_of_names_is_an_error(folder):
    rename(folder)
    old = "model.transformer.blocks.1.ff_proj.weight"
    tensors(
        folder, lambda found: found.update({old: found.pop("model.layers.1.mlp.gate_proj.weight")})
    )
    with pytest.raises(CheckpointError, match=r"layers\.1\.mlp\.gate_proj\.weight: missing"):
        load(folder)


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


def test_a_bias_is_used_by_dream_and_unknown_to_llada(folder, tmp_path):
    bias = "model.transformer.blocks.1.q_proj.bias"
    tensors(folder, lambda found: found.update({bias: torch.ones(32)}))
    with pytest.raises(CheckpointError, match=r"blocks\.1\.q_proj\.bias: unknown"):
        load(folder)
    dream = write_checkpoint(tmp_path / "dream", kind="dream")
    for letter, width in (("q", 32), ("k", 16), ("v", 16)):
        before, name = logits(dream), f"model.layers.0.self_attn.{letter}_proj.bias"
        tensors(dream, lambda found, n=name, w=width: found.update({n: found[n] + torch.arange(w)}))
        assert (logits(dream) - before).abs().max() > 1e-3


@pytest.mark.parametrize("family", ["qwen2", None, ["llada"], {}])
def test_an_unsupported_model_type_is_named(folder, family):
    configure(folder, model_type=family)
    with pytest.raises(CheckpointError, match=r"model_type is .* the engine reads llada and Dream"):
        read_model_info(folder)


def test_embedded_models_start_with_the_default(tmp_path):
    for name, kind in (("tiny-llada", "llada"), ("tiny-dream", "dream"), ("another", "dream")):
        write_checkpoint(tmp_path / "models" / name, kind=kind)
    configure(write_checkpoint(tmp_path / "models" / "guider"), model_type="qwen2")
    found = embedded_models(tmp_path)
    assert list(found) == ["tiny-llada", "another", "tiny-dream"]
    session = Session(found)
    assert session.default_race().a.model == "tiny-llada"
    assert [row["family"] for row in session.catalog()["models"]] == ["llada", "dream", "dream"]
    events = list(session.run(RunSpec(model="tiny-dream", prompt="Hello", gen_length=8,
                                      block_length=8, steps=8, unmasker="dream")))  # fmt: skip
    assert events[-1].reason == "done"

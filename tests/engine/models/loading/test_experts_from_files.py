"""Checkpoints with experts: layouts, published sizes, placement, and errors that name the field."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from engine.config.spec import RunSpec
from engine.models.llada2 import Llada2Adapter
from engine.models.llada_moe import LladaMoeAdapter
from engine.models.loading.checkpoint import Checkpoint, CheckpointError
from engine.models.loading.families import adapter_class, folder_adapter_class
from engine.models.loading.memory_estimate import (
    InsufficientMemoryError,
    active_parameters,
    check_fits,
    parameters,
)
from engine.models.loading.registry import DREAM_7B, LLADA2_MINI, LLADA_8B, LLADA_MOE_7B
from engine.serve.session import Session
from tests.engine.cache.test_forward import full
from tests.engine.models.loading.test_adapters_from_files import load, tensors
from tests.engine.models.loading.test_placement import split
from tests.support.looking import recorded
from tests.support.micro import configure, make_prompts, make_spec, run, write_checkpoint
from tests.support.reference import reference_logits

KINDS = {"llada_moe": LladaMoeAdapter, "llada2": Llada2Adapter}
IDS = torch.tensor([[7, 300, 2, 41, 9, 2]])


@pytest.fixture(params=KINDS)
def kind(request):
    return request.param


@pytest.fixture
def folder(kind, tmp_path):
    return write_checkpoint(tmp_path / "micro", kind=kind)


def test_logits_of_a_loaded_checkpoint(kind, folder):
    adapter = load(folder)
    assert type(adapter) is KINDS[kind]
    assert adapter.info.family == kind
    torch.testing.assert_close(
        full(adapter, IDS), reference_logits(adapter, IDS), atol=1e-9, rtol=0
    )
    named = load_file(folder / "model.safetensors")
    stem = "model.layers.1.mlp.experts.5."
    experts = adapter.block(1).feed_forward
    assert torch.equal(experts.gate_up.weight[5, 16:], named[f"{stem}up_proj.weight"].double())
    assert torch.equal(experts.down.weight[5], named[f"{stem}down_proj.weight"].double())


def stack(found):
    """Replace the single experts of LLaDA-MoE by dInfer's stacked tensors."""
    for layer in range(2):
        stem = f"model.layers.{layer}.mlp."
        single = [
            [found.pop(f"{stem}experts.{e}.{leaf}_proj.weight") for leaf in ("gate", "up", "down")]
            for e in range(8)
        ]
        found[f"{stem}w1"] = torch.stack([torch.cat(one[:2]) for one in single])
        found[f"{stem}w2"] = torch.stack([one[2] for one in single])


def test_stacked_experts_give_the_same_logits(tmp_path):
    folder = write_checkpoint(tmp_path / "micro", kind="llada_moe")
    before = full(load(folder), IDS)
    tensors(folder, stack)
    assert torch.equal(full(load(folder), IDS), before)

    def swap(found):
        found["model.layers.1.mlp.w2"] = found["model.layers.1.mlp.w2"].flip(0)

    tensors(folder, swap)
    assert (full(load(folder), IDS) - before).abs().max() > 1e-3


@pytest.mark.parametrize("places", [
    {"": "disk"},
    {"embedding": "cpu", "blocks.0": "cpu", "blocks.1": "disk", "head": "disk"},
    {"": "cpu", "blocks.1.feed_forward.gate_up": "disk", "blocks.1.feed_forward.router": "disk"},
], ids=["disk", "layers", "leaves"])  # fmt: skip
def test_experts_are_placed_by_module(folder, places, tmp_path):
    adapter = split(folder, places, tmp_path / "offload")
    assert adapter.block(1).feed_forward.gate_up.weight.is_meta
    assert torch.equal(full(adapter, IDS), full(load(folder), IDS))


def test_a_half_precision_checkpoint_decodes(tmp_path):
    folder = write_checkpoint(tmp_path / "micro", kind="llada_moe")
    cls, files = folder_adapter_class(folder), Checkpoint(folder)
    model = cls.from_checkpoint(files, torch.bfloat16, torch.device("cpu"))
    ran = run(model, make_spec(dtype="bfloat16"), make_prompts(5))
    assert not ran.state.masked.any()


PUBLISHED = {  # parameters, tensors, active parameters
    "llada_moe": (LLADA_MOE_7B, 7_356_880_896, 3_219, 1.40),
    "llada2": (LLADA2_MINI, 16_255_643_392, 14_813, 1.11),
}


def test_published_sizes(kind):
    config, count, named, active = PUBLISHED[kind]
    cls = adapter_class(config)
    assert cls is KINDS[kind]
    info = cls.read_info(config)
    with torch.device("meta"):
        adapter = cls(info)
    assert sum(p.numel() for p in adapter.parameters()) == parameters(info) == count
    assert len(cls.layouts[0].expected(info, info.vocab_size)) == named
    assert active_parameters(info) / 1e9 == pytest.approx(active, abs=0.005)


def test_stored_and_active_parameters_are_both_told():
    info = LladaMoeAdapter.read_info(LLADA_MOE_7B)
    with pytest.raises(
        InsufficientMemoryError,
        match=r"its 7\.36 billion parameters \(1\.40 billion active for a token\) at bfloat16",
    ):
        check_fits(info, torch.bfloat16, "cpu", 0, {"cpu": 10**9})


UNSUPPORTED = {
    "llada_moe": {
        "hidden_act": "gelu", "attention_bias": True, "clip_qkv": 8.0, "rope_scaling": {},
        "partial_rotary_factor": 0.5, "qk_layernorm": False, "norm_topk_prob": True,
        "moe_router_score_function": "sigmoid", "moe_router_enable_expert_bias": True,
        "shared_expert_intermediate_size": 64, "moe_layer_freq": [1, 0],
        "routed_scaling_factor": 2.5, "router_num_group": 4, "router_topk_group": 2,
        "num_experts": 1, "num_experts_per_tok": 9, "expert_intermediate_size": None,
    },
    "llada2": {
        "use_bias": True, "use_qkv_bias": True, "use_qk_norm": False, "rope_scaling": {},
        "score_function": "softmax", "moe_router_enable_expert_bias": False,
        "norm_topk_prob": False, "partial_rotary_factor": 0.3, "num_shared_experts": 0,
        "first_k_dense_replace": 9, "n_group": 3, "topk_group": 9, "use_sliding_window": True,
        "num_experts": 2000, "num_experts_per_tok": 5, "moe_intermediate_size": -1,
    },
}  # fmt: skip
CASES = [(kind, field) for kind, fields in UNSUPPORTED.items() for field in fields]


@pytest.mark.parametrize(("kind", "field"), CASES)
def test_an_unsupported_field_is_named(kind, field, tmp_path):
    folder = write_checkpoint(tmp_path / "micro", kind=kind)
    configure(folder, **{field: UNSUPPORTED[kind][field]})
    told = "topk_group" if (kind, field) == ("llada2", "num_experts_per_tok") else field
    with pytest.raises(
        CheckpointError, match=rf"config\.json: {told} (is .* (expected|it must)|should)"
    ):
        load(folder)


@pytest.mark.parametrize("field", ["num_experts", "num_experts_per_tok"])
def test_without_the_number_of_experts_no_checkpoint_is_taken_for_dense(folder, field):
    configure(folder, **{field: ...})
    with pytest.raises(CheckpointError, match=r"num_experts|intermediate_size"):
        load(folder)


def test_experts_of_another_family_are_refused():
    for config in (dict(DREAM_7B), dict(LLADA_8B) | {"architectures": ["LLaDAModelLM"]}):
        with pytest.raises(CheckpointError, match="num_experts is 64, a field of another family"):
            adapter_class(config).read_info(config | {"num_experts": 64})
    assert adapter_class(LLADA_8B).family == "llada"


def drop_experts(found):
    for name in [name for name in found if ".experts." in name]:
        found.pop(name)


def drop_one(found):
    found.pop("model.layers.1.mlp.experts.7.up_proj.weight")


def narrow_norm(found):
    name = next(n for n in found if re.search(r"layers\.1.*(q_norm|query_layernorm)", n))
    found[name] = torch.ones(4)


WRONG = {
    "all": (drop_experts, r"experts\.0\.down_proj\.weight: missing \(\d+ in all\); copy all"),
    "one": (drop_one, r"experts\.7\.up_proj\.weight: missing \(1 in all\); copy all"),
    "head": (narrow_norm, r"norm\.weight: shape \[4\], but config\.json requires \[8\]; copy both"),
}


@pytest.mark.parametrize("change", WRONG)
def test_missing_experts_and_a_wrong_head_size_are_named(folder, change):
    tensors(folder, WRONG[change][0])
    with pytest.raises(CheckpointError, match=WRONG[change][1]):
        load(folder)


def test_a_wrong_number_of_experts_is_named(folder):
    configure(folder, num_experts=16)
    with pytest.raises(CheckpointError, match=r"experts\.10\.down_proj\.weight: missing"):
        load(folder)
    configure(folder, num_experts=4, n_group=2)
    with pytest.raises(
        CheckpointError, match=r"experts\.4\..*: unknown tensor .* from the same checkpoint"
    ):
        load(folder)


def test_without_an_end_of_text_the_padding_ends_it():
    config = {**LLADA2_MINI, "eos_token_id": None}
    info = Llada2Adapter.read_info(config)
    assert (info.eos_id, info.stop_ids) == (156892, (156892,))


def test_the_published_llada2_is_partly_rotated_and_block_causal():
    info = Llada2Adapter.read_info(LLADA2_MINI)
    assert (info.head_dim, info.rotary_dim, info.qk_norm) == (128, 64, True)
    assert (info.attention, info.block_size, info.experts.dense_layers) == ("block_causal", 32, 1)
    assert info.experts.shared_ffn == 512
    assert replace(info, experts=None).experts_of(5) is None
    assert json.dumps(info.to_dict())


def test_llada2_decodes_in_blocks_and_keeps_the_keys_of_finished_ones(tmp_path):
    folder = write_checkpoint(tmp_path / "micro", kind="llada2")
    session = Session({"micro": folder})
    plain = RunSpec(
        model="micro", prompt="1 + 1", gen_length=64, block_length=32, steps=64, dtype="float64",
        unmasker="dynamic", knobs={"dynamic.threshold": 0.3}, record="layers",
    )  # fmt: skip
    whole, frozen = (recorded(session, replace(plain, cache=name)) for name in ("none", "frozen"))
    assert np.array_equal(whole.canvas_at(whole.steps), frozen.canvas_at(frozen.steps))
    assert whole.arrays()["rows"].sum() > frozen.arrays()["rows"].sum()
    assert (whole.arrays()["expert_changes"][:, 0] == 255).all()  # the first layer is dense
    with pytest.raises(ValueError, match="block_length"):
        recorded(session, replace(plain, block_length=16))

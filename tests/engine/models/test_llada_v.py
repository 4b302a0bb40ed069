"""LLaDA-V's checkpoints: Llama-style config and tensor names, vision weights not read."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from engine.config.spec import RunSpec
from engine.models.loading.checkpoint import CheckpointError
from engine.models.loading.families import read_model_info
from engine.serve.session import Session
from tests.engine.models.loading.test_adapters_from_files import load, logits, tensors
from tests.engine.models.test_layouts import rename
from tests.support.micro import configure

NAMES = {
    "d_model": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads", "mlp_hidden_size": "intermediate_size",
    "weight_tying": "tie_word_embeddings",
}  # fmt: skip
KEPT = ("vocab_size", "rms_norm_eps", "rope_theta", "eos_token_id", "pad_token_id")
VISION = {
    "model.vision_tower.vision_tower.embeddings.patch.weight": (4, 3),
    "model.mm_projector.0.weight": (32, 4), "model.mm_projector.0.bias": (32,),
    "model.image_newline": (32,),
}  # fmt: skip


def llada_v(folder, vision=True, **changes):
    """Turn a LLaDA checkpoint into one of LLaDA-V: config, tensor names, vision tower."""
    rename(folder)
    old = json.loads((folder / "config.json").read_text())
    config = {new: old[name] for name, new in NAMES.items()} | {name: old[name] for name in KEPT}
    own = {
        "model_type": "llava_llada", "architectures": ["LlavaLLaDAModelLM"], "hidden_act": "silu",
        "max_position_embeddings": 16384, "attention_bias": False, "mlp_bias": False,
        "rope_scaling": None, "mm_vision_tower": "google/siglip2-so400m-patch14-384",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config | own | changes))
    if vision:
        tensors(folder, lambda found: found.update({n: torch.ones(s) for n, s in VISION.items()}))
    return folder


@pytest.mark.parametrize("model_type", ["llava_llada", "llada"])
def test_logits_equal_those_of_lladas_layout(folder, model_type):
    before, own = logits(folder), read_model_info(folder)
    llada_v(folder, model_type=model_type)
    assert torch.equal(logits(folder), before)
    found = read_model_info(folder)
    assert (found.max_length, found.family, found.mask_id) == (16384, "llada", own.mask_id)
    gate = "model.layers.1.mlp.gate_proj.weight"
    tensors(folder, lambda tensor: tensor.update({gate: tensor[gate] * 1.5}))
    assert (logits(folder) - before).abs().max() > 1e-3


def test_a_run_equals_that_of_lladas_layout(folder):
    spec = RunSpec(model="v", prompt="Hello", gen_length=8, block_length=8, steps=8)
    before = list(Session({"v": folder}).run(spec))[-1]
    after = list(Session({"v": llada_v(folder, mm_vision_tower=None)}).run(spec))[-1]
    assert before.canvas.tolist() == after.canvas.tolist()


def test_a_model_with_a_vision_tower_has_its_system_turn_and_suppressed_ids(folder):
    session = Session({"v": llada_v(folder)})
    spec = RunSpec(model="v", prompt="Hello", gen_length=8, block_length=8, steps=8)
    started, *_, finished = [e for e in session.run(spec) if hasattr(e, "canvas")]
    tokens = {piece: i for i, piece in started.pieces.items()}
    assert b"<|start_header_id|>" in tokens
    assert len(started.canvas[0]) > 60
    assert set(finished.canvas[0, -8:]).isdisjoint(read_model_info(folder).suppressed_ids)


@pytest.mark.parametrize("name", ["model.ear.weight", "vision_tower.weight", "model.mm_projector2"])
def test_other_unknown_tensors_are_an_error(folder, name):
    llada_v(folder)
    tensors(folder, lambda found: found.update({name: torch.ones(3)}))
    with pytest.raises(CheckpointError, match=f"{name}: unknown tensor"):
        load(folder)


def test_vision_weights_in_lladas_layout_are_an_error(folder):
    path = folder / "model.safetensors"
    save_file(load_file(path) | {"model.image_newline": torch.ones(32)}, path)
    with pytest.raises(CheckpointError, match=r"model\.image_newline: unknown tensor"):
        load(folder)


def test_the_mask_id_comes_from_the_config_or_the_tokenizer(folder):
    llada_v(folder, mask_token_id=77)
    assert read_model_info(folder).mask_id == 77
    configure(folder, mask_token_id=...)
    assert read_model_info(folder).mask_id == 2
    path = folder / "tokenizer_config.json"
    data = json.loads(path.read_text())
    data["added_tokens_decoder"]["500"] = data["added_tokens_decoder"].pop("2")
    path.write_text(json.dumps(data))
    assert read_model_info(folder).mask_id == 500
    path.write_text("{}")
    assert read_model_info(folder).mask_id == 2  # of tokenizer.json


def test_a_missing_mask_id_is_an_error(folder):
    llada_v(folder)
    for name in ("tokenizer_config.json", "tokenizer.json"):
        text = (folder / name).read_text().replace("<|mdm_mask|>", "<|other|>")
        (folder / name).write_text(text)
    with pytest.raises(CheckpointError, match=r"no mask token .*mask_token_id"):
        read_model_info(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [({"hidden_size": 33}, "num_attention_heads must divide hidden_size"),
     ({"attention_bias": True}, "attention_bias is True; False expected"),
     ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
     ({"rope_scaling": {"type": "linear"}}, "rope_scaling"),
     ({"num_hidden_layers": None}, "num_hidden_layers should be a whole number")],
)  # fmt: skip
def test_an_unsupported_config_names_its_field(folder, change, message):
    llada_v(folder, **change)
    with pytest.raises(CheckpointError, match=message):
        read_model_info(folder)

"""Guiders as files: sizes of published guiders, loading, and refused folders."""

import json
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config, Qwen2Config

from engine.core.device import is_out_of_memory
from engine.guider.model import (
    causal_info,
    count_parameters,
    find_stop_ids,
    load_guider,
    read_config,
)
from engine.guider.run_guider import GuiderMatch
from engine.models.loading.checkpoint import CheckpointError
from engine.models.loading.families import read_model_info
from engine.models.tokenizer import Tokenizer
from engine.serve.guider_pool import HUB_GUIDERS, GuiderSize
from tests.support.fake_guiders import random_qwen2
from tests.support.micro import TINY

SIZES = {  # hidden, layers, heads, kv heads, ffn, tied, rows, parameters
    "0.5B": (896, 24, 14, 2, 4864, True, 151936),
    "1.5B": (1536, 28, 12, 2, 8960, True, 151936),
    "3B": (2048, 36, 16, 2, 11008, True, 151936),
    "7B": (3584, 28, 28, 4, 18944, False, 152064),
}


CONFIG = {
    "model_type": "llama", "vocab_size": 40, "num_hidden_layers": 2, "hidden_size": 32,
    "num_attention_heads": 8, "num_key_value_heads": 2, "intermediate_size": 48, "head_dim": None,
    "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "tie_word_embeddings": False,
}  # fmt: skip


class WithoutSpecials:
    """A tokenizer without special tokens."""

    specials = frozenset()


def config(size):
    hidden, layers, heads, kv, ffn, tied, rows = SIZES[size]
    return Qwen2Config(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv, intermediate_size=ffn, tie_word_embeddings=tied, vocab_size=rows,
    )  # fmt: skip


@pytest.mark.parametrize("size", SIZES)
def test_parameters_of_the_published_guiders(size):
    hidden, layers, heads, kv, ffn, tied, rows = SIZES[size]
    wide = kv * hidden // heads
    block = hidden * (hidden + 2 * wide) + hidden + 2 * wide  # q, k, v with their biases
    block += hidden * hidden + 3 * hidden * ffn + 2 * hidden
    expected = layers * block + hidden + rows * hidden * (1 if tied else 2)
    assert count_parameters(config(size)) == expected
    assert round(expected / 1e9, 1) == {"0.5B": 0.5, "1.5B": 1.5, "3B": 3.1, "7B": 7.6}[size]
    names = [f"Qwen/Qwen2.5-{kind}{size}-Instruct" for kind in ("", "Math-")]
    listed = [HUB_GUIDERS[name] for name in names if name in HUB_GUIDERS]
    assert set(listed) == {GuiderSize(expected, 2 * layers * wide)}
    assert len(listed) == {"1.5B": 2, "7B": 2}.get(size, 1)


def save_guider(folder, **changes):
    """Save a micro guider with the embedded vocabulary; the folder."""
    random_qwen2(vocab=1024, **changes).float().save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        data = (TINY.parent / "tiny-qwen2" / name).read_bytes()
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("tied", [False, True])
def test_a_saved_guider_is_loaded_in_the_requested_dtype(tmp_path, tied):
    folder = save_guider(tmp_path / "g", tied=tied)
    guider = load_guider("g", folder, torch.float64, torch.device("cpu"))
    again = load_guider("g", folder, torch.float32, torch.device("cpu"))
    assert guider.model.dtype == torch.float64
    assert guider.parameters == count_parameters(guider.model.config)
    assert guider.weight_bytes() == 2 * again.weight_bytes() == guider.parameters * 8
    assert guider.vocab_size == 1024
    ids = torch.tensor([[5, 6, 7]])
    gap = (
        guider.model(ids).logits - random_qwen2(vocab=1024, tied=tied).float().double()(ids).logits
    )
    assert gap.abs().max() < 1e-5
    assert guider.stop_ids[0] == 5
    assert {1, 5} <= set(guider.stop_ids)


def test_weights_are_read_to_their_device(tmp_path, monkeypatch):
    folder, device, given = save_guider(tmp_path / "g"), torch.device("cpu"), []
    read = AutoModelForCausalLM.from_pretrained

    def noted(*args, **options):
        given.append(options.get("device_map"))
        return read(*args, **options)

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", noted)
    assert load_guider("g", folder, torch.float32, device).model.device == device
    assert given == [device]


def test_running_out_of_memory_is_no_damaged_file(tmp_path, monkeypatch):
    folder = save_guider(tmp_path / "g")

    def allocate(*args, **options):
        return torch.empty(1 << 60, dtype=torch.uint8)

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", allocate)
    with pytest.raises(RuntimeError) as caught:
        load_guider("g", folder, torch.float32, torch.device("cpu"))
    assert is_out_of_memory(caught.value)


def test_unusable_folders_are_refused_with_the_name_of_the_file(tmp_path):
    device = torch.device("cpu")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_guider("g", TINY, torch.float32, device)
    bare = save_guider(tmp_path / "bare")
    (bare / "model.safetensors").unlink()
    torch.save({}, bare / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="safetensors"):
        load_guider("g", bare, torch.float32, device)
    odd = save_guider(tmp_path / "odd")
    deeper = {"num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}
    settings = json.loads((odd / "config.json").read_text())
    (odd / "config.json").write_text(json.dumps(settings | deeper))
    with pytest.raises(CheckpointError, match=r"layers\.2\..* is missing"):
        load_guider("g", odd, torch.float32, device)
    (odd / "config.json").write_text(json.dumps(settings | {"model_type": "vit"}))
    with pytest.raises(CheckpointError, match="autoregressive"):
        load_guider("g", odd, torch.float32, device)


def test_a_config_with_too_many_layers_is_refused_by_its_reader(tmp_path):
    folder = save_guider(tmp_path / "deep")
    settings = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"num_hidden_layers": 1_025}))
    with pytest.raises(CheckpointError, match=r"num_hidden_layers is 1025; 1 to 1024 expected"):
        read_config(folder)


def test_a_guider_without_stop_tokens_is_refused():
    with pytest.raises(CheckpointError, match="eos_token_id"):
        find_stop_ids(WithoutSpecials(), Qwen2Config(eos_token_id=None))
    assert find_stop_ids(WithoutSpecials(), Qwen2Config(eos_token_id=[7, 9])) == (7, 9)


def test_a_guider_in_another_layout_is_refused_before_its_weights_are_read(tmp_path):
    folder = save_guider(tmp_path / "g")
    tokenizer, info = Tokenizer(TINY), read_model_info(TINY)
    assert GuiderMatch.from_folder(tokenizer, info, folder).config.model_type == "qwen2"
    GPT2Config(vocab_size=1024, bos_token_id=1, eos_token_id=2).save_pretrained(folder)
    with pytest.raises(CheckpointError, match=r"config\.json: num_key_value_heads is missing"):
        GuiderMatch.from_folder(tokenizer, info, folder)


@pytest.mark.parametrize("wrong", [{"num_attention_heads": 0}, {"num_hidden_layers": None}])
def test_a_config_with_a_wrong_size_is_refused(wrong):
    with pytest.raises(CheckpointError, match="a size is no positive number"):
        causal_info(SimpleNamespace(**CONFIG | wrong), (2,))
    assert causal_info(SimpleNamespace(**CONFIG), (2,)).head_dim == 4

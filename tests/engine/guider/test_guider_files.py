"""Guiders as files: published sizes, what is read of a folder, what is refused."""

import json

import pytest
import torch
from transformers import Qwen2Config

from engine.guider.model import count_parameters, load_guider, stop_ids
from engine.models.loading.checkpoint import CheckpointError
from engine.serve.guider_pool import HUB, Size
from tests.support.fake_guiders import qwen
from tests.support.micro import TINY

SIZES = {  # spec A.3: hidden, layers, heads, kv heads, ffn, tied, rows, parameters
    "0.5B": (896, 24, 14, 2, 4864, True, 151936),
    "1.5B": (1536, 28, 12, 2, 8960, True, 151936),
    "3B": (2048, 36, 16, 2, 11008, True, 151936),
    "7B": (3584, 28, 28, 4, 18944, False, 152064),
}


class Nameless:
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
    listed = [HUB[name] for name in names if name in HUB]
    assert set(listed) == {Size(expected, 2 * layers * wide)}
    assert len(listed) == {"1.5B": 2, "7B": 2}.get(size, 1)


def written(folder, **changes):
    """A micro guider's folder with the embedded vocabulary."""
    qwen(vocab=768, **changes).float().save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        data = (TINY.parent / "tiny-qwen2" / name).read_bytes()
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize("tied", [False, True])
def test_a_saved_guider_is_loaded_in_the_format_asked_for(tmp_path, tied):
    folder = written(tmp_path / "g", tied=tied)
    guider = load_guider("g", folder, torch.float64, torch.device("cpu"))
    again = load_guider("g", folder, torch.float32, torch.device("cpu"))
    assert guider.model.dtype == torch.float64
    assert guider.parameters == count_parameters(guider.model.config)
    assert guider.weight_bytes() == 2 * again.weight_bytes() == guider.parameters * 8
    assert guider.rows == 768
    ids = torch.tensor([[5, 6, 7]])
    gap = guider.model(ids).logits - qwen(vocab=768, tied=tied).float().double()(ids).logits
    assert gap.abs().max() < 1e-5
    assert guider.stops[0] == 5
    assert {1, 5} <= set(guider.stops)


def test_files_that_are_no_guiders_are_refused_by_name(tmp_path):
    device = torch.device("cpu")
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_guider("g", TINY, torch.float32, device)
    bare = written(tmp_path / "bare")
    (bare / "model.safetensors").unlink()
    torch.save({}, bare / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="safetensors"):
        load_guider("g", bare, torch.float32, device)
    odd = written(tmp_path / "odd")
    deeper = {"num_hidden_layers": 3, "layer_types": ["full_attention"] * 3}
    settings = json.loads((odd / "config.json").read_text())
    (odd / "config.json").write_text(json.dumps(settings | deeper))
    with pytest.raises(CheckpointError, match=r"layers\.2\..* is missing"):
        load_guider("g", odd, torch.float32, device)
    (odd / "config.json").write_text(json.dumps(settings | {"model_type": "vit"}))
    with pytest.raises(CheckpointError, match="autoregressive"):
        load_guider("g", odd, torch.float32, device)


def test_a_guider_without_an_end_is_refused():
    with pytest.raises(CheckpointError, match="eos_token_id"):
        stop_ids(Nameless(), Qwen2Config(eos_token_id=None))
    assert stop_ids(Nameless(), Qwen2Config(eos_token_id=[7, 9])) == (7, 9)

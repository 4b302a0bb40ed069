"""Shapes: sizes read out of a line of text, and weights drawn for them."""

import pytest
import torch

from engine.models.loading.families import adapter_for
from engine.models.loading.memory_estimate import parameters
from engine.models.loading.random_weights import config_of, is_shape, random_adapter, random_prompt
from engine.models.loading.registry import DREAM_7B, LLADA_8B

SMALL = {
    "llada": "llada:layers=3,d=32,heads=4,ffn=48,vocab=900",
    "dream": "dream:layers=3,d=32,heads=4,kv=2,ffn=48,vocab=900",
}


@pytest.mark.parametrize(("shape", "published"), [("llada", LLADA_8B), ("dream", DREAM_7B)])
def test_sizes_left_out_are_the_published_ones(shape, published):
    assert is_shape(shape)
    assert config_of(shape) == published
    info = adapter_for(published).read_info(config_of(f"{shape}:layers=2"))
    assert (info.layers, info.vocab_size) == (2, published["vocab_size"])


@pytest.mark.parametrize("kind", SMALL)
def test_every_size_is_read(kind):
    config = config_of(SMALL[kind])
    info = adapter_for(config).read_info(config)
    assert (info.layers, info.d_model, info.n_heads, info.ffn) == (3, 32, 4, 48)
    assert info.n_kv_heads == {"llada": 4, "dream": 2}[kind]
    assert (info.vocab_size, info.mask_id, info.eos_id, info.pad_id) == (900, 899, 898, 898)
    prompt = random_prompt(info, 50)
    assert len(prompt) == 50
    assert prompt == random_prompt(info, 50) != random_prompt(info, 50, seed=2)
    assert max(prompt) < 898


@pytest.mark.parametrize(
    ("shape", "named"),
    [("llada:layrs=2", "layrs"), ("llada:layers=0", "layers"), ("dream:d=x", "d should"),
     ("llada:vocab=40", "vocab should .* 768"), ("llada:d", "d should")],
)  # fmt: skip
def test_a_size_that_is_wrong_is_named(shape, named):
    with pytest.raises(ValueError, match=f"^model: .*{named}"):
        config_of(shape)


@pytest.mark.parametrize("text", ["tiny-llada", "a/llada", "llada-8b", "assets/models/tiny-dream"])
def test_names_and_folders_are_no_shapes(text):
    assert not is_shape(text)


def test_weights_are_drawn_alike_for_one_seed_and_fill_the_whole_model():
    one, same, other = (
        random_adapter(config_of(SMALL["dream"]), torch.float32, torch.device("cpu"), seed)
        for seed in (1, 1, 2)
    )
    assert sum(p.numel() for p in one.parameters()) == parameters(one.info)
    pairs = list(zip(one.parameters(), same.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert not all(torch.equal(a, c) for a, _, c in pairs)

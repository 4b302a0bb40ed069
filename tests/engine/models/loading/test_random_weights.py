"""Models with random weights: sizes in their names, and reproducible weights."""

import pytest
import torch

from engine.models.loading.families import adapter_class
from engine.models.loading.memory_estimate import parameters
from engine.models.loading.random_weights import (
    is_random_model,
    random_adapter,
    random_model_config,
    random_prompt,
)
from engine.models.loading.registry import DREAM_7B, LLADA_8B, LLADA_MOE_7B, MMADA_8B

SMALL = {
    "llada": "llada:layers=3,d=32,heads=4,ffn=48,vocab=1100",
    "dream": "dream:layers=3,d=32,heads=4,kv=2,ffn=48,vocab=1100",
    "mmada": "mmada:layers=3,d=32,heads=4,ffn=48,vocab=1100",
}


@pytest.mark.parametrize(
    ("name", "published"),
    [("llada", LLADA_8B), ("dream", DREAM_7B), ("llada_moe", LLADA_MOE_7B), ("mmada", MMADA_8B)],
)
def test_missing_sizes_are_those_of_the_published_model(name, published):
    assert is_random_model(name)
    assert random_model_config(name) == published
    info = adapter_class(published).read_info(random_model_config(f"{name}:layers=2"))
    assert (info.layers, info.vocab_size) == (2, published["vocab_size"])


@pytest.mark.parametrize("kind", SMALL)
def test_every_size_is_read(kind):
    config = random_model_config(SMALL[kind])
    info = adapter_class(config).read_info(config)
    assert (info.layers, info.d_model, info.n_heads, info.ffn) == (3, 32, 4, 48)
    assert info.n_kv_heads == {"llada": 4, "dream": 2, "mmada": 4}[kind]
    assert (info.vocab_size, info.mask_id, info.eos_id, info.pad_id) == (1100, 1099, 1098, 1098)
    prompt = random_prompt(info, 50)
    assert len(prompt) == 50
    assert prompt == random_prompt(info, 50) != random_prompt(info, 50, seed=2)
    assert max(prompt) < 1098


def test_sizes_of_experts_are_read():
    config = random_model_config("llada_moe:layers=2,d=32,heads=4,experts=8,active=2,ffn=12")
    info = adapter_class(config).read_info(config)
    assert (info.experts.count, info.experts.active, info.experts.ffn) == (8, 2, 12)
    adapter = random_adapter(config | {"vocab_size": 156896}, torch.float32, torch.device("cpu"))
    assert sum(p.numel() for p in adapter.parameters()) == parameters(adapter.info)
    with pytest.raises(ValueError, match="unknown size 'experts'"):
        random_model_config("llada:experts=8")


@pytest.mark.parametrize(
    ("name", "message"),
    [("llada:layrs=2", "layrs"), ("llada:layers=0", "layers"), ("dream:d=x", "d should"),
     ("llada:d=" + "9" * 5000, "d should"),
     ("llada:vocab=40", "vocab should .* 1024"), ("llada:d", "d should")],
)  # fmt: skip
def test_a_wrong_size_is_named(name, message):
    with pytest.raises(ValueError, match=f"^model: .*{message}"):
        random_model_config(name)


@pytest.mark.parametrize("text", ["tiny-llada", "a/llada", "llada-8b", "assets/models/tiny-dream"])
def test_other_names_and_folders_are_no_random_models(text):
    assert not is_random_model(text)


def test_weights_depend_on_the_seed_only():
    one, same, other = (
        random_adapter(
            random_model_config(SMALL["dream"]), torch.float32, torch.device("cpu"), seed
        )
        for seed in (1, 1, 2)
    )
    assert sum(p.numel() for p in one.parameters()) == parameters(one.info)
    pairs = list(zip(one.parameters(), same.parameters(), other.parameters(), strict=True))
    assert all(torch.equal(a, b) for a, b, _ in pairs)
    assert not all(torch.equal(a, c) for a, _, c in pairs)

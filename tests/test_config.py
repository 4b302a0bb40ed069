"""A checkpoint's config.json: what does not fit is refused by the name of its field."""

import pytest
import torch

from engine.models.llada import LladaAdapter
from engine.models.weights import CheckpointError
from tests.micro import configure


def load(folder):
    return LladaAdapter.from_folder(folder, torch.float32, torch.device("cpu"))


CONFIGS = [
    ({"n_layers": ...}, "n_layers should be a whole number"),
    ({"d_model": 32.0}, "d_model should be a whole number"),
    ({"mask_token_id": None}, "mask_token_id should be a whole number"),
    ({"n_heads": 5, "n_kv_heads": 5}, "n_heads must divide d_model"),
    ({"n_kv_heads": 3}, "n_kv_heads n_heads"),
    ({"n_heads": 0}, "n_heads"),
    ({"d_model": 0}, "d_model"),
    ({"alibi": True}, "alibi is True; False expected"),
    ({"activation_type": "gelu"}, "activation_type is 'gelu'; 'silu' expected"),
    ({"include_qkv_bias": True}, "include_qkv_bias"),
    ({"block_type": "sequential"}, "block_type"),
    ({"mask_token_id": 10**6}, "mask_token_id"),
    ({"eos_token_id": 10**6}, "eos_token_id"),
    ({"pad_token_id": -5}, "pad_token_id"),
    ({"embedding_size": 100}, "embedding_size"),
    ({"rope_theta": "many"}, "rope_theta"),
    ({"rope_theta": 0}, "rope_theta"),
    ({"rms_norm_eps": None}, "rms_norm_eps"),
    ({"n_kv_heads": "four"}, "n_kv_heads"),
]


@pytest.mark.parametrize(("change", "message"), CONFIGS)
def test_a_config_that_does_not_fit_names_its_field(folder, change, message):
    configure(folder, **change)
    with pytest.raises(CheckpointError, match=message):
        load(folder)


@pytest.mark.parametrize("text", ["", "nonsense", "[1]", "[" * 100_000])
def test_a_damaged_config_is_refused_by_name(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json: missing in micro"):
        load(folder)

"""A checkpoint's config.json: unsupported values are errors that name their field."""

import pytest

from engine.models.loading.checkpoint import CheckpointError
from engine.models.loading.families import read_model_info
from tests.support.micro import configure, write_checkpoint

LLADA = [
    ({"n_layers": ...}, "n_layers should be a whole number"),
    ({"n_layers": 10**6}, "n_layers is 1000000; 1 to 1024 expected"),
    ({"d_model": 32.0}, "d_model should be a whole number"),
    ({"mask_token_id": "2"}, "mask_token_id should be a whole number"),
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
    ({"d_model": 36}, "heads of an even width"),
]
DREAM = [
    ({"num_hidden_layers": ...}, "num_hidden_layers should be a whole number"),
    ({"hidden_size": 32.0}, "hidden_size should be a whole number"),
    ({"num_attention_heads": 5}, "num_attention_heads must divide hidden_size"),
    ({"num_key_value_heads": 3}, "num_key_value_heads num_attention_heads"),
    ({"intermediate_size": 0}, "intermediate_size"),
    ({"max_position_embeddings": None}, "max_position_embeddings"),
    ({"vocab_size": True}, "vocab_size"),
    ({"mask_token_id": 2.0}, "mask_token_id should be a whole number"),
    ({"bd_size": 32}, "bd_size is 32, a field of another family than dream"),
    ({"mask_token_id": 1024}, "mask_token_id is 1024"),
    ({"eos_token_id": [1, 5]}, "eos_token_id"),
    ({"pad_token_id": -1}, "pad_token_id"),
    ({"rope_theta": -1}, "rope_theta"),
    ({"rms_norm_eps": "small"}, "rms_norm_eps"),
    ({"hidden_act": "gelu"}, "hidden_act is 'gelu'; 'silu' expected"),
    ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "rope_scaling is .*; None expected"),
    ({"use_sliding_window": True, "sliding_window": 64}, "use_sliding_window is True"),
    ({"use_mrope": True}, "use_mrope"),
    ({"quantization_config": {"quant_method": "gptq"}}, "quantization_config is set; use a check"),
    ({"rope_parameters": "many"}, "rope_parameters is 'many'; an object expected"),
    ({"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope_type is 'yarn'"),
    ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; 1 expected"),
    ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
    ({"rope_parameters": {"full_attention": {}}}, "rope_parameters.full_attention"),
    ({"rope_theta": ..., "rope_parameters": {"rope_theta": 0}}, "rope_theta should be a positive"),
]


@pytest.mark.parametrize(("change", "message"), LLADA)
def test_an_unsupported_llada_config_names_its_field(folder, change, message):
    configure(folder, **change)
    with pytest.raises(CheckpointError, match=message):
        read_model_info(folder)


@pytest.mark.parametrize(("change", "message"), DREAM)
def test_an_unsupported_dream_config_names_its_field(tmp_path, change, message):
    folder = write_checkpoint(tmp_path / "micro", kind="dream")
    configure(folder, **change)
    with pytest.raises(CheckpointError, match=message):
        read_model_info(folder)


def test_optional_fields_have_defaults(tmp_path):
    folder = write_checkpoint(tmp_path / "micro", kind="dream")
    left = ("rope_scaling", "use_mrope", "pad_token_id", "rms_norm_eps", "tie_word_embeddings")
    configure(folder, **dict.fromkeys(left, ...))
    info = read_model_info(folder)
    assert (info.pad_id, info.norm_eps, info.tied) == (info.eos_id, 1e-6, False)


@pytest.mark.parametrize(("kind", "own"), [("dream", {}), ("llada2", {"partial_rotary_factor": 1})])
def test_rotary_fields_are_read_where_transformers_5_writes_them(tmp_path, kind, own):
    folder = write_checkpoint(tmp_path / "micro", kind=kind)
    rotary = {"rope_theta": 5e5, "rope_type": "default"} | own
    configure(folder, rope_parameters=rotary, **dict.fromkeys(rotary, ...))
    info = read_model_info(folder)
    assert (info.rope_theta, info.rotary_dim) == (5e5, info.head_dim)


@pytest.mark.parametrize("text", ["", "nonsense", "[1]", "[" * 100_000])
def test_a_damaged_config_is_named(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        read_model_info(folder)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match=r"config\.json: missing in micro"):
        read_model_info(folder)

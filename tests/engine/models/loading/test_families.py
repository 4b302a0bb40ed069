"""The family of a checkpoint: by its architecture, else by the fields of its config."""

import json
import re

import pytest

from engine.models.dream import DreamAdapter
from engine.models.llada import LladaAdapter
from engine.models.loading.checkpoint import CheckpointError
from engine.models.loading.families import adapter_class, embedded_models, read_model_info
from engine.models.loading.registry import DREAM_7B, LLADA_8B
from tests.support.micro import configure, write_checkpoint

LLADA_V = {"model_type": "llada", "hidden_size": 64, "mm_vision_tower": "a tower"}


@pytest.mark.parametrize(
    ("config", "adapter"),
    [(LLADA_8B, LladaAdapter), (DREAM_7B, DreamAdapter), (LLADA_V, LladaAdapter),
     (LLADA_V | {"model_type": "llava_llada"}, LladaAdapter),
     (LLADA_V | {"architectures": ["LlavaLLaDAModelLM"]}, LladaAdapter),
     ({"model_type": "Dream", "architectures": ["DreamModel"]}, DreamAdapter),
     ({"model_type": "llada", "architectures": ["LLaDAModelLM"]}, LladaAdapter),
     (LLADA_8B | {"architectures": []}, LladaAdapter),
     (LLADA_8B | {"architectures": None}, LladaAdapter)],
)  # fmt: skip
def test_the_adapter_of_a_config(config, adapter):
    assert adapter_class(config) is adapter


# LLaDA-MoE has LLaDA's model_type; others share a field or an architecture with a known family.
UNKNOWN = [
    {"model_type": "llada", "hidden_size": 2048},
    dict(LLADA_8B) | {"architectures": ["LLaDASomethingElse"]},
    dict(DREAM_7B) | {"architectures": ["Qwen2ForCausalLM"]},
    dict(DREAM_7B) | {"model_type": "qwen2"},
    dict(LLADA_8B) | {"architectures": ["LLaDAModelLM"], "model_type": "qwen2"},
    dict(LLADA_8B) | {"architectures": ["DreamModel"]},
    dict(LLADA_8B) | {"architectures": [["LLaDAModelLM"]]},
    dict(LLADA_8B) | {"architectures": {"LLaDAModelLM": 1}},
    {},
]


@pytest.mark.parametrize("config", UNKNOWN)
def test_a_config_of_no_known_family_is_refused_by_name(config):
    told = (repr(config.get(field)) for field in ("model_type", "architectures"))
    kind, architecture = map(re.escape, told)
    message = f"config.json: model_type is {kind} and architectures {architecture}; the engine"
    with pytest.raises(CheckpointError, match=message):
        adapter_class(config)


def test_a_mixture_of_experts_is_not_taken_for_llada(folder):
    configure(folder, num_experts=64)
    with pytest.raises(CheckpointError, match=r"num_experts is 64.*another family"):
        read_model_info(folder)


def test_a_folder_of_no_known_family_is_not_listed(tmp_path):
    for name in ("good", "bad", "damaged"):
        write_checkpoint(tmp_path / "models" / name)
    configure(tmp_path / "models" / "bad", architectures=["LLaDASomethingElse"])
    (tmp_path / "models" / "damaged" / "config.json").write_text("{")
    assert set(embedded_models(tmp_path)) == {"good", "damaged"}
    assert json.loads((tmp_path / "models" / "bad" / "config.json").read_text())["d_model"] == 32

"""Small seeded models, jobs and recorders for the engine's tests."""

import json
import math
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from engine.cache.base import CachePolicy, LayerPlan, StepPlan
from engine.cache.calibration.drift_profile import DriftProfile, edges
from engine.cache.store import Site
from engine.catalog import policies
from engine.config.spec import RunSpec
from engine.generate.loop import Denoiser, denoise
from engine.models.base import ModelAdapter, ModelInfo
from engine.models.feed_forward import ExpertsInfo
from engine.models.loading.families import adapter_class
from engine.models.loading.registry import LLADA2_MINI, LLADA_MOE_7B
from engine.record.recorder import Recorder
from engine.serve.drift_meter import BASES
from engine.serve.loaded_model import LoadedModel, make_job
from engine.tiny.export import dream_config
from engine.tiny.network import NetworkShape
from engine.tiny.tokenizer import SPECIALS, TEMPLATES
from tests.support.browser import ROOT
from tests.support.fake_guiders import make_fake_guider

TINY, FILES = ROOT / "assets/models/tiny-llada", ("tokenizer.json", "tokenizer_config.json")
VOCAB, MASK, EOS, EOT = 40, 39, 1, 2
ATOL, NONE = 1e-9, slice(0, 0)
FAMILIES = {
    "mha": (0, 4, 11),
    "gqa": (0, 2, 12),
    "shifted-mha": (1, 4, 13),
    "shifted-gqa": (1, 2, 14),
}
# 12 experts of inner width 10, of which a row uses 3; the sigmoid router has 4 groups of 3.
SOFTMAX_EXPERTS = ExpertsInfo(12, 3, 10)
SIGMOID_EXPERTS = ExpertsInfo(
    12, 3, 10, shared_ffn=14, dense_layers=1, router="sigmoid", groups=4, active_groups=2, scale=2.5
)


class MicroAdapter(ModelAdapter):
    family = "micro"


def make_info(shift=0, kv=4, layers=3, **changes) -> ModelInfo:
    sizes = {
        "family": "micro", "layers": layers, "d_model": 32, "n_heads": 4, "n_kv_heads": kv,
        "ffn": 48, "vocab_size": VOCAB, "max_length": 128, "rope_theta": 1e4, "norm_eps": 1e-6,
        "mask_id": MASK, "eos_id": EOS, "pad_id": EOS, "stop_ids": (EOS, EOT),
        "logit_shift": shift, "qkv_bias": bool(shift),
    }  # fmt: skip
    return ModelInfo(**(sizes | changes))


def fill(adapter: ModelAdapter, seed: int) -> ModelAdapter:
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in adapter.named_parameters():
        noise = torch.randn(tensor.shape, dtype=torch.float64, generator=generator)
        if tensor.ndim == 1 and "norm" in name:
            tensor.copy_(1 + noise / 5)
        else:
            tensor.copy_(noise if "embedding" in name else noise * 2 / math.sqrt(32))
    return adapter


def make_model(seed=0, shift=0, kv=4, layers=3, cls=MicroAdapter, **changes) -> ModelAdapter:
    return fill(cls(make_info(shift, kv, layers, **changes)).double(), seed)


@cache
def model_of(family: str, layers: int = 3) -> ModelAdapter:
    """A shared model; tests must not change it."""
    shift, kv, seed = FAMILIES[family]
    return make_model(seed, shift, kv, layers)


@cache
def block_model_of(family: str, size: int = 4, stop_ids=()) -> ModelAdapter:
    """The model of a family with block-causal attention; by default no token ends its text."""
    shift, kv, seed = FAMILIES[family]
    blocks = {"attention": "block_causal", "block_size": size, "block_sizes": (size,)}
    return make_model(seed, shift, kv, stop_ids=stop_ids, **blocks)


def full_policies() -> dict[str, type[CachePolicy]]:
    """The policies that run on a model with attention over the whole canvas."""
    return {name: kind for name, kind in policies().items() if "full" in kind.attention}


def fitting_model(family: str, cache: str) -> ModelAdapter:
    """The model of a family with the attention that a cache is made for."""
    full = cache.partition("+")[0] in full_policies()
    return model_of(family) if full else block_model_of(family)


# A short run, for tests in which the length has no part.
TWO_BLOCKS = {"gen_length": 8, "block_length": 4, "steps": 8}


def make_spec(**changes) -> RunSpec:
    return RunSpec(
        **({"gen_length": 16, "block_length": 4, "steps": 16, "dtype": "float64"} | changes)
    )


def make_prompts(*lengths: int, seed: int = 5) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randint(3, MASK, (n,), generator=generator).tolist() for n in lengths]


def make_profile(layers=3, lo=1e-3, hi=0.3, base="none", quantity="q0") -> DriftProfile:
    """Drifts spread evenly on a log scale from lo to hi, the same in each layer."""
    left = edges()[:-1]
    inside = ((left >= lo) & (left < hi)).astype(np.int64)
    counts = np.tile(inside, (layers, 1))
    return DriftProfile(base, quantity, counts, (counts * left).sum(1))


@cache
def profiles_of(layers: int) -> dict[tuple[str, str], DriftProfile]:
    """Profiles of every base and quantity, shared; tests must not change them."""
    return {
        (base, quantity): make_profile(layers, base=base, quantity=quantity)
        for base in BASES
        for quantity in ("q0", "v")
    }


def micro_job(model, spec, prompts=None, recorder=None, policy=None, eager=False):
    """A job made by make_job; `policy` returns a policy that need not be registered.

    `eager`: no forward is captured, for tests that hook the model or count its operations.
    """
    profiles, guider = dict(profiles_of(model.info.layers)), make_fake_guider(model.info)
    loaded = LoadedModel(model, None, "", profiles=profiles, make_run_guider=guider)
    job = make_job(loaded, spec, prompts or make_prompts(6), recorder)
    if policy is not None:
        job.make_policy = policy
    return replace(job, capturer=None) if eager else job


@dataclass
class Run:
    state: Denoiser
    events: list

    @property
    def ids(self):
        return self.state.ids

    @property
    def reveals(self) -> dict:
        """(sequence, offset in the answer) -> (block, block step, token)."""
        start = self.state.run.prompt_length
        return {
            (int(s), int(p) - start): (e.block, e.block_step, int(i))
            for e in self.events
            for s, p, i in zip(e.sequences, e.positions, e.ids, strict=True)
        }


def run(model, spec, prompts=None, recorder=None, policy=None, eager=False) -> Run:
    state = Denoiser(micro_job(model, spec, prompts, recorder, policy, eager))
    return Run(state, list(denoise(state)))


class LogitTap(Recorder):
    """Keeps the view, plan, logits and canvas of each step."""

    def __init__(self):
        self.steps = []

    def extra_rows(self, view, plan):
        self._canvas = view.canvas.clone()

    def record(self, view, plan, logits, candidates):
        self.steps.append((view, plan, logits.clone(), self._canvas))


def tapped(model, spec, prompts=None, policy=None, eager=False) -> tuple[Run, list]:
    """A run and what LogitTap kept of it. One without a cache is made once: do not change it."""
    if policy is None and spec.cache == "none":
        return _tapped_once(model, spec, prompts and tuple(map(tuple, prompts)), eager)
    tap = LogitTap()
    return run(model, spec, prompts, tap, policy, eager), tap.steps


@lru_cache(maxsize=128)
def _tapped_once(model, spec, prompts, eager) -> tuple[Run, list]:
    tap = LogitTap()
    return run(model, spec, prompts and [list(ids) for ids in prompts], tap, eager=eager), tap.steps


def widest_gap(a: list, b: list) -> float:
    """Largest difference between the logits of two taps; inf if their positions differ."""
    worst = 0.0 if len(a) == len(b) else math.inf
    for (view, _, x, _), (other, _, y, _) in zip(a, b, strict=False):
        if not torch.equal(view.needs, other.needs):
            return math.inf
        worst = max(worst, (x[..., :MASK] - y[..., :MASK])[view.real].abs().max().item())
    return worst


@dataclass
class Planned(CachePolicy):
    """Test policy: all rows at the first step, then what its functions say."""

    name = "planned"

    rows: object = None
    layer_rows: object = None
    kept: tuple = ("k", "v", "attn", "ffn")

    def __post_init__(self):
        self._view = None

    def sites(self, run):
        return tuple(Site(name) for name in self.kept)

    def begin_step(self, view):
        self._view = view
        if view.step == 0 or self.rows is None:
            return StepPlan()
        return StepPlan(rows=self.rows(view), kind="partial")

    def plan(self, layer, probe):
        first = self._view.step == 0
        return LayerPlan() if first or not self.layer_rows else self.layer_rows(layer, probe)

    @classmethod
    def exact(cls):
        return cls()


def random_rows(seed: int, batch: int, choices: torch.Tensor, n: int) -> torch.Tensor:
    """`n` ascending rows out of `choices` for each sequence, a different set for each."""
    generator = torch.Generator().manual_seed(seed)
    picks = [torch.randperm(len(choices), generator=generator)[:n] for _ in range(batch)]
    return torch.stack([choices[p].sort().values for p in picks])


BLOCK_CONFIGS = {  # in place of fields of Dream's config
    "sdar": {
        "architectures": ["SDARForCausalLM"], "model_type": "sdar", "attention_bias": False,
        "block_size": 4, "head_dim": 12,
    },
    "fast_dllm_v2": {
        "architectures": ["Fast_dLLM_QwenForCausalLM"], "model_type": "Fast_dLLM_Qwen",
        "bd_size": 32,
    },
}  # fmt: skip


def write_checkpoint(folder: Path, seed=0, layers=2, scale=1.0, kind="llada", **changes) -> Path:
    """Write a small random checkpoint of a family with the embedded models' tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    config = CONFIGS.get(kind, _as_dream)(folder, layers)
    config |= BLOCK_CONFIGS.get(kind, {}) | changes
    (folder / "config.json").write_text(json.dumps(config))
    save_file(random_tensors(config, seed, scale), folder / "model.safetensors")
    return folder


def _as_llada(folder: Path, layers: int) -> dict:
    """Write LLaDA's tokenizer; returns the config."""
    for name in FILES:
        (folder / name).write_bytes((TINY / name).read_bytes())
    config = json.loads((TINY / "config.json").read_text())
    sizes = {"d_model": 32, "n_heads": 4, "n_kv_heads": 4, "mlp_hidden_size": 48}
    return config | sizes | {"n_layers": layers}


def _as_dream(folder: Path, layers: int) -> dict:
    """Write the same tokenizer with Dream's special tokens; returns a config with grouped heads."""
    for name in FILES:
        text = (TINY / name).read_text()
        for ours, theirs in zip(SPECIALS["llada"], SPECIALS["dream"], strict=True):
            text = text.replace(f'"{ours}"', f'"{theirs}"')
        (folder / name).write_text(text)
    path = folder / FILES[1]
    config = json.loads(path.read_text()) | {"chat_template": TEMPLATES["dream"]}
    path.write_text(json.dumps(config))
    shape = NetworkShape(vocab=1024, width=32, heads=4, hidden=48, layers=layers)
    return dream_config(shape) | {"num_key_value_heads": 2}


def _as_llada_moe(folder: Path, layers: int) -> dict:
    """Write LLaDA's tokenizer; returns the config of LLaDA-MoE with 8 experts, 3 for a row."""
    sizes = {
        "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 4, "num_experts": 8,
        "num_experts_per_tok": 3, "expert_intermediate_size": 16, "num_hidden_layers": layers,
    }  # fmt: skip
    return {**LLADA_MOE_7B, **sizes, **_ids(_as_llada(folder, layers))}


def _as_llada2(folder: Path, layers: int) -> dict:
    """Write LLaDA's tokenizer; returns the config of LLaDA2.0 with 4 groups of 2 experts."""
    sizes = {
        "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "intermediate_size": 48, "num_experts": 8, "num_experts_per_tok": 3, "n_group": 4,
        "topk_group": 2, "moe_intermediate_size": 16, "num_hidden_layers": layers,
    }  # fmt: skip
    return {**LLADA2_MINI, **sizes, **_ids(_as_llada(folder, layers))}


def _ids(config: dict) -> dict:
    """The context, the constants and the token ids of a config with LLaDA's tokenizer."""
    names = ("vocab_size", "mask_token_id", "eos_token_id", "pad_token_id")
    context = {"max_position_embeddings": config["max_sequence_length"]}
    context |= {"rms_norm_eps": 1e-6, "rope_theta": 1e4}  # those of tests.support.reference
    return {name: config[name] for name in names} | context


CONFIGS = {
    "llada": _as_llada,
    "dream": _as_dream,
    "llada_moe": _as_llada_moe,
    "llada2": _as_llada2,
}


def configure(folder: Path, **changes) -> None:
    """Change fields of a checkpoint's config; the value `...` removes a field."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))


def random_tensors(config: dict, seed: int, scale=1.0) -> dict[str, torch.Tensor]:
    generator, family = torch.Generator().manual_seed(seed), adapter_class(config)
    info, layout = family.read_info(config), family.layouts[0]
    shapes = layout.expected(info, family.embedding_rows(config, info))

    def tensor(name: str, shape: tuple[int, ...]) -> torch.Tensor:
        if len(shape) == 1 and name.endswith("weight"):
            return torch.ones(shape)
        noise = torch.randn(shape, generator=generator) * scale
        return noise if name == layout.embedding else noise * 0.3

    return {name: tensor(name, shape) for name, shape in shapes.items()}

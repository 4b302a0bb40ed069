"""FLOPs: equal to torch's count, and to the published figures of the papers."""

import math
from functools import cache

import numpy as np
import pytest
import torch

from engine.cache.base import RunInfo, StepView
from engine.cache.forward import forward
from engine.cache.methods.dllm_cache import DllmCache
from engine.cache.store import ActivationStore
from engine.catalog import policies
from engine.core.events import PARTS
from engine.generate.loop import Denoiser, denoise
from engine.models.base import ModelInfo
from engine.models.flops import FlopCounter
from tests.support.micro import (
    MicroAdapter,
    fitting_model,
    make_info,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
)
from tests.support.torch_flops import counted

PROMPT, ANSWER, STEPS, BLOCK = 768, 256, 256, 32
N = PROMPT + ANSWER
KNOBS = {
    "dual": {"dual.refresh_interval": 3},
    "dllm_cache": {"dllm_cache.prompt_interval": 4, "dllm_cache.response_interval": 3},
    "spa_cache": {"spa_cache.response_interval": 3},
    "dkv_cache": {"dkv_cache.reload_interval": 3},
    "d2_cache": {"d2_cache.current_k": 4},
    "freecache": {"freecache.block": 4},
}
CACHES = [
    *policies(),
    *(f"{base}+{name}" for name, kind in policies().items() for base in kind.stackable_on),
]


def published(name: str) -> ModelInfo:
    sizes = {
        "llada": {"layers": 32, "d_model": 4096, "n_heads": 32, "n_kv_heads": 32, "ffn": 12288,
                  "vocab_size": 126464},
        "dream": {"layers": 28, "d_model": 3584, "n_heads": 28, "n_kv_heads": 4, "ffn": 18944,
                  "vocab_size": 152064},
    }  # fmt: skip
    return make_info(**sizes[name], qkv_bias=name == "dream")


@pytest.mark.parametrize(
    ("family", "cache"), [("mha", "none"), *(("shifted-gqa", cache) for cache in CACHES)]
)
def test_the_counter_agrees_with_torch(family, cache):
    spec = make_spec(cache=cache, knobs=KNOBS.get(cache, {}))
    state = Denoiser(micro_job(fitting_model(family, cache), spec, make_prompts(6, 10), eager=True))
    assert len({flops for _, flops in counted(denoise(state), 5)}) > 1


def test_guidance_counts_both_branches():
    plain, guided = (
        next(denoise(Denoiser(micro_job(model_of("mha"), make_spec(cfg_scale=scale)))))
        for scale in (0, 2.0)
    )
    assert (guided.flops == 2 * plain.flops).all()
    assert plain.flops[PARTS.index("selection")] == 0


@cache
def step(info, q, k=None, v=None, a=None, f=None, keys=N, select=0, dense_first=False, lm=N):
    """FLOPs of one step whose layers recompute these rows (None: as many as q)."""
    counter = FlopCounter(info)
    for layer in range(info.layers):
        first = dense_first and layer == 0
        rows = [N] * 5 if first else [q] + [q if n is None else n for n in (k, v, a, f)]
        for name, n in zip("qkv", rows, strict=False):
            counter.project(layer, name, n)
        counter.attend(layer, rows[3], keys)
        counter.feed_forward(layer, rows[4])
        counter.select(layer, 0 if first else select)
    counter.head(lm)
    return int(counter.parts().sum())


def mean(steps):
    steps = list(steps)
    return sum(steps) / len(steps) / 1e12


def plain(info):
    return mean([step(info, N)])


def dllm(info, released=False, lm=N):
    few = int(0.25 * ANSWER)

    def one(s):
        prompt, response = s % 50 == 0, s % 7 == 0
        if prompt and response:
            return step(info, N, lm=lm)
        if response:
            return step(info, ANSWER, dense_first=released, lm=lm)
        if not prompt:
            return step(info, few, v=ANSWER, dense_first=released, lm=lm)
        if not released:
            return step(info, PROMPT, lm=lm)
        return step(info, PROMPT + few, v=N, dense_first=True, lm=lm)

    return mean(one(s) for s in range(STEPS))


def block_cache(info, suffix):
    def one(s):
        block = s // BLOCK
        rows = ANSWER - block * BLOCK if suffix else BLOCK
        return step(info, N, lm=N) if s % BLOCK == 0 else step(info, rows, lm=rows)

    return mean(one(s) for s in range(STEPS))


def dkv(info, reload, block):
    """Between reloads, masks and the last decoded token are computed, also by the head."""

    def one(s):
        i = s % block
        if i <= 1 or i % reload == 0:
            return step(info, N)
        known = PROMPT + s // block * block + i - 1
        return step(info, N - known, lm=N - known)

    return mean(one(s) for s in range(STEPS))


def d2_inner(info, rows=93):
    return mean([step(info, rows, select=2 * rows * N * N, lm=rows)])


def dare(info, share, output):
    kept = round((1 - share) * N)
    return mean([step(info, N, a=kept) if output else step(info, N, k=kept, v=kept)])


def spa(info, released=False, refreshed=True):
    """The answer's rows, layer 0 dense: the released curve with its floor, peak at a quarter."""
    dream = info.qkv_bias
    shares, rank = ([0.05 / 1.2, 0.25, 0.25 / 1.2], 32) if dream else ([0.03, 0.25, 0.13], 128)
    counts = [
        max(1, int(ratio * ANSWER))
        for ratio in released_curve(info.layers, 0.5 if dream else 0.75, *shares)
    ]

    def sparse():
        counter = FlopCounter(info)
        for layer, few in enumerate(counts):
            first = layer == 0
            kv = N if first else ANSWER if released else few
            rows = N if first else few
            counter.project(layer, "q", ANSWER if released and dream and not first else rows)
            counter.project(layer, "kv", kv)
            counter.attend(layer, rows, N)
            counter.feed_forward(layer, rows)
            counter.select(layer, 0 if first else 2 * ANSWER * info.d_model * rank)
        counter.head(ANSWER)
        return int(counter.parts().sum())

    def one(s):
        if s == 0 or (refreshed and s % 50 == 0):
            return step(info, N)
        if refreshed and s % 7 == 0:
            return step(info, ANSWER, dense_first=True, lm=ANSWER)
        return sparse()

    return mean(one(s) for s in range(STEPS))


def released_curve(layers, peak_at, first, peak, last):
    for layer in range(layers):
        t = layer / layers
        end, span = (first, peak_at) if t < peak_at else (last, 1 - peak_at)
        share = peak * math.exp(math.log(end / peak) * ((t - peak_at) / span) ** 2)
        yield max(share, 1 / 16) if t < peak_at else share


@pytest.mark.parametrize(
    ("figure", "llada", "dream"),
    [
        (plain, 15.90, 14.90),
        (dllm, 2.81, 2.59),
        (lambda info: dllm(info, released=True), 3.24, 3.05),
        (lambda info: dllm(info, lm=ANSWER), 2.01, 1.76),
        (lambda info: dare(info, 0.4, output=False), 15.03, 14.82),
        (lambda info: dare(info, 0.85, output=True), 14.50, 13.92),
        (lambda info: block_cache(info, suffix=True), 2.66, 2.50),
        (lambda info: block_cache(info, suffix=False), 0.98, 0.92),
        (lambda info: dkv(info, 8, 256), 3.79, 3.55),
        (lambda info: dkv(info, 4, 32), 5.91, 5.53),
        (d2_inner, 1.45, 1.36),
        (lambda info: spa(info), 2.09, 2.12),
        (lambda info: spa(info, released=True), 2.46, 2.27),
        (lambda info: spa(info, refreshed=False), 1.38, 1.48),
    ],
    ids=["plain", "dllm-paper", "dllm-released", "dllm-head-on-answer", "dare-kv", "dare-o",
         "prefix", "dual", "dkv-8-256", "dkv-4-32", "d2", "spa-sparse", "spa-released",
         "spa-never-refreshed"],
)  # fmt: skip
def test_published_settings_give_the_published_teraflops(figure, llada, dream):
    assert figure(published("llada")) == pytest.approx(llada, abs=0.0075)
    assert figure(published("dream")) == pytest.approx(dream, abs=0.0075)


@pytest.mark.parametrize(("name", "known"), [("llada", 2.01), ("dream", 1.76)])
def test_the_policy_for_real_models_gives_the_known_teraflops(name, known):
    """Plans of dLLM-Cache in its published form, for the real models on the meta device."""
    info, meta = published(name), torch.device("meta")
    with meta:
        adapter = MicroAdapter(info)
        canvas = torch.zeros(1, N, dtype=torch.long)
        needs = torch.arange(PROMPT, N)[None]
    policy = DllmCache(50, 7, 0.25, layer0_dense=False, case2="paper")
    run = RunInfo(info, 1, PROMPT, ANSWER, ANSWER)
    policy.start(run)
    store = ActivationStore(info, policy.sites(run), 1, N, adapter.dtype, meta)
    spent: dict[tuple[bool, bool], int] = {}
    for s in range(STEPS):
        kind = (s % 50 == 0, s % 7 == 0)
        if kind not in spent:
            block = slice(PROMPT, N)
            view = StepView(
                run=run, step=s, block=block, block_index=0, block_step=s, canvas=canvas,
                masked=canvas.bool(), needs=needs, real=needs > 0,
                left=np.zeros(1, int), real_host=np.zeros((1, N), bool),
            )  # fmt: skip
            counter = FlopCounter(info)
            plan = policy.begin_step(view)
            forward(adapter, store, policy, plan, canvas, None, view.logit_rows, counter)
            spent[kind] = int(counter.parts().sum())
    assert len(spent) == 4
    figure = mean(spent[s % 50 == 0, s % 7 == 0] for s in range(STEPS))
    assert figure == pytest.approx(known, abs=0.0075)

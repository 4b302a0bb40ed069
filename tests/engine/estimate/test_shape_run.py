"""A run without weights takes the steps of a real one: FLOPs and rows of every step agree."""

import numpy as np
import pytest
import torch

from engine.cache.methods.dllm_cache import DllmCache
from engine.catalog import make_policy, policies, unmaskers
from engine.config.spec import RunSpec
from engine.estimate.assumptions import Assumptions, complete
from engine.estimate.estimate import Target, estimate, known_model, simulate
from engine.guider.alignment import LOOKAHEAD
from tests.support.micro import fitting_model, make_prompts, make_spec, model_of, run

PROMPT = 9
KNOBS = {
    "dual": {"dual.refresh_interval": 3},
    "dllm_cache": {"dllm_cache.prompt_interval": 4, "dllm_cache.response_interval": 3},
    "spa_cache": {"spa_cache.response_interval": 3},
    "dkv_cache": {"dkv_cache.reload_interval": 3},
    "freecache": {"freecache.block": 4},
}
SETTLED = [name for name in policies() if make_policy(make_spec(cache=name)).data_rows() is None]
BLOCKS = ("frozen", "sub_block")
SCHEDULED = [name for name, kind in unmaskers().items() if not kind().confidence_decides]


def simulated(family, spec, **given):
    model = fitting_model(family, spec.cache)
    settled, _ = complete(spec, Assumptions(**given), model.info)
    return simulate(spec, Target("micro", model.info, PROMPT), settled)


def same_steps(found, real):
    assert len(found.events) == len(real.events)
    for mine, its in zip(found.events, real.events, strict=True):
        np.testing.assert_array_equal(mine.flops, its.flops)
        assert (mine.rows, mine.kind, mine.forwards) == (its.rows, its.kind, its.forwards)
        assert mine.recomputed == pytest.approx(its.recomputed)


def test_the_candidates_are_those_of_the_rule():
    knobs = {"fast_dllm_v2.threshold": 2.0, "fast_dllm_v2.sub_block": 2}
    spec = make_spec(unmasker="fast_dllm_v2", knobs=knobs)
    real = run(model_of("mha"), spec, make_prompts(PROMPT))
    same_steps(simulated("mha", spec, tokens_per_forward=1.0), real)


CASES = [
    *((cache, "mha") for cache in SETTLED),
    *((cache, "shifted-gqa") for cache in SETTLED if cache not in BLOCKS),
]


@pytest.mark.parametrize(("cache", "family"), CASES)
def test_flops_of_every_step_are_those_of_a_run(cache, family):
    spec = make_spec(cache=cache, steps=8, knobs=KNOBS.get(cache, {}))
    real = run(fitting_model(family, cache), spec, make_prompts(PROMPT))
    same_steps(simulated(family, spec), real)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("cache", BLOCKS)
def test_flops_of_shifted_blocks_are_those_of_a_run_from_left_to_right(cache, size):
    """The row before a block is computed while the block's first token is not known."""
    knobs = {"sub_block.size": size} if cache == "sub_block" else {"frozen.fuse": size == 2}
    spec = make_spec(cache=cache, unmasker="sequential", steps=8, knobs=knobs)
    real = run(fitting_model("shifted-gqa", cache), spec, make_prompts(PROMPT))
    same_steps(simulated("shifted-gqa", spec), real)


@pytest.mark.parametrize("unmasker", SCHEDULED)
def test_every_schedule_is_followed(unmasker):
    spec = make_spec(cache="prefix", unmasker=unmasker, steps=8)
    real = run(model_of("shifted-mha"), spec, make_prompts(PROMPT))
    same_steps(simulated("shifted-mha", spec), real)


def test_guidance_and_given_tokens_are_counted():
    spec = make_spec(cache="dllm_cache", cfg_scale=1.0, fixed=((1, 5), (6, 7)),
                     knobs={"dllm_cache.cfg_interval": 3})  # fmt: skip
    real = run(model_of("gqa"), spec, make_prompts(PROMPT))
    assert {event.forwards for event in real.events} == {1, 2}
    same_steps(simulated("gqa", spec), real)


@pytest.mark.parametrize("cache", ["dkv_cache", "freecache", "dual"])
def test_each_guidance_branch_has_a_cache_of_its_own(cache):
    """A policy that both branches share takes the second one's step for the next."""
    knobs = {"freecache.window": 8} if cache == "freecache" else KNOBS[cache]
    spec = make_spec(cache=cache, unmasker="sequential", steps=8, cfg_scale=1.0, knobs=knobs)
    real = run(model_of("gqa"), spec, make_prompts(PROMPT))
    same_steps(simulated("gqa", spec), real)


@pytest.mark.parametrize("unmasker", ["certainty", "threshold"])
def test_a_step_that_fills_a_cache_proposes_nothing(unmasker):
    spec = make_spec(cache="frozen", unmasker=unmasker, steps=8)
    found = simulated("mha", spec, tokens_per_forward=1.0 if unmasker == "threshold" else None)
    fills = [event for event in found.events if not len(event.positions)]
    assert len(fills) == 5  # one before each block of the answer
    assert all(event.rows_plain == 0 for event in fills)
    work = sum(event.recomputed for event in found.events)
    assert found.recomputed == pytest.approx(work / (len(found.events) - 5))


def test_other_settings_have_other_flops():
    spec = make_spec(cache="dllm_cache", steps=8, knobs=KNOBS["dllm_cache"])
    real = run(model_of("mha"), make_spec(cache="dllm_cache", steps=8), make_prompts(PROMPT))
    with pytest.raises(AssertionError):
        same_steps(simulated("mha", spec), real)


@pytest.mark.parametrize("tokens", [1.0, 2.5, 4.0])
def test_the_assumed_tokens_a_forward_are_kept(tokens):
    spec = make_spec(cache="dual", unmasker="threshold", gen_length=40, block_length=20)
    found = simulated("mha", spec, tokens_per_forward=tokens)
    assert sum(len(event.positions) for event in found.events) == 40
    assert len(found.events) == pytest.approx(40 / tokens, abs=1)


@pytest.mark.parametrize("cache", ["dare_kv", "dare_o", "d2_cache", "dual+dare_o"])
def test_the_assumed_share_raises_the_work(cache):
    spec = make_spec(cache=cache, steps=16, knobs={"d2_cache.current_k": 4})
    spec = spec if cache == "d2_cache" else make_spec(cache=cache, steps=16)
    few, some, most = (simulated("mha", spec, share=share).flops for share in (0.0, 0.4, 0.8))
    assert few < some < most


@pytest.mark.parametrize("cache", ["dare_kv", "dare_o"])
def test_the_full_share_is_plain_decoding(cache):
    spec, plain = make_spec(cache=cache), make_spec()
    mine, its = simulated("mha", spec, share=1.0), simulated("mha", plain)
    assert mine.recomputed == pytest.approx(its.recomputed)


def test_a_cache_that_reads_values_and_says_nothing_is_named(monkeypatch):
    def reading(self, layer, probe):
        assert probe.h.sum().item() >= 0
        return DllmCache.plan(self, layer, probe)

    spec = make_spec(cache="dual")
    monkeypatch.setattr(type(make_policy(spec)), "plan", reading, raising=False)
    with pytest.raises(ValueError, match="cache: the rows that dual computes depend on values"):
        simulated("mha", spec)


def test_weights_are_read_once_a_product_and_keys_once_an_attention():
    spec = make_spec(cache="dual", steps=16)
    info = model_of("gqa").info
    layer = 2 * info.d_model**2 + 2 * info.d_model * info.d_kv + 3 * info.d_model * info.ffn
    weights = info.layers * layer + info.d_model * info.vocab_size
    found = simulated("gqa", spec)
    number = torch.float64.itemsize
    for work in found.work:
        assert work.weight_bytes == weights * number
        assert work.key_bytes == info.layers * 2 * (PROMPT + 16) * info.d_kv * number
    assert found.work[1].activation_bytes < found.work[0].activation_bytes


def test_logits_that_a_rule_reads_beyond_the_block_are_in_the_memory():
    """A guided step reads those of every mask of the answer."""
    name = "GSAI-ML/LLaDA-8B-Instruct"
    target = Target(name, known_model(name), 64)
    settings = {"gen_length": 128, "block_length": 32, "steps": 128, "dtype": "bfloat16"}
    threshold, guided = (
        estimate(RunSpec(unmasker=rule, **settings), target, "h100")["memory"]["run_bytes"]
        for rule in ("threshold", "guided")
    )
    row = target.info.vocab_size * (2 + 3 * 8)  # in bfloat16, and three times in float64
    assert guided == 128 * row
    assert threshold < guided / 3


def test_a_guided_step_of_one_chunk_drafts_beyond_it_and_commits_no_more():
    knobs = {"guided.multi_chunk": False, "guided.block": 2}
    spec = make_spec(unmasker="guided", knobs=knobs, gen_length=40, block_length=20)
    found = simulated("mha", spec, tokens_per_forward=1024.0)
    assert {len(event.positions) for event in found.events} == {2}
    assert found.logit_rows == 2 + LOOKAHEAD
    model = model_of("mha")
    words = complete(spec, Assumptions(), model.info)[1]
    assert any(f"drafts {LOOKAHEAD} masks beyond the speculation block" in one for one in words)


def test_the_logits_of_both_guidance_branches_are_of_the_same_rows():
    spec = make_spec(cfg_scale=1.0)
    assert simulated("mha", spec).logit_rows == spec.block_length

"""Which caches go with which unmaskers, which can be stacked, and what is refused."""

import numpy as np
import pytest

from engine.catalog import derive_plan, make_policy, policies, unmaskers
from engine.generate.job import split
from engine.generate.loop import Denoiser, denoise
from tests.support.micro import (
    TWO_BLOCKS,
    full_policies,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
    run,
)

STACKS = [
    f"{base}+{name}"
    for name, kind in policies().items()
    for base in kind.stackable_on
    if base in full_policies() and base != "none"
]
CACHES = [*full_policies(), *STACKS]
FAMILIES = ("mha", "shifted-gqa")


@pytest.mark.parametrize(
    ("cache", "unmasker"),
    [
        *((cache, unmasker) for cache in full_policies() for unmasker in unmaskers()),
        *((cache, unmasker) for cache in STACKS for unmasker in ("quota", "threshold", "guided")),
    ],
)
def test_every_cache_takes_every_unmasker(cache, unmasker):
    """A stack takes what both of its caches take.

    The families alternate, so that every cache and every unmasker runs on both.
    """
    family = FAMILIES[(CACHES.index(cache) + list(unmaskers()).index(unmasker)) % 2]
    spec = make_spec(cache=cache, unmasker=unmasker, **TWO_BLOCKS)
    ran = run(model_of(family), spec, make_prompts(7))
    assert not ran.state.masked.any()
    assert (ran.ids[0, 7:] != model_of(family).info.mask_id).all()
    assert len(ran.reveals) == 8
    assert np.array_equal(ran.ids[0, :7], make_prompts(7)[0])


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("change", [{"cfg_scale": 1.5}, {"eos": "fill_eager"}], ids=["cfg", "eos"])
def test_every_cache_takes_guidance_and_an_early_end(cache, change):
    """With guidance every step computes both branches."""
    ran = run(
        model_of("shifted-mha"), make_spec(cache=cache, **TWO_BLOCKS, **change), make_prompts(7)
    )
    assert not ran.state.masked.any()
    assert (ran.ids[0, 7:] != model_of("shifted-mha").info.mask_id).all()
    assert {event.forwards for event in ran.events} == {2 if "cfg_scale" in change else 1}


def decoded(model, spec, prompts):
    """Answers [B, G] of a batch, split where the engine splits it, and the number of its parts."""
    jobs = split(micro_job(model, spec, prompts))
    answers = []
    for job in jobs:
        state = Denoiser(job)
        for _ in denoise(state):
            pass
        answers.append(state.ids[:, job.prompt_length :])
    return np.concatenate(answers), len(jobs)


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("unmasker", ["quota", "threshold"])
def test_a_padded_batch_decodes_what_its_sequences_do_alone(cache, unmasker):
    model, prompts = model_of(FAMILIES[unmasker == "quota"]), make_prompts(6, 9, 7)
    knobs = {"threshold.threshold": 0.3} if unmasker == "threshold" else {}
    spec = make_spec(cache=cache, unmasker=unmasker, knobs=knobs, **TWO_BLOCKS)
    together, parts = decoded(model, spec, prompts)
    alone = np.concatenate([decoded(model, spec, [prompt])[0] for prompt in prompts])
    assert np.array_equal(together, alone)
    assert parts == (1 if unmasker == "quota" or make_policy(spec).speedups.may_wait else 3)
    assert len({tuple(answer) for answer in alone.tolist()}) == 3


@pytest.mark.parametrize(
    "cache",
    ["dual+dllm_cache", "prefix+spa_cache", "freecache+dllm_cache", "dual+prefix",
     "dkv_cache+dare_o", "dllm_cache+dare_kv", "dual+dkv_cache", "prefix+d2_cache"],
)  # fmt: skip
def test_policies_that_choose_the_same_rows_are_refused_with_the_reason(cache):
    with pytest.raises(ValueError, match=r"^cache: .* cannot be stacked on .*: both would choose"):
        derive_plan(make_spec(cache=cache))


@pytest.mark.parametrize("cache", ["dual+", "+dare_o", "dual+dare_o+dare_kv", "dual+nothing"])
def test_an_invalid_stack_is_refused(cache):
    with pytest.raises(ValueError, match=r"^cache: "):
        derive_plan(make_spec(cache=cache))

"""Dream's sampler with every cache, in batches and branches, and compared with the release."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from engine.catalog import make_policy, make_unmasker
from engine.record.recorder import Recorder
from engine.unmask.schedule import BlockProgress
from tests.conformance import samplers
from tests.conformance.cases import GOLDENS, read_cases
from tests.conformance.runs import decode
from tests.engine.cache.test_compositions import decoded
from tests.support.micro import (
    MASK,
    TWO_BLOCKS,
    full_policies,
    make_prompts,
    make_spec,
    model_of,
    run,
    tapped,
    widest_gap,
)

HOT = {"dream.alg": "entropy", "dream.top_p": 0.9, "dream.alg_temp": 0.2}
ORIGIN = {"dream.alg": "origin"}
RELEASED = {"dream.alg": "topk_margin", "dream.schedule": "released"}
SETTINGS = {"hot": HOT, "origin": ORIGIN, "released": RELEASED}


def dream(knobs, **changes):
    return make_spec(unmasker="dream", knobs=knobs, temperature=0.7, **changes)


@pytest.mark.parametrize("knobs", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("cache", full_policies())
def test_every_cache_runs_with_every_setting(cache, knobs):
    ran = run(model_of("shifted-gqa"), dream(knobs, cache=cache, steps=8), make_prompts(7))
    assert not ran.state.masked.any()
    assert (ran.ids != MASK).all()
    assert len(ran.reveals) == 16


@pytest.mark.parametrize("knobs", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("cache", ["none", "dual", "dkv_cache", "d2_cache"])
def test_a_batch_decodes_as_its_sequences_do_alone(cache, knobs):
    model, prompts = model_of("shifted-gqa"), make_prompts(6, 9, 7)
    spec = dream(knobs, cache=cache, **TWO_BLOCKS)
    alone = []
    for i, prompt in enumerate(prompts):
        alone.append(decoded(model, replace(spec, seed=i), [prompt])[0])
    together, _ = decoded(model, spec, prompts)
    assert np.array_equal(together, np.concatenate(alone))
    assert len({tuple(answer) for answer in together.tolist()}) == 3


EXACT = [(name, kind.exact()) for name, kind in full_policies().items() if name != "none"]


@pytest.mark.parametrize(("name", "exact"), [e for e in EXACT if e[1] is not None])
def test_exact_settings_equal_no_cache(name, exact):
    model, spec = model_of("shifted-gqa"), make_spec(unmasker="dream", steps=8, knobs=RELEASED)
    plain, expected = tapped(model, spec)
    ran, steps = tapped(model, spec, policy=type(exact).exact)
    assert np.array_equal(plain.ids, ran.ids)
    assert widest_gap(expected, steps) < 1e-9


def test_a_branch_continues_the_schedule_of_its_parent():
    rule = make_unmasker(make_spec(unmasker="dream", knobs=RELEASED))
    rule.start(None, 8, {6: BlockProgress(16, 7)})
    assert rule.block_schedule.tokens_due(np.array([5]), slice(6, 22), 0).tolist() == [5]
    assert rule.block_schedule.tokens_due(np.array([5]), slice(22, 38), 0).tolist() == [0]


FAST = [case for case in read_cases(GOLDENS) if case.method == "dream_fast"]


@pytest.mark.parametrize("case", FAST, ids=lambda case: case.id)
def test_recorded_runs_of_the_release_depend_on_its_defects(case):
    setup = samplers.setup(case)
    own = {"make_policy": make_policy, "make_unmasker": make_unmasker}
    clean = replace(setup, **{name: partial(make, setup.spec) for name, make in own.items()})
    recorded = case.arrays["unmask_call"]
    assert np.array_equal(decode(setup, case.prompt, Recorder()).order, recorded)
    assert not np.array_equal(decode(clean, case.prompt, Recorder()).order, recorded)


def test_the_first_step_of_a_block_follows_the_rule():
    """Unlike Fast-dLLM's sampler, which commits a block's first token in its first step."""
    model, firsts = model_of("shifted-gqa"), []
    for seed in range(6):
        ran = run(model, make_spec(unmasker="dream", cache="dual"), make_prompts(6, seed=seed))
        firsts += [ran.reveals[0, offset][1] for offset in range(0, 16, 4)]
    assert 0 in firsts
    assert max(firsts) > 0

"""FreeCache with drafts that extend past blocks: one key a position, each of the right age."""

import numpy as np
import pytest

from engine.generate.loop import Denoiser, denoise
from tests.engine.cache.methods.test_freecache import CLEAN, SLIDING, STALE, free
from tests.engine.cache.methods.test_freecache_keys import Early, fed
from tests.support import tagged_keys
from tests.support.micro import micro_job, model_of

LOOSE = {"guided.rule": "topk", "guided.k": 24}
CASES = [
    (CLEAN, 0, 4), (CLEAN, 1, 2), (STALE, 0, 2), (STALE, 1, 4), (SLIDING, 0, 4), (SLIDING, 1, 2),
    ({"freecache.block": 3}, 1, 4), ({"freecache.block": 1}, 0, 4), ({"freecache.window": 9}, 0, 2),
]  # fmt: skip


def spec_of(knobs):
    return free(knobs, unmasker="guided", knobs=LOOSE)


@pytest.mark.parametrize(("knobs", "shift", "kv"), CASES)
def test_every_step_attends_to_one_key_a_position_of_the_right_age(knobs, shift, kv):
    """Two sequences commit different numbers of tokens, across blocks of run and cache."""
    assert tagged_keys.mismatches(spec_of(knobs), fed(knobs, shift), shift, kv) == []


@pytest.mark.parametrize("knobs", [CLEAN, SLIDING])
def test_tags_detect_an_edge_that_is_off_by_one(knobs):
    values = {key.split(".")[1]: value for key, value in knobs.items()}
    policy = lambda: Early(**values)  # noqa: E731
    assert tagged_keys.mismatches(spec_of(knobs), fed(knobs, 1), 1, policy=policy) != []


@pytest.mark.parametrize("knobs", [CLEAN, SLIDING])
def test_these_runs_cross_blocks_and_separate_the_sequences(knobs):
    state = Denoiser(micro_job(model_of("mha"), spec_of(knobs), tagged_keys.PROMPTS))
    events = list(denoise(state))
    sizes = [np.bincount(event.sequences, minlength=2) for event in events]
    assert any(a != b for a, b in sizes)
    assert max(map(max, sizes)) > 4 - (knobs is SLIDING)

"""dKV-Cache's keys: one a position, of the right age, and a batch's sequences kept apart."""

import pytest
import torch

from engine.cache.methods.dkv_cache import DkvCache
from tests.engine.cache.methods.test_dkv_cache import dkv, fed, greedy
from tests.engine.generate.test_batch import PROMPTS, logits_as_alone, logits_by_reveal
from tests.support import tagged_keys
from tests.support.micro import model_of, tapped


@pytest.mark.parametrize(("shift", "kv"), [(0, 4), (1, 2)])
def test_every_step_sees_one_key_a_position_of_the_right_age(shift, kv):
    spec = dkv(block_length=8)
    assert tagged_keys.mismatches(spec, fed(spec, shift), shift, kv) == []


@pytest.mark.parametrize(("shift", "kv"), [(0, 2), (1, 4)])
def test_every_greedy_step_sees_one_key_a_position_of_the_right_age(shift, kv):
    spec = greedy(1, block_length=8)
    _, steps = tapped(model_of("shifted-mha" if shift else "mha"), spec, tagged_keys.PROMPTS)
    orders = [[o.tolist() for o in view.order] for view, _, _, _ in steps]
    assert tagged_keys.mismatches(spec, fed(spec, shift, orders), shift, kv) == []


class Undelayed(DkvCache):
    """Keeps a token from the very step in which it is decoded: what it was then is a mask."""

    def begin_step(self, view):
        self._masked_before = view.masked_host
        return super().begin_step(view)


def test_tags_catch_a_cache_without_the_delay():
    spec = dkv(block_length=8)
    wrong = tagged_keys.mismatches(spec, fed(spec, 0), policy=lambda: Undelayed(reload_interval=3))
    assert wrong != []


@pytest.mark.parametrize("family", ["mha", "shifted-gqa"])
@pytest.mark.parametrize("make", [dkv, greedy])
def test_logits_of_a_batch_equal_those_of_single_runs(family, make):
    spec = make(block_length=8, temperature=0.7)
    changes = {n: getattr(spec, n) for n in ("cache", "block_length", "temperature", "knobs")}
    together = logits_as_alone(model_of(family), changes)
    other = logits_by_reveal(model_of(family), changes | {"seed": 9}, [PROMPTS[0]])
    alone = {key: logits for key, logits in together.items() if key[0] == 0}
    assert set(other) != set(alone) or any(not torch.equal(other[k], alone[k]) for k in alone)

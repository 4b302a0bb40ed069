"""FreeCache's keys: which are attended to, how old they are, and the frontier of each sequence."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from engine.cache.base import StepPlan
from engine.cache.methods.freecache import FreeCache
from engine.core.rows import ALL
from engine.generate.loop import Denoiser
from tests.engine.cache.methods.test_freecache import CLEAN, SLIDING, STALE, P, T, free
from tests.engine.generate.test_batch import PROMPTS, logits_as_alone
from tests.support import tagged_keys
from tests.support.micro import make_prompts, micro_job, model_of, tapped, widest_gap


def frontiers(masked):
    first = torch.where(masked.any(1), masked.int().argmax(1), T)
    return torch.where(masked.any(1), first, first.min())


def fed(knobs, shift):
    """Rows and right edges of a step by the definition, for each sequence on its own."""
    size, width = knobs.get("freecache.block", 64), knobs.get("freecache.window")

    def expected(step, block, block_step, masked):
        at, edges = torch.arange(T).expand(2, -1), torch.full((2,), T)
        late = knobs.get("freecache.freeze") == "stale"
        first = frontiers(masked[-1] if late or width else masked[max(step - 1, 0)])
        if step == 0:
            return at >= 0, edges
        if width is None:
            first = P + (first - P) // size * size
            return at >= first[:, None] - shift, edges
        edges = (first - 1 + width).clamp_max(T)
        return (at >= first[:, None] - 1 - width) & (at < edges[:, None]), edges

    return expected


@pytest.mark.parametrize(
    ("knobs", "shift", "kv"),
    [(CLEAN, 0, 4), (CLEAN, 1, 2), (STALE, 0, 2), (STALE, 1, 4), (SLIDING, 0, 4), (SLIDING, 1, 2),
     ({"freecache.block": 3}, 1, 4), ({"freecache.window": 9}, 0, 2)],
)  # fmt: skip
def test_every_step_sees_one_key_a_position_of_the_right_age(knobs, shift, kv):
    """Each of two sequences by its own frontier, though they part within a block."""
    spec = free(knobs, unmasker="threshold", knobs={"threshold.threshold": 0.3})
    assert tagged_keys.mismatches(spec, fed(knobs, shift), shift, kv) == []


@dataclass
class Early(FreeCache):
    """Rows begin one before the window's left edge, as where writes and rows disagree."""

    def begin_step(self, view):
        plan = super().begin_step(view)
        if plan.rows is ALL or isinstance(plan.rows, torch.Tensor) or plan.rows.start == 0:
            return plan
        return StepPlan(slice(plan.rows.start - 1, plan.rows.stop), plan.keys, plan.key_mask)


@pytest.mark.parametrize("knobs", [CLEAN, SLIDING])
def test_tags_catch_an_edge_that_is_one_off(knobs):
    spec = free(knobs, unmasker="quota")
    values = {key.split(".")[1]: value for key, value in knobs.items()}
    assert tagged_keys.mismatches(spec, fed(knobs, 1), 1) == []
    assert tagged_keys.mismatches(spec, fed(knobs, 1), 1, policy=lambda: Early(**values)) != []


@dataclass
class Shared(FreeCache):
    """Every sequence follows the earliest frontier of its batch."""

    def begin_step(self, view):
        plan = super().begin_step(view)
        if not isinstance(plan.rows, torch.Tensor):
            return plan
        return StepPlan(slice(int(plan.rows.min()), int(plan.rows.max()) + 1), kind="partial")


@pytest.mark.parametrize(
    ("family", "knobs"),
    [("mha", CLEAN), ("shifted-gqa", STALE), ("shifted-mha", {"freecache.block": 3}),
     ("gqa", {"freecache.block": 1}), ("mha", SLIDING), ("shifted-gqa", SLIDING)],
)  # fmt: skip
def test_logits_of_a_batch_equal_those_of_single_runs(family, knobs):
    """Prompts of three lengths; who ends a block early waits for the others."""
    knobs = {"threshold.threshold": 0.25} | knobs
    changes = {"cache": "freecache", "unmasker": "threshold", "knobs": knobs}
    together = logits_as_alone(model_of(family), changes)
    steps = {s: {key[1:3] for key in together if key[0] == s} for s in range(3)}
    assert steps[0] != steps[1] or steps[0] != steps[2]


def test_a_waiting_sequence_needs_no_row_before_the_moved_window():
    """A window inside the block being decoded, and a sequence that is through with that block."""
    spec = free(STALE | {"freecache.block": 3}, unmasker="threshold")
    state = Denoiser(micro_job(model_of("mha"), spec, make_prompts(6, 6)))
    state.finalize(state.step(slice(6, 10), 0, 0))
    state.masked[:] = np.arange(T) >= np.array([[9], [10]])
    event = state.finalize(state.step(slice(6, 10), 0, 1))
    assert (event.sequences.tolist(), event.positions.tolist()) == ([0], [9])
    assert event.rows == T - 9


def test_a_shared_frontier_would_change_results():
    model, spec = model_of("mha"), free({"freecache.block": 1}, unmasker="quota")
    own, shared = (
        tapped(model, spec, PROMPTS, policy=lambda cls=cls: cls(block=1))[1]
        for cls in (FreeCache, Shared)
    )
    assert widest_gap(own, shared) > 1e-6

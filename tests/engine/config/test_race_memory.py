"""The memory of both runs of a race: what each keeps, one guider and the larger step."""

import pytest

from engine.config.race_memory import RaceMemory


def plan(kept, step, guider=0):
    """A plan with weights of 6 bytes."""
    known = (guider or 0) + kept + step
    return {
        "weights_bytes": 6, "memory_bytes": 6 + known, "kept_bytes": kept, "guider_bytes": guider
    }  # fmt: skip


@pytest.mark.parametrize(
    ("plans", "runs", "guider"),
    [
        ([plan(3, 1)], 4, 0),
        ([plan(3, 1), plan(2, 2)], 7, 0),
        ([plan(0, 3), plan(0, 1, guider=4)], 7, 4),
        ([plan(0, 2, guider=4), plan(0, 2, guider=4)], 6, 4),
        ([plan(1, 2, guider=None), plan(1, 2)], 4, 0),
    ],
)
def test_runs_keep_their_caches_share_a_guider_and_compute_one_by_one(plans, runs, guider):
    assert RaceMemory.of(plans) == (runs, guider)

"""Calls of the releases that the engine does not make."""

import pytest

from tests.compat.test_samplers import (
    DREAM,
    FedRows,
    assert_same,
    decoded,
    dream_fast,
    negative_entropy,
)


@pytest.mark.parametrize("cache", ["prefix", "dual"])
@pytest.mark.parametrize(
    ("alg", "steps"), [("confidence_threshold", 4), ("entropy", 4), ("entropy", 8)]
)
def test_the_cached_sampler_for_dream_calls_twice_in_a_block_of_one_position(cache, alg, steps):
    settings = {"gen_length": 4, "block_length": 1, "steps": steps, "cache": cache, "alg": alg}
    recorder = FedRows()
    found = decoded("dream_fast", DREAM, settings, recorder)
    assert_same(found, dream_fast(4, 1, 1, negative_entropy))
    assert found.order.tolist() == [0, 2, 4, 6]
    assert recorder.fed[::2] == [list(range(9))] * 4
    last = 9 if cache == "prefix" else 0
    assert recorder.fed[1::2] == [list(range(p, max(p + 1, last))) for p in range(5, 9)]

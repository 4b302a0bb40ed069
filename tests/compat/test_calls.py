"""Calls of the releases that the engine does not make, or counts as one with another."""

import numpy as np
import pytest

from tests.compat.test_dream import dream_fast, negative_entropy
from tests.compat.test_samplers import DREAM, FedRows, assert_same, decoded
from tests.conformance.cases import Case


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


def test_the_two_calls_of_a_guided_step_of_dllm_cache_count_as_one_step(tmp_path):
    """The first five steps and every third make two calls; here are eight steps."""
    conditional = np.array([0, 2, 4, 6, 8, 10, 11, 13])
    logit_calls = np.array([0, 1, 2, 3, 10, 12])
    selections = np.array([2, 3, 13])
    np.savez(
        tmp_path / "case.npz",
        nfe=14,
        unmask_call=np.array([1, 3, 5, 7, 9, 10, 12, -1]),
        in_pos_mask=np.arange(14)[:, None].astype(np.uint8),
        out_rows=np.arange(14),
        logit_call=logit_calls,
        logit_pos=logit_calls + 20,
        logits=logit_calls[:, None] / 2,
        upd_call=selections,
        **{f"upd_{name}": selections for name in ("layer", "idx", "margin", "stable")},
    )
    settings = {"cfg_scale": 0.5, "cfg_interval": 3}
    entry = {"id": "case", "method": "dllm_cache", "settings": settings}
    found = Case(entry, tmp_path).arrays
    assert found["nfe"] == 8
    assert found["unmask_call"].tolist() == [0, 1, 2, 3, 4, 5, 6, -1]
    assert found["in_pos_mask"][:, 0].tolist() == found["out_rows"].tolist() == conditional.tolist()
    assert found["logit_call"].tolist() == [0, 1, 5]
    assert found["logit_pos"].tolist() == [20, 22, 30]
    assert found["logits"].tolist() == [[0.0], [1.0], [5.0]]
    assert found["upd_call"].tolist() == [1, 7]
    assert found["upd_idx"].tolist() == [2, 13]
    plain = Case(entry | {"settings": {"cfg_scale": 0.0}}, tmp_path).arrays
    assert plain["nfe"] == 14

"""Settings of the releases that few recorded cases name, beside what follows from their code."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.compat.test_samplers import DREAM, LLADA, SPA, FedRows, MicroCase, decoded
from tests.conformance import samplers
from tests.conformance.cases import GOLDENS, Case, UnknownCaseError, read_cases
from tests.conformance.compare import compare, observe
from tests.conformance.recorders import ObservedRecorder, ShippedRecorder

D2 = {"gen_length": 8, "block_length": 8, "steps": 8, "cache": "none"}


def micro_case(method, settings) -> Case:
    return MicroCase({"method": method, "model": LLADA, "settings": settings}, GOLDENS)


def test_d2_caches_factor_never_takes_all_candidates_but_the_last():
    found = decoded("d2", LLADA, D2 | {"factor": 100.0})
    assert np.bincount(found.order).tolist() == [7, 1]


def test_d2_caches_sampler_has_a_threshold_and_other_measures():
    assert decoded("d2", LLADA, D2 | {"threshold": 0.0}).state.step_index == 1
    found = samplers.spec_of(micro_case("d2", D2 | {"alg": "topk_margin"}))
    assert (found.unmasker, found.knobs) == ("quota", {"quota.score": "margin"})
    for mixed in ({"threshold": 0.5}, {"alg": "entropy"}):
        with pytest.raises(UnknownCaseError):
            samplers.spec_of(micro_case("d2", D2 | {"sigma": 10.0} | mixed))


@pytest.mark.parametrize("window", [0, 2])
def test_d2_cache_feeds_dreams_last_prompt_row_for_a_candidate_or_in_a_gap(window):
    """A share of 1 feeds all other rows."""
    chosen = {"current_k": 8, "rollout_p": 1.0, "inflate_w": window}
    recorder = FedRows()
    found = decoded("d2", DREAM, D2 | {"cache": "d2", "cache_args": chosen}, recorder)
    first = int(found.order[0])
    assert first < 7
    expected = [(step <= first) or window == 2 for step in range(8)]
    assert [4 in rows for rows in recorder.fed] == expected
    assert all({*range(13)} - {*rows} <= {4} for rows in recorder.fed)


@pytest.mark.parametrize("method", ["dkv_decode", "dkv_greedy"])
def test_dkv_cache_may_be_off(method):
    settings = {"gen_length": 8, "block_length": 8, "steps": 8, "enable_cache": False, "reload": 4}
    assert samplers.spec_of(micro_case(method, settings | {"window": 2})).cache == "none"


@pytest.mark.parametrize(("given", "rank"), [(6, 6), (1, 16), (0.25, 4)])
def test_a_rank_of_spa_cache_of_at_most_1_is_a_share_of_the_width_of_v(given, rank):
    settings = SPA | {"gen_length": 16, "steps": 16, "proxy_rank": given}
    case = micro_case("spa", settings)
    assert case.load_adapter().info.d_kv == 16
    assert samplers.spec_of(case).knobs["spa_cache.rank"] == rank


def test_spa_cache_returns_an_answer_of_masks_if_masks_are_left():
    one = next(case for case in read_cases(GOLDENS) if case.id == "spa-r16-thr0.8")
    case = replace(one, entry={**one.entry, "settings": one.settings | {"steps": 8}})
    none = {name: values[:0] for name, values in one.arrays.items() if name.startswith("logit")}
    prompt, masks = one.arrays["prompt"], np.full(64, 511)
    case.__dict__["arrays"] = {"prompt": prompt} | none
    found = observe(case)[0]
    order = np.where(found.order == 7, -1, found.order)  # what the last call committed is unseen
    case.arrays.update(
        final_ids=np.concatenate((prompt, masks)), unmask_call=order, nfe=np.array(8),
        in_pos_mask=np.zeros((8, 11), np.uint8),
    )  # fmt: skip
    assert found.state.step_index == 8
    assert (found.order == 7).any()
    assert compare(case).differences == ["as shipped: no logits were compared"]
    order[found.order.argmin()] = 3
    assert "unmask_call differs" in compare(case).differences[0]


@pytest.mark.parametrize("recorder", [ObservedRecorder, ShippedRecorder])
def test_logits_that_an_unstable_selection_changes_are_not_compared(recorder):
    columns = ("upd_call", "upd_layer", "upd_idx", "upd_stable")
    rows = (np.array([2, 3]), np.array([1, 1]), np.array([[0], [1]]), np.array([True, False]))
    calls = np.array([2, 3, 4])
    logits = {"logit_call": calls, "logit_pos": calls, "logits": np.zeros((3, 5), np.float32)}
    found = recorder({**dict(zip(columns, rows, strict=True)), **logits}).logits
    for call in calls:
        found.compare(call, found.entries(call), torch.full((1, 5), float(call)))
    assert (found.compared, found.error()) == (3, 2.0)


@pytest.mark.parametrize(
    ("name", "differences"),
    [
        ("dkv-greedy-reload4-w0", []),
        ("dkv-decode-reload2-2tok", ["as shipped: no logits were compared"]),
    ],
)
def test_a_run_in_a_drawn_order_may_compute_none_of_the_recorded_logits(name, differences):
    case = next(one for one in read_cases(GOLDENS) if one.id == name)
    case.arrays.update({n: v[:0] for n, v in case.arrays.items() if n.startswith("logit")})
    assert compare(case).differences == differences

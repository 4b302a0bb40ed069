"""Special rules of the public samplers, beside plain loops on small models."""

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch

from engine.core.rows import to_mask
from engine.models.base import ModelAdapter
from engine.record.recorder import Recorder
from tests.conformance import samplers
from tests.conformance.cases import FOLDERS, Case, read_cases
from tests.conformance.runs import Decoded, decode
from tests.support.micro import MASK, model_of
from tests.support.plain_caches import PlainDllm, PlainSpa
from tests.support.plain_model import PlainModel, PlainRun, best, even_quota, ranked

PROMPT = torch.tensor([7, 21, 3, 30, 12])
LLADA, DREAM = "gqa", "shifted-gqa"


@dataclass(frozen=True)
class MicroCase(Case):
    """A case of a small float64 model."""

    config = MappingProxyType[str, Any]({})

    def load_adapter(self) -> ModelAdapter:
        return model_of(self.entry["model"])


def decoded(method, model, settings, recorder=None, **arrays) -> Decoded:
    entry = {"id": "case", "method": method, "model": model, "settings": settings}
    case = MicroCase(entry, Path())
    case.__dict__["arrays"] = arrays
    return decode(samplers.setup(case), PROMPT, recorder or Recorder())


def assert_same(found: Decoded, expected: PlainRun) -> None:
    assert found.state.ids[0].tolist() == expected.ids.tolist()
    assert found.order.tolist() == expected.order
    assert found.state.step_index == expected.calls


def started(length) -> PlainRun:
    return PlainRun(PROMPT, length, MASK)


def llada(forward, blocks, size, steps) -> PlainRun:
    """LLaDA's loop with `steps` a block; each runs a forward, also one without masks."""
    run = started(blocks * size)
    for start in range(len(PROMPT), len(run.ids), size):
        for count in even_quota(size, steps):
            z = forward(run.ids)
            order = ranked({p: best(z[p])[0] for p in run.masks(start, start + size)})
            run.commit({p: best(z[p])[1] for p in order[:count]})
    return run


def guided_dllm(scale, interval):
    """dLLM-Cache with guidance, whose unconditional logits are computed at intervals."""
    model, calls = PlainModel(model_of(LLADA)), iter(range(10**6))
    given, masked = (PlainDllm(model, len(PROMPT), 4, 2, 0.25) for _ in range(2))
    gap = torch.zeros(1)

    def forward(ids):
        nonlocal gap
        call, z = next(calls), given(ids)
        if call < 5 or call % interval == 0:
            unconditional = ids.clone()
            unconditional[: len(PROMPT)] = MASK
            u = masked(unconditional)
            gap = torch.nan_to_num(z - u)
        return z + scale * gap

    return forward


@pytest.mark.parametrize("name", ["cfg_interval", "cfg_interval_steps"])
def test_dllm_cache_is_guided_at_intervals(name):
    settings = {"gen_length": 16, "block_length": 8, "steps": 16, "kp": 4, "kr": 2, "rho": 0.25}
    found = decoded("dllm_cache", LLADA, settings | {"cfg_scale": 1.5, name: 3})
    assert_same(found, llada(guided_dllm(1.5, 3), 2, 8, 8))
    other = decoded("dllm_cache", LLADA, settings | {"cfg_scale": 1.5})
    assert_same(other, llada(guided_dllm(1.5, 1), 2, 8, 8))
    assert other.order.tolist() != found.order.tolist()


@pytest.mark.parametrize("steps", [8, 10, 16])
def test_llada_takes_every_step_of_a_block(steps):
    settings = {"gen_length": 16, "block_length": 8, "steps": 2 * steps}
    expected = llada(PlainModel(model_of(LLADA)).whole, 2, 8, steps)
    assert expected.calls == 2 * steps
    assert_same(decoded("llada_vanilla", LLADA, settings), expected)


def test_the_intervals_of_dllm_cache_count_steps_without_masks():
    settings = {"gen_length": 16, "block_length": 8, "kp": 5, "kr": 3, "rho": 0.25}
    runs = []
    for steps in (8, 12):
        forward = PlainDllm(PlainModel(model_of(LLADA)), len(PROMPT), 5, 3, 0.25)
        runs.append(llada(forward, 2, 8, steps))
        assert_same(decoded("dllm_cache", LLADA, settings | {"steps": 2 * steps}), runs[-1])
    assert runs[0].ids.tolist() != runs[1].ids.tolist()


def dkv_decode(blocks, size, steps, reload) -> tuple[PlainRun, list[list[int]]]:
    """dKV-Cache-Decode, and the positions that each call is fed."""
    model, run = PlainModel(model_of(LLADA)), started(blocks * size)
    cache, fed = model.empty(len(run.ids)), []
    for start in range(len(PROMPT), len(run.ids), size):
        before = run.masks(0, len(run.ids))
        for step, count in enumerate(even_quota(size, steps)):
            whole = step % reload == 0 or step == 1
            rows = list(range(len(run.ids))) if whole else before
            z = dict(
                zip(rows, model.forward(run.ids, torch.tensor(rows).long(), cache), strict=True)
            )
            fed.append(rows)
            before = run.masks(0, len(run.ids))
            order = ranked({p: best(z[p])[0] for p in run.masks(start, start + size)})
            run.commit({p: best(z[p])[1] for p in order[:count]})
    return run, fed


class FedRows(Recorder):
    """Notes the positions that each call is fed."""

    def __init__(self) -> None:
        self.fed: list[list[int]] = []

    def extra_rows(self, view, plan):
        mask = to_mask(plan.rows, 1, view.run.length)[0]
        self.fed.append(mask.nonzero()[:, 0].tolist())


@pytest.mark.parametrize("steps", [8, 13])
def test_dkv_cache_feeds_what_was_just_decoded_and_then_nothing(steps):
    expected, fed = dkv_decode(2, 8, steps, 4)
    settings = {"gen_length": 16, "block_length": 8, "steps": 2 * steps, "enable_cache": True}
    recorder = FedRows()
    found = decoded("dkv_decode", LLADA, settings | {"reload": 4}, recorder)
    assert_same(found, expected)
    assert recorder.fed == fed
    assert ([] in fed) == (steps == 13)


def test_greedy_dkv_cache_takes_every_step_of_a_block():
    numbers = np.random.default_rng(4).random((2, 21), np.float32)
    settings = {"gen_length": 16, "block_length": 8, "steps": 26, "enable_cache": True}
    settings |= {"reload": 4, "window": 2}
    recorder = FedRows()
    found = decoded("dkv_greedy", LLADA, settings, recorder, x_rand=numbers)
    orders = [5 + 8 * i + (-numbers[i, 5 + 8 * i : 13 + 8 * i]).argsort() for i in range(2)]
    calls = [call for i in range(2) for call in range(13 * i, 13 * i + 8)]
    expected = dict(zip(np.concatenate(orders).tolist(), calls, strict=True))
    assert found.order.tolist() == [expected[p] for p in range(5, 21)]
    assert found.state.step_index == len(recorder.fed) == 26
    every = list(range(21))
    assert recorder.fed[8:13] == [every, [], [], [], every]
    assert recorder.fed[21:26] == [every, [], [], [], every]


@pytest.mark.parametrize("name", ["mmada-text-2tok", "lladamoe-vanilla-2tok"])
def test_models_with_lladas_loop_take_every_step(name):
    folder = next(one for one in FOLDERS if (one / f"{name}.npz").exists())
    entry = next(one.entry for one in read_cases(folder) if one.id == name)
    case = Case({**entry, "settings": entry["settings"] | {"steps": 40}}, folder)
    found = decode(samplers.plain_setup(case), case.prompt, Recorder())
    assert found.state.step_index == 40
    assert sorted(found.order.tolist()) == list(range(32))


def test_dllm_cache_may_choose_no_row_of_the_answer():
    settings = {"gen_length": 16, "block_length": 8, "steps": 16, "kp": 100, "kr": 8}
    orders = []
    for rho in (0.06, 0.07):  # 0 and 1 rows of 16
        forward = PlainDllm(PlainModel(model_of(LLADA)), len(PROMPT), 100, 8, rho)
        expected = llada(forward, 2, 8, 8)
        assert_same(decoded("dllm_cache", LLADA, settings | {"rho": rho}), expected)
        orders.append((expected.order, expected.ids.tolist()))
    assert orders[0] != orders[1]


@pytest.mark.parametrize(("kp", "kr"), [(10_000, 3), (3, 10_000), (-1, 3), (3, -1)])
def test_dllm_caches_intervals_may_be_longer_than_a_run_or_always_due(kp, kr):
    settings = {"gen_length": 16, "block_length": 8, "steps": 16, "kp": kp, "kr": kr, "rho": 0.25}
    forward = PlainDllm(PlainModel(model_of(LLADA)), len(PROMPT), kp, kr, 0.25)
    assert_same(decoded("dllm_cache", LLADA, settings), llada(forward, 2, 8, 8))


SPA = {"proxy_rank": 6, "refresh_steps": 50, "refresh_gen_steps": 7, "block_length": 8}


def plain_spa(ratios):
    model = PlainModel(model_of(LLADA))
    return PlainSpa(model, len(PROMPT), 6, ratios, 50, 7)


def test_spa_cache_may_choose_no_row_in_a_layer():
    found = []
    for ratios in ([0.3, 0.06, 0.3], [0.3, 0.07, 0.3]):  # 0 and 1 rows of 16
        settings = SPA | {"gen_length": 16, "steps": 16, "update_ratio": ratios}
        expected = llada(plain_spa(ratios), 2, 8, 8)
        assert_same(decoded("spa", LLADA, settings), expected)
        found.append((expected.order, expected.ids.tolist()))
    assert found[0] != found[1]


def test_spa_caches_default_intervals_refresh_at_the_start_only():
    settings = SPA | {"gen_length": 16, "steps": 16, "update_ratio": [0.3, 0.3, 0.3]}
    settings |= {"refresh_steps": 10_000, "refresh_gen_steps": 10_000}
    model = PlainModel(model_of(LLADA))
    forward = PlainSpa(model, len(PROMPT), 6, [0.3, 0.3, 0.3], 10_000, 10_000)
    assert_same(decoded("spa", LLADA, settings), llada(forward, 2, 8, 8))


def test_d2_caches_inflation_window_is_that_of_its_class_if_none_is_given():
    settings = {"gen_length": 16, "block_length": 16, "steps": 16, "cache": "d2", "sigma": 10.0}
    fed = []
    for given in ({}, {"inflate_w": 4}, {"inflate_w": 0}):
        recorder = FedRows()
        arguments = {"current_k": 4} | given
        decoded("d2", LLADA, settings | {"cache_args": arguments}, recorder)
        fed.append(recorder.fed)
    assert fed[0] == fed[1] != fed[2]


def spa(blocks, size, steps, choose) -> PlainRun:
    """SPA-Cache's loop: at most `steps` calls a block; masks that are left go on competing."""
    forward, run = plain_spa([0.3, 0.3, 0.3]), started(blocks * size)
    for stop in range(len(PROMPT) + size, len(run.ids) + 1, size):
        for _ in range(steps):
            if run.masks(stop - size, stop):
                z = forward(run.ids)
                scores = {p: best(z[p])[0] for p in run.masks(0, stop)}
                chosen = choose(ranked(scores), scores)
                run.commit({p: best(z[p])[1] for p in chosen})
    return run


def above(threshold):
    def choose(order, scores):
        return [p for p in order if scores[p] >= threshold] or order[:1]

    return choose


def last_rank(factor):
    """The release's loop over ranks, which accepts all if the last rank is the first to fail."""

    def choose(order, scores):
        limits = [-1.0, *(1 - factor / (n + 1) for n in range(2, len(order) + 1))]
        failed = [n for n, p in enumerate(order) if scores[p] < limits[n]]
        rank = failed[0] if failed else len(order)
        return order[: len(order) if rank == len(order) - 1 else rank]

    return choose


SPA_RUN = SPA | {"gen_length": 16, "update_ratio": [0.3, 0.3, 0.3]}


@pytest.mark.parametrize("steps", [2, 4])
def test_spa_cache_caps_the_calls_of_a_block_and_keeps_its_masks(steps):
    expected = spa(2, 8, steps, above(0.99))
    settings = SPA_RUN | {"steps": 2 * steps, "threshold": 0.99}
    assert expected.calls == 2 * steps
    assert expected.order.count(-1) > 0
    assert_same(decoded("spa", LLADA, settings), expected)


@pytest.mark.parametrize("name", ["factor", "dynamic_threshold_factor"])
def test_spa_caches_factor_accepts_all_if_only_the_last_rank_fails(name):
    expected = spa(2, 8, 8, last_rank(1.0))
    settings = SPA_RUN | {"steps": 16, name: 1.0}
    assert_same(decoded("spa", LLADA, settings), expected)
    sizes = [expected.order.count(call) for call in range(expected.calls)]
    assert sizes.count(2) >= 2  # the last two masks of a block always go together

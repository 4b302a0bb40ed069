"""SPA-Cache: where it is exact, which rows it selects, when it refreshes, what it costs."""

import math
from dataclasses import replace

import pytest
import torch

from engine.cache.methods.spa_cache import SpaCache
from engine.core.events import PARTS
from engine.generate.loop import Denoiser, denoise
from tests.engine.generate.test_batch import PROMPTS, logits_by_reveal
from tests.support.micro import (
    ATOL,
    FAMILIES,
    TWO_BLOCKS,
    make_model,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
    run,
    tapped,
    widest_gap,
)  # fmt: skip
from tests.support.torch_flops import counted

IDENTIFIERS = ("value", "query", "key", "input", "attn_out")
MODES = ("dense", "sparse")
ALL_ROWS = {"budget": "uniform", "peak_ratio": 1.0}
HALF = {"budget": "uniform", "peak_ratio": 0.5}
NEVER = {"refresh_interval": None, "response_interval": None}


def spa(**knobs):
    return lambda: SpaCache(**knobs)


def gap(model, policy, other=None, prompts=None, **spec):
    """Largest difference in logits between two policies, or a policy and no cache."""
    spec = make_spec(**TWO_BLOCKS, **spec)
    taps = [tapped(model, spec, prompts, policy=p)[1] for p in (other, policy)]
    return widest_gap(*taps)


class Noting(SpaCache):
    """Notes (step, layer, rows entered, plan, drifts by row) of every layer."""

    def __post_init__(self):
        super().__post_init__()
        self.notes, self._drifts = [], None

    def begin_step(self, view):
        self._step = view.step
        return super().begin_step(view)

    def plan(self, layer, probe):
        self._drifts = None
        plan = super().plan(layer, probe)
        self.notes.append((self._step, layer, probe.rows, plan, self._drifts))
        return plan

    def _select(self, layer, moved):
        self._drifts = moved
        return super()._select(layer, moved)


def noted(model, cls=Noting, prompts=None, spec=None, **knobs):
    """The run of a noting policy, and what it noted."""
    policy = cls(**knobs)
    found = run(model, spec or make_spec(), prompts, policy=lambda: policy, eager=True)
    return found, policy.notes


@pytest.mark.parametrize("cfg_scale", [0.0, 1.5])
@pytest.mark.parametrize("identifier", IDENTIFIERS)
def test_every_row_of_every_layer_is_no_cache(model, identifier, cfg_scale):
    knobs = {"identifier": identifier, "kv_mode": "sparse"} | NEVER
    assert gap(model, spa(**knobs, **ALL_ROWS), cfg_scale=cfg_scale) < ATOL
    assert gap(model, spa(**knobs, **HALF), cfg_scale=cfg_scale) > 1e-6


@pytest.mark.parametrize("identifier", IDENTIFIERS)
def test_queries_may_be_wider_than_the_residual_stream(identifier):
    wide = make_model(21, kv=2, head_dim=12)
    assert wide.info.d_q > wide.info.d_model
    knobs = {"identifier": identifier, "kv_mode": "sparse"} | NEVER
    assert gap(wide, spa(**knobs, **ALL_ROWS)) < ATOL


@pytest.mark.parametrize("identifier", IDENTIFIERS)
def test_choosing_every_row_of_the_answer_is_a_refresh_of_the_answer(model, identifier):
    refreshed = spa(identifier=identifier, refresh_interval=5, response_interval=1)
    selected = {"identifier": identifier, "refresh_interval": 5, "response_interval": None}
    assert gap(model, spa(**selected, **ALL_ROWS), refreshed) < ATOL
    assert gap(model, spa(**selected, **HALF), refreshed) > 1e-6
    assert gap(model, refreshed) > 1e-6


@pytest.mark.parametrize("cfg_scale", [0.0, 1.5])
@pytest.mark.parametrize("mode", MODES)
def test_refreshing_every_step_is_plain_decoding(model, mode, cfg_scale):
    assert gap(model, spa(kv_mode=mode, refresh_interval=1), cfg_scale=cfg_scale) < ATOL
    assert gap(model, spa(kv_mode=mode, refresh_interval=2), cfg_scale=cfg_scale) > 1e-6


@pytest.mark.parametrize(("identifier", "mode"), [(i, m) for i in IDENTIFIERS for m in MODES])
def test_every_identifier_recomputes_what_it_says(model, identifier, mode):
    """Which sites follow the selection; K and V of all rows are needed to attend for all."""
    spec = make_spec(unmasker="threshold", knobs={"threshold.threshold": 0.3}, **TWO_BLOCKS)
    result, notes = noted(model, identifier=identifier, kv_mode=mode, spec=spec)
    assert (result.ids[0] < 39).all()
    sparse = [(layer, plan) for _, layer, _, plan, drifts in notes if drifts is not None]
    assert {layer for layer, _ in sparse} == set(range(mode == "dense", 3))
    for _, plan in sparse:
        assert isinstance(plan.ffn, torch.Tensor)
        attn, kv = (plan.attn, plan.ffn), (plan.k, plan.v)
        assert (attn[0] is attn[1]) == (identifier != "attn_out")
        assert all((x is plan.ffn) == (mode == "sparse" and attn[0] is attn[1]) for x in kv)


@pytest.mark.parametrize(
    ("refresh", "response", "warm_up"), [(6, 3, 0), (None, 4, 2), (5, None, 0)]
)
@pytest.mark.parametrize("mode", MODES)
def test_refreshes_follow_their_intervals(model, mode, refresh, response, warm_up):
    knobs = {"refresh_interval": refresh, "response_interval": response, "warm_up": warm_up}
    result, notes = noted(model, kv_mode=mode, **knobs)
    every = {(s, layer): drifts is None for s, layer, _, _, drifts in notes}
    counts = {"full": 0, "response": 0}
    for event in result.events:
        full = event.step <= warm_up or (refresh and event.step % refresh == 0)
        answer = not full and bool(response) and event.step % response == 0
        rows = 16 + model.info.logit_shift if answer or mode == "dense" else 22
        assert (event.kind, event.rows) == (("full", 22) if full else ("partial", rows))
        assert all(every[event.step, layer] == bool(full or answer) for layer in (1, 2))
        counts = {"full": counts["full"] + bool(full), "response": counts["response"] + answer}
    at = lambda n: set(range(0, 16, n)) if n else {0}  # noqa: E731
    full = at(refresh) | set(range(warm_up + 1))
    expected = len(full), len(at(response) - full)
    assert tuple(counts.values()) == expected


class Unpadded(SpaCache):
    """Takes padding for rows like any other."""

    def start(self, run):
        super().start(replace(run, padding=()))


def gap_to_single_runs(model, cls, **knobs):
    policy, worst = lambda: cls(peak_ratio=0.6, **knobs), 0.0
    together = logits_by_reveal(model, TWO_BLOCKS, PROMPTS, policy)
    for row, prompt in enumerate(PROMPTS):
        alone = logits_by_reveal(model, TWO_BLOCKS, [prompt], policy)
        for (_, *key), logits in alone.items():
            other = together.get((row, *key))
            apart = math.inf if other is None else float((other - logits).abs().max())
            worst = max(worst, apart)
    return worst


@pytest.mark.parametrize(("identifier", "mode"), [(i, m) for i in IDENTIFIERS for m in MODES])
def test_a_padded_batch_equals_its_single_runs(identifier, mode):
    family = list(FAMILIES)[IDENTIFIERS.index(identifier) % 4]
    knobs = {"identifier": identifier, "kv_mode": mode, "response_interval": 5}
    assert gap_to_single_runs(model_of(family), SpaCache, **knobs) < ATOL


def test_choosing_padding_as_rows_changes_the_result():
    assert gap_to_single_runs(model_of("mha"), Unpadded, kv_mode="sparse") > 1e-6
    assert gap_to_single_runs(model_of("mha"), Unpadded, kv_mode="dense") < ATOL


@pytest.mark.parametrize(("identifier", "mode"), [(i, m) for i in IDENTIFIERS for m in MODES])
def test_the_counter_agrees_with_torch(identifier, mode):
    family = ("mha", "shifted-gqa")[IDENTIFIERS.index(identifier) % 2]
    knobs = {"identifier": identifier, "kv_mode": mode, "refresh_interval": 6}
    knobs |= {"response_interval": 4}
    spec = make_spec(cache="spa_cache", knobs={f"spa_cache.{k}": v for k, v in knobs.items()})
    steps = denoise(Denoiser(micro_job(model_of(family), spec, make_prompts(6, 9))))
    counts = []
    for event, flops in counted(steps, 7):
        assert (event.flops[PARTS.index("selection")] > 0) == (identifier == "value")
        counts.append(flops)
    full, sparse, answer = counts[0], counts[1], counts[4]
    assert counts[6] < full * 1.001
    assert sparse < answer < full


def test_a_policy_that_was_not_prepared_computes_its_proxies(model):
    prepared = tapped(model, make_spec(cache="spa_cache", **TWO_BLOCKS))[1]
    unprepared = tapped(model, make_spec(**TWO_BLOCKS), policy=SpaCache)[1]
    assert widest_gap(prepared, unprepared) < ATOL

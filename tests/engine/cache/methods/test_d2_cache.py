"""d2Cache: where it is exact, what may be committed, batches, guidance and FLOPs."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from engine.cache.methods.d2_cache import D2Cache
from engine.core.events import PARTS
from engine.generate.job import split
from engine.generate.loop import Denoiser, denoise
from tests.conformance.compare import compare
from tests.engine.cache.methods.test_d2_rows import P, T, Watched, d2, fed
from tests.engine.generate.test_batch import PROMPTS
from tests.support import micro
from tests.support.micro import (
    ATOL,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
    run,
    tapped,
    widest_gap,
)  # fmt: skip
from tests.support.torch_flops import counted
from tests.test_conformance import changed

LOOSE = {"unmasker": "threshold", "knobs": {"threshold.threshold": 0.25}}


def gap_where_open(a, b):
    """Largest difference of two taps at what may be committed; inf where that differs."""
    worst = 0.0 if len(a) == len(b) else np.inf
    for (view, _, x, _), (other, _, y, _) in zip(a, b, strict=False):
        if not torch.equal(view.needs[view.real], other.needs[other.real]):
            return np.inf
        difference = x[view.real] - y[other.real]
        worst = max(worst, difference[..., : micro.MASK].abs().max().item())
    return worst


@pytest.mark.parametrize(
    "changes", [{}, LOOSE, {"steps": 4, "cfg_scale": 1.5}, {"unmasker": "certainty"}]
)
def test_a_refresh_in_every_step_is_no_cache(family, changes):
    settings = {"block_length": 8} | changes
    plain, expected = tapped(model_of(family), make_spec(**settings))
    knobs = settings.get("knobs", {}) | {"d2_cache.refresh_interval": 1}
    exact, steps = tapped(model_of(family), d2(**settings | {"knobs": knobs}))
    assert widest_gap(expected, steps) < ATOL
    assert plain.reveals == exact.reveals
    _, steps = tapped(model_of(family), d2(**settings))
    assert gap_where_open(expected[:1], steps[:1]) < ATOL
    assert gap_where_open(expected, steps) > 1e-3


def test_a_nucleus_of_everything_is_no_cache(model):
    plain, expected = tapped(model, make_spec(block_length=8, **LOOSE))
    cached, steps = tapped(model, d2(p=1.0, **LOOSE))
    assert gap_where_open(expected, steps) < ATOL
    assert plain.reveals == cached.reveals
    assert [e.kind for e in cached.events] == ["full"] + ["partial"] * (len(steps) - 1)
    assert gap_where_open(expected, tapped(model, d2(p=0.9, **LOOSE))[1]) > 1e-6


@dataclass
class Forgetful(D2Cache):
    def choose(self, masked, undecided, block):
        self._masked_before = masked
        return super().choose(masked, undecided, block)


def test_committed_tokens_are_recomputed_in_the_next_step(model):
    for kind, always in ((D2Cache, True), (Forgetful, False)):
        spec = make_spec(block_length=8, steps=8)
        result, steps = tapped(model, spec, policy=lambda kind=kind: kind(current_k=2))
        after = [
            fed(plan)[0, event.positions].all()
            for event, (_, plan, _, _) in zip(result.events, steps[1:], strict=False)
        ]
        assert all(after) == always
    assert all(e.rows < T for e in result.events[1:])


RULES = [
    {"steps": 16},
    {"steps": 4},
    {"steps": 4, "unmasker": "certainty", "block_length": 16},
    {"steps": 6, "block_length": 16, "knobs": {"quota.score": "random"}},
    LOOSE,
    {"unmasker": "factor", "block_length": 16},
    {"steps": 4, "cfg_scale": 1.0},
    {"steps": 4, "eos": "fill_eager", "seed": 9, "temperature": 1.0},
    {"steps": 4, "fixed": ((2, 8), (9, 9)), "knobs": {"d2_cache.refresh_interval": 3}},
]


@pytest.mark.parametrize("changes", RULES)
def test_every_position_is_revealed_once_and_only_where_computed(model, changes):
    result, steps = tapped(model, d2(k=2, p=0.0, **changes))
    positions = np.concatenate([e.positions for e in result.events])
    given = {P + offset for offset, _ in changes.get("fixed", ())}
    assert sorted(positions) == sorted(set(range(P, T)) - given)
    assert micro.MASK not in result.ids[0, P:]
    narrowed = 0
    for view, plan, _, _ in steps:
        assert fed(plan)[0, view.logit_rows[0]].all()
        open_ = int(view.masked_host[0, view.block].sum())
        assert 1 <= int(view.real.sum()) <= open_
        narrowed += int(view.real.sum()) < open_
    assert narrowed


@pytest.mark.parametrize("unmasker", ["quota", "certainty"])
def test_a_quota_commits_missed_tokens_later(unmasker):
    """Eight tokens in two steps: four at the full one, then what two candidates allow."""
    spec = d2(k=2, p=0.0, steps=4, unmasker=unmasker)
    counts = [len(e.positions) for e in run(model_of("mha"), spec).events if e.block == 0]
    assert counts[0] == 4
    assert sum(counts) == 8
    assert len(counts) > 2
    wide = run(model_of("mha"), d2(k=8, p=0.0, steps=4, unmasker=unmasker)).events
    assert [len(e.positions) for e in wide] == [4] * 4


@pytest.mark.parametrize(
    ("family", "changes", "jobs"),
    [("gqa", LOOSE, 3), ("shifted-mha", {"steps": 4}, 3), ("mha", {"eos": "fill_safe"}, 3),
     ("shifted-gqa", {"steps": 8, "block_length": 16, "temperature": 0.9}, 1),
     ("mha", {"cfg_scale": 1.0, "unmasker": "certainty"}, 1)],
)  # fmt: skip
def test_a_batch_equals_its_single_runs(family, changes, jobs):
    model, spec = model_of(family), d2(k=2, p=0.2, **changes)
    parts = split(micro_job(model, spec, PROMPTS))
    assert len(parts) == jobs
    for part in parts:
        state = Denoiser(part)
        list(denoise(state))
        for row, ids in enumerate(state.ids, part.first_sequence):
            alone = run(model, d2(k=2, p=0.2, **changes | {"seed": row}), [PROMPTS[row]])
            assert np.array_equal(ids[9:], alone.ids[0, len(PROMPTS[row]) :])


@dataclass
class WithoutKeyMask(D2Cache):
    def plan(self, layer, probe):
        probe.key_mask = None
        return super().plan(layer, probe)


def test_padding_has_no_influence():
    model, prompts = model_of("mha"), make_prompts(2, 9)
    policy, unmasked, alone = D2Cache(), WithoutKeyMask(), D2Cache()
    spec = make_spec()
    for one, texts in ((policy, prompts), (unmasked, prompts), (alone, prompts[:1])):
        state = Denoiser(micro_job(model, spec, texts, policy=lambda one=one: one))
        next(denoise(state))
    torch.testing.assert_close(policy.influence[0, 7:], alone.influence[0], atol=ATOL, rtol=0)
    assert (unmasked.influence[0, 7:] - alone.influence[0]).abs().max() > 1e-3
    policy.rollout_p = 1.0
    nothing = np.zeros((2, 25), bool)
    chosen = policy.choose(nothing, nothing, slice(9, 13))
    assert not chosen[0, :7].any()
    assert chosen[0, 7:].all()


def test_branches_of_guidance_share_candidates_but_not_the_roll_out(model):
    policies = [Watched(current_k=2, rollout_p=0.2) for _ in range(2)]
    made = iter(policies)
    _, steps = tapped(model, make_spec(block_length=8, cfg_scale=1.0), policy=lambda: next(made))
    for (view, _, _, _), *chosen in zip(steps, *(p.chosen for p in policies), strict=True):
        assert all(rows[0, view.logit_rows[0]].all() for rows in chosen)
    assert np.array_equal(policies[0].confidence, policies[1].confidence)
    assert (policies[0].influence - policies[1].influence).abs().max() > 1e-6
    assert not all(np.array_equal(a, b) for a, b in zip(*(p.chosen for p in policies), strict=True))


@pytest.mark.parametrize("changes", [{}, {"cfg_scale": 1.0}, {"refresh": 2}, {"refresh": 1}])
def test_the_counter_agrees_with_torch(changes):
    knobs = {"d2_cache.refresh_interval": changes.get("refresh")}
    changes = {k: v for k, v in changes.items() if k != "refresh"}
    model = model_of("shifted-gqa")
    spec = d2(k=3, knobs=knobs, **changes)
    state = Denoiser(micro_job(model, spec, make_prompts(6, 9), eager=True))
    branches, counts = len(state.branches), set()
    for event, _ in counted(denoise(state), 6):
        rolled, every = int(event.flops[PARTS.index("selection")]), 2 * 25 * model.info.layers
        assert branches == 2 or rolled in (0, 2 * event.rows * every)
        counts.add(rolled > 0)
    assert counts == {None: {True}, 2: {True, False}, 1: {False}}[knobs.popitem()[1]]


@pytest.mark.parametrize("name", ["x_q_mask", "x_global_importance"])
def test_a_perturbed_recording_differs_from_the_run(name):
    def change(array):
        array[2, 0] = not array[2, 0] if array.dtype == bool else array[2, 0] + 0.1
        return array

    what = "fed positions" if name == "x_q_mask" else "attention roll-out"
    found = compare(changed("d2-d2cache-k8", name, change)).differences
    assert len(found) == 1
    assert found[0].startswith(what)

"""d2Cache: its roll-out, the rows it chooses, and the confidences it chooses by."""

from dataclasses import dataclass, replace
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine.cache.base import RunInfo
from engine.cache.calibration.density import density
from engine.cache.methods.d2_cache import D2Cache, nucleus
from engine.core.rows import to_mask
from engine.generate.loop import Denoiser, denoise
from tests.compat.samplers import StaleD2Cache
from tests.support import reference
from tests.support.micro import (
    ATOL,
    MASK,
    LogitTap,
    make_info,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
    run,
    tapped,
)
from tests.support.reference import reference_rotation

P, T = 6, 22


def d2(k=2, **changes):
    own = {"d2_cache.current_k": k, "d2_cache.rollout_p": changes.pop("p", 0.1)}
    own["d2_cache.inflate_w"] = changes.pop("w", 0)
    settings = {"cache": "d2_cache", "block_length": 8} | changes
    return make_spec(**settings | {"knobs": own | settings.get("knobs", {})})


def fed(plan, batch=1, length=T):
    return to_mask(plan.rows, batch, length).numpy()


@dataclass
class Watched(D2Cache):
    """Keeps each step's rows and attention weights by layer, and its column sums."""

    residual = 1.0

    def start(self, run):
        super().start(run)
        self.layers, self.rolled, self.chosen, self.candidates = [], [], [], []

    def begin_step(self, view):
        self.layers.append([])
        plan = super().begin_step(view)
        self.chosen.append(fed(plan))
        return plan

    def _candidates(self, masked, undecided, block):
        self.candidates.append(super()._candidates(masked, undecided, block))
        return self.candidates[-1]

    def _roll(self, layer, probe, weights):
        rows = to_mask(probe.rows, 1, probe.length)[0]
        self.layers[-1].append((rows, weights[0].clone()))
        super()._roll(layer, probe, weights)
        if layer == self.run.info.layers - 1:
            self.rolled.append(self.influence[0].clone())


def full_product(layers, residual):
    """Column sums of the product of whole N x N matrices."""
    eye = torch.eye(T, dtype=torch.float64)
    product = eye
    for rows, weights in layers:
        mixing = eye.clone()
        mixing[rows] = weights
        mixing = mixing + residual * eye
        product = mixing / mixing.sum(1, keepdim=True) @ product
    return product.sum(0)


def test_the_roll_out_is_the_product_of_whole_matrices(model):
    policy = Watched(current_k=3)
    run(model, make_spec(block_length=8), policy=lambda: policy, eager=True)
    assert len(policy.rolled) == 16
    for layers, rolled in zip(policy.layers, policy.rolled, strict=True):
        torch.testing.assert_close(rolled, full_product(layers, 1), atol=ATOL, rtol=0)
        assert (rolled - full_product(layers, 0)).abs().max() > 1e-3
        assert rolled.sum().item() == pytest.approx(T)


def test_the_weights_are_those_of_attention(model):
    policy = Watched()
    run(model, make_spec(block_length=8), policy=lambda: policy, eager=True)
    info, block = model.info, model.block(0)
    ids = torch.tensor([make_prompts(6)[0] + [MASK] * 16])
    x = reference.norm(model.embedding.weight[ids], block.attn_norm.weight)
    y = x @ block.qkv.weight.T + (0 if block.qkv.bias is None else block.qkv.bias)
    q, k, _ = y.split([info.d_model, info.d_kv, info.d_kv], -1)
    q, k = (t.unflatten(-1, (-1, info.head_dim)).transpose(1, 2) for t in (q, k))
    k = reference_rotation(k).repeat_interleave(info.n_heads // info.n_kv_heads, 1)
    scores = reference_rotation(q) @ k.mT / info.head_dim**0.5
    expected = scores.softmax(-1).mean(1)[0]
    torch.testing.assert_close(policy.layers[0][0][1], expected, atol=ATOL, rtol=0)
    assert (policy.layers[1][0][1][0] - expected[0]).abs().max() > 1e-6


def held(weight, places, share):
    """The nucleus, one place at a time."""
    total, found, taken = sum(weight[p] for p in places), [], 0.0
    for place in sorted(places, key=lambda p: (-weight[p], p)):
        taken += weight[place]
        if found and taken > share * total:
            break
        found.append(place)
    return found


@pytest.mark.parametrize("share", [0.0, 0.1, 0.35, 0.8])
def test_a_nucleus_holds_no_more_than_its_share(share):
    noise = np.random.default_rng(int(share * 100))
    sizes = set()
    for _ in range(50):
        weight, rest = noise.random(90), noise.random(90) < 0.6
        found = nucleus(weight, rest, share)
        assert sorted(found) == sorted(held(weight, np.flatnonzero(rest), share))
        sizes.add(len(found))
    assert (sizes == {1}) == (share == 0)
    assert len(nucleus(weight, np.zeros(90, bool), share)) == 0
    assert nucleus(np.ones(30), np.ones(30, bool), 0.1).tolist() == [0, 1, 2]


def naive_rows(policy, masked, block, shift, stop):
    """The rows of one sequence by the words of the paper, position by position.

    Masks from `stop` on are no candidates, and unknown.
    """
    size, k = policy.run.block_length, policy.current_k
    near = density(torch.from_numpy(~masked[:, P:]), policy.sigma)[0]
    free = [p for p in range(P, stop) if masked[0, p]]
    end = T if len(free) < k else P + ((free[k - 1] - P) // size + 1) * size
    score = {p: policy.confidence[0, p] * float(near[p - P]) for p in free if p < end}
    bonus = max(score.values(), default=0)
    for p in score:
        score[p] += bonus if p < block.stop else 0
    best = sorted(score, key=lambda p: (-score[p], p))[:k]
    rows = {p - shift for p in best} | {
        p for p in range(T) if policy._masked_before[0, p] > masked[0, p]
    }
    rest = [p for p in range(T) if p not in rows]
    rows |= set(held(policy.flow[0].tolist(), rest, policy.rollout_p))
    gaps = set()
    for p in range(T):
        before, after = [r for r in rows if r <= p], [r for r in rows if r >= p]
        if before and after and min(after) - max(before) <= policy.inflate_w:
            gaps.add(p)
    return rows | gaps


@pytest.mark.parametrize(("k", "p", "w"), [(1, 0.0, 0), (3, 0.1, 2), (6, 0.2, 4), (32, 0.1, 3)])
@pytest.mark.parametrize("shift", [0, 1])
def test_the_rows_are_those_of_the_paper(shift, k, p, w):
    noise, grew = np.random.default_rng(k), 0
    for start, stop in product((P, P + 4, P + 8), (T - 4, T - 1, T, T)):
        policy = D2Cache(k, p, 4.0, w)
        policy.start(RunInfo(make_info(shift), 1, P, T - P, 4))
        policy.confidence[:] = noise.random(T)
        policy.flow = noise.random((1, T))
        policy._masked_before[0, start:] = noise.random(T - start) < 0.9
        masked = policy._masked_before & (noise.random((1, T)) < 0.8)
        block = slice(start, start + 4)
        undecided = masked & (np.arange(T) < stop)
        found = policy.choose(masked, undecided, block)
        assert set(np.flatnonzero(found)) == naive_rows(policy, masked, block, shift, stop)
        policy.inflate_w = 0
        grew += (found != policy.choose(masked, undecided, block)).any()
    assert (grew > 0) == (w > 1)


def test_the_row_before_the_answer_enters_when_its_first_token_is_a_candidate():
    for family in ("mha", "shifted-mha"):
        shift = model_of(family).info.logit_shift
        _, steps = tapped(model_of(family), d2(k=2, p=0.0))
        first = [(P in view.needs[0], fed(plan)[0, P - 1]) for view, plan, _, _ in steps[1:]]
        assert any(needed for needed, _ in first)
        assert all(entered for needed, entered in first if needed) == bool(shift)


class ConfidenceTap(LogitTap):
    """What a cache of confidences should hold after each step, by position."""

    def __init__(self):
        super().__init__()
        self.known, self.expected = np.zeros(T), []

    def record(self, view, plan, logits, candidates):
        for place, confidence in zip(view.needs[0], candidates.confidence[0], strict=True):
            self.known[int(place)] = float(confidence)
        self.expected.append(self.known.copy())


@pytest.mark.parametrize(("kind", "stale"), [(D2Cache, False), (StaleD2Cache, True)])
def test_confidences_are_those_of_the_last_step_that_computed_them(model, kind, stale):
    seen, tap = [], ConfidenceTap()

    class HostState(kind):
        def end_step(self, view, confidence, committed):
            super().end_step(view, confidence, committed)
            seen.append((self.confidence[0].copy(), view.masked_host[0]))

    spec = make_spec(block_length=8)
    result = run(model, spec, None, tap, lambda: HostState(current_k=4))
    differs = False
    for event, (cached, masked), expected in zip(result.events, seen, tap.expected, strict=True):
        still = masked.copy()
        still[event.positions] = False
        differs |= not np.array_equal(cached[still], expected[still])
    assert (seen[0][0][P:] > 0).all()
    assert differs == stale


def test_of_a_repeated_row_the_first_confidence_counts():
    """The repeats that even out a batch are proposed without noise."""
    policy = D2Cache()
    policy.start(RunInfo(make_info(), 1, P, T - P, 4))
    view = SimpleNamespace(needs_host=np.array([[8, 10, 10]]))
    policy.end_step(view, torch.tensor([[0.25, 0.5, 0.75]]), torch.zeros(1, 3, dtype=torch.bool))
    assert policy.confidence[0, [8, 9, 10]].tolist() == [0.25, 0, 0.5]


def run_with_a_stop(model, **changes):
    """A tap, the step that commits a stop between masks, its position, and the policies."""
    spec = d2(k=2, block_length=16, gen_length=16, steps=16, **changes)
    tap, seen, policies = LogitTap(), {}, []
    for event in run(model, spec).events:
        place = int(event.positions[0])
        before = sum(position < place for position in seen)
        behind = sum(position > place for position in seen)
        if place - P - before > 4 and T - place - 1 - behind > 4:
            break
        seen[place] = int(event.ids[0])
    else:
        pytest.fail("no step has enough masks on both sides")
    token = int(event.ids[0])
    assert token not in seen.values()

    def policy():
        policies.append(Watched(current_k=2))
        return policies[-1]

    job = replace(micro_job(model, spec, recorder=tap, policy=policy), stops=((token,),))
    list(denoise(Denoiser(job)))
    return tap, event.step, place, policies


def test_masks_behind_a_stop_are_no_newest_tokens():
    """The steps after the stop do not compute every mask behind it."""
    tap, step, place, _ = run_with_a_stop(model_of("mha"))
    later = tap.steps[step + 1 :]
    assert len(later) > 1
    for view, plan, *_ in later:
        behind = view.masked_host[0] & (np.arange(T) > place)
        assert behind.any()
        assert not fed(plan)[0, behind].all()


def test_masks_behind_a_stop_are_no_candidates_in_both_branches_of_guidance():
    _, step, place, policies = run_with_a_stop(model_of("mha"), cfg_scale=1.0)
    found = [np.concatenate(policy.candidates) for policy in policies]
    assert np.array_equal(*found)
    assert found[0][step:].any()
    assert not found[0][step:, place + 1 :].any()

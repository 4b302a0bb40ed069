"""d2Cache: the rows it chooses, its roll-out, what may be committed, and where it is exact."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from engine.cache.base import RunInfo
from engine.cache.d2_cache import D2Cache, nucleus
from engine.cache.density import density
from engine.events import PARTS
from engine.job import split
from engine.loop import Denoiser, denoise
from engine.rows import to_mask
from tests import micro, test_conformance
from tests.compat import StaleD2Cache
from tests.micro import (
    ATOL,
    LogitTap,
    make_info,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
    run,
    tapped,
    widest_gap,
)  # fmt: skip
from tests.test_batch import PROMPTS

P, T = 6, 22
LOOSE = {"unmasker": "threshold", "knobs": {"threshold.threshold": 0.25}}


def d2(k=2, **changes):
    own = {"d2_cache.current_k": k, "d2_cache.rollout_p": changes.pop("p", 0.1)}
    own["d2_cache.inflate_w"] = changes.pop("w", 0)
    settings = {"cache": "d2_cache", "block_length": 8} | changes
    return make_spec(**settings | {"knobs": own | settings.get("knobs", {})})


def fed(plan, batch=1, length=T):
    return to_mask(plan.rows, batch, length).numpy()


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
class Watched(D2Cache):
    """Keeps each step's rows and attention weights by layer, and its column sums."""

    residual = 1.0

    def start(self, run):
        super().start(run)
        self.layers, self.rolled, self.chosen = [], [], []

    def begin_step(self, view):
        self.layers.append([])
        plan = super().begin_step(view)
        self.chosen.append(fed(plan))
        return plan

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
    run(model, make_spec(block_length=8), policy=lambda: policy)
    assert len(policy.rolled) == 16
    for layers, rolled in zip(policy.layers, policy.rolled, strict=True):
        torch.testing.assert_close(rolled, full_product(layers, 1), atol=ATOL, rtol=0)
        assert (rolled - full_product(layers, 0)).abs().max() > 1e-3
        assert rolled.sum().item() == pytest.approx(T)


def test_the_weights_are_those_of_attention(model):
    policy = Watched()
    run(model, make_spec(block_length=8), policy=lambda: policy)
    info, block = model.info, model.block(0)
    ids = torch.tensor([make_prompts(6)[0] + [micro.MASK] * 16])
    x = micro._norm(model.embedding.weight[ids], block.attn_norm)
    y = x @ block.qkv.weight.T + (0 if block.qkv.bias is None else block.qkv.bias)
    q, k, _ = y.split([info.d_model, info.d_kv, info.d_kv], -1)
    q, k = (t.unflatten(-1, (-1, info.head_dim)).transpose(1, 2) for t in (q, k))
    k = micro.reference_rotation(k).repeat_interleave(info.n_heads // info.n_kv_heads, 1)
    scores = micro.reference_rotation(q) @ k.mT / info.head_dim**0.5
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


def naive_rows(policy, masked, block, shift):
    """The rows of one sequence by the words of the paper, position by position."""
    size, k = policy.run.block_length, policy.current_k
    near = density(torch.from_numpy(~masked[:, P:]), policy.sigma)[0]
    free = [p for p in range(P, T) if masked[0, p]]
    end = T if len(free) < k else P + ((free[k - 1] - P) // size + 1) * size
    score = {p: policy._confidence[0, p] * float(near[p - P]) for p in free if p < end}
    bonus = max(score.values(), default=0)
    for p in score:
        score[p] += bonus if p < block.stop else 0
    best = sorted(score, key=lambda p: (-score[p], p))[:k]
    rows = {p - shift for p in best} | {p for p in range(T) if policy._open[0, p] > masked[0, p]}
    rest = [p for p in range(T) if p not in rows]
    rows |= set(held(policy.influence[0].tolist(), rest, policy.rollout_p))
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
    for start in (P, P + 4, P + 8) * 4:
        policy = D2Cache(k, p, 4.0, w)
        policy.start(RunInfo(make_info(shift), 1, P, T - P, 4))
        policy._confidence[:] = noise.random(T)
        policy.influence = torch.from_numpy(noise.random((1, T)))
        policy._open[0, start:] = noise.random(T - start) < 0.9
        masked = policy._open & (noise.random((1, T)) < 0.8)
        block = slice(start, start + 4)
        found = policy.choose(masked, block)
        assert set(np.flatnonzero(found)) == naive_rows(policy, masked, block, shift)
        policy.inflate_w = 0
        grew += (found != policy.choose(masked, block)).any()
    assert (grew > 0) == (w > 1)


def test_the_row_before_the_answer_enters_when_its_first_token_is_a_candidate():
    for family in ("mha", "shifted-mha"):
        shift = model_of(family).info.logit_shift
        _, steps = tapped(model_of(family), d2(k=2, p=0.0))
        first = [(P in view.needs[0], fed(plan)[0, P - 1]) for view, plan, _, _ in steps[1:]]
        assert any(needed for needed, _ in first)
        assert all(entered for needed, entered in first if needed) == bool(shift)


@dataclass
class Forgetful(D2Cache):
    def choose(self, masked, block):
        self._open = masked
        return super().choose(masked, block)


def test_what_became_known_is_recomputed_in_the_next_step(model):
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
def test_a_quota_that_finds_too_few_catches_up(unmasker):
    """Eight tokens in two steps: four at the full one, then what two candidates allow."""
    spec = d2(k=2, p=0.0, steps=4, unmasker=unmasker)
    counts = [len(e.positions) for e in run(model_of("mha"), spec).events if e.block == 0]
    assert counts[0] == 4
    assert sum(counts) == 8
    assert len(counts) > 2
    wide = run(model_of("mha"), d2(k=8, p=0.0, steps=4, unmasker=unmasker)).events
    assert [len(e.positions) for e in wide] == [4] * 4


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

    class Told(kind):
        def end_step(self, view, confidence, committed):
            super().end_step(view, confidence, committed)
            seen.append((self._confidence[0].copy(), view.masked_host[0]))

    spec = make_spec(block_length=8)
    result = run(model, spec, None, tap, lambda: Told(current_k=4))
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
    view = SimpleNamespace(needs=torch.tensor([[8, 10, 10]]))
    policy.end_step(view, torch.tensor([[0.25, 0.5, 0.75]]), view.needs > 10)
    assert policy._confidence[0, [8, 9, 10]].tolist() == [0.25, 0, 0.5]


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
        for row, ids in enumerate(state.ids, part.first):
            alone = run(model, d2(k=2, p=0.2, **changes | {"seed": row}), [PROMPTS[row]])
            assert np.array_equal(ids[9:], alone.ids[0, len(PROMPTS[row]) :])


@dataclass
class Blind(D2Cache):
    def plan(self, layer, probe):
        probe.key_mask = None
        return super().plan(layer, probe)


def test_padding_gathers_no_influence():
    model, prompts = model_of("mha"), make_prompts(2, 9)
    policy, blind, alone = D2Cache(), Blind(), D2Cache()
    spec = make_spec()
    for one, texts in ((policy, prompts), (blind, prompts), (alone, prompts[:1])):
        state = Denoiser(micro_job(model, spec, texts, policy=lambda one=one: one))
        next(denoise(state))
    torch.testing.assert_close(policy.influence[0, 7:], alone.influence[0], atol=ATOL, rtol=0)
    assert (blind.influence[0, 7:] - alone.influence[0]).abs().max() > 1e-3
    policy.rollout_p = 1.0
    chosen = policy.choose(np.zeros((2, 25), bool), slice(9, 13))
    assert not chosen[0, :7].any()
    assert chosen[0, 7:].all()


def test_branches_of_guidance_share_candidates_but_not_the_roll_out(model):
    policies = [Watched(current_k=2, rollout_p=0.2) for _ in range(2)]
    made = iter(policies)
    _, steps = tapped(model, make_spec(block_length=8, cfg_scale=1.0), policy=lambda: next(made))
    for (view, _, _, _), *chosen in zip(steps, *(p.chosen for p in policies), strict=True):
        assert all(rows[0, view.logit_rows[0]].all() for rows in chosen)
    assert np.array_equal(policies[0]._confidence, policies[1]._confidence)
    assert (policies[0].influence - policies[1].influence).abs().max() > 1e-6
    assert not all(np.array_equal(a, b) for a, b in zip(*(p.chosen for p in policies), strict=True))


@pytest.mark.parametrize("changes", [{}, {"cfg_scale": 1.0}, {"refresh": 2}, {"refresh": 1}])
@pytest.mark.parametrize("family", ["mha", "shifted-gqa"])
def test_the_ledger_counts_what_torch_counts(family, changes):
    knobs = {"d2_cache.refresh_interval": changes.get("refresh")}
    changes = {k: v for k, v in changes.items() if k != "refresh"}
    model = model_of(family)
    state = Denoiser(micro_job(model, d2(k=3, knobs=knobs, **changes), make_prompts(6, 9)))
    steps, branches, counts = denoise(state), len(state.branches), set()
    for _ in range(6):
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            event = next(steps)
        assert int(event.flops.sum()) == counter.get_total_flops()
        rolled, every = int(event.flops[PARTS.index("selection")]), 2 * 25**2 * model.info.layers
        assert branches == 2 or rolled in (0, 2 * event.rows * every)
        counts.add(rolled > 0)
    assert counts == {None: {True}, 2: {True, False}, 1: {False}}[knobs.popitem()[1]]


@pytest.mark.parametrize("name", ["x_q_mask", "x_global_importance"])
def test_a_perturbed_recording_is_told_from_the_run(tmp_path, name):
    def change(arrays):
        array = arrays[name].copy()
        array[2, 0] = not array[2, 0] if array.dtype == bool else array[2, 0] + 0.1
        arrays[name] = array

    case = next(c for c in test_conformance.CASES if c["id"] == "d2-d2cache-k8")
    what = "fed positions" if name == "x_q_mask" else "attention roll-out"
    (difference,) = test_conformance.perturbed(case, tmp_path, change)
    assert difference.startswith(what)

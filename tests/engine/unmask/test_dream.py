"""Dream's sampler: filters, measures, its two schedules, and the random order origin."""

import numpy as np
import pytest
import torch

from engine.catalog import derive_plan, make_unmasker
from engine.unmask.base import SamplingParams
from engine.unmask.proposals import filter_logits, propose
from engine.unmask.schedule import DreamSchedule
from tests.support.micro import make_prompts, make_spec, model_of, run

LOGITS = torch.tensor([0.3, -1.0, 1.2, 0.0, 0.7, -0.4], dtype=torch.float64)
BLOCK = slice(6, 10)
CRITICAL = 25.7  # chi-square with 5 degrees of freedom, one in ten thousand


def dream(alg="entropy", **changes):
    knobs = {f"dream.{k}": changes.pop(k) for k in ("schedule", "top_p", "top_k", "alg_temp", "eps")
             if k in changes}  # fmt: skip
    return make_spec(unmasker="dream", knobs={"dream.alg": alg} | knobs, **changes)


def counts(result):
    """Tokens of each step."""
    return [len(e.positions) for e in result.events]


def kept(**params):
    found = filter_logits(LOGITS, SamplingParams(**params), 0.0)
    return torch.isfinite(found).nonzero()[:, 0].tolist()


def test_top_p_keeps_the_token_that_crosses_it():
    p = LOGITS.softmax(-1).sort(descending=True).values.cumsum(-1)
    assert kept(top_p=float(p[1]) - 1e-6) == [2, 4]
    assert kept(top_p=float(p[1]) + 1e-6) == [0, 2, 4]
    assert kept(top_p=0.0) == [2]
    assert kept(top_p=1.0) == [0, 1, 2, 3, 4, 5]


def test_top_k_keeps_k_tokens_and_all_at_zero_or_above_the_vocabulary():
    assert kept(top_k=2) == [2, 4]
    assert kept(top_k=0) == kept(top_k=6) == kept(top_k=50) == [0, 1, 2, 3, 4, 5]
    assert kept(top_k=3, top_p=0.5) == [2, 4]


def test_the_temperature_is_applied_before_top_p():
    params = SamplingParams(top_p=0.9)
    cool, hot = (filter_logits(LOGITS, params, t).isfinite().sum() for t in (0.2, 5.0))
    assert (int(cool), int(hot)) == (1, 6)


def proposals(n, temperature, score="confidence", **params):
    real = torch.ones(1, n, dtype=torch.bool)
    noise = [torch.Generator().manual_seed(0)]
    logits = LOGITS.expand(1, n, 6)
    return propose(logits, real, score, temperature, noise, SamplingParams(**params))


def test_tokens_and_confidence_follow_the_tempered_and_filtered_distribution():
    found = proposals(20_000, 0.5, top_k=4)
    law = (LOGITS / 0.5).masked_fill(LOGITS < 0, -torch.inf).softmax(-1)
    drawn = torch.bincount(found.ids[0], minlength=6).double()
    assert (drawn[law == 0] == 0).all()
    expected = law[law > 0] * 20_000
    assert ((drawn[law > 0] - expected).square() / expected).sum() < CRITICAL
    torch.testing.assert_close(found.confidence, law[found.ids])
    assert (found.confidence - LOGITS.softmax(-1)[found.ids]).abs().max() > 0.1


@pytest.mark.parametrize(("alg", "score"), [("topk_margin", "margin"), ("entropy", "entropy")])
def test_measures_use_the_filtered_distribution(alg, score):
    p = LOGITS[[2, 4, 0]].softmax(-1)
    expected = {"margin": p[0] - p[1], "entropy": (p * p.log()).sum()}[score]
    rule = make_unmasker(dream(alg, top_k=3))
    real = torch.ones(1, 1, dtype=torch.bool)
    found = propose(LOGITS[None, None], real, rule.score, 0.0, [], rule.sampling_params)
    torch.testing.assert_close(found.score[0, 0], expected)


def test_an_order_temperature_draws_by_the_softmax_of_the_measure():
    """Each of three candidates is first by score as often as the softmax predicts."""
    logits = torch.stack([LOGITS * s for s in (0.2, 1.0, 3.0)]).expand(4000, 3, 6)
    noise = [torch.Generator().manual_seed(i) for i in range(4000)]
    real = torch.ones(4000, 3, dtype=torch.bool)
    plain = propose(logits[:1], real[:1], "confidence", 0.0, noise[:1], SamplingParams())
    found = propose(logits, real, "confidence", 0.0, noise, SamplingParams(alg_temp=0.5))
    share = torch.bincount(found.score.argmax(1), minlength=3) / 4000
    law = (plain.score[0] / 0.5).softmax(-1)
    assert (share - law).abs().max() < 4 * (0.25 / 4000) ** 0.5
    assert (share - (plain.score[0] / 0.25).softmax(-1)).abs().max() > 0.05


def released(masked, steps, eps=0.001):
    """Counts of Dream's released schedule, computed in float32."""
    t, left, out = np.linspace(1, eps, steps + 1, dtype=np.float32), masked, []
    for i in range(steps):
        share = np.float32(1) - t[i + 1] / t[i] if i < steps - 1 else np.float32(1)
        out.append(int(np.float32(left) * share))
        left -= out[-1]
    return out


@pytest.mark.parametrize(("masked", "steps"), [(16, 16), (16, 8), (16, 5), (4, 16), (16, 1)])
def test_the_released_schedule_commits_its_counts(model, masked, steps):
    spec = dream(schedule="released", block_length=masked, gen_length=16,
                 steps=steps * (16 // masked))  # fmt: skip
    expected = released(masked, steps) * (16 // masked)
    assert counts(run(model, spec)) == expected
    plan, _ = derive_plan(spec)
    assert list(plan.tokens_per_step) == expected[:steps]
    assert plan.min_forwards == plan.max_forwards == len(expected)


def test_the_released_schedule_starts_with_none_and_ends_with_two():
    assert released(32, 32) == [0] + [1] * 30 + [2]
    assert released(48, 24)[0] == 1
    assert released(48, 24)[-1] == 3
    schedule = DreamSchedule(32, {}, 0.001)
    left, due = np.array([32]), []
    for step in range(32):
        due.append(int(schedule.tokens_due(left, BLOCK, step)[0]))
        left = left - due[-1]
    assert due == released(32, 32)


@pytest.mark.parametrize("steps", [16, 8, 12])
def test_the_corrected_schedule_equals_quota(model, steps):
    corrected = run(model, dream("maskgit_plus", steps=steps))
    quota = run(model, make_spec(steps=steps))
    assert counts(corrected) == counts(quota)
    assert np.array_equal(corrected.ids, quota.ids)
    assert not np.array_equal(
        run(model, dream("maskgit_plus", steps=steps, schedule="released")).reveals, quota.reveals
    )


def test_measures_differ_in_their_first_position():
    model, first = model_of("shifted-gqa"), set()
    for alg in ("maskgit_plus", "topk_margin", "entropy"):
        found = run(model, dream(alg, block_length=16), make_prompts(6, seed=9))
        first.add(tuple(int(e.positions[0]) for e in found.events))
    assert len(first) == 3


def test_origin_reveals_each_position_independently():
    """Corrected, each step is equally likely for a position, and counts are binomial."""
    spec = dream("origin", gen_length=16, block_length=16, steps=8)
    rule, places = make_unmasker(spec), []
    rule.start(None, 8)
    rows = np.zeros((2000, 16), bool)
    rows[:] = True
    noise = [torch.Generator().manual_seed(i) for i in range(2000)]
    for step in range(8):
        order = rule.planned_order(rows, slice(0, 16), step, noise)
        places.append([len(chosen) for chosen in order])
        for row, chosen in zip(rows, order, strict=True):
            assert row[chosen].all()
            row[chosen] = False
    assert not rows.any()
    mean, spread = np.mean(places, 1), np.var(places, 1)
    assert np.abs(mean - 2).max() < 4 * (16 / 8 * 7 / 8 / 2000) ** 0.5
    assert np.abs(spread - 16 / 8 * 7 / 8).max() < 0.3


def test_origin_draws_for_masked_positions_and_reveals_eligible_ones():
    rule = make_unmasker(dream("origin"))
    rule.start(None, 1)
    rows, noise = np.zeros((2, 12), bool), [torch.Generator().manual_seed(i) for i in (1, 2)]
    rows[0, 6:9] = True
    before = noise[1].get_state()
    eligible = rows.copy()
    eligible[0, 7] = False
    order = rule.planned_order(rows, BLOCK, 0, noise, eligible)
    assert [o.tolist() for o in order] == [[6, 8], []]
    assert torch.equal(noise[1].get_state(), before)


def test_origin_may_commit_nothing_in_a_step_but_the_last(model):
    results = [run(model, dream("origin", seed=s, block_length=16)) for s in range(4)]
    assert any(0 in counts(r) for r in results)
    for result in results:
        assert sum(counts(result)) == 16
        assert len(result.events) <= 16
    assert len({str(r.reveals) for r in results}) == 4
    plan, scheduled = derive_plan(dream("origin", block_length=16))
    assert (plan.min_forwards, plan.max_forwards, plan.tokens_per_step) == (1, 16, None)
    assert scheduled


@pytest.mark.parametrize("alg", ["origin", "entropy"])
def test_logits_that_are_not_numbers_end_the_run(alg):
    model = model_of("shifted-gqa")
    spec = dream(alg, schedule="released", steps=4, temperature=1.0)
    with torch.no_grad():
        norm = model.norm.weight.clone()
        model.norm.weight.fill_(float("nan"))
        try:
            with pytest.raises(RuntimeError, match="finite numbers"):
                run(model, spec)
        finally:
            model.norm.weight.copy_(norm)


def test_an_order_temperature_of_almost_nothing_ranks_by_finite_scores():
    assert proposals(3, 0.0, alg_temp=5e-324).score.isfinite().all()

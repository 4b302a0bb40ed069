"""Fast-dLLM's samplers for Dream, beside plain loops on small models."""

from dataclasses import replace

import pytest
import torch

from tests.compat.samplers import FilteredThreshold
from tests.compat.test_samplers import DREAM, PROMPT, assert_same, decoded, started
from tests.conformance import samplers
from tests.conformance.cases import GOLDENS, Case, read_cases
from tests.support.micro import model_of
from tests.support.plain_model import PlainModel, PlainRun, best, ranked


def negative_entropy(z) -> float:
    p = z.softmax(-1)
    return float((p * torch.log(p + 1e-10)).sum())


def shifted(z):
    """Dream's logits of each position, from those of the row before it."""
    return torch.cat((z[:1], z[:-1]))


def dream_counts(steps, eps):
    """The fraction of the masks that each step takes."""
    times = torch.linspace(1, eps, steps + 1)
    return [float(1 - times[i + 1] / times[i]) for i in range(steps - 1)] + [1.0]


def first_ranked(scores, start, stop, count):
    return ranked(scores)[:count]


def first_of_topk(scores, start, stop, count):
    """As torch.topk chooses among scores that are -inf at all other rows of the call."""
    row = torch.full((stop - start,), -torch.inf, dtype=torch.float64)
    row[[p - start for p in scores]] = torch.tensor(list(scores.values()), dtype=torch.float64)
    return (row.topk(count).indices + start).tolist()


def dream_fast(
    blocks, size, steps, score, count=None, threshold=None, choose=first_ranked
) -> PlainRun:
    """Fast-dLLM's cached sampler for Dream, with a dual cache and `steps` a block."""
    model, run = PlainModel(model_of(DREAM)), started(blocks * size)
    every, cache = torch.arange(len(run.ids)), model.empty(len(run.ids))
    for start in range(len(PROMPT), len(run.ids), size):
        z = shifted(model.forward(run.ids, every, cache))
        run.commit({start: best(z[start])[1]})
        step, rows, left = 1, every[start : start + size], True
        while left:  # also once in a block of one position, which has no mask any more
            masks = run.masks(start, start + size)
            z = shifted(model.forward(run.ids, rows, cache))
            scores = {p: score(z[p - start]) for p in masks}
            order = ranked(scores)
            if threshold is not None:
                sure = [p for p in order if score(z[p - start]) >= threshold]
                order = sure or order[:1]
            elif step == steps:
                run.commit({})
                break
            else:
                order = choose(scores, start, start + size, int(len(masks) * count[step]))
            run.commit({p: best(z[p - start])[1] for p in order})
            step, left = step + 1, bool(run.masks(start, start + size))
    return run


@pytest.mark.parametrize("alg", ["maskgit_plus", "topk_margin", "origin"])
def test_the_cached_sampler_for_dream_ranks_by_entropy_whatever_alg_says(alg):
    settings = {"gen_length": 16, "block_length": 8, "steps": 8, "cache": "dual", "alg": alg}
    expected = dream_fast(2, 8, 4, negative_entropy, dream_counts(4, 1e-3))
    assert_same(decoded("dream_fast", DREAM, settings | {"threshold": 0.5}), expected)


def test_the_cached_sampler_for_dream_follows_eps():
    settings = {"gen_length": 16, "block_length": 8, "steps": 8, "cache": "dual", "alg": "entropy"}
    expected = dream_fast(2, 8, 4, negative_entropy, dream_counts(4, 0.3))
    assert_same(decoded("dream_fast", DREAM, settings | {"eps": 0.3}), expected)
    assert expected.order != dream_fast(2, 8, 4, negative_entropy, dream_counts(4, 1e-3)).order


def test_the_cached_sampler_for_dream_has_a_default_threshold():
    settings = {"gen_length": 16, "block_length": 8, "steps": 16, "cache": "dual"}
    expected = dream_fast(2, 8, 8, lambda z: best(z)[0], threshold=0.9)
    found = decoded("dream_fast", DREAM, settings | {"alg": "confidence_threshold"})
    assert_same(found, expected)


def dream(fractions, score, choose=first_ranked) -> PlainRun:
    """Dream's sampler, for 12 positions."""
    model, run = PlainModel(model_of(DREAM)), started(12)
    for fraction in fractions:
        z, masks = shifted(model.whole(run.ids)), run.masks(0, len(run.ids))
        scores = {p: score(z[p]) for p in masks}
        order = choose(scores, 0, len(run.ids), int(len(masks) * fraction))
        run.commit({p: best(z[p])[1] for p in order})
    return run


DREAM_RUN = {"gen_length": 12, "block_length": 12, "steps": 5, "alg": "entropy"}


def test_dreams_sampler_follows_eps():
    expected = dream(dream_counts(5, 0.3), negative_entropy)
    assert_same(decoded("dream_vanilla", DREAM, DREAM_RUN | {"eps": 0.3}), expected)


def filtered(z, top_p=1.0, top_k=None):
    """Logits [V] without the tokens behind the one that crosses `top_p`, then the `top_k` best."""
    order = z.argsort(descending=True)
    p = z[order].softmax(-1)
    kept = order[p.cumsum(-1) - p <= top_p][:top_k]
    return torch.full_like(z, -torch.inf).index_copy(0, kept, z[kept])


@pytest.mark.parametrize("cuts", [{"top_p": 0.3}, {"top_k": 2}])
def test_dreams_samplers_measure_the_filtered_distribution(cuts):
    def score(z):
        return negative_entropy(filtered(z, **cuts))

    fractions = dream_counts(5, 1e-3)
    expected = dream(fractions, score, first_of_topk)
    assert_same(decoded("dream_vanilla", DREAM, DREAM_RUN | cuts), expected)
    assert expected.order != dream(fractions, negative_entropy).order
    settings = {"gen_length": 16, "block_length": 8, "steps": 8, "cache": "dual", "alg": "entropy"}
    expected = dream_fast(2, 8, 4, score, dream_counts(4, 1e-3), choose=first_of_topk)
    assert_same(decoded("dream_fast", DREAM, settings | cuts), expected)


def equal(z) -> float:
    """The confidence of a distribution that is cut to its best token."""
    return 1.0


def test_dreams_sampler_decides_ties_as_topk_does():
    settings = DREAM_RUN | {"alg": "maskgit_plus", "top_p": 0.0}
    fractions = dream_counts(5, 1e-3)
    expected = dream(fractions, equal, first_of_topk)
    assert_same(decoded("dream_vanilla", DREAM, settings), expected)
    assert expected.order != dream(fractions, equal).order


def test_the_cached_sampler_for_dream_decides_ties_as_topk_does_in_the_rows_of_the_call():
    settings = {"gen_length": 24, "block_length": 12, "steps": 12, "cache": "dual"}
    counts = dream_counts(6, 1e-3)
    expected = dream_fast(2, 12, 6, equal, counts, choose=first_of_topk)
    found = decoded("dream_fast", DREAM, settings | {"alg": "entropy", "top_p": 0.0})
    assert_same(found, expected)
    assert expected.order != dream_fast(2, 12, 6, equal, counts).order


@pytest.mark.parametrize("cut", [{"top_p": 0.0}, {"top_k": 2}])
def test_a_threshold_for_dream_is_compared_with_the_filtered_distribution(cut):
    expected = dream_fast(2, 8, 8, lambda z: best(filtered(z, **cut))[0], threshold=0.5)
    assert expected.calls == 4  # the best of two tokens has at least half of their probability
    assert dream_fast(2, 8, 8, lambda z: best(z)[0], threshold=0.5).calls > 4
    settings = {"gen_length": 16, "block_length": 8, "steps": 16, "cache": "dual"}
    settings |= {"alg": "confidence_threshold", "threshold": 0.5}
    assert_same(decoded("dream_fast", DREAM, settings | cut), expected)


def test_the_cached_sampler_for_dream_leaves_masks_with_one_step_a_block():
    settings = {"gen_length": 16, "block_length": 8, "steps": 2, "cache": "dual", "alg": "entropy"}
    expected = dream_fast(2, 8, 1, negative_entropy)
    assert expected.order == [0, *[-1] * 7, 2, *[-1] * 7]
    assert expected.calls == 4
    assert_same(decoded("dream_fast", DREAM, settings), expected)


def case_of(name, **settings) -> Case:
    case = next(one for one in read_cases(GOLDENS) if one.id == name)
    return replace(case, entry={**case.entry, "settings": case.settings | settings})


@pytest.mark.parametrize(("given", "kept"), [({}, 50), ({"top_k": None}, 0), ({"top_k": 7}, 7)])
def test_a_top_k_that_a_case_does_not_name_is_that_of_the_models_config(given, kept):
    unmasker = samplers.setup(case_of("dream-entropy", **given)).make_unmasker()
    assert unmasker.sampling_params.top_k == kept
    unmasker = samplers.setup(case_of("dream-fast-dual-thr0.9", **given)).make_unmasker()
    assert isinstance(unmasker, FilteredThreshold)
    assert unmasker.filters.top_k == kept

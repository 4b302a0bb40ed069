"""Rules of agreement: their order, their ties, and the STOP class."""

import numpy as np
import pytest
import torch

from engine.guider.verification import Rule, rank
from engine.guider.vocabularies import SharedVocabulary, VocabularyPair

V = 12


def cases(n=400, seed=0):
    """Log-probabilities [n, V], drafted tokens [n] (half of them likely ones), max p_f [n]."""
    generator = torch.Generator().manual_seed(seed)
    log_p = (torch.randn(n, V, dtype=torch.float64, generator=generator) * 2).log_softmax(1)
    near = log_p.topk(3).indices[torch.arange(n), torch.randint(0, 3, (n,), generator=generator)]
    far = torch.randint(0, V, (n,), generator=generator)
    drafted = torch.where(torch.rand(n, generator=generator) < 0.5, near, far)
    return log_p, drafted, torch.rand(n, dtype=torch.float64, generator=generator)


def flags(name, k, tau, seed=0):
    log_p, drafted, sure = cases(seed=seed)
    return Rule(name, k, tau).accepts(drafted, log_p, sure)


def within(a, b):
    """Whether `b` accepts all that `a` does, and more."""
    return bool((b | ~a).all()) and int(b.sum()) > int(a.sum())


def test_each_rule_is_its_definition():
    log_p, drafted, sure = cases()
    for i, (row, d) in enumerate(zip(log_p.exp().numpy(), drafted.tolist(), strict=True)):
        order = sorted(range(V), key=lambda v: (-row[v], v))
        told = {
            "top1": d == order[0],
            "topk": d in order[:3],
            "rel": d in order[:3] and row[d] >= 0.4 * row.max(),
            "rel_dlm": float(sure[i]) > 0.4 * row.max(),
        }
        for name, ok in told.items():
            one = slice(i, i + 1)
            assert Rule(name, 3, 0.4).accepts(drafted[one], log_p[one], sure[one]).item() == ok
        assert rank(drafted[i : i + 1], log_p[i : i + 1]).item() == order.index(d)


def test_top1_lies_within_rel_within_topk():
    assert within(flags("top1", 3, 0.5), flags("rel", 3, 0.5))
    assert within(flags("rel", 3, 0.5), flags("topk", 3, 0.5))


def test_more_choices_accept_more_and_a_larger_share_less():
    for few, many in ((1, 2), (2, 4), (4, 8)):
        assert within(flags("topk", few, 0.5), flags("topk", many, 0.5))
        assert within(flags("rel", few, 0.01), flags("rel", many, 0.01))
    for name in ("rel", "rel_dlm"):
        for low, high in ((0.1, 0.4), (0.4, 0.9)):
            assert within(flags(name, 8, high), flags(name, 8, low))


@pytest.mark.parametrize("tau", [0.0, 0.3, 1.0])
def test_the_ends_of_rel_are_topk_and_top1(tau):
    assert torch.equal(flags("rel", 4, 0.0), flags("topk", 4, 0.0))
    assert torch.equal(flags("rel", 1, tau), flags("top1", 1, tau))


def test_ties_go_to_the_lower_id():
    log_p = torch.zeros(1, 4).log_softmax(1)
    told = [int(rank(torch.tensor([i]), log_p)) for i in range(4)]
    assert told == [0, 1, 2, 3]


def test_stops_are_one_class_with_the_sum_of_their_probabilities():
    pair = VocabularyPair(stops=(7, 8), guider_stops=(1, 2), barred=(0,), guider_barred=(0, 9))
    z = torch.randn(5, V, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    p = z.clone()
    p[:, [0, 9]] = -torch.inf
    p = p.softmax(1)
    merged = pair.distribution(z).exp()
    assert torch.allclose(merged[:, 1], p[:, 1] + p[:, 2])
    assert (merged[:, [0, 2, 9]] == 0).all()
    rest = [3, 4, 5, 6, 7, 8, 10, 11]
    assert torch.allclose(merged[:, rest], p[:, rest])
    assert not torch.allclose(merged[:, 1], p[:, 1])
    pair.restrict_logits(z)
    assert (z[:, 0] == -torch.inf).all()
    assert torch.isfinite(z[:, 1:]).all()


def test_a_stop_of_the_model_is_judged_as_the_guiders_whichever_it_is():
    for stop in (7, 8):
        spelt = SharedVocabulary((7, 8), 1).align([4, 7], [5, stop, 6], [True, True, True])
        assert spelt.ids == (4, 7, 5, 1)
        assert spelt.stops
        assert spelt.accept(np.array([True, True])).k == 2
        assert spelt.accept(np.array([False, True])).k == 0
        assert spelt.accept(np.array([True, False])).k == 1
    assert SharedVocabulary((7, 8), 1).align([4], [5, 6], [True, False]).ids == (4, 5, 6)


def test_given_tokens_are_not_counted_and_not_asked():
    spelt = SharedVocabulary((7,), 7).align([], [3, 4, 5, 6], [True, False, True, True])
    assert spelt.accept(np.array([True, False, True, False])).k == 2
    assert spelt.accept(np.array([True, True, True, True])).k == 3
    assert spelt.accept(np.array([True, True, True, True]), most=1).k == 1
    assert spelt.judged.tolist() == [True, False, True, True]


def test_divergence_is_that_of_the_restricted_and_merged_distributions():
    pair = VocabularyPair(stops=(1, 2), guider_stops=(1, 2), barred=(0, 11), guider_barred=(0,))
    generator = torch.Generator().manual_seed(2)
    ours, theirs = torch.randn(2, 6, V, dtype=torch.float64, generator=generator)
    theirs = theirs[:, :11]
    pair.restrict_logits(ours)
    found = pair.divergence(ours, pair.distribution(theirs))
    p, q = ours.softmax(1)[:, :11].numpy(), theirs.clone()
    q[:, 0] = -torch.inf
    q = q.softmax(1).numpy()

    def merged(x):
        return np.concatenate([x[:, 1:3].sum(1, keepdims=True), x[:, 3:]], 1)

    p, q = merged(p), merged(q)
    assert np.allclose(found, (p * np.log(p / q)).sum(1), atol=1e-12)
    assert np.allclose(pair.divergence(ours, pair.distribution(ours[:, :11])), 0, atol=1e-12)

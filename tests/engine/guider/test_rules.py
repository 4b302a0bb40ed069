"""Acceptance rules, merged stop tokens, and alignment with a shared vocabulary."""

import numpy as np
import pytest
import torch

from engine.guider.verification import AcceptanceRule, token_ranks
from engine.guider.vocabularies import VocabularyPair

V = 12


def cases(n=400, seed=0):
    """Log-probabilities [n, V], drafted tokens [n] (half of them probable ones), max p_f [n]."""
    generator = torch.Generator().manual_seed(seed)
    log_p = (torch.randn(n, V, dtype=torch.float64, generator=generator) * 2).log_softmax(1)
    near = log_p.topk(3).indices[torch.arange(n), torch.randint(0, 3, (n,), generator=generator)]
    far = torch.randint(0, V, (n,), generator=generator)
    drafted = torch.where(torch.rand(n, generator=generator) < 0.5, near, far)
    return log_p, drafted, torch.rand(n, dtype=torch.float64, generator=generator)


def flags(name, k, tau, seed=0):
    log_p, drafted, max_p_f = cases(seed=seed)
    return AcceptanceRule(name, k, tau).accepts(drafted, log_p, max_p_f)


def is_stricter(a, b):
    """Whether `b` accepts everything that `a` accepts, and more."""
    return bool((b | ~a).all()) and int(b.sum()) > int(a.sum())


def test_each_rule_follows_its_definition():
    log_p, drafted, max_p_f = cases()
    for i, (row, d) in enumerate(zip(log_p.exp().numpy(), drafted.tolist(), strict=True)):
        order = sorted(range(V), key=lambda v: (-row[v], v))
        expected = {
            "top1": d == order[0],
            "topk": d in order[:3],
            "rel": d in order[:3] and row[d] >= 0.4 * row.max(),
            "rel_dlm": float(max_p_f[i]) > 0.4 * row.max(),
        }
        for name, ok in expected.items():
            one = slice(i, i + 1)
            assert (
                AcceptanceRule(name, 3, 0.4).accepts(drafted[one], log_p[one], max_p_f[one]).item()
                == ok
            )
        assert token_ranks(drafted[i : i + 1], log_p[i : i + 1]).item() == order.index(d)


def test_top1_is_stricter_than_rel_and_rel_than_topk():
    assert is_stricter(flags("top1", 3, 0.5), flags("rel", 3, 0.5))
    assert is_stricter(flags("rel", 3, 0.5), flags("topk", 3, 0.5))


def test_larger_k_accepts_more_and_larger_tau_less():
    for few, many in ((1, 2), (2, 4), (4, 8)):
        assert is_stricter(flags("topk", few, 0.5), flags("topk", many, 0.5))
        assert is_stricter(flags("rel", few, 0.01), flags("rel", many, 0.01))
    for name in ("rel", "rel_dlm"):
        for low, high in ((0.1, 0.4), (0.4, 0.9)):
            assert is_stricter(flags(name, 8, high), flags(name, 8, low))


@pytest.mark.parametrize("tau", [0.0, 0.3, 1.0])
def test_rel_becomes_topk_at_tau_0_and_top1_at_k_1(tau):
    assert torch.equal(flags("rel", 4, 0.0), flags("topk", 4, 0.0))
    assert torch.equal(flags("rel", 1, tau), flags("top1", 1, tau))


def test_ties_go_to_the_lower_id():
    log_p = torch.zeros(1, 4).log_softmax(1)
    ranks = [int(token_ranks(torch.tensor([i]), log_p)) for i in range(4)]
    assert ranks == [0, 1, 2, 3]


def test_stop_tokens_are_merged_with_the_sum_of_their_probabilities():
    pair = VocabularyPair((7, 8), (1, 2), excluded_ids=(0,), guider_excluded_ids=(0, 9))
    z = torch.randn(5, V, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    p = z.clone()
    p[:, [0, 9]] = -torch.inf
    p = p.softmax(1)
    merged = pair.guider_log_probs(z).exp()
    assert torch.allclose(merged[:, 1], p[:, 1] + p[:, 2])
    assert (merged[:, [0, 2, 9]] == 0).all()
    rest = [3, 4, 5, 6, 7, 8, 10, 11]
    assert torch.allclose(merged[:, rest], p[:, rest])
    assert not torch.allclose(merged[:, 1], p[:, 1])
    pair.restrict_logits(z)
    assert (z[:, 0] == -torch.inf).all()
    assert torch.isfinite(z[:, 1:]).all()


def test_every_stop_of_the_model_is_verified_as_the_guiders_first():
    for stop in (7, 8):
        aligned = VocabularyPair((7, 8), (1,)).align([4, 7], [5, stop, 6], [True, True, True])
        assert aligned.ids == (4, 7, 5, 1)
        assert aligned.ends_with_stop
        assert aligned.accept(np.array([True, True])).count == 2
        assert aligned.accept(np.array([False, True])).count == 0
        assert aligned.accept(np.array([True, False])).count == 1
    assert VocabularyPair((7, 8), (1,)).align([4], [5, 6], [True, False]).ids == (4, 5, 6)


def test_known_tokens_are_neither_verified_nor_counted():
    aligned = VocabularyPair((7,), (7,)).align([], [3, 4, 5, 6], [True, False, True, True])
    assert aligned.accept(np.array([True, False, True, False])).count == 2
    assert aligned.accept(np.array([True, True, True, True])).count == 3
    assert aligned.accept(np.array([True, True, True, True]), most=1).count == 1
    assert aligned.to_verify.tolist() == [True, False, True, True]


def test_kl_divergence_uses_the_restricted_and_merged_distributions():
    pair = VocabularyPair((1, 2), (1, 2), excluded_ids=(0, 11), guider_excluded_ids=(0,))
    generator = torch.Generator().manual_seed(2)
    ours, theirs = torch.randn(2, 6, V, dtype=torch.float64, generator=generator)
    theirs = theirs[:, :11]
    pair.restrict_logits(ours)
    found = pair.kl_divergence(ours, pair.guider_log_probs(theirs))
    p, q = ours.softmax(1)[:, :11].numpy(), theirs.clone()
    q[:, 0] = -torch.inf
    q = q.softmax(1).numpy()

    def merged(x):
        return np.concatenate([x[:, 1:3].sum(1, keepdims=True), x[:, 3:]], 1)

    p, q = merged(p), merged(q)
    assert np.allclose(found, (p * np.log(p / q)).sum(1), atol=1e-12)
    assert np.allclose(pair.kl_divergence(ours, pair.guider_log_probs(ours[:, :11])), 0, atol=1e-12)

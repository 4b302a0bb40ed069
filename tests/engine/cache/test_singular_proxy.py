"""Singular proxies: what they preserve of V, and where they are cached."""

from dataclasses import replace

import pytest
import safetensors.torch
import torch

from engine.cache.base import PolicyContext
from engine.cache.calibration import singular_proxy
from engine.core.files import cache_path
from tests.support.micro import make_model, model_of


def steep(seed, layers=3):
    """A model whose V stretches few directions much: singular values 1, 1/2, 1/4, ..."""
    model = make_model(seed, layers=layers)
    for layer in range(layers):
        weight = model.value_weight(layer)[0]
        u, s, v = torch.linalg.svd(weight)
        weight.copy_(u @ torch.diag(0.5 ** torch.arange(len(s)).double()) @ v)
    return model


@pytest.mark.parametrize("rank", [1, 4, 8])
def test_proxies_are_the_strongest_directions(rank):
    """Rows with no more weight on the other directions: cosines are off by at most the bound."""
    model, noise = steep(3), torch.Generator().manual_seed(rank)
    _, s, v = torch.linalg.svd(model.value_weight(1)[0])
    proxy = singular_proxy.compute_proxy(model, 1, rank)
    expected = s[:rank, None] * v[:rank]
    assert torch.allclose(proxy.weight.T @ proxy.weight, expected.T @ expected, atol=1e-12)
    random = torch.linalg.qr(torch.randn(32, 32, generator=noise).double()).Q[:rank]
    x = torch.randn(200, 2, 32, generator=noise).double()
    x[..., rank:] *= x[..., :rank].norm(dim=-1, keepdim=True) / x[..., rank:].norm(
        dim=-1, keepdim=True
    )
    cosines = [
        torch.cosine_similarity(*(x @ v @ w.T).unbind(1), dim=-1)
        for w in (model.value_weight(1)[0], proxy.weight, random)
    ]
    bound = 2 * float(s[rank] / s[rank - 1]) ** 2
    assert (cosines[1] - cosines[0]).abs().max() <= bound
    assert (cosines[2] - cosines[0]).abs().max() > bound


def context(model, digest="d" * 8, kept=None):
    return PolicyContext(model, digest, None, None, kept={} if kept is None else kept)


def equal(a, b):
    pairs = zip(a, b, strict=True)
    return all(torch.equal(x.weight, y.weight) for x, y in pairs)


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("family", ["mha", "shifted-gqa"])
def test_proxies_are_computed_once_and_cached(family, fresh, monkeypatch):
    model, kept, made = model_of(family), {}, []
    compute = singular_proxy.compute_proxy
    monkeypatch.setattr(singular_proxy, "compute_proxy", lambda *a: made.append(a) or compute(*a))
    first = singular_proxy.load_or_compute(context(model, kept=kept), 2)
    again = singular_proxy.load_or_compute(context(model, kept=kept), 2)
    from_disk = singular_proxy.load_or_compute(context(model), 2)
    assert again is first
    assert equal(first, from_disk)
    assert (from_disk[0].bias is None) == (family == "mha")
    assert len(made) == 3
    singular_proxy.load_or_compute(context(model), 3)
    singular_proxy.load_or_compute(context(model, digest="e" * 8), 2)
    assert len(made) == 9


def test_the_proxies_of_few_ranks_are_kept(fresh):
    """A visitor may ask for every rank."""
    model, kept = model_of("mha"), {}
    for rank in (1, 2, 3, 4, 5, 6, 5):
        found = singular_proxy.load_or_compute(context(model, kept=kept), rank)
        assert found[0].weight.shape[0] == rank
    assert list(kept[singular_proxy.KEPT]) == [6, 5]
    names = sorted(path.name for path in cache_path("d" * 8, "").glob("*"))
    assert names == [f"singular-r{rank}-float64.safetensors" for rank in (3, 4, 5, 6)]


class EndedError(Exception):
    """The work is ended after a layer."""


def test_the_layers_of_a_large_model_are_reported_and_not_computed_twice(fresh, monkeypatch):
    model, made, told = model_of("mha"), [], []
    expected = singular_proxy.load_or_compute(context(model, digest="e" * 8), 2)
    compute = singular_proxy.compute_proxy
    monkeypatch.setattr(
        singular_proxy, "compute_proxy", lambda *a: made.append(a[1]) or compute(*a)
    )
    monkeypatch.setattr(singular_proxy, "LONG", -1.0)

    def report(done, total):
        told.append((done, total))
        raise EndedError

    kept = {}
    large = replace(context(model, kept=kept), report=report)
    for _ in range(2):
        with pytest.raises(EndedError):
            singular_proxy.load_or_compute(large, 2)
    of_another_process = replace(context(model), report=report)
    assert equal(singular_proxy.load_or_compute(of_another_process, 2), expected)
    assert equal(singular_proxy.load_or_compute(large, 2), expected)
    assert told == [(1, 3), (2, 3)]
    assert made == [0, 1, 2, 2]
    assert not kept[singular_proxy.UNFINISHED]


@pytest.mark.parametrize("damage", ["cut", "text", "shape", "long", "bias", "name"])
def test_a_damaged_file_of_proxies_is_computed_again(damage, fresh):
    model = model_of("mha")
    expected = singular_proxy.load_or_compute(context(model), 2)
    (path,) = cache_path("d" * 8, "").glob("*")
    assert path.suffix == ".safetensors"
    whole = path.read_bytes()
    contents = {
        "cut": whole[:-5],
        "text": b"no such thing",
        "shape": safetensors.torch.save({"weight": torch.zeros(3, 2, 31)}),
        "long": safetensors.torch.save({"weight": torch.zeros(4, 2, 32)}),
        "bias": safetensors.torch.save({"weight": torch.zeros(3, 2, 32), "bias": torch.zeros(2)}),
        "name": safetensors.torch.save({"other": torch.zeros(3, 2, 32)}),
    }
    path.write_bytes(contents[damage])
    assert equal(singular_proxy.load_or_compute(context(model), 2), expected)
    assert path.read_bytes() == whole


def test_proxies_need_no_cache_folder(fresh, monkeypatch):
    model = model_of("mha")
    expected = singular_proxy.load_or_compute(context(model), 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(fresh / "file"))
    (fresh / "file").write_text("in the way")
    assert equal(singular_proxy.load_or_compute(context(model), 2), expected)
    monkeypatch.setenv("XDG_CACHE_HOME", str(fresh / "unused"))
    assert equal(singular_proxy.load_or_compute(context(model, digest=""), 2), expected)
    assert not (fresh / "unused").exists()

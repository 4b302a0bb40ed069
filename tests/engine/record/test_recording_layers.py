"""Level layers: drifts and similarities against values recorded at the adapter."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine.cache.base import RunInfo
from engine.core.drift_codes import decode, encode
from engine.core.events import QUANTITIES, SITES
from engine.models.ops import upcast
from engine.record import last_values
from engine.record.layer_recorder import LayerRecorder
from engine.record.sketches import Sketch
from tests.support.micro import (
    FAMILIES,
    MicroAdapter,
    full_policies,
    make_info,
    make_model,
    make_prompts,
    make_spec,
    model_of,
    run,
)

LENGTH, LAYERS = 22, 3
CACHES = [*full_policies(), "dual+dare_o", "prefix+dare_kv", "none+dare_o"]


class Noting(MicroAdapter):
    """Notes what each layer gave: (quantity, layer, positions or None, values [n, width])."""

    def __init__(self, info):
        super().__init__(info)
        self.calls = []

    def project(self, layer, names, x, rows, length, heads=None):
        out = super().project(layer, names, x, rows, length, heads)
        where = rows[0] if isinstance(rows, torch.Tensor) else torch.arange(LENGTH)
        where = where[rows] if isinstance(rows, slice) else where
        for name, values in zip(names, out, strict=True):
            if name == "q":
                self.calls.append(("q0", layer, where, values[0, :, 0].clone()))
            elif heads is None:
                self.calls.append((name, layer, where, values[0].flatten(1).clone()))
        return out

    def attend(self, layer, *parts):
        out = super().attend(layer, *parts)
        self.calls.append(("attn", layer, None, out[0].clone()))
        return out

    def attend_with_weights(self, layer, *parts):
        out = super().attend_with_weights(layer, *parts)
        self.calls.append(("attn", layer, None, out[0][0].clone()))
        return out

    def mlp(self, layer, h):
        out = super().mlp(layer, h)
        self.calls.append(("ffn", layer, None, out[0].clone()))
        return out


class Spy(LayerRecorder):
    """A layer recorder that also keeps the calls noted in each step."""

    def __init__(self, model, forwards=16):
        super().__init__(forwards)
        self.model, self.steps = model, []

    def record(self, view, plan, logits, candidates):
        self.steps.append(list(self.model.calls))
        self.model.calls.clear()
        return super().record(view, plan, logits, candidates)


def noted(family, **changes):
    """A recorded run, the values known after each step, and the rows computed in it."""
    shift, kv, seed = FAMILIES[family]
    model = make_model(seed, shift, kv, cls=Noting)
    spy = Spy(model)
    ran = run(model, make_spec(**changes), recorder=spy, eager=True)
    known, history = {}, []
    for event, calls in zip(ran.events, spy.steps, strict=True):
        plan = np.unpackbits(event.recording.plan, axis=-1, count=LENGTH).astype(bool)
        new = {}
        for name, layer, where, values in calls:
            if where is None:
                where = np.flatnonzero(plan[layer, SITES.index(name)])
                if len(values) < len(where):
                    continue  # what is read; all that is planned comes in a later call
            rows = zip(where, values, strict=True)
            new |= {(name, layer, int(at)): row for at, row in rows}
        for name, layer, at in list(new):
            if name in SITES and not plan[layer, SITES.index(name), at]:
                del new[name, layer, at]
        known = known | new
        history.append((known, new))
    return ran, spy.finish(), history


def expected_drift(history, swap=None):
    """Codes [S, L, Q, T], those of a quantity in a step together."""
    codes = np.full((len(history), LAYERS, len(QUANTITIES), LENGTH), 255, np.uint8)
    before = {}
    for step, (known, new) in enumerate(history):
        for quantity, name in enumerate(QUANTITIES):
            other = (swap or {}).get(name, name)
            places = [(layer, at) for own, layer, at in new if own == name]
            places = [place for place in places if (other, *place) in before]
            if not places:
                continue
            rows = torch.stack([new[(name, *place)] for place in places])
            old = torch.stack([before[(other, *place)] for place in places])
            layers, columns = np.array(places).T
            cosine = torch.nn.functional.cosine_similarity(rows, old, dim=-1)
            codes[step, layers, quantity, columns] = encode(1 - cosine)
        before = known
    return codes


def gap(a, b):
    """Largest difference of codes; 255 where they disagree on what was evaluated."""
    if not np.array_equal(a == 255, b == 255):
        return 255
    return int(np.abs(a.astype(int) - b.astype(int)).max())


@pytest.mark.parametrize(
    ("family", "cache"),
    [
        *(("mha", cache) for cache in CACHES),
        ("shifted-gqa", "none"),
        ("shifted-gqa", "dual+dare_o"),
    ],
)
def test_drifts_are_those_of_the_values_computed(family, cache):
    ran, _, history = noted(family, cache=cache, unmasker="threshold")
    found = np.stack([event.recording.drift for event in ran.events])
    assert found.shape == (len(ran.events), LAYERS, len(QUANTITIES), LENGTH)
    assert (found[0] == 255).all()
    assert (found[1:] != 255).any()
    assert gap(found, expected_drift(history)) <= 1
    if family == "mha":
        assert gap(found, expected_drift(history, {"k": "v", "v": "k"})) > 1


def test_a_query_is_evaluated_if_only_head_0_was_computed():
    ran, _, _ = noted("mha", cache="dare_o")
    codes = np.stack([event.recording.drift for event in ran.events[1:]])
    attn, query = codes[:, :, SITES.index("attn")], codes[:, :, QUANTITIES.index("q0")]
    assert (query != 255).all()
    assert (attn == 255).any()


@pytest.mark.parametrize("cache", ["none", "dual", "freecache", "dkv_cache", "spa_cache"])
def test_similarities_are_mean_cosines_of_each_step_s_values(cache):
    ran, found, history = noted("gqa", cache=cache)
    steps = len(ran.events)
    assert found.steps.tolist() == list(range(steps))
    assert found.groups.tolist() == [[0, 6], [6, 10], [10, 14], [14, 18], [18, 22]]
    cosines = np.zeros((steps, steps, 2, LAYERS, 5))
    for group, (lo, hi) in enumerate(found.groups):
        for layer in range(LAYERS):
            for kv, name in enumerate("kv"):
                rows = [
                    torch.stack([known[name, layer, at] for at in range(lo, hi)])
                    for known, _ in history
                ]
                units = torch.nn.functional.normalize(torch.stack(rows), dim=-1)
                mean = torch.einsum("snd,tnd->st", units, units) / (hi - lo)
                cosines[:, :, kv, layer, group] = mean
    below = np.tril_indices(steps)
    expected = 1 - cosines[below]
    assert found.codes.shape == expected.shape
    assert np.allclose(decode(found.codes), expected, rtol=0.05, atol=1e-4)
    assert not np.allclose(decode(found.codes), expected[:, ::-1], rtol=0.05, atol=1e-4)
    same = below[0] == below[1]
    assert (found.codes[same] == 0).all()


def test_a_reused_row_has_a_similarity_of_exactly_1():
    _, found, _ = noted("mha", cache="freecache")
    assert (found.codes[..., 0] == 0).all()
    assert (found.codes[..., 1:] > 0).any()


def sketched(width, forwards, steps):
    """A sketch of random walks, and their values [X, 2, L, T, width]."""
    info = make_info(layers=2)
    sketch = Sketch(RunInfo(info, 1, 100, 64, 8), forwards)
    noise = torch.Generator().manual_seed(1)
    state, history = torch.randn(2, 2, 164, width, generator=noise), []
    for step in range(steps):
        state = state + 0.1 * torch.randn(state.shape, generator=noise)
        history.append(state)
        latest = SimpleNamespace(values=dict(zip("kv", state, strict=True)))
        sketch.add(step, np.ones(164, bool), latest)
    return sketch, torch.stack(history)


def test_sketches_of_wide_vectors_estimate_their_cosines():
    sketch, values = sketched(256, 6, 6)
    found = sketch.result()
    units = torch.nn.functional.normalize(values, dim=-1)[:, :, :, :100]
    cosines = torch.einsum("skltd,ukltd->sukl", units, units) / 100
    expected = cosines[np.tril_indices(6)].numpy()
    error = np.abs(1 - decode(found.codes[..., 0]) - expected)
    assert (error <= (1 - expected**2) / np.sqrt(64) + 1e-4).all()
    assert error.max() > 1e-4


def test_groups_are_few_and_spread_over_the_answer():
    groups = sketched(32, 1, 1)[0].result().groups
    starts = [100, 116, 132, 140, 156]
    assert groups.tolist() == [[0, 100], *([start, start + 8] for start in starts)]


@pytest.mark.parametrize(("forwards", "every"), [(256, 1), (257, 2), (512, 2), (513, 3)])
def test_long_runs_keep_every_kth_step(forwards, every):
    steps = sketched(16, forwards, 10)[0].result().steps
    assert steps.tolist() == list(range(0, 10, every))


def test_a_run_longer_than_max_steps_keeps_at_most_256_steps():
    assert len(sketched(16, 1, 260)[0].result().steps) == 256


def test_a_stopped_run_returns_its_similarity_and_releases_memory():
    model = make_model()
    recorder = LayerRecorder(16)
    ran = run(model, make_spec(), make_prompts(6), recorder)
    assert len(recorder.finish().steps) == len(ran.events)
    assert recorder.finish() is None
    assert LayerRecorder(16).finish() is None


def test_a_batch_records_its_first_sequence():
    def drifts(prompts):
        events = run(make_model(), make_spec(cache="dual"), prompts, LayerRecorder(16)).events
        return np.stack([event.recording.drift for event in events])

    one, other = make_prompts(6), make_prompts(6, seed=9)
    assert gap(drifts([*one, *other]), drifts(one)) <= 1
    assert gap(drifts([*one, *other]), drifts(other)) > 1


@pytest.mark.parametrize("cache", ["none", "dual", "dllm_cache"])
def test_few_values_are_in_float32_at_a_time_with_the_same_drifts(monkeypatch, cache):
    """All layers of 3,072 positions of an 8B model at once would take 3 GB."""

    def recorded(most):
        sizes = []

        def measured(x):
            sizes.append(x.numel())
            return upcast(x)

        monkeypatch.setattr(last_values, "MAX_UPCAST", most)
        monkeypatch.setattr(last_values, "upcast", measured)
        found = run(model_of("mha"), make_spec(cache=cache), None, LayerRecorder(16))
        return max(sizes), [event.recording.drift for event in found.events]

    layer = LENGTH * model_of("mha").info.d_model
    (largest, drifts), (few, again) = recorded(last_values.MAX_UPCAST), recorded(layer)
    assert few <= layer < largest
    assert all(np.array_equal(a, b) for a, b in zip(drifts, again, strict=True))

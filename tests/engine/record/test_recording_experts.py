"""Changes of experts: against the experts that a model's routers chose, noted row by row."""

from itertools import pairwise

import numpy as np
import pytest
import torch

from engine.config.narrowing import Narrowing
from engine.core.events import SITES, RunFinished, RunStarted
from engine.record.last_experts import NONE, count_changes
from engine.record.layer_recorder import LayerRecorder
from engine.record.probe_recorder import ProbeRecorder
from engine.trace.trace import Trace
from tests.engine.cache.test_compositions import CACHES
from tests.engine.models.test_experts import ROUTERS
from tests.support.micro import (
    SIGMOID_EXPERTS,
    SOFTMAX_EXPERTS,
    TWO_BLOCKS,
    MicroAdapter,
    make_model,
    make_prompts,
    make_spec,
    run,
)
from tests.support.reference import reference_hidden

LENGTH, LAYERS = 22, 3


class Noting(MicroAdapter):
    """Notes the experts of every call: (layer, experts [n, k])."""

    def __init__(self, info):
        super().__init__(info)
        self.calls = []

    def mlp_with_experts(self, layer, h):
        out, experts = super().mlp_with_experts(layer, h)
        if experts is not None:
            self.calls.append((layer, experts[0].clone()))
        return out, experts


class Spy:
    """Keeps the calls that the model noted in each step, but for those of an exact forward."""

    def __init__(self, model, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.model, self.steps = model, []

    def record(self, view, plan, logits, candidates):
        self.steps.append(list(self.model.calls))
        found = super().record(view, plan, logits, candidates)
        self.model.calls.clear()
        return found


class LayerSpy(Spy, LayerRecorder):
    pass


class ProbeSpy(Spy, ProbeRecorder):
    pass


def used_experts(ran, spy):
    """For each step, the sets of experts by (layer, row): before it, and those computed in it."""
    last, history, length = {}, [], ran.ids.shape[1]
    for event, calls in zip(ran.events, spy.steps, strict=True):
        plan = np.unpackbits(event.recording.plan, axis=-1, count=length).astype(bool)
        chosen = {}
        for layer, ids in calls:
            where = np.flatnonzero(plan[layer, SITES.index("ffn")]).tolist()
            if len(ids) >= len(where):  # the last call has all rows that are planned
                sets = [set(row) for row in ids.tolist()]
                chosen |= {(layer, at): sets[i] for i, at in enumerate(where)}
        history.append((dict(last), chosen))
        last |= chosen
    return history


def recorded(experts, narrowing=None, **changes):
    """A recorded run, and the expected changes [S, L, T] from sets of experts."""
    model = make_model(5, cls=Noting, experts=experts)
    spy = LayerSpy(model, 16, Narrowing(**(narrowing or {})))
    ran = run(model, make_spec(**changes), make_prompts(6), spy)
    expected = np.full((len(ran.events), LAYERS, ran.ids.shape[1]), 255, np.uint8)
    for step, (before, chosen) in enumerate(used_experts(ran, spy)):
        for place, own in chosen.items():
            if place in before:
                expected[(step, *place)] = len(own - before[place])
    return ran, expected


@pytest.mark.parametrize("cache", CACHES)
def test_changes_are_those_of_the_sets_of_experts(cache):
    ran, expected = recorded(SOFTMAX_EXPERTS, cache=cache, unmasker="threshold", **TWO_BLOCKS)
    found = np.stack([event.recording.expert_changes for event in ran.events])
    assert np.array_equal(found, expected)
    assert (found[0] == 255).all()
    ffn = np.stack([event.recording.drift[:, SITES.index("ffn")] for event in ran.events])
    assert np.array_equal(found == 255, ffn == 255)


def test_a_dense_layer_has_no_experts_to_change():
    ran, expected = recorded(SIGMOID_EXPERTS)
    found = np.stack([event.recording.expert_changes for event in ran.events])
    assert np.array_equal(found, expected)
    assert (found[:, 0] == 255).all()
    assert set(np.unique(found[1:, 1:])) >= {0, 1}


def test_a_dense_model_records_none():
    ran = run(make_model(5), make_spec(), make_prompts(6), LayerRecorder(16))
    assert all(event.recording.expert_changes is None for event in ran.events)


def test_a_narrowed_recording_keeps_what_is_recorded_of_the_whole():
    _, expected = recorded(SOFTMAX_EXPERTS)
    narrowing = {"layers": "2-3", "every": 3, "positions": "answer", "quantities": "k"}
    ran, _ = recorded(SOFTMAX_EXPERTS, narrowing)
    for event in ran.events:
        found = event.recording.expert_changes
        if event.step % 3:
            assert found is None
        else:
            assert np.array_equal(found, expected[event.step, 1:, 6:])


def test_changes_are_counted_for_known_rows_only():
    new = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9], [NONE] * 3])
    old = torch.tensor([[3, 1, 2], [4, 9, 1], [NONE] * 3, [1, 2, 3]])
    assert count_changes(new, old).tolist() == [0, 2, 255, 255]


def exact_experts(model, canvas):
    """The sets of experts by (layer, row) of an exact forward on a canvas [T]."""
    found, rows = {}, slice(0, len(canvas))
    hidden = [model.embed(canvas[None]), *reference_hidden(model, canvas[None])]
    for layer, (before, after) in enumerate(pairwise(hidden)):
        q, k, v = model.project(layer, "qkv", model.attn_norm(layer, before), rows, len(canvas))
        middle = before + model.attend(layer, q, k.transpose(1, 2), v.transpose(1, 2), None)
        torch.testing.assert_close(middle + model.mlp(layer, middle), after, atol=1e-9, rtol=0)
        block = model.block(layer)
        ids = block.feed_forward.router(block.ff_norm(middle)[0]).ids
        found |= {(layer, at): set(row) for at, row in enumerate(ids.tolist())}
    return found


def probed(cache, steps=(0, 3, 9)):
    """A model and its run under a cache, whose `steps` are compared with exact forwards."""
    model = make_model(5, cls=Noting, experts=SOFTMAX_EXPERTS)
    spy = ProbeSpy(model, 16, 0, chosen=steps)
    ran = run(model, make_spec(cache=cache), make_prompts(6), spy)
    return model, ran, used_experts(ran, spy)


def test_a_probe_compares_the_router_of_now_with_that_of_the_value_in_use():
    model, ran, used = probed("dllm_cache")
    canvas = torch.from_numpy(ran.state.ids[0].copy())
    for event in reversed(ran.events):  # back from the final canvas to the one before each step
        canvas[event.positions] = model.info.mask_id
        probe = event.recording.probe
        if probe is None:
            continue
        exact, (before, chosen) = exact_experts(model, canvas), used[event.step]
        held = before | chosen
        expected = [
            [len(exact[layer, at] - held[layer, at]) for at in range(LENGTH)]
            for layer in range(LAYERS)
        ]
        assert probe.expert_changes.tolist() == expected
        # Values are reused under a changed router, but not in the first step, which is exact.
        assert (np.sum(expected) > 0) == (event.step > 0)


def test_rows_outside_a_window_have_no_experts_in_use():
    _, ran, _ = probed("dual")
    probe = ran.events[3].recording.probe
    assert (probe.expert_changes[:, :6] == 255).all()
    assert (probe.expert_changes[:, 6:10] != 255).all()


def test_without_a_cache_a_probe_finds_no_change():
    _, ran, _ = probed("none")
    probes = [event.recording.probe for event in ran.events if event.recording.probe]
    assert len(probes) == 3
    assert all((probe.expert_changes == 0).all() for probe in probes)


@pytest.mark.parametrize("router", ROUTERS)
def test_a_trace_holds_the_changes_and_opens_again(router):
    model = make_model(5, experts=ROUTERS[router])
    recorder = ProbeRecorder(16, 2, narrowing=Narrowing(layers="2-3", every=2))
    ran = run(model, make_spec(cache="dual"), make_prompts(6), recorder)
    trace = traced(model, ran)
    again = Trace.from_bytes(trace.to_bytes())
    for name in ("expert_changes", "probe_expert_changes"):
        assert np.array_equal(again.arrays()[name], trace.arrays()[name])
        assert len(again.arrays()[name])
    whole = again.cells("expert_changes")
    assert whole.shape == (16, LAYERS, 1, LENGTH)
    assert (whole[1::2] == 255).all()
    assert (whole[:, 0] == 255).all()
    assert np.array_equal(whole[::2, 1:, 0], trace.arrays()["expert_changes"])
    assert Trace.from_bytes(trace.to_json().encode()).meta["model"]["experts"]["count"] == 12


def traced(model, ran):
    """The trace of a run of `make_spec` recorded at level `layers`."""
    state, trace = ran.state, Trace()
    mask = np.arange(LENGTH)[None] < 6
    canvas = np.where(mask, state.ids, model.info.mask_id).astype(np.int32)
    trace.append(RunStarted(
        make_spec(record="probe").to_dict(), model.info.to_dict(), {}, canvas, mask,
        np.zeros_like(mask), np.ones_like(mask), {i: b"x" for i in range(40)},
    ))  # fmt: skip
    for event in ran.events:
        trace.append(event)
    trace.append(RunFinished("done", state.ids.astype(np.int32)))
    return trace


def damaged(trace, **arrays):
    return Trace.of_arrays(trace.meta, trace.arrays() | arrays)


def test_damaged_changes_are_refused():
    model = make_model(5, experts=SOFTMAX_EXPERTS)
    ran = run(model, make_spec(), make_prompts(6), LayerRecorder(16))
    trace = traced(model, ran)
    found = trace.arrays()["expert_changes"]
    with pytest.raises(ValueError, match="expert_changes"):
        damaged(trace, expert_changes=found[:-1])
    with pytest.raises(ValueError, match="expert_changes"):
        damaged(trace, expert_changes=found[:, :, :-1])
    with pytest.raises(ValueError, match="expert_changes should be uint8"):
        damaged(trace, expert_changes=found.astype(np.int32))

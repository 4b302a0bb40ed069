"""CapturedForwards: replayed forwards give the tokens and logits of eager ones."""

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.cache.methods.dllm_cache import DllmCache
from engine.cache.methods.spa_cache import SpaCache
from engine.generate.capture import forwards
from engine.generate.capture.capturers import CaptureError, TapeCapturer
from engine.generate.loop import Denoiser, denoise
from engine.models.base import ModelAdapter
from tests.support.micro import (
    ATOL,
    LogitTap,
    full_policies,
    make_model,
    make_prompts,
    make_spec,
    micro_job,
    model_of,
    run,
    tapped,
    widest_gap,
)
from tests.support.replaying import FREED, Replaying, Taping

CAPTURED = sorted(name for name, kind in full_policies().items() if kind.speedups.capture_key)
ANSWER = {"gen_length": 12, "block_length": 6, "steps": 12}
OFTEN = {
    "dllm_cache": {"prompt_interval": 6, "response_interval": 3},
    "spa_cache": {"refresh_interval": 8, "response_interval": 4, "kv_mode": "sparse"},
    "dual": {"refresh_interval": 3},
    "d2_cache": {"current_k": 6, "refresh_interval": 10},
}


def spec_of(cache, **changes):
    knobs = {f"{cache}.{name}": value for name, value in OFTEN.get(cache, {}).items()}
    return make_spec(**(ANSWER | {"cache": cache, "knobs": knobs} | changes))


def captured(model, spec, prompts=None, policy=None, capturer=None):
    """A run with captured forwards, and the list that its steps' logits are appended to."""
    tap = LogitTap()
    job = micro_job(model, spec, prompts or make_prompts(6), tap, policy)
    return Denoiser(replace(job, capturer=capturer or Replaying())), tap.steps


def counts(state):
    return state.job.capturer.captured, state.job.capturer.replayed


def captured_now(branch):
    """How many captured forwards a guidance branch keeps."""
    return sum(known is not None for known in branch.forwards._known.values())


@pytest.mark.parametrize("kind", [Replaying, Taping])
@pytest.mark.parametrize("cache", CAPTURED)
def test_captured_forwards_give_the_tokens_and_logits_of_eager_ones(cache, kind):
    """In a padded batch; after a rewind, almost every forward is a replay."""
    model, spec, prompts = model_of("shifted-gqa"), spec_of(cache), make_prompts(6, 9)
    plain, expected = tapped(model, spec, prompts, eager=True)
    state, steps = captured(model, spec, prompts, capturer=kind())
    first = list(denoise(state))
    assert np.array_equal(state.ids, plain.ids)
    assert widest_gap(expected, steps) < ATOL
    before = counts(state)
    state.rewind()
    steps.clear()
    again = list(denoise(state))
    assert np.array_equal(state.ids, plain.ids)
    assert widest_gap(expected, steps) < ATOL
    assert counts(state)[1] - before[1] >= len(again) - 2
    assert state.branches[0].forwards.failure == ""
    for a, b, c in zip(plain.events, first, again, strict=True):
        assert (a.kind, a.rows, a.masks_left) == (b.kind, b.rows, b.masks_left)
        assert np.array_equal(a.flops, b.flops)
        assert np.array_equal(a.flops, c.flops)
        assert a.recomputed == b.recomputed == c.recomputed
        assert np.array_equal(a.positions, c.positions)


@pytest.mark.parametrize("kind", [Replaying, Taping])
@pytest.mark.parametrize(
    ("cache", "unmasker"),
    [("dkv_cache", "quota"), ("d2_cache", "threshold"), ("freecache", "threshold")],
)
def test_index_rows_are_padded_to_few_sizes(cache, unmasker, kind):
    """Padding does not count in their FLOPs."""
    model, spec = model_of("mha"), spec_of(cache, unmasker=unmasker)
    state, _ = captured(model, spec, make_prompts(6, 9), capturer=kind(8))
    events, eager = list(denoise(state)), run(model, spec, make_prompts(6, 9), eager=True)
    assert np.array_equal(state.ids, eager.ids)
    assert [e.flops.tolist() for e in events] == [e.flops.tolist() for e in eager.events]
    sizes = {event.rows for event in events}
    if cache != "freecache":
        assert counts(state)[0] < len(sizes) + 2
    if cache != "freecache" or kind is Replaying:
        assert counts(state)[1] > len(events) // 3


@pytest.mark.parametrize(
    ("cache", "eager"), [("none", 1), ("dual", 1), ("dllm_cache", 0), ("spa_cache", 0)]
)
def test_a_last_layer_is_captured_if_its_outputs_are_stored(cache, eager, monkeypatch):
    model = model_of("mha")
    state, _ = captured(model, spec_of(cache))
    for _ in range(2):
        list(denoise(state))
        state.rewind()
    layers, mlp = [], ModelAdapter.mlp
    monkeypatch.setattr(
        ModelAdapter, "mlp", lambda self, layer, h: layers.append(layer) or mlp(self, layer, h)
    )
    events = list(denoise(state))
    assert layers == [model.info.layers - 1] * eager * len(events)


def test_both_branches_of_guidance_are_captured():
    model, spec = model_of("mha"), spec_of("dllm_cache", cfg_scale=1.0)
    state, _ = captured(model, spec)
    list(denoise(state))
    assert np.array_equal(state.ids, run(model, spec, eager=True).ids)
    assert all(captured_now(branch) > 1 for branch in state.branches)


class SameKey(DllmCache):
    """Gives every step the same capture key, though they differ."""

    def start(self, run):
        super().start(run)
        self.speedups = replace(self.speedups, capture_key=lambda policy: ())


def test_a_capture_key_that_is_too_coarse_gives_wrong_logits():
    model, spec = model_of("mha"), spec_of("dllm_cache")
    knobs = OFTEN["dllm_cache"]
    for policy, right in ((DllmCache, True), (SameKey, False)):
        _, expected = tapped(model, spec, policy=lambda p=policy: p(**knobs), eager=True)
        state, steps = captured(model, spec, policy=lambda p=policy: p(**knobs))
        list(denoise(state))
        assert (widest_gap(expected, steps) < ATOL) == right


class StepNumber(DllmCache):
    """Adds a number of the host, which changes from step to step, to the stream."""

    def plan(self, layer, probe):
        probe.h.add_(float(self.step))
        return super().plan(layer, probe)

    def begin_step(self, view):
        self.step = view.step
        return super().begin_step(view)


def test_a_host_number_in_the_forward_gives_wrong_logits():
    model, spec = model_of("mha"), spec_of("dllm_cache")
    expected = tapped(model, spec, policy=StepNumber, eager=True)[1]
    state, steps = captured(model, spec, policy=StepNumber)
    list(denoise(state))
    assert widest_gap(expected, steps) > 1e-6


class Leaky(SpaCache):
    """Frees, at each start, tensors that captured forwards read."""

    def start(self, run):
        super().start(run)
        self._ranks = {}


def test_a_replay_that_reads_freed_memory_is_detected():
    spec, prompts = spec_of("spa_cache"), make_prompts(6, 9)
    state, _ = captured(model_of("mha"), spec, prompts, lambda: Leaky(**OFTEN["spa_cache"]))
    list(denoise(state))
    state.rewind()
    with pytest.raises(AssertionError, match=FREED):
        list(denoise(state))


def test_captures_keep_the_rotary_tables_alive():
    model, spec = make_model(3), spec_of("dual")
    state, _ = captured(model, spec)
    steps = denoise(state)
    for _ in range(12):
        next(steps)
    for length in range(50, 60):
        model.rotary(length)
    gc.collect()
    list(steps)
    assert np.array_equal(state.ids, run(model, spec, eager=True).ids)


def test_only_the_forwards_used_last_are_kept(monkeypatch):
    monkeypatch.setattr(forwards, "MAX_FORWARDS", 1)
    model, spec = model_of("mha"), spec_of("dual")
    state, _ = captured(model, spec)
    for _ in denoise(state):
        assert captured_now(state.branches[0]) <= 1
    assert counts(state)[0] > 2
    assert np.array_equal(state.ids, run(model, spec, eager=True).ids)


class Failing(Replaying):
    def capture(self, call):
        if self.captured == 1:
            raise CaptureError("out of memory")
        return super().capture(call)


def test_after_a_failed_capture_all_forwards_are_eager():
    model, spec = model_of("mha"), spec_of("dllm_cache")
    state = Denoiser(replace(micro_job(model, spec), capturer=Failing()))
    list(denoise(state))
    assert state.branches[0].forwards.failure == "out of memory"
    assert (captured_now(state.branches[0]), counts(state)[0]) == (0, 1)
    assert np.array_equal(state.ids, run(model, spec, eager=True).ids)


class FailingLate(Replaying):
    """Fails with a tensor in a frame of the error; `held` refers to it."""

    held = None

    def capture(self, call):
        if self.captured == 1:
            made = torch.zeros(1)
            self.held = weakref.ref(made)
            raise CaptureError("out of memory")
        return super().capture(call)


def test_the_tensors_of_a_failed_capture_are_freed_before_the_eager_forward(monkeypatch):
    capturer, alive, begin = FailingLate(), [], forwards.ForwardPass.begin
    state = Denoiser(replace(micro_job(model_of("mha"), spec_of("dllm_cache")), capturer=capturer))

    def watched(self):
        if capturer.held is not None:
            alive.append(capturer.held() is not None)
        return begin(self)

    monkeypatch.setattr(forwards.ForwardPass, "begin", watched)
    list(denoise(state))
    assert alive
    assert not any(alive)


class ReadsData(DllmCache):
    """Reads a value of a tensor in all but the partial steps."""

    def plan(self, layer, probe):
        if self._refresh_answer:
            probe.h.add_(float(probe.h.sum() > 1e9))
        return super().plan(layer, probe)


def test_a_forward_that_reads_data_is_not_replayed_and_the_others_are():
    model, spec = model_of("mha"), spec_of("dllm_cache")
    knobs = OFTEN["dllm_cache"]
    expected = tapped(model, spec, policy=lambda: DllmCache(**knobs), eager=True)[1]
    state, steps = captured(model, spec, policy=lambda: ReadsData(**knobs), capturer=TapeCapturer())
    list(denoise(state))
    known = state.branches[0].forwards._known.values()
    assert {None if one is None else one.replay is None for one in known} >= {True, False}
    assert widest_gap(expected, steps) < ATOL


@pytest.mark.parametrize("kind", [Replaying, Taping])
def test_captures_are_freed_with_their_run(kind):
    state, _ = captured(model_of("mha"), spec_of("dual"), capturer=kind())
    list(denoise(state))
    kept = [weakref.ref(x) for x in (state, state.branches[0].forwards, state.branches[0].store)]
    gc.collect()
    gc.disable()
    try:
        del state
        assert [one() for one in kept] == [None] * 3
    finally:
        gc.enable()


@pytest.mark.parametrize("cache", ["dare_kv", "dual+dare_o"])
def test_policies_that_choose_rows_by_data_are_never_captured(cache):
    model, spec = model_of("mha"), make_spec(cache=cache, **ANSWER)
    state, _ = captured(model, spec)
    list(denoise(state))
    assert counts(state) == (0, 0)
    assert np.array_equal(state.ids, run(model, spec, eager=True).ids)
    assert state.branches[0].policy.speedups.capture_key is None

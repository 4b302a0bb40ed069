"""How often the host waits for the device in a step, counted on a simulated device."""

from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import pytest
import torch

from engine.bench.host_waits import STEP, HostWaits, waits_in_trace
from engine.bench.trial import SynchronousDenoiser
from engine.cache.methods.none import NoCache
from engine.core.device import Clock
from engine.generate.loop import Denoiser, denoise
from tests.support.counting_device import CountingDevice, to_device
from tests.support.micro import full_policies, make_model, make_prompts, make_spec, micro_job, run

SHORT = {"gen_length": 8, "block_length": 4, "steps": 8}
STATIC = ("none", "prefix", "dual", "dllm_cache", "spa_cache")
WAITING = sorted(set(full_policies()) - {*STATIC, "dare_kv", "dare_o"})
SCHEDULED = {
    "quota": {"unmasker": "quota"},
    "margin": {"unmasker": "quota", "knobs": {"quota.score": "margin"}},
    "two at once": {"unmasker": "quota", "steps": 4, "temperature": 1.0},
    "certainty": {"unmasker": "certainty"},
    "dream": {"unmasker": "dream", "steps": 4, "knobs": {"dream.top_p": 0.9}},
}
UNSCHEDULED = {
    "threshold": {"unmasker": "threshold", "knobs": {"threshold.threshold": 0.4}},
    "factor": {"unmasker": "factor"},
    "frechet": {"unmasker": "frechet"},
    "random": {"unmasker": "quota", "knobs": {"quota.score": "random"}},
    "filled": {"unmasker": "quota", "eos": "fill_eager"},
}


@contextmanager
def device(monkeypatch):
    with monkeypatch.context() as patch, torch.inference_mode(), CountingDevice(patch) as mode:
        yield mode


def waits_of(monkeypatch, changes, prompts=(6, 9), policy=None):
    """Waits within each step of a run on the device and after it; the tokens are checked."""
    spec, prompts, inside, after = make_spec(**SHORT | changes), make_prompts(*prompts), [], []

    class Watched(Denoiser):
        def step(self, *given):
            before = mode.waits
            found = super().step(*given)
            inside.append(mode.waits - before)
            return found

        def finalize(self, step):
            before = mode.waits
            event = super().finalize(step)
            after.append(mode.waits - before)
            return event

    expected = run(make_model(11), spec, prompts, None, policy)
    with device(monkeypatch) as mode:
        state = Watched(micro_job(to_device(make_model(11)), spec, prompts, None, policy))
        events = list(denoise(state))
    assert np.array_equal(state.ids, expected.ids)
    for a, b in zip(events, expected.events, strict=True):
        assert (a.step, a.kind, a.rows, a.masks_left) == (b.step, b.kind, b.rows, b.masks_left)
        assert np.array_equal(a.positions, b.positions)
        assert np.allclose(a.confidence, b.confidence, equal_nan=True)
        assert np.array_equal(a.flops, b.flops)
    assert len(inside) == len(after) == len(events)
    return inside, after


@pytest.mark.parametrize(
    ("cache", "rule"),
    [*((cache, "quota") for cache in STATIC), *(("dual", rule) for rule in SCHEDULED)],
)
def test_a_static_policy_and_a_schedule_never_wait_inside_a_step(monkeypatch, cache, rule):
    inside, after = waits_of(monkeypatch, {"cache": cache} | SCHEDULED[rule])
    assert set(inside) == {0}
    assert set(after) == {1}


@pytest.mark.parametrize(
    ("cache", "rule"),
    [*((cache, "quota") for cache in WAITING), *(("dual", rule) for rule in UNSCHEDULED),
     ("d2_cache", "threshold"), ("freecache", "factor")],
)  # fmt: skip
def test_all_others_wait_once_per_step_at_its_end(monkeypatch, cache, rule):
    inside, after = waits_of(monkeypatch, {"cache": cache} | (SCHEDULED | UNSCHEDULED)[rule])
    assert set(inside) == {0}
    assert set(after) == {1}


def test_guidance_and_suppressed_ends_add_no_waits(monkeypatch):
    changes = {"cache": "dllm_cache", "cfg_scale": 1.0, "eos_suppress": "confidence"}
    inside, after = waits_of(monkeypatch, changes)
    assert (set(inside), set(after)) == ({0}, {1})


@pytest.mark.parametrize("cache", ["dare_kv", "dual+dare_o"])
def test_reuse_by_thresholds_waits_once_per_layer(monkeypatch, cache):
    inside, after = waits_of(monkeypatch, {"cache": cache})
    assert max(inside) <= 3
    assert set(after) <= {0, 1}


@dataclass
class Reading(NoCache):
    """Reads one number from the device in every step."""

    name = "reading"
    how: str = "item"

    def begin_step(self, view):
        number = view.canvas[0, 0]
        if self.how == "item":
            number.item()
        elif self.how == "truth":
            bool(number > 3)
        elif self.how == "copy":
            number.cpu()
        elif self.how == "mask":
            view.canvas[view.masked]
        else:
            torch.from_numpy(np.zeros(3)).to(view.canvas.device)
        return super().begin_step(view)


@pytest.mark.parametrize("how", ["item", "truth", "copy", "mask", "upload"])
def test_every_read_is_counted(monkeypatch, how):
    inside, _ = waits_of(monkeypatch, {}, policy=lambda: Reading(how=how))
    assert set(inside) == {1}


def test_events_come_one_step_late_and_an_abandoned_run_ends_with_its_last_event(monkeypatch):
    with device(monkeypatch):
        state = Denoiser(micro_job(to_device(make_model(11)), make_spec()))
        steps = denoise(state)
        first = next(steps)
        assert (first.step, state.step_index) == (0, 2)
        assert int(state.masked.sum()) == first.masks_left == 15
        steps.close()
        assert int((state.ids != state.run.info.mask_id).sum()) == 6 + 1
        synchronous = SynchronousDenoiser(micro_job(to_device(make_model(11)), make_spec()))
        assert (next(denoise(synchronous)).step, synchronous.step_index) == (0, 1)


def test_a_failed_commit_is_raised_one_step_late(monkeypatch):
    model = make_model(11)
    with device(monkeypatch):
        state = Denoiser(micro_job(to_device(model), make_spec()))
        steps = denoise(state)
        next(steps)
        model.head.weight.fill_(torch.nan)
        next(steps)
        with pytest.raises(RuntimeError, match="finite"):
            list(steps)


def test_waits_are_counted_from_the_first_step_of_a_trace_to_its_last():
    trace = [
        ("cudaStreamSynchronize", 0, 1), (STEP, 10, 20), ("cudaMemcpyAsync", 11, 12),
        ("cudaStreamSynchronize", 12, 13), ("cudaEventSynchronize", 25, 26), (STEP, 30, 40),
        ("cudaDeviceSynchronize", 41, 42),
    ]  # fmt: skip
    assert waits_in_trace(trace) == HostWaits(inside=0.5, all=1.0)
    with pytest.raises(ValueError, match="trace"):
        waits_in_trace(trace[2:3])


class Marker:
    """Stands in for torch.cuda.Event."""

    at = 0.0

    def __init__(self, enable_timing=False) -> None:
        assert enable_timing

    def record(self, stream) -> None:
        assert stream == "stream of cuda:1"
        Marker.at += 2.5
        self.moment = Marker.at

    def elapsed_time(self, other) -> float:
        return other.moment - self.moment


def test_the_clock_of_a_gpu_never_synchronizes(monkeypatch):
    monkeypatch.setattr(torch.cuda, "Event", Marker)
    monkeypatch.delattr(torch.cuda, "synchronize")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    clock = Clock(torch.device("cuda:1"))
    first, second = clock.mark(), clock.mark()
    assert clock.ms(first, second) == 2.5

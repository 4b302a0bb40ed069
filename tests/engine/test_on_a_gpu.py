"""Runs on a GPU have the tokens, recordings and answers of those on a CPU; skipped without one."""

from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch import nn

from engine.bench.floor import Buffers, ProductRecorder, ProductReplay
from engine.cache import layer_probe
from engine.catalog import unmaskers
from engine.config.spec import RaceSpec, RunSpec
from engine.core.device import peak_memory, reset_peak_memory
from engine.core.events import RunFinished, StepEvent
from engine.generate import loop
from engine.generate.capture.capturers import CudaCapturer
from engine.generate.loop import Denoiser, denoise
from engine.models.kernels.choice import Kernels
from engine.models.loading.checkpoint import Checkpoint
from engine.models.loading.config import read_config
from engine.models.loading.families import adapter_class
from engine.record import make_recorder
from engine.serve.memory_budget import spec_run_bytes
from tests.engine.generate.capture.test_forwards import CAPTURED, captured_now, spec_of
from tests.engine.record.test_recording_captured import CACHES, LEVELS, differences, recorded
from tests.support.micro import (
    FAMILIES,
    MASK,
    block_model_of,
    make_prompts,
    micro_job,
    model_of,
    run,
    tapped,
    write_checkpoint,
)
from tests.support.traces import trace_of

if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

GPU = torch.device("cuda")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
RULES = [name for name, rule in unmaskers().items() if "autoregressive" not in name]
PROMPT = "Mia has 8 cards. Leo has 5 more than Mia. How many cards do they have together?"


def fused_kernels():
    return import_module("engine.models.kernels.triton_kernels").KERNELS


def noted(called, name, kernel):
    """The kernel, which adds its name to those called."""

    def call(*operands, **options):
        called.add(name)
        return kernel(*operands, **options)

    return call


def on_gpu(family, make=model_of):
    """A model of its own on the GPU, with the weights of the shared one."""
    return make.__wrapped__(family).to(GPU)


def gpu_run(model, spec, prompts, eager=False):
    return run(model, replace(spec, device="cuda"), prompts, eager=eager)


@pytest.mark.parametrize("eager", [False, True], ids=["captured", "eager"])
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cache", CACHES)
def test_every_cache_decodes_the_tokens_of_a_cpu(cache, family, eager):
    """In float64, in a padded batch of two prompts."""
    spec, prompts = spec_of(cache), make_prompts(6, 9)
    expected = run(model_of(family), spec, prompts)
    found = gpu_run(on_gpu(family), spec, prompts, eager)
    assert np.array_equal(found.ids, expected.ids)
    for one, other in zip(found.events, expected.events, strict=True):
        assert np.array_equal(one.positions, other.positions)
        assert one.recomputed == other.recomputed
        assert np.array_equal(one.flops, other.flops)


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.7, "seed": 3}, {"cfg_scale": 1.0}])
@pytest.mark.parametrize("cache", ["none", "dual", "spa_cache"])
@pytest.mark.parametrize("rule", RULES)
def test_every_unmasker_commits_the_tokens_of_a_cpu(rule, cache, sampling):
    spec = spec_of(cache, unmasker=rule, **sampling)
    if unmaskers()[rule].guided and sampling:
        pytest.skip("guided decoding is greedy and has no guidance")
    expected = run(model_of("shifted-gqa"), spec, make_prompts(6))
    found = gpu_run(on_gpu("shifted-gqa"), spec, make_prompts(6))
    assert np.array_equal(found.ids, expected.ids)


@pytest.mark.parametrize("cache", ["none", "frozen", "sub_block", "frozen+dare_o"])
def test_block_models_decode_the_tokens_of_a_cpu(cache):
    spec, prompts = spec_of(cache, block_length=4), make_prompts(8)
    expected = run(block_model_of("gqa"), spec, prompts)
    found = gpu_run(on_gpu("gqa", block_model_of), spec, prompts)
    assert np.array_equal(found.ids, expected.ids)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("cache", CACHES)
def test_a_recording_has_the_arrays_of_a_cpu(cache, level):
    spec, prompts = spec_of(cache, record=level, probe_steps=6), make_prompts(6)
    expected = recorded(Denoiser(micro_job(model_of("gqa"), spec, prompts, make_recorder(spec))))
    spec = replace(spec, device="cuda")
    state = Denoiser(micro_job(on_gpu("gqa"), spec, prompts, make_recorder(spec)))
    for _ in range(2):
        assert differences(recorded(state), expected) == set()
        state.rewind()


@pytest.mark.parametrize("fused", [False, pytest.param(True, marks=needs_triton)])
@pytest.mark.parametrize("family", ["mha", "gqa"])
@pytest.mark.parametrize("cache", CAPTURED)
def test_captured_forwards_have_the_tokens_of_eager_ones(cache, family, fused):
    """In float32, where no tie depends on rounding, with torch's operations and fused kernels."""
    spec = spec_of(cache, dtype="float32", device="cuda")
    model = on_gpu(family).float()
    if fused:
        model.use_kernels(Kernels(fused=fused_kernels()))
    job = micro_job(model, spec)
    assert isinstance(job.capturer, CudaCapturer)
    eager, state = Denoiser(replace(job, capturer=None)), Denoiser(job)
    list(denoise(eager))
    for _ in range(3):
        state.rewind()
        list(denoise(state))
        assert np.array_equal(state.ids, eager.ids)
    assert state.branches[0].forwards.failure == ""
    assert captured_now(state.branches[0]) > 0


@needs_triton
@pytest.mark.parametrize("cache", CACHES)
def test_fused_kernels_give_nearly_the_logits_of_torch(monkeypatch, cache):
    """In the first step; after it a rounding may choose another token.

    A cache that compares or writes with torch's operations does so with the kernels.
    """
    called = set()
    fused = {name: noted(called, name, kernel) for name, kernel in fused_kernels().items()}
    for name, operation in (
        ("drift", "drift"), ("selection", "top_drift"), ("branches", "add_branches")
    ):  # fmt: skip
        torchs = getattr(layer_probe, operation)
        monkeypatch.setattr(layer_probe, operation, noted(called, name, torchs))
    monkeypatch.setattr(loop, "put", noted(called, "write", loop.put))
    spec, taps, used = spec_of(cache, dtype="bfloat16", device="cuda"), [], []
    for kernels in (Kernels(), Kernels(fused=fused)):
        model = on_gpu("gqa").bfloat16()
        model.use_kernels(kernels)
        _, steps = tapped(model, spec, make_prompts(6, 9), eager=True)
        view, _, logits, _ = steps[0]
        taps.append(logits[..., :MASK][view.real])
        used.append(set(called))
        called.clear()
    few_rows = {"gather", "attention", "swiglu"}
    assert used[1] - few_rows == (used[0] | {"norm", "rotation", "gate"}) - few_rows
    assert (taps[0] - taps[1]).abs().max() < 0.05 * taps[0].abs().max()


@needs_triton
@pytest.mark.parametrize("cache", ["none", "dual", "spa_cache"])
def test_captured_products_are_those_of_eager_ones(cache):
    model, recorder = on_gpu("gqa").float(), ProductRecorder(nn.Module())
    with recorder:
        gpu_run(model, spec_of(cache, dtype="float32"), make_prompts(6), eager=True)
    recorder.end_step()
    results = []
    for capturer in (None, CudaCapturer(GPU)):
        buffers = Buffers(recorder.steps, GPU)
        replay = ProductReplay(recorder.steps, buffers, capturer=capturer)
        (seconds,) = replay.run()
        assert 0 < seconds < 10
        results.append(buffers._memory)
    eager, captured = results
    assert any(name.startswith("out") for name, _ in eager)
    assert all(torch.equal(captured[key], eager[key]) for key in eager)


@pytest.mark.parametrize("cache", ["dllm_cache", "spa_cache"])
def test_few_rows_without_padding_use_kernels_of_their_own(cache):
    model, called = on_gpu("gqa").bfloat16(), set()
    fused = {name: noted(called, name, kernel) for name, kernel in fused_kernels().items()}
    model.use_kernels(Kernels(fused=fused))
    gpu_run(model, spec_of(cache, dtype="bfloat16"), make_prompts(6), eager=True)
    assert called >= {"gather", "attention", "swiglu", "branches", "selection"}


@pytest.mark.parametrize("kind", ["llada", "dream", "llada_moe", "sdar"])
def test_a_checkpoint_loads_to_a_gpu(tmp_path, kind):
    folder = write_checkpoint(tmp_path / kind, kind=kind)
    files = Checkpoint(folder)
    family = adapter_class(read_config(folder))
    prompts, spec = make_prompts(6), spec_of("none", dtype="float32", block_length=4)
    expected, found = (
        micro_ids(family.from_checkpoint(files, torch.float32, torch.device(name)), spec, prompts)
        for name in ("cpu", "cuda")
    )
    assert np.array_equal(found, expected)


def micro_ids(model, spec, prompts):
    return run(model, replace(spec, device=model.device.type), prompts).ids


def lane_spec(device, **changes):
    sizes = {"gen_length": 48, "block_length": 16, "steps": 48, "prompt": PROMPT}
    return RunSpec(dtype="float32", device=device, **(sizes | changes))


def ends(events):
    found = {}
    for lane, event in events:
        if isinstance(event, RunFinished):
            assert event.reason == "done", event.message
            found[lane] = event.canvas
    return found


@pytest.mark.parametrize(
    "fast",
    [
        {"cache": "dual", "unmasker": "threshold", "record": "probe"},
        {"cache": "freecache", "unmasker": "guided", "eos": "fill_safe", "record": "layers"},
        {"cache": "dual+dare_o", "unmasker": "threshold", "record": "steps"},
        {"cache": "spa_cache", "record": "layers"},
    ],
    ids=lambda one: one["cache"],
)
def test_a_race_on_a_gpu_has_the_answers_of_a_cpu(shipped, fast):
    found = {
        device: ends(shipped.race(RaceSpec(
            lane_spec(device, eos=fast.get("eos", "official")), lane_spec(device, **fast)
        )))
        for device in ("cpu", "cuda")
    }  # fmt: skip
    for lane in "ab":
        assert np.array_equal(found["cuda"][lane], found["cpu"][lane])


def test_what_if_is_exact_in_a_trace_of_a_gpu(shipped):
    trace = trace_of(shipped.run(lane_spec("cuda", cache="dual", record="steps")))
    for step in range(0, trace.steps, 5):
        found = shipped.what_if(trace, step, {})
        assert found["own"]
        assert np.array_equal(found["would"] > 0, found["did"] > 0)


def test_the_times_of_a_lane_are_those_of_the_device(shipped):
    events = list(shipped.run(lane_spec("cuda", cache="dual")))
    steps = [event.step_ms for event in events if isinstance(event, StepEvent)]
    assert len(steps) == 48
    assert all(0 < ms < 1000 for ms in steps)


def test_the_autoregressive_model_writes_the_same_text(shipped):
    ids = [
        list(shipped.run(lane_spec(device, model="tiny-qwen2", unmasker="autoregressive")))[-1]
        for device in ("cpu", "cuda")
    ]
    assert ids[0].texts == ids[1].texts


@pytest.mark.parametrize("cache", ["none", "dual", "dllm_cache", "d2_cache"])
def test_a_run_needs_no_more_memory_than_was_planned(shipped, cache):
    spec = lane_spec("cuda", cache=cache)
    model = shipped._models.load(spec)
    held = torch.cuda.memory_allocated()
    reset_peak_memory(GPU)
    assert list(shipped.run(spec))[-1].reason == "done"
    used = peak_memory(GPU) - held
    # Captured forwards keep a pool of their own, and the allocator rounds each tensor to 512 bytes.
    planned = spec_run_bytes(spec, model.adapter.info, shipped.plan(spec)["prompt_tokens"])
    assert used < planned + 64 * 2**20

"""Captured forwards in whole runs: on a trained model, in a lane, in the benchmark, on a GPU."""

from contextlib import contextmanager, nullcontext
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine.bench.trial import Case, dry_run, run_once, step_seconds
from engine.config.spec import RunSpec
from engine.core.device import capture_stream
from engine.core.events import RunFinished
from engine.generate.capture.capturers import (
    CaptureError,
    CudaCapturer,
    TapeCapturer,
    make_capturer,
)
from engine.generate.loop import Denoiser, denoise
from engine.models.kernels import fused
from engine.serve.lane import Lane
from engine.serve.loaded_model import make_job, prompt_ids
from engine.serve.session import Session
from tests.engine.generate.capture.test_forwards import CAPTURED, counts, spec_of
from tests.support.micro import ROOT, make_spec, micro_job, model_of
from tests.support.replaying import Replaying, Taping


@pytest.fixture(scope="module")
def tiny():
    session = Session({"tiny-llada": ROOT / "assets/models/tiny-llada"})
    return session._models.load(RunSpec(model="tiny-llada"))


@pytest.mark.parametrize("cache", CAPTURED)
def test_on_a_trained_model_the_tokens_are_those_of_the_eager_run(tiny, cache):
    sizes = {"gen_length": 12, "block_length": 4, "steps": 12}
    text = "Nuts cost 9 dollars each. Lily buys 5 nuts. How much does she pay?"
    spec = spec_of(cache, model="tiny-llada", dtype="float32", prompt=text, **sizes)
    job = make_job(tiny, spec, [prompt_ids(spec, tiny.tokenizer)])
    eager = Denoiser(replace(job, capturer=None))
    state = Denoiser(replace(job, capturer=Taping()))
    list(denoise(eager))
    list(denoise(state))
    assert np.array_equal(state.ids, eager.ids)
    assert state.branches[0].forwards.failure == ""
    assert counts(state)[1] > 3


def test_the_warm_up_captures_what_the_run_replays(monkeypatch, tiny):
    text = "Nuts cost 9 dollars each. Lily buys 5 nuts. How much does she pay?"
    sizes = {"gen_length": 8, "block_length": 4, "steps": 8}
    spec = RunSpec(model="tiny-llada", prompt=text, cache="dual", **sizes)
    expected, made = run_once(tiny, spec), Replaying()
    monkeypatch.setattr("engine.serve.loaded_model.make_capturer", lambda *_: made)
    lane = Lane(tiny, spec)
    lane.warm_up()
    assert made.captured == 2
    before = made.replayed
    lane.start()
    while not isinstance(event := lane.advance(), RunFinished):
        pass
    assert np.array_equal(event.canvas, expected.canvas)
    assert (made.captured, made.replayed - before) == (2, 8)
    case = Case("dual", tiny, spec, [prompt_ids(spec, tiny.tokenizer)])
    assert replace(case, eager=True).job().capturer is None
    before = made.replayed, made.captured
    assert len(step_seconds(case, 5)) == 5
    assert made.captured == before[1] + 2
    assert np.array_equal(dry_run(case).ids, expected.canvas)


def adapter(device="cuda", **more):
    leaf = SimpleNamespace(**more)
    info = SimpleNamespace(experts=None)
    return SimpleNamespace(device=torch.device(device), modules=lambda: [leaf], info=info)


class FakeCuda:
    """What a capturer uses of torch.cuda; `failing` captures cannot be ended."""

    def __init__(self, monkeypatch, failing=False):
        self.streams, self.graphs, self.set = [], [], []

        @contextmanager
        def graph(made, pool=None, stream=None, capture_error_mode=""):
            self.graphs.append(stream)
            yield
            if failing:
                raise RuntimeError("capture was invalidated")

        def stream(device):
            self.streams.append(str(device))
            return f"stream of {device}"

        fakes = {
            "graph_pool_handle": lambda: (0, 0), "graph": graph, "Stream": stream,
            "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
            "device": lambda device: nullcontext(),
            "current_stream": lambda device: f"before {device}", "set_stream": self.set.append,
        }  # fmt: skip
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)
        capture_stream.cache_clear()


@pytest.fixture(autouse=True)
def no_fake_stream_is_kept():
    yield
    capture_stream.cache_clear()


def test_captures_of_each_gpu_have_a_stream_of_that_gpu(monkeypatch):
    fake = FakeCuda(monkeypatch)
    for name in ("cuda:0", "cuda:1", "cuda:1"):
        out, replay = CudaCapturer(torch.device(name)).capture(list)
        assert out == replay() == []
    assert fake.streams == ["cuda:0", "cuda:1"]
    assert fake.graphs == ["stream of cuda:0", *["stream of cuda:1"] * 2]
    assert not fake.set


def test_a_capture_that_cannot_end_gives_its_thread_the_stream_back(monkeypatch):
    fake = FakeCuda(monkeypatch, failing=True)
    with pytest.raises(CaptureError, match="invalidated"):
        CudaCapturer(torch.device("cuda:1")).capture(list)
    assert fake.set == ["before cuda:1"]


def test_a_kernel_that_cannot_be_captured_gives_its_thread_the_stream_back(monkeypatch):
    fake = FakeCuda(monkeypatch, failing=True)
    operand = SimpleNamespace(device=torch.device("cuda:1"))
    with pytest.raises(RuntimeError, match="invalidated"):
        fused._repeated(lambda x: x, (operand,))
    assert fake.set == ["before cuda:1"]


def test_forwards_are_captured_unless_something_prevents_it(monkeypatch):
    monkeypatch.delenv("SPACES_ZERO_GPU", raising=False)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 0))
    assert isinstance(make_capturer(adapter(), False), CudaCapturer)
    assert isinstance(micro_job(model_of("mha"), make_spec()).capturer, TapeCapturer)
    assert make_capturer(adapter("mps"), False) is None
    assert make_capturer(adapter(_hf_hook=object()), False) is None
    assert make_capturer(adapter(), True) is None
    monkeypatch.setenv("SPACES_ZERO_GPU", "true")
    assert make_capturer(adapter(), False) is None

"""Recorded products: complete, and executed again completely."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.flop_counter import FlopCounterMode

from engine.bench.floor import Buffers, Product, ProductRecorder, ProductReplay
from engine.catalog import policies
from engine.generate.loop import Denoiser, denoise
from engine.models.kernels.choice import Kernels
from engine.models.kernels.fused_trials import attend, gated_product
from tests.support.micro import fitting_model, make_model, make_prompts, make_spec, micro_job

CPU = torch.device("cpu")
CACHES = [
    *policies(),
    *(f"{base}+{name}" for name, kind in policies().items() for base in kind.stackable_on),
]


def record(spec, family="mha", prompts=(6, 10)):
    """The products and the counted FLOPs of each step, and the addresses of the weights."""
    model = fitting_model(family, spec.cache)
    state = Denoiser(micro_job(model, spec, make_prompts(*prompts), eager=True))
    recorder, flops = ProductRecorder(model), []
    with recorder:
        for event in denoise(state):
            recorder.end_step()
            flops.append(int(event.flops.sum()))
    return recorder.steps, flops, {p.untyped_storage().data_ptr() for p in model.parameters()}


@pytest.mark.parametrize(
    ("family", "cache"), [("mha", "none"), *(("shifted-gqa", cache) for cache in CACHES)]
)
def test_recorded_products_have_the_counted_flops(family, cache):
    steps, flops, _ = record(make_spec(cache=cache), family)
    assert [sum(p.flops for p in step) for step in steps] == flops
    assert len(set(flops)) > 1


def unseen(operation):
    """The operation as a kernel of which torch sees no operators."""

    def kernel(*operands):
        with _disable_current_modes():
            return operation(*operands)

    return kernel


@pytest.mark.parametrize("watched", [True, False])
def test_fused_products_are_recorded_if_they_are_watched(watched):
    model, steps = make_model(3), []
    recorder = ProductRecorder(model)
    fused = Kernels(fused={"swiglu": unseen(gated_product), "attention": unseen(attend)})
    model.use_kernels(recorder.watched(fused) if watched else fused)
    job = micro_job(model, make_spec(cache="dual"), make_prompts(6), eager=True)
    with recorder:
        for event in denoise(Denoiser(job)):
            recorder.end_step()
            steps.append(int(event.flops.sum()))
    found = [sum(p.flops for p in step) for step in recorder.steps]
    assert (found == steps) == watched


@pytest.mark.parametrize("cache", ["none", "dual", "spa_cache", "d2_cache", "dare_kv"])
def test_the_replay_executes_all_recorded_products(cache):
    steps, flops, _ = record(make_spec(cache=cache), "shifted-gqa")
    replay = ProductReplay(steps, Buffers(steps, CPU))
    with FlopCounterMode(display=False) as counter:
        times = replay.run()
    assert counter.get_total_flops() == sum(flops)
    assert len(times) == len(steps)
    less, again = [steps[0][1:]], ProductRecorder(nn.Module())
    with again:
        ProductReplay(less, Buffers(less, CPU)).run()
    again.end_step()
    assert sum(p.flops for p in again.steps[0]) == flops[0] - steps[0][0].flops


class CountingCapturer:
    """Counts how often each captured call is executed and repeated."""

    def __init__(self):
        self.executed, self.repeated = [], []

    def capture(self, call):
        self.executed.append(FlopCounterMode(display=False))
        with self.executed[-1]:
            out = call()

        def replay():
            self.repeated.append(len(out))
            return out

        return out, replay


def test_a_captured_replay_repeats_the_recorded_steps():
    steps, flops, _ = record(make_spec(cache="dual"), "shifted-gqa")
    capturer = CountingCapturer()
    replay = ProductReplay(steps, Buffers(steps, CPU), capturer=capturer)
    assert [one.get_total_flops() for one in capturer.executed] == flops
    assert len(replay.run()) == len(steps)
    assert capturer.repeated == [len(step) for step in steps]


def test_a_recorded_product_references_its_weight():
    steps, _, places = record(make_spec(cache="dual"), "shifted-gqa")
    weights = [p.weight for step in steps for p in step if p.weight is not None]
    assert {w.untyped_storage().data_ptr() for w in weights} <= places
    biases = [p.bias for step in steps for p in step if p.bias is not None]
    assert biases
    bare = [p for step in steps for p in step if p.weight is None]
    assert {p.role for p in bare} == {"scores", "sums"}


def test_heads_that_share_keys_are_one_product():
    q, k = torch.ones(2, 4, 3, 8), torch.ones(2, 2, 5, 8)
    found = ProductRecorder(nn.Module())
    with found, torch.inference_mode():
        torch.nn.functional.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    found.end_step()
    scores, sums = found.steps[0]
    assert (scores.batch, scores.rows, scores.inner, scores.columns) == (4, 6, 8, 5)
    assert (sums.batch, sums.rows, sums.inner, sums.columns) == (4, 6, 5, 8)
    assert scores.bytes_read == sums.bytes_read == k.nbytes
    assert scores.flops + sums.flops == 4 * q.numel() * 5


@pytest.mark.parametrize(
    ("left", "right", "sizes"),
    [((5, 3), (3, 4), (1, 5, 3, 4)), ((2, 5, 3), (3, 4), (1, 10, 3, 4)),
     ((2, 5, 3), (2, 3, 4), (2, 5, 3, 4)), ((2, 6, 5, 3), (2, 6, 3, 4), (12, 5, 3, 4)),
     ((5, 3), (6, 3, 4), (6, 5, 3, 4))],
)  # fmt: skip
def test_a_matmul_is_recorded_as_one_product(left, right, sizes):
    found = ProductRecorder(nn.Module())
    with found, torch.inference_mode():
        out = torch.ones(left) @ torch.ones(right)
    found.end_step()
    ((one,),) = found.steps
    assert (one.batch, one.rows, one.inner, one.columns) == sizes
    assert one.flops == 2 * left[-1] * out.numel()
    assert not one.flipped


def test_a_replayed_product_is_correct():
    weight, bias = torch.randn(4, 3), torch.randn(4)
    plain = Product(1, 2, 3, 4, torch.float32, weight, bias)
    batched = Product(2, 5, 3, 4, torch.float32, flipped=True)
    buffers = Buffers([[plain, batched]], CPU)
    for place, product in enumerate((plain, batched)):
        multiply = buffers.call(product, place)
        *added, left, right = multiply.args
        out = multiply()
        assert torch.allclose(out, left @ right + sum(added))
        assert out is multiply.keywords["out"]
        assert out.abs().sum() > 0
    assert right.shape == (2, 3, 4)
    assert right.mT.is_contiguous()

"""The computed GPU time of a run."""

from dataclasses import replace

import pytest
import torch

from engine.config.spec import RunSpec
from engine.estimate.gpu_time import (
    CALIBRATION_ROWS,
    EFFICIENCY,
    GPUS,
    UPLOAD_BANDWIDTH,
    forward_seconds,
    guider_seconds,
    lens_seconds,
    run_seconds,
)
from engine.generate.capture.capturers import WARM_UP_STEPS, CudaCapturer
from engine.models.loading.memory_estimate import weights_bytes
from tests.support.micro import make_info

GPU = GPUS["zero-a10g"]
LLADA = make_info(layers=32, d_model=4096, ffn=12288, vocab_size=126_464)
PLAN = {"prompt_tokens": 100, "suffix_tokens": 0, "probe_forwards": 0, "calibration_forwards": 0}


def test_the_logit_lens_of_an_8b_model_reads_the_head_for_each_part_of_its_rows():
    parts = 2  # 132 rows of 126,464 logits at a time
    table = 126_464 * 4096
    seconds = 2 * 32 * parts * table * 2 / GPU.bandwidth / EFFICIENCY
    assert lens_seconds(GPU, LLADA, torch.bfloat16, 256) == seconds
    assert 0.2 < seconds < 0.5


def test_figures_are_those_of_the_hardware_of_spaces():
    server_edition, a10g_tera = 1597e9, 35  # a workstation's card has 1792e9, an A10 31.2
    assert GPU.bandwidth == pytest.approx(server_edition / 2, rel=1e-3)
    assert GPUS["a10g-large"].single == a10g_tera * 1e12


def test_a_probed_run_takes_longer_by_its_lens():
    spec = RunSpec(gen_length=256, steps=256, dtype="bfloat16", record="probe")
    plan = PLAN | {"max_forwards": 256, "probe_forwards": 8}
    without = run_seconds(GPU, spec, LLADA, plan | {"probe_forwards": 0, "max_forwards": 264})
    lens = 8 * lens_seconds(GPU, LLADA, torch.bfloat16, 256)
    assert abs(run_seconds(GPU, spec, LLADA, plan) - without - lens) < 1e-6
    layers = replace(spec, record="layers")
    assert run_seconds(GPU, layers, LLADA, plan | {"probe_forwards": 0}) < without


@pytest.mark.parametrize(
    ("given", "untimed"), [((), WARM_UP_STEPS), ((CudaCapturer.warm_up_steps,), 64), ((999,), 128)]
)
def test_the_untimed_steps_before_a_run_take_time_too(given, untimed):
    """A run on a shared GPU captures nothing, and warms up in few of them."""
    spec = RunSpec(gen_length=128, steps=128, dtype="bfloat16")
    plan = PLAN | {"max_forwards": 128}
    one = forward_seconds(GPU, LLADA, torch.bfloat16, 228)
    expected = (128 + untimed) * one
    assert run_seconds(GPU, spec, LLADA, plan, *given) == pytest.approx(expected)


@pytest.mark.parametrize(("dtype", "rate"), [("float32", GPU.single), ("float64", GPU.double)])
def test_a_format_without_tensor_cores_takes_its_own_rate(dtype, rate):
    rows, products = 1124, 32 * (4 * 4096**2 + 3 * 4096 * 12288) + 126_464 * 4096
    attention = 4 * rows**2 * 4096 * 32
    seconds = forward_seconds(GPU, LLADA, getattr(torch, dtype), rows)
    assert seconds == pytest.approx((2 * products * rows + attention) / rate / EFFICIENCY, rel=1e-3)
    assert seconds > 3 * forward_seconds(GPU, LLADA, torch.bfloat16, rows)


def test_the_rows_of_a_suffix_take_time_as_those_of_the_answer():
    spec = RunSpec(gen_length=1024, steps=1024, dtype="bfloat16")
    plan = PLAN | {"max_forwards": 100}
    suffix = run_seconds(GPU, spec, LLADA, plan | {"suffix_tokens": 900})
    assert suffix == run_seconds(
        GPU, spec, LLADA, plan | {"suffix_tokens": 0, "prompt_tokens": 1000}
    )


def test_forwards_that_measure_drifts_take_time_are_not_guided_and_have_few_rows():
    """A long prompt does not make them longer."""
    spec = RunSpec(gen_length=128, steps=128, dtype="bfloat16", cfg_scale=1.0)
    plan = PLAN | {"max_forwards": 128, "prompt_tokens": 2000}
    more = 512 * forward_seconds(GPU, LLADA, torch.bfloat16, CALIBRATION_ROWS)
    expected = run_seconds(GPU, spec, LLADA, plan) + more
    assert run_seconds(GPU, spec, LLADA, plan | {"calibration_forwards": 512}) == pytest.approx(
        expected
    )


def test_a_guider_reads_the_prompt_and_a_draft_in_each_step_and_after_each_full_one():
    spec = RunSpec(gen_length=256, block_length=64, steps=256, dtype="bfloat16")
    plan = {"prompt_tokens": 100, "max_forwards": 256}
    prompt, draft = (forward_seconds(GPU, LLADA, torch.bfloat16, rows) for rows in (100, 64))
    loading = weights_bytes(LLADA, torch.bfloat16) / UPLOAD_BANDWIDTH
    seconds = guider_seconds(GPU, spec, LLADA, plan, 32)
    assert seconds == pytest.approx(loading + prompt + (256 + 8) * draft)

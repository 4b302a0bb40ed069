"""Kernels: the routine is that with the lowest measured time, measured once a machine."""

import itertools
import json
import math
import time

import pytest
import torch

from engine.core.variables import KERNELS
from engine.models.kernels import machine, measure
from engine.models.kernels.choice import MOST_OTHERS, ROUTINES, TORCH, Kernels, ShapeClass, fastest
from engine.models.kernels.linear import FusedLinear
from engine.models.kernels.measure import (
    ROUNDS,
    SURE,
    layers_of,
    measured,
    median_times,
    routine_names,
    runs_of,
)
from engine.models.loading.random_weights import random_adapter, random_model_config

SHAPE = ShapeClass.of("linear", torch.float32, 32, (128, 352))


def adapter_of(dtype=torch.float32):
    config = random_model_config("llada:layers=2,d=64,heads=2,ffn=128,vocab=1024")
    return random_adapter(config, dtype, torch.device("cpu"))


def measured_classes(adapter):
    """The classes of an adapter for which this machine has several routines."""
    return [s for s in machine.shape_classes(adapter) if len(routine_names(s)) > 1]


class FakeClock:
    """A clock that moves by what each run costs, a list of seconds by name."""

    def __init__(self, costs):
        self.now, self.costs, self.counts = 0.0, costs, dict.fromkeys(costs, 0)

    def __call__(self):
        return self.now

    def runs(self):
        def run(name):
            cost = self.costs[name]
            self.now += cost[min(self.counts[name], len(cost) - 1)]
            self.counts[name] += 1

        return {name: lambda name=name: run(name) for name in self.costs}


@pytest.fixture
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(KERNELS)
    return tmp_path


def test_the_time_of_a_routine_is_the_median_of_its_runs_after_a_warm_up():
    clock = FakeClock({TORCH: [9, 3, 2, 5, 2, 4], "onednn": [0.1, 2.5, 4, 2.2]})
    assert median_times(clock.runs(), clock) == pytest.approx({TORCH: 3, "onednn": 2.2})
    assert clock.counts == {TORCH: ROUNDS + 1, "onednn": ROUNDS + 1}


@pytest.mark.parametrize(("threads", "counted"), [(1, False), (2, True)])
def test_time_in_which_another_process_has_the_core_is_not_counted(monkeypatch, threads, counted):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    monkeypatch.setattr(measure, "LONGEST_TICK", math.inf)  # whatever this machine's clock is
    found = median_times({TORCH: lambda: time.sleep(0.01)})  # the core is free meanwhile
    (seconds,) = found.values()
    assert (seconds >= 0.01) == counted


@pytest.mark.parametrize(("step", "suits"), [(1e-6, True), (1 / 64, False)])
def test_a_processor_time_that_advances_in_long_steps_times_no_routine(monkeypatch, step, suits):
    readings = itertools.count()
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    monkeypatch.setattr(time, "thread_time", lambda: next(readings) // 10 * step)
    assert measure.suitable_clock() is (time.thread_time if suits else time.perf_counter)


def test_a_hopeless_routine_is_timed_twice():
    clock = FakeClock({TORCH: [2], "onednn": [4], "packed": [2.9]})
    found = median_times(clock.runs(), clock)
    assert found == pytest.approx({TORCH: 2, "onednn": 4, "packed": 2.9})
    assert clock.counts == {TORCH: ROUNDS + 1, "onednn": SURE + 1, "packed": ROUNDS + 1}


def test_a_routine_that_was_held_up_once_is_not_hopeless():
    clock = FakeClock({TORCH: [1, 90, 1], "onednn": [2]})
    assert median_times(clock.runs(), clock) == pytest.approx({TORCH: 1, "onednn": 2})


@pytest.mark.parametrize(
    ("times", "best"),
    [
        ({TORCH: 1.0, "onednn": 0.94}, "onednn"),
        ({TORCH: 1.0, "onednn": 0.96}, TORCH),  # within the noise of the measurement
        ({TORCH: 1.0, "onednn": 0.9, "packed": 0.8}, "packed"),
        ({TORCH: 1.0}, TORCH),
    ],
)
def test_another_routine_must_be_clearly_faster_than_that_of_torch(times, best):
    assert fastest(times) == best


def test_a_routine_serves_all_shapes_of_its_class_and_no_others():
    kernels = Kernels({SHAPE: {TORCH: 2.0, "onednn": 1.0, "packed": 0.5}})
    assert kernels.routine("linear", torch.float32, 40, 128, 352) == "packed"
    assert kernels.routine("linear", torch.float32, 40, 128, 352, copies=False) == "onednn"
    for other in (
        ("linear", torch.bfloat16, 40, 128, 352), ("gated", torch.float32, 40, 128, 352),
        ("linear", torch.float32, 400, 128, 352), ("linear", torch.float32, 40, 128, 360),
    ):  # fmt: skip
        assert kernels.routine(*other) == TORCH


def test_a_routine_serves_models_of_about_one_size():
    times = {ShapeClass.of("linear", torch.float32, 32, (128, 352), 7): {TORCH: 2.0, "onednn": 1.0}}
    shape = "linear", torch.float32, 32, 128, 352
    assert Kernels(times, 9).routine(*shape) == "onednn"
    assert Kernels(times, 3).routine(*shape) == TORCH
    assert ShapeClass.of("linear", torch.float32, 32, (128, 352), 16_000).others == MOST_OTHERS


@pytest.mark.parametrize(("keys", "near"), [(1, 128), (192, 128), (300, 512), (3072, 512)])
def test_attention_over_any_number_of_keys_has_a_class_that_is_measured(keys, near):
    adapter = adapter_of()
    info = adapter.info
    shape = ShapeClass.of("attention", adapter.dtype, 40, (keys, info.head_dim, info.n_heads))
    assert (shape.rows, shape.sizes) == (32, (near, info.head_dim, info.n_heads))
    assert shape in machine.shape_classes(adapter)


def test_large_shapes_are_measured_at_a_bounded_size():
    shape = ShapeClass.of("gated", torch.float32, 3000, (4096, 12288))
    assert (shape.rows, shape.sizes) == (512, (1024, 1024))
    assert ShapeClass.from_key(shape.key) == shape


@pytest.mark.parametrize("operation", ROUTINES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_all_routines_of_a_class_compute_the_same(operation, dtype):
    sizes = {"attention": (128, 16, 4)}.get(operation, (64, 128))
    shape = ShapeClass.of(operation, dtype, 32, sizes)
    with torch.inference_mode():
        runs = runs_of(shape, layers_of(shape))
        found = {name: run() for name, run in runs.items()}
    assert TORCH in found
    # oneDNN rounds the product of two projections to bfloat16 once, torch three times.
    rtol, atol = (0.03, 0.1) if dtype == torch.bfloat16 else (1e-4, 1e-4)
    for other in found.values():
        torch.testing.assert_close(other, found[TORCH], atol=atol, rtol=rtol)
        assert other.std() > 0.1 * atol


def test_what_is_known_is_not_measured_again(own_folder, monkeypatch):
    asked = []

    def times(shapes):
        asked.extend(shapes)
        return {
            shape: {name: 1.0 if name == "onednn" else 2.0 for name in routine_names(shape)}
            for shape in shapes
        }

    monkeypatch.setattr(machine, "measured", times)
    first, second = adapter_of(), adapter_of()
    machine.choose_kernels(first)
    assert asked == measured_classes(first)
    assert first.block(0).out.routine(torch.zeros(1, 32, 64), 64) == "onednn"
    machine.choose_kernels(second)
    assert len(asked) == len(set(asked)) == len(measured_classes(first))
    assert second.kernels.times == first.kernels.times
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)  # other threads, other times
    machine.choose_kernels(second)
    assert len(asked) == 2 * len(set(asked))
    monkeypatch.setattr(machine, "ROUTINES_VERSION", 0)  # as before a routine got faster
    machine.choose_kernels(second)
    assert len(asked) == 3 * len(set(asked))
    another = {shape: (*routine_names(shape), "new") for shape in asked}  # as in another version
    monkeypatch.setattr(machine, "routine_names", lambda shape: another.get(shape, (TORCH,)))
    machine.choose_kernels(second)
    assert len(asked) == 4 * len(set(asked))


def test_what_another_process_keeps_during_a_measurement_stays(own_folder, monkeypatch):
    other = ShapeClass.of("linear", torch.float32, 32, (100, 200))

    def times(shapes):
        found = {shape: dict.fromkeys(routine_names(shape), 1.0) for shape in (*shapes, other)}
        machine.keep_measured(machine.FILES, {other.key: found.pop(other)})
        return found

    monkeypatch.setattr(machine, "measured", times)
    adapter = adapter_of()
    machine.choose_kernels(adapter)
    (path,) = own_folder.glob("driftscope/kernels/*.json")
    kept = {ShapeClass.from_key(key) for key in json.loads(path.read_text())}
    assert kept == {other, *measured_classes(adapter)}


SOME_CLASS = ShapeClass("attention", "float32", 32, (128, 8, 4))
HUGE = json.dumps({SOME_CLASS.key: dict.fromkeys(routine_names(SOME_CLASS), 10**400)})


@pytest.mark.parametrize(
    "text", ["", "[]", "[" * 9999, '{"linear": {}}', '{"linear float32 32 128x256 8": 3}', HUGE]
)
def test_a_damaged_file_is_measured_again(own_folder, monkeypatch, text):
    monkeypatch.setattr(machine, "measured", lambda shapes: {s: {TORCH: 1.0} for s in shapes})
    machine.choose_kernels(adapter_of())
    (path,) = own_folder.glob("driftscope/kernels/*.json")
    assert json.loads(path.read_text())
    path.write_text(text)
    again = adapter_of()
    machine.choose_kernels(again)
    assert set(again.kernels.times) == set(measured_classes(again))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_a_format_with_a_single_routine_is_not_measured(own_folder, monkeypatch, dtype):
    monkeypatch.setattr(machine, "measured", lambda shapes: pytest.fail("measured"))
    adapter = adapter_of(dtype)
    machine.choose_kernels(adapter)
    assert adapter.block(0).out.routine(torch.zeros(1, 32, 64, dtype=dtype), 64) == TORCH


def test_the_setting_turns_measurement_off(own_folder, monkeypatch):
    monkeypatch.setattr(machine, "measured", lambda shapes: pytest.fail("measured"))
    monkeypatch.setenv(KERNELS, TORCH)
    adapter = adapter_of()
    machine.choose_kernels(adapter)
    assert not adapter.kernels.times


def test_the_classes_of_a_model_are_those_that_its_forward_asks_for(own_folder, monkeypatch):
    adapter, asked = adapter_of(), []

    class Asked(Kernels):
        def routine(self, operation, dtype, rows, *sizes, copies=True):
            asked.append(ShapeClass.of(operation, dtype, rows, sizes))
            return TORCH

    adapter.use_kernels(Asked())
    rows = torch.randn(1, 32, 64)
    with torch.inference_mode():
        for names in ("q", "k", "v", "qk", "kv", "qkv"):
            adapter.project(0, names, rows, slice(0, 32), 128)
        q, k, v = adapter.project(0, "qkv", rows, slice(0, 32), 128)
        keys = [x.transpose(1, 2).repeat(1, 1, 4, 1) for x in (k, v)]
        adapter.logits(rows + adapter.attend(0, q, *keys, None) + adapter.mlp(0, rows))
    known = [s for s in machine.shape_classes(adapter) if s.rows == 32]
    assert set(asked) == {s for s in known if s.operation != "attention" or s.sizes[0] == 128}


def test_weights_of_many_layers_are_multiplied_in_turn(monkeypatch):
    shape = ShapeClass.of("linear", torch.float32, 8, (256, 1024), 4)
    layers = layers_of(shape)
    assert len(layers) == 4  # of one MiB each
    used = []
    monkeypatch.setattr(
        FusedLinear, "compute", lambda layer, *_: used.append(layers.index(layer)) or layer
    )
    times = median_times(runs_of(shape, layers))
    assert len(times) == len(ROUTINES["linear"]) or set(times) == {TORCH}
    assert used[:6] == [0, 1, 2, 3, 0, 1]


def test_measured_times_are_positive_and_complete():
    shapes = [ShapeClass.of("linear", torch.float32, 8, (64, 64))]
    ((shape, times),) = measured(shapes).items()
    assert shape == shapes[0]
    assert set(times) <= set(ROUTINES["linear"])
    assert all(t > 0 for t in times.values())

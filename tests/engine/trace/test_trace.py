"""Trace: arrays of the events, equal after a file round trip."""

import json
import pickle
import tracemalloc
from functools import partial

import numpy as np
import pytest

from engine.core.events import RunFinished, RunStarted, Waiting
from engine.record.probe_recorder import ProbeRecorder
from engine.record.recorder import Recorder, StepRecorder
from engine.trace.file_format import VERSION
from engine.trace.schema import ADDED_AFTER, OLD_PARTS, SCHEMA
from engine.trace.synthetic import synthetic_events, synthetic_spec
from engine.trace.trace import SMALL_BYTES, Trace
from tests.support.micro import MASK, make_prompts, make_spec, model_of, run
from tests.support.traces import trace_of

PIECES = {i: bytes([i, 200 + i % 5]) for i in range(40)}


def started(spec, prompts=None, **model):
    prompts = prompts or make_prompts(6)
    canvas = np.array([[*prompts[0], *[MASK] * spec.gen_length]], np.int32)
    for offset, token in spec.fixed:
        canvas[0, len(prompts[0]) + offset] = token
    prompt = np.arange(canvas.shape[1])[None] < len(prompts[0])
    fixed = np.zeros_like(prompt)
    fixed[0, [len(prompts[0]) + offset for offset, _ in spec.fixed]] = True
    model = {"name": "micro", "vocab_size": 40, "layers": 3} | model
    masks, facts = (prompt, fixed, np.ones_like(prompt)), {"budget": [1.0, 0.25]}
    return RunStarted(spec.to_dict(), model, {"device": "cpu"}, canvas, *masks, PIECES, facts)


def ended(result, recorder=None):
    found = None if recorder is None else recorder.finish()
    return RunFinished("done", result.ids.astype(np.int32), ("text",), {"nfe": 3}, "", found)


def recorded(level="steps", **changes):
    """Events of a run and its result."""
    spec = make_spec(cache="dual", unmasker="threshold", **changes)
    levels = {"steps": StepRecorder, "probe": partial(ProbeRecorder, 16, 4), "off": Recorder}
    recorder = levels[level]()
    result = run(model_of("gqa"), spec, recorder=recorder)
    end = ended(result, recorder)
    return [Waiting("lock"), started(spec), *result.events, end], result


def traced(**changes):
    events, result = recorded(**changes)
    trace = trace_of(events)
    return trace, result


def assert_equal(a, b):
    assert a.meta == b.meta
    assert a.pieces == b.pieces
    assert a.steps == b.steps
    for name, array in a.arrays().items():
        other = b.arrays()[name]
        assert array.dtype == other.dtype == np.dtype(SCHEMA[name][0])
        assert np.array_equal(array, other, equal_nan=array.dtype.kind == "f")


VARIANTS = [
    {},
    {"level": "off"},
    {"level": "probe"},
    {"fixed": ((1, 9), (2, 8))},
    {"eos": "fill_eager", "temperature": 2.0, "seed": 3, "block_length": 16},
]


@pytest.mark.parametrize("changes", VARIANTS)
@pytest.mark.parametrize("suffix", ["npz", "json"])
def test_a_file_restores_the_trace(tmp_path, changes, suffix):
    trace, _ = traced(**changes)
    path = tmp_path / f"trace.{suffix}"
    trace.save(path)
    loaded = Trace.load(path)
    assert_equal(trace, loaded)
    assert_equal(loaded, Trace.from_bytes(loaded.to_bytes()))


@pytest.mark.parametrize("changes", VARIANTS)
def test_canvases_and_step_map_follow_the_events(changes):
    trace, result = traced(**changes)
    canvas = np.array([*make_prompts(6)[0], *[MASK] * 16])
    for offset, token in changes.get("fixed", ()):
        canvas[6 + offset] = token
    for event in result.events:
        assert np.array_equal(trace.canvas_at(event.step), canvas)
        canvas[event.positions] = event.ids
        assert (trace.step_map()[event.positions] == event.step).all()
    assert np.array_equal(trace.canvas_at(trace.steps), canvas)
    assert np.array_equal(canvas, result.ids[0])
    given = trace.arrays()["prompt_mask"] | trace.arrays()["fixed_mask"]
    assert np.array_equal(trace.step_map() == -1, given)


def test_recompute_map_shows_the_windows():
    trace, result = traced()
    recomputed = trace.recompute_map()
    assert recomputed.shape == (len(result.events), 3, 4, 22)
    for event in result.events:
        window = np.ones(22, bool)
        if event.block_step:
            window = np.isin(np.arange(22), np.arange(4) + 6 + 4 * event.block)
        assert (recomputed[event.step] == window).all()


def test_every_quantity_is_restored_as_recorded():
    events, result = recorded(level="probe")
    trace = trace_of(events)
    arrays = Trace.from_bytes(trace.to_bytes()).arrays()
    seen = [event.recording for event in result.events]
    assert np.array_equal(arrays["drift"], np.stack([r.drift for r in seen]))
    assert np.array_equal(arrays["planned"], np.stack([r.planned for r in seen]))
    assert np.array_equal(arrays["similarity"], events[-1].similarity.codes)
    probed = [(n, r.probe) for n, r in enumerate(seen) if r.probe is not None]
    assert arrays["probe_step"].tolist() == [n for n, _ in probed]
    for row, (_, probe) in enumerate(probed):
        mine = arrays["probe_row"] == row
        assert np.array_equal(arrays["probe_error"][row], probe.error)
        assert np.array_equal(arrays["probe_moved"][row], probe.moved)
        assert np.array_equal(arrays["probe_position"][mine], probe.positions)
        assert np.array_equal(arrays["probe_tv"][mine], probe.tv)
        assert np.array_equal(arrays["probe_top"][mine], probe.top)
    assert trace.meta["facts"] == {"budget": [1.0, 0.25]}


@pytest.mark.parametrize("suffix", ["npz", "json"])
def test_a_file_of_version_1_is_read(tmp_path, suffix):
    trace, _ = traced()
    for name in ("version", "facts"):
        trace.meta.pop(name)
    trace.meta["version"] = 1
    path = tmp_path / f"old.{suffix}"
    if suffix == "json":
        document = json.loads(trace.to_json())
        document["arrays"] = {
            k: v for k, v in document["arrays"].items() if k not in ADDED_AFTER[1]
        }
        flops = trace.arrays()["flops"][:, :OLD_PARTS]
        document["arrays"]["flops"] = {"shape": flops.shape, "data": flops.ravel().tolist()}
        path.write_text(json.dumps(document))
    else:
        meta = np.frombuffer(json.dumps(trace.meta).encode(), np.uint8)
        old = {name: a for name, a in trace.arrays().items() if name not in ADDED_AFTER[1]}
        np.savez(path, meta=meta, **old | {"flops": old["flops"][:, :OLD_PARTS]})
    loaded = Trace.load(path)
    assert loaded.meta["version"] == VERSION
    assert loaded.meta["facts"] == {}
    for name, array in loaded.arrays().items():
        if name in ADDED_AFTER[1]:
            assert len(array) == 0
        else:
            assert np.array_equal(array, trace.arrays()[name], equal_nan=array.dtype.kind == "f")
    assert_equal(loaded, Trace.from_bytes(loaded.to_bytes()))


def test_a_trace_that_could_not_be_read_again_is_not_written():
    trace, _ = traced()
    trace._pieces = {0: bytes(5_000_000)}
    with pytest.raises(ValueError, match=r"trace: its 5 MB are too large .* 6 MB; narrow record_"):
        trace.to_bytes(6_000_000)
    assert Trace.from_bytes(trace.to_bytes(8_000_000), 8_000_000).steps == trace.steps


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_a_trace_without_a_run_is_not_written(suffix, tmp_path):
    with pytest.raises(ValueError, match="no run has started; append the events of a run first"):
        Trace().save(tmp_path / f"trace{suffix}")
    assert not list(tmp_path.iterdir())


def test_a_failed_save_leaves_the_file_as_it_was(tmp_path):
    trace, path = traced()[0], tmp_path / "trace.npz"
    trace.save(path)
    before = path.read_bytes()
    with pytest.raises(ValueError, match="too large"):
        trace.save(path, 1_000_000)
    assert [found.name for found in tmp_path.iterdir()] == ["trace.npz"]
    assert path.read_bytes() == before


def synthetic():
    """A trace of 8 MB of arrays."""
    trace = trace_of(synthetic_events(synthetic_spec(64), 8, 2_800))
    return trace, sum(array.nbytes for array in trace.arrays().values())


def peak_of(work):
    """The most bytes that `work` allocates at a time, beyond what is there before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_saving_copies_no_arrays_and_loading_holds_them_once(tmp_path):
    trace, held = synthetic()
    path = tmp_path / "trace.npz"
    assert held > 8_000_000
    assert peak_of(lambda: trace.save(path)) < 0.3 * held
    assert peak_of(lambda: Trace.load(path)) < 1.3 * held
    assert peak_of(trace.to_bytes) > 0.1 * held  # a file in memory is not streamed


def test_the_rows_of_regions_are_in_memory_once():
    trace, steps = traced()[0], np.zeros(4_096, np.int64)
    held = trace.region_rows(steps).nbytes
    assert peak_of(lambda: trace.region_rows(steps)) < 1.6 * held


def test_the_kinds_of_a_long_run_need_little_memory():
    trace = synthetic()[0]
    steps, length = len(trace.arrays()["plan"]), len(trace.arrays()["canvas"])
    assert peak_of(trace.recomputed_kinds) < steps * length


def test_without_plans_the_recompute_map_is_empty():
    assert traced(level="off")[0].recompute_map().shape == (0, 0, 4, 22)


def test_a_growing_trace_can_be_read_after_every_event():
    events, _ = recorded()
    trace = Trace()
    trace.append(events[0])
    for n, event in enumerate(events[1:-1]):
        trace.append(event)
        assert trace.steps == n
        assert len(trace.arrays()["rows"]) == n
        assert trace.meta["reason"] == "running"
        assert_equal(trace, Trace.from_bytes(trace.to_bytes()))
    trace.append(events[-1])
    assert trace.meta["reason"] == "done"
    assert trace.meta["texts"] == ["text"]


def test_events_survive_pickling():
    events, _ = recorded()
    for event in events:
        copy = pickle.loads(pickle.dumps(event))
        assert type(copy) is type(event)
        assert repr(copy) == repr(event)


def test_pieces_are_restored_as_bytes():
    trace = Trace.from_bytes(traced()[0].to_bytes())
    assert dict(trace.pieces) == PIECES


def test_a_batch_is_refused():
    event = started(make_spec(), make_prompts(6))
    fields = {name: getattr(event, name) for name in event.__slots__}
    wide = {name: np.repeat(fields[name], 2, 0) for name in ("canvas", "prompt_mask", "fixed_mask")}
    with pytest.raises(ValueError, match="holds one sequence"):
        Trace().append(RunStarted(**fields | wide))


def test_a_large_trace_is_not_written_as_json():
    trace, _ = traced()
    trace.append(RunFinished("done", np.zeros((1, 1), np.int32)))
    trace._pieces = {0: bytes(SMALL_BYTES + 1)}
    with pytest.raises(ValueError, match=r"too large for JSON; save it as \.npz"):
        trace.to_json()


def test_json_has_no_nan():
    trace, _ = traced(eos="fill_eager", temperature=2.0, seed=3, block_length=16)
    assert np.isnan(trace.arrays()["commit_confidence"]).any()
    json.loads(trace.to_json(), parse_constant=pytest.fail)


def test_json_has_no_infinity():
    """A file may hold one where a run has none."""
    trace, _ = traced(level="steps")
    trace.arrays()["proposal_score"][:2] = -np.inf, np.inf
    document = json.loads(trace.to_json(), parse_constant=pytest.fail)
    assert document["arrays"]["proposal_score"]["data"][:2] == [None, None]


def test_the_bytes_of_tokens_are_packed_once_and_again_if_there_are_more():
    """Views ask for the arrays hundreds of times, and a file may have a million tokens."""
    trace = traced()[0]
    names = "piece_id", "piece_end", "piece_bytes"
    first, again = trace.arrays(), trace.snapshot().arrays()
    assert all(first[name] is again[name] for name in names)
    trace._pieces[10**6] = b"new"
    assert trace.arrays()["piece_id"][-1] == 10**6
    assert trace.arrays()["piece_bytes"].tobytes().endswith(b"new")

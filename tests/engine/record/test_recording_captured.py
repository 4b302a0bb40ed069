"""Recorded runs with captured forwards give the arrays of eager ones."""

import weakref
from dataclasses import fields, replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from engine.bench.trial import Case, step_seconds
from engine.cache.layer_probe import LayerPlan
from engine.config.spec import RunSpec
from engine.generate.capture.capturers import CaptureError
from engine.generate.loop import Denoiser, denoise
from engine.record import make_recorder
from engine.record.notes import ForwardNotes
from engine.record.recorder import Recorder, StepRecorder
from engine.serve.lane import Lane
from engine.serve.loaded_model import make_job, prompt_ids
from tests.engine.generate.capture.test_captured_runs import tiny  # noqa: F401
from tests.engine.generate.capture.test_forwards import CAPTURED, counts, spec_of
from tests.support.counting_device import CountingDevice, to_device
from tests.support.micro import full_policies, make_model, make_prompts, micro_job, model_of
from tests.support.replaying import Replaying, Tape, Taping

CACHES = [*full_policies(), "dual+dare_o", "prefix+dare_kv"]
LEVELS = ("steps", "layers", "probe")
GPU, NESTED = torch.device("cuda"), ("probe", "cells", "lens", "proposals")


def recorded(state):
    """The recordings of a run and the similarity of its steps."""
    steps = [event.recording for event in denoise(state)]
    return steps, None if steps[0].drift is None else state.job.recorder._sketch.result()


def arrays(found, name):
    """The arrays of each step's recording, its probe or the similarity, by field."""
    steps, similarity = found
    parts = {
        "recording": steps,
        "proposals": [one.proposals for one in steps],
        "probe": [one.probe for one in steps if one.probe is not None],
        "lens": [one.probe.lens for one in steps if one.probe is not None],
        "similarity": [similarity] if similarity is not None else [],
    }[name]
    return [{field.name: getattr(part, field.name) for field in fields(part)} for part in parts]


def differences(a, b):
    """Names of the arrays that differ: codes by more than 1, other floats beyond rounding."""
    wrong = set()
    for name in ("recording", "proposals", "probe", "lens", "similarity"):
        parts, others = arrays(a, name), arrays(b, name)
        if len(parts) != len(others):
            wrong.add(name)
        for one, other in zip(parts, others, strict=False):
            wrong |= {
                key for key in one if key not in NESTED and not alike(key, one[key], other[key])
            }
    return wrong


def alike(name, a, b):
    if a is None or b is None:
        return a is b
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if name in ("drift", "error", "moved", "codes", "probs", "token_probs"):
        evaluated = np.array_equal(a == 255, b == 255)
        return evaluated and (not a.size or np.abs(a.astype(int) - b.astype(int)).max() <= 1)
    if a.dtype.kind == "f":
        return np.allclose(a, b, rtol=1e-4, atol=1e-6)
    return np.array_equal(a, b)


def state_of(model, spec, capturer, prompts=None):
    job = micro_job(model, spec, prompts, make_recorder(spec))
    return Denoiser(replace(job, capturer=capturer))


LEVEL_CASES = [  # these levels record what level `steps` does, too
    ("mha", "quota", "layers", Taping),
    ("shifted-gqa", "threshold", "probe", Replaying),
]


@pytest.mark.parametrize(
    ("cache", "family", "unmasker", "level", "kind"),
    [
        (cache, *one)
        for cache in CACHES
        for one in (LEVEL_CASES if cache in CAPTURED else LEVEL_CASES[-1:])  # the others are eager
    ],
)
def test_recorded_arrays_are_those_of_eager_forwards(cache, family, unmasker, level, kind):
    """In the run that captures its forwards, and after a rewind, when nearly all are replays.

    A run that captures none is made once.
    """
    knobs = {"threshold.threshold": 0.5} if unmasker == "threshold" else {}
    spec = spec_of(cache, unmasker=unmasker, record=level, probe_steps=4)
    spec = replace(spec, knobs=dict(spec.knobs) | knobs)
    model, prompts = model_of(family), make_prompts(6, 9)
    eager = state_of(model, spec, None, prompts)
    expected = recorded(eager)
    state = state_of(model, spec, kind(), prompts)
    for _ in range(2 if cache in CAPTURED else 1):
        assert differences(recorded(state), expected) == set()
        assert np.array_equal(state.ids, eager.ids)
        before = counts(state)[1]
        state.rewind()
    assert (before > 0) == (cache in CAPTURED)
    assert state.branches[0].forwards.failure == ""


@pytest.mark.parametrize(
    ("cache", "level", "waits"),
    [
        *((cache, "layers", 2) for cache in CAPTURED),
        *((cache, "steps", 1) for cache in ("dual", "dllm_cache", "d2_cache")),
    ],
)
def test_on_a_simulated_device_recording_waits_after_the_commit(monkeypatch, cache, level, waits):
    """For the candidates with the plan, and for the drifts; the arrays are those of a CPU."""
    longer = {"gen_length": 16, "block_length": 8, "steps": 16}  # most forwards are replays
    spec, found = spec_of(cache, record=level, **longer), []
    expected = recorded(state_of(make_model(11, layers=2), spec, None))

    class Watched(Denoiser):
        def step(self, *which):
            before = mode.waits
            step = super().step(*which)
            found.append(mode.waits - before)
            return step

    with monkeypatch.context() as patch, torch.inference_mode(), CountingDevice(patch) as mode:
        job = micro_job(to_device(make_model(11, layers=2)), spec, None, make_recorder(spec))
        state = Watched(replace(job, capturer=Replaying()))
        assert differences(recorded(state), expected) == set()
    assert set(found) == {waits}
    assert counts(state)[1] > len(found) // 2


class Stale(Replaying):
    """Replays the residual stream, but gives the recorder the tensors of the capture."""

    def capture(self, call):
        out, again = super().capture(call)
        old = [x.clone() for x in out[1:]]

        def replay():
            return [again()[0], *old]

        return out, replay


class Forgetful(StepRecorder):
    """Its notes are not restored when a forward is replayed."""

    def wrap_policy(self, policy):
        wrapped = super().wrap_policy(policy)
        self.private, self.notes = self.notes, None
        return wrapped

    def begin(self, view):
        self.private.clear()

    def recomputed(self, plan):
        self.notes = self.private
        found = super().recomputed(plan)
        self.notes = None
        return found


@pytest.mark.parametrize(
    ("level", "array"), [("steps", "plan"), ("layers", "drift"), ("layers", "codes")]
)
def test_tensors_of_an_earlier_step_are_detected(level, array):
    model, spec = model_of("mha"), spec_of("dllm_cache", record=level)
    expected = recorded(state_of(model, spec, None))
    found = recorded(state_of(model, spec, Stale()))
    assert array in differences(found, expected)
    assert differences(recorded(state_of(model, spec, Replaying())), expected) == set()


def test_notes_that_are_not_restored_are_detected():
    model, spec = model_of("mha"), spec_of("dual", record="steps")
    expected = recorded(state_of(model, spec, None))
    job = micro_job(model, spec, None, Forgetful())
    found = recorded(Denoiser(replace(job, capturer=Replaying())))
    assert "plan" in differences(found, expected)


def test_after_a_failed_capture_the_recording_is_that_of_eager_forwards():
    """The notes of the failed attempt are discarded."""

    class Failing(Replaying):
        def capture(self, call):
            with (tape := Tape()):
                call()
            tape.undo()
            raise CaptureError("out of memory")

    model, spec = model_of("mha"), spec_of("dllm_cache", record="layers")
    expected = recorded(state_of(model, spec, None))
    state = state_of(model, spec, Failing())
    assert differences(recorded(state), expected) == set()
    assert state.branches[0].forwards.failure == "out of memory"


@pytest.mark.parametrize("level", LEVELS)
def test_a_rewound_run_records_the_same(level):
    spec = spec_of("spa_cache", record=level, probe_steps=4)
    state = state_of(model_of("shifted-gqa"), spec, None)
    first = recorded(state)
    state.rewind()
    assert differences(recorded(state), first) == set()


@pytest.mark.parametrize("cache", ["d2_cache", "dllm_cache", "dual", "spa_cache"])
def test_on_a_trained_model_recorded_arrays_are_those_of_eager_forwards(tiny, cache):  # noqa: F811
    """In float32, for each way in which a cache chooses and stores rows."""
    sizes = {"gen_length": 12, "block_length": 4, "steps": 12, "record": "layers"}
    text = "Nuts cost 9 dollars each. Lily buys 5 nuts. How much does she pay?"
    spec = spec_of(cache, model="tiny-llada", dtype="float32", prompt=text, **sizes)

    def state(capturer):
        job = make_job(tiny, spec, [prompt_ids(spec, tiny.tokenizer)], make_recorder(spec))
        return Denoiser(replace(job, capturer=capturer))

    expected, taped = recorded(state(None)), state(Taping())
    assert differences(recorded(taped), expected) == set()
    assert counts(taped)[1] > 3


@pytest.mark.parametrize("level", LEVELS)
def test_the_warm_up_of_a_recorded_run_captures_what_the_run_replays(monkeypatch, tiny, level):  # noqa: F811
    sizes = {"gen_length": 8, "block_length": 4, "steps": 8, "record": level}
    spec = RunSpec(model="tiny-llada", prompt="Lily buys 5 nuts.", cache="dual", **sizes)

    def lane_of(capturer):
        monkeypatch.setattr("engine.serve.loaded_model.make_capturer", lambda *_: capturer)
        lane = Lane(tiny, spec)
        if capturer is not None:
            lane.warm_up()
        lane.start()
        return lane

    made = Replaying()
    cold, warm = lane_of(None), lane_of(made)
    before = made.captured, made.replayed
    probed = 0
    for _ in range(8):
        expected, found = cold.advance().recording, warm.advance().recording
        probed += found.probe is not None  # its hidden states are read, so it is not replayed
        assert np.array_equal(found.plan, expected.plan)
        assert np.array_equal(found.top_ids, expected.top_ids)
        assert alike("drift", found.drift, expected.drift)
    assert (made.captured, made.replayed) == (before[0], before[1] + 8 - probed)
    similar = warm.finish("done").similarity, cold.finish("done").similarity
    assert level == "steps" or alike("codes", *(one.codes for one in similar))
    case = Case("dual", tiny, spec, [prompt_ids(spec, tiny.tokenizer)])
    assert len(step_seconds(case, 5)) == 5


def test_runs_that_record_tensors_do_not_run_ahead(monkeypatch):
    state = state_of(model_of("mha"), spec_of("dual", record="steps"), Taping())
    monkeypatch.setattr(Denoiser, "canvas", property(lambda _: SimpleNamespace(device=GPU)))
    assert not state.can_run_ahead(SimpleNamespace(counts=np.ones(1)))
    state.job.recorder = Recorder()
    assert state.can_run_ahead(SimpleNamespace(counts=np.ones(1)))


def test_saved_notes_hold_no_tensor():
    notes, (a, b) = ForwardNotes(), torch.rand(2, 1, 4)
    rows = torch.arange(4)[None]
    notes.plans.append(LayerPlan(k=rows, v=slice(0, 4), attn=rows))
    notes.outputs["k", 0] = a
    notes.query_rows[0] = rows
    saved, tensors = notes.save()
    kept = weakref.ref(a)
    assert [x is y for x, y in zip(tensors, (rows, rows, a, rows), strict=True)] == [True] * 4
    notes.clear()
    del a, tensors
    assert kept() is None
    other = rows + 1
    notes.restore(saved, [other, other, b, other])
    assert notes.plans == [LayerPlan(k=other, v=slice(0, 4), attn=other)]
    assert notes.outputs["k", 0] is b
    assert notes.query_rows[0] is notes.plans[0].attn is other

"""Memory that a run needs beside its weights."""

from dataclasses import replace

import pytest

from engine.record.layer_recorder import LayerRecorder
from engine.record.probe_recorder import ProbeRecorder
from engine.serve.memory_budget import kept_bytes, spec_run_bytes
from tests.engine.serve.test_race import PLAIN


def planned(session, spec):
    """Bytes that are planned for the recorder of a run."""
    info, tokens = session._models.info("micro"), len(session._models.prompt(spec))
    every, none = (spec_run_bytes(one, info, tokens) for one in (spec, replace(spec, record="off")))
    return every - none


def held(recorder):
    """Bytes of the values that a recorder holds before it has read those of a step."""
    last, noted = recorder._last.values.values(), recorder.notes.outputs.values()
    return sum(value.nbytes for value in (*last, *noted))


@pytest.mark.parametrize("layers", ["all", "1"])
def test_the_values_of_a_recorder_are_planned(session, monkeypatch, layers):
    found, record = [], LayerRecorder.record
    monkeypatch.setattr(
        LayerRecorder, "record", lambda self, *args: found.append(held(self)) or record(self, *args)
    )
    spec = replace(PLAIN, record="layers", record_layers=layers)
    list(session.run(spec))
    assert 0.9 * planned(session, spec) < max(found) <= planned(session, spec)


def test_the_values_of_a_probe_are_planned(session, monkeypatch):
    found, record, distances = [], ProbeRecorder.record, ProbeRecorder._distances

    def compared(self, before, exact):
        if before is not self._last.values:
            copies = (*before.values(), *(value for values in exact.values() for value in values))
            found[-1] += sum(value.nbytes for value in copies)
        return distances(self, before, exact)

    monkeypatch.setattr(
        ProbeRecorder, "record", lambda self, *args: found.append(held(self)) or record(self, *args)
    )
    monkeypatch.setattr(ProbeRecorder, "_distances", compared)
    spec = replace(PLAIN, record="probe", probe_steps=4)
    list(session.run(spec))
    assert 0.8 * planned(session, spec) < max(found) <= planned(session, spec)


def test_caches_and_last_values_are_kept_from_step_to_step(session):
    info, length = session._models.info("micro"), 4 + PLAIN.gen_length
    rows = info.layers * length * 4  # bytes of a number in each row of each layer
    dual = replace(PLAIN, cache="dual")
    assert kept_bytes(PLAIN, info, 4) == 0
    assert kept_bytes(dual, info, 4) == rows * 2 * info.d_kv
    assert kept_bytes(replace(dual, cfg_scale=1.0), info, 4) == 2 * rows * 2 * info.d_kv
    last = 2 * info.d_kv + 2 * info.d_model + info.head_dim
    assert kept_bytes(replace(PLAIN, record="layers"), info, 4) == rows * last
    for spec in (dual, replace(PLAIN, record="layers")):
        assert kept_bytes(spec, info, 4) < spec_run_bytes(spec, info, 4)


@pytest.mark.parametrize("record", ["off", "steps"])
def test_levels_without_values_of_layers_need_nothing_more(session, record):
    assert planned(session, replace(PLAIN, record=record)) == 0


def test_recorded_positions_beyond_the_prompt_known_so_far_do_not_matter(session):
    info, spec = session._models.info("micro"), replace(PLAIN, record="layers")
    few = replace(spec, record_positions="900-999")
    assert spec_run_bytes(few, info, 1) == spec_run_bytes(spec, info, 1)

"""Recorders: data kept beside the events of a run, by recording level."""

from __future__ import annotations

from engine.catalog import derive_plan
from engine.config.spec import RunSpec
from engine.record.layer_recorder import LayerRecorder
from engine.record.probe_recorder import ProbeRecorder
from engine.record.recorder import Recorder, StepRecorder


def make_recorder(spec: RunSpec) -> Recorder:
    """A new recorder of the level `spec.record`."""
    if spec.record == "off":
        return Recorder()
    if spec.record == "steps":
        return StepRecorder()
    max_steps = derive_plan(spec)[0].max_forwards
    if spec.record == "layers":
        return LayerRecorder(max_steps, spec.narrowing)
    return ProbeRecorder(max_steps, spec.probe_steps, spec.probe_at, spec.narrowing)

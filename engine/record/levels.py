"""Levels: the recorder of a spec."""

from __future__ import annotations

from engine.catalog import derive_plan
from engine.config.spec import RunSpec
from engine.record.layer_recorder import LayerRecorder
from engine.record.probe_recorder import ProbeRecorder
from engine.record.recorder import Recorder, StepRecorder


def make_recorder(spec: RunSpec) -> Recorder:
    """A fresh recorder of the spec's level; see RunSpec.record."""
    if spec.record == "off":
        return Recorder()
    if spec.record == "steps":
        return StepRecorder()
    most = derive_plan(spec)[0].max_forwards
    return (
        LayerRecorder(most) if spec.record == "layers" else ProbeRecorder(most, spec.probe_steps)
    )

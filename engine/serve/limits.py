"""Limits: bounds on a single run of a public page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.config.spec import RunSpec
from engine.core.events import QUANTITIES, SITES
from engine.models.base import ModelInfo
from engine.models.loading.memory_estimate import gigabytes

AUTO = "auto"  # may spread a model over disks too, which is slow


@dataclass(frozen=True)
class Limits:
    """Upper bounds of a run's fields.

    `prompt` is in characters, `recording` in bytes that the recorder keeps.
    """

    gen_length: int = 512
    steps: int = 512
    prompt: int = 4_000
    recording: int = 64_000_000

    def check(self, spec: RunSpec) -> None:
        """Raise ValueError naming `device`, `gen_length`, `steps` or `prompt` and its limit."""
        if spec.device == AUTO:
            raise ValueError(
                f"device: {AUTO} is not available on this public page; set device to cpu or cuda"
            )
        for name in ("gen_length", "steps"):
            if (given := getattr(spec, name)) > (most := getattr(self, name)):
                raise ValueError(
                    f"{name}: {given} is more than this public page allows; at most {most}, or "
                    "run a copy of your own"
                )
        length = len(spec.prompt) + sum(len(text) for _, text in spec.messages)
        if length > self.prompt:
            raise ValueError(
                f"prompt: {length} characters are more than this public page allows; shorten it "
                f"to {self.prompt}, or run a copy of your own"
            )

    def check_recording(self, spec: RunSpec, info: ModelInfo, tokens: int, forwards: int) -> None:
        """Raise ValueError naming `record` if a run of so many forwards keeps too many bytes."""
        kept = recorded_bytes(spec, info, tokens, forwards)
        if kept > self.recording:
            lower = "off" if spec.record == "steps" else "steps"
            raise ValueError(
                f"record: level {spec.record} keeps about {gigabytes(kept)} of this run, and this "
                f"public page at most {gigabytes(self.recording)}; set record to {lower}, or lower "
                "gen_length"
            )

    def limit_fields(self, fields: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Descriptions of RunSpec fields with `hi` lowered to these limits."""
        limits: Mapping[str, int] = {"gen_length": self.gen_length, "steps": self.steps}
        return [row | {"hi": limits.get(row["name"], row["hi"])} for row in fields]


def recorded_bytes(spec: RunSpec, info: ModelInfo, tokens: int, forwards: int) -> int:
    """Bytes that the recorder keeps of a run: plans from level `steps`, drifts from `layers` on."""
    if spec.record == "off":
        return 0
    length = tokens + spec.gen_length
    rows = info.layers * length
    kept = forwards * info.layers * len(SITES) * -(-length // 8)
    if spec.record == "steps":
        return kept
    kept += forwards * rows * len(QUANTITIES)
    return kept + spec.max_probes(forwards) * rows * 2 * len(SITES)

"""Compare the runs of a case with its recording."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.core.events import StepEvent
from engine.generate.capture.capturers import make_capturer
from tests.conformance import (
    block_models,
    experts,
    flashdlm,
    forwards,
    guided,
    guider_calls,
    llada_v,
    samplers,
)
from tests.conformance.cases import Case, UnknownCaseError
from tests.conformance.recorders import Arrays, ObservedRecorder, ShippedRecorder, wide
from tests.conformance.runs import CapturerOf, Decoded, Setup, decode


def _all_steps(case: Case) -> int:
    return int(case.arrays["nfe"])


def _nothing_else(case: Case, events: Sequence[StepEvent]) -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class Kind:
    """How the cases of a method are compared.

    Attributes:
        observed, shipped: what decodes a case as released, and as it ships.
        make_recorder: the recorder of the observed run.
        differences: of an observed run, besides ids, order and logits.
        tolerance: the absolute and the relative one of logits.
        arrays: the arrays that are compared or deliberately left out.
        sound_steps: the leading steps that are compared in the shipped run.
        shipped_differences: of the shipped run, besides ids, order and logits.
    """

    observed: Callable[[Case], Setup]
    shipped: Callable[[Case], Setup]
    make_recorder: Callable[[Arrays], ObservedRecorder]
    differences: Callable[[Case, Decoded, Any], Iterable[str]]
    tolerance: Callable[[Case], tuple[float, float]]
    arrays: frozenset[str]
    sound_steps: Callable[[Case], int] = _all_steps
    shipped_differences: Callable[[Case, Sequence[StepEvent]], Iterable[str]] = _nothing_else


SAMPLER = Kind(
    samplers.setup, samplers.setup, ObservedRecorder, samplers.differences, samplers.tolerance,
    samplers.ARRAYS,
)  # fmt: skip
FREE = Kind(
    flashdlm.setup, flashdlm.setup, flashdlm.FlashRecorder, flashdlm.differences,
    flashdlm.tolerance, flashdlm.ARRAYS,
)  # fmt: skip
GUIDED = Kind(
    guided.released_setup, guided.shipped_setup, flashdlm.FlashRecorder, guider_calls.differences,
    flashdlm.tolerance, guided.ARRAYS, guider_calls.sound_steps, guider_calls.shipped_differences,
)  # fmt: skip
LLADA2 = Kind(
    experts.setup, experts.setup, ObservedRecorder, experts.differences, samplers.tolerance,
    block_models.ARRAYS,
)  # fmt: skip
BLOCKS = Kind(
    block_models.setup, block_models.setup, block_models.BlockRecorder, block_models.differences,
    block_models.tolerance, block_models.ARRAYS,
)  # fmt: skip
FORWARDS = {  # the tolerances of single forwards, by method
    "sdar_forward": (1e-2, 1e-4), "fdv2_forward": (1e-2, 1e-4),
    "lladamoe_forward": (3e-3, 0.0), "llada2_forward": (3e-3, 0.0),
    "mmada_forward": (3e-3, 0.0),
}  # fmt: skip
PLAIN = Kind(
    samplers.plain_setup, samplers.plain_setup, ObservedRecorder,
    block_models.whole_call_differences, samplers.tolerance, block_models.ARRAYS,
)  # fmt: skip
KINDS = {
    **dict.fromkeys(block_models.SETTINGS, BLOCKS),
    **dict.fromkeys(samplers.SETTINGS, SAMPLER),
    **dict.fromkeys(flashdlm.SETTINGS, FREE),
    "flashdlm_guided": GUIDED,
    "llada2_decode": LLADA2,
    **dict.fromkeys(("lladamoe_decode", "mmada_decode"), PLAIN),
}


@dataclass(frozen=True)
class Outcome:
    """The differences of a case; `observed` and `shipped` are the widest of the logits.

    `sound_steps` of the case's `steps` have none of the release's defects and are compared in the
    shipped run; `shipped_rows` are the rows of logits compared there. `unread` are arrays that
    nothing compares.
    """

    differences: list[str]
    observed: float
    shipped: float
    shipped_rows: int
    sound_steps: int
    steps: int
    unread: list[str]

    @property
    def summary(self) -> str:
        """The differences, or the widest of the logits."""
        if self.differences:
            return "; ".join(self.differences)
        text = f"logits within {self.observed:.1e}, shipped {self.shipped:.1e}"
        text += f" ({self.shipped_rows} rows)"
        if self.sound_steps < self.steps:
            text += f", shipped until a defect in step {self.sound_steps} of {self.steps}"
        return text + "".join(f"; array {name} is not compared" for name in self.unread)


def compare(case: Case, capturer_of: CapturerOf = make_capturer) -> Outcome:
    """Run a case both ways; `capturer_of` makes the capturer of the shipped run.

    Raises UnknownCaseError for a method or a setting that is not known.
    """
    if case.method in FORWARDS:
        return _compare_forward(case, *FORWARDS[case.method])
    if case.method in llada_v.METHODS:
        return Outcome(*llada_v.compare(case, capturer_of))
    if case.method not in KINDS:
        raise UnknownCaseError(f"method {case.method} is unknown")
    kind = KINDS[case.method]
    atol, rtol = kind.tolerance(case)
    found, observed = observe(case)
    differences = observed_differences(case, found, observed)
    shipped, steps, sound = ShippedRecorder(case.arrays), _all_steps(case), kind.sound_steps(case)
    setup = kind.shipped(case)
    capturer = capturer_of(setup.adapter, setup.run_guider is not None)
    found = decode(setup, case.prompt, shipped, capturer, None if sound == steps else sound)
    others = [*_run_differences(case, found, sound), *kind.shipped_differences(case, found.events)]
    others += wide(shipped.logits.error(rtol), atol)
    drawn = "x_rand" in case.arrays  # a drawn order may need none of the recorded rows
    if sound and not shipped.logits.compared and not drawn:
        others.append("no logits were compared")
    return Outcome(
        [*differences, *(f"as shipped: {one}" for one in others)],
        observed.logits.error(), shipped.logits.error(), shipped.logits.compared, sound, steps,
        sorted(set(case.arrays) - kind.arrays),
    )  # fmt: skip


def observe(case: Case) -> tuple[Decoded, ObservedRecorder]:
    """The run of a case as released, and the recorder that observed it."""
    kind = KINDS[case.method]
    recorder = kind.make_recorder(case.arrays)
    return decode(kind.observed(case), case.prompt, recorder), recorder


def observed_differences(case: Case, found: Decoded, recorder: ObservedRecorder) -> list[str]:
    """The differences of an observed run from the arrays of a case.

    The recorder compared logits, row selections and keys with its own arrays during the run.
    """
    kind = KINDS[case.method]
    atol, rtol = kind.tolerance(case)
    differences = [*_run_differences(case, found), *kind.differences(case, found, recorder)]
    if recorder.logits.compared != len(recorder.logits):
        count = f"{recorder.logits.compared} of {len(recorder.logits)}"
        differences.append(f"{count} logits rows were computed")
    return [*differences, *wide(recorder.logits.error(rtol), atol)]


def _compare_forward(case: Case, atol: float, rtol: float) -> Outcome:
    """Compare a single forward, computed for all rows and for the recorded ones alone."""
    whole, alone, size = forwards.gaps(case)
    found = [
        *experts.router_differences(case),
        *wide(float((whole - rtol * size).max()), atol),
        *(f"as shipped: {one}" for one in wide(float((alone - rtol * size).max()), atol)),
    ]
    unread = sorted(set(case.arrays) - block_models.ARRAYS - experts.ROUTER_ARRAYS)
    rows = len(case.arrays["logit_pos"])
    return Outcome(found, float(whole.max()), float(alone.max()), rows, 1, 1, unread)


def _run_differences(case: Case, found: Decoded, sound: int | None = None) -> Iterator[str]:
    """Differences in ids, number of forwards and order, in the first `sound` steps (None: all).

    Positions that the implementation did not return are not compared.
    """
    golden, ids = case.arrays, found.state.ids[0, : len(case.arrays["final_ids"])]
    nfe, recorded = int(golden["nfe"]), golden["unmask_call"]
    order = found.order[: len(recorded)]
    same = np.ones(len(ids), bool)
    if sound is not None and sound < nfe:
        nfe, recorded = sound, np.where(recorded < sound, recorded, -1)
        same[len(ids) - len(recorded) :] = recorded >= 0
    if samplers.returned_nothing(case):  # then the order of the last call is unknown too
        if not found.state.masked.any():
            yield "no mask is left"
        same[len(ids) - len(recorded) :] = False
        recorded = np.where(recorded < 0, order, recorded)
    if not np.array_equal(ids[same], golden["final_ids"][same]):
        yield f"final_ids differ at {int((ids != golden['final_ids'])[same].sum())} positions"
    if found.state.step_index != nfe:
        yield f"nfe {found.state.step_index}, recorded {nfe}"
    if not np.array_equal(order, recorded):
        yield f"unmask_call differs at {int((order != recorded).sum())} positions"

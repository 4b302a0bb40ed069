"""A guided run written by hand: three steps with known numbers."""

from __future__ import annotations

import numpy as np

from engine.config.spec import RunSpec
from engine.core.events import (
    KINDS,
    PARTS,
    GuidedStep,
    Recording,
    RunFinished,
    RunStarted,
    StepEvent,
    Verdicts,
)
from engine.trace.trace import Trace

PROMPT, ANSWER, MASK, EOS, VOCAB = 3, 8, 39, 1, 40
FORWARD_MS, DECIDE_MS, GUIDER_MS, PREFILL_MS = 10.0, 4.0, 3.0, 1.5
MODEL_FLOPS, GUIDER_FLOPS, PREFILL_FLOPS = 1_000_000, 250_000, 100_000
STEPS = (  # drafted ids, whether the rule accepts each on its own, accepted count
    ((11, 12, 13, 14, 15, 16, 17, 18), (1, 1, 0, 1, 0, 1, 1, 1), 2),
    ((20, 21, 22, 23, 24, 25), (0, 1, 1, 1, 1, 1), 0),
    ((30, 31, EOS), (1, 1, 1), 3),
)
P_F = 0.9
CODES = (  # expected codes of the view, from verdicts.NAMES; "" where nothing was drafted
    ["accepted", "accepted", "mismatch", "agreed", "refused", *["agreed"] * 3],
    ["", "", "fallback", *["agreed"] * 5],
    ["", "", "", "accepted", "accepted", "stop", "filled", "filled"],
)
OTHER = 35  # the guider's first choice for refused tokens
PIECE = b"w%02d "
ODD = b"<img src=x onerror=alert(1)>"


def p_g(step: int, place: int) -> float:
    """The guider's probability of the token drafted at a place of a step."""
    return round(0.05 + 0.1 * place + 0.01 * step, 4)


def piece(token: int) -> bytes:
    """The bytes of a token of the draft; those of id 12 are HTML."""
    if token == EOS:
        return b"<|endoftext|>"
    return ODD if token == 12 else PIECE % token


def guided_trace(record: str = "steps", shared: bool = True) -> Trace:
    """The run as a trace; without `shared`, each token is two tokens of the guider."""
    trace = Trace()
    canvas = np.full((1, PROMPT + ANSWER), MASK, np.int32)
    canvas[0, :PROMPT] = (4, 5, 6)
    prompt = np.zeros(canvas.shape, bool)
    prompt[:, :PROMPT] = True
    spec = RunSpec(
        prompt="a", gen_length=ANSWER, block_length=ANSWER, steps=ANSWER, unmasker="guided",
        record=record,
    )  # fmt: skip
    model = {"name": "hand", "layers": 1, "vocab_size": VOCAB, "mask_id": MASK, "eos_id": EOS,
             "stop_ids": [EOS], "logit_shift": 0}  # fmt: skip
    about = {"name": "little", "shared": shared, "prompt": "shared", "vocab_size": VOCAB,
             "layers": 2, "parameters": 1234, "digest": "abc"}  # fmt: skip
    trace.append(
        RunStarted(
            spec.to_dict(), model, {"device": "cpu", "checkpoint": "def"}, canvas, prompt,
            np.zeros(canvas.shape, bool), np.ones(canvas.shape, bool),
            {i: piece(i) for i in (4, 5, 6, MASK)}, {}, about,
        )
    )  # fmt: skip
    left = ANSWER
    for step in range(len(STEPS)):
        event = step_of(step, ANSWER - left, record != "off", shared)
        left -= len(event.positions)
        trace.append(event)
    last = trace.canvas_at(len(STEPS))[None]
    ids = last[0, -ANSWER:].tolist()
    answer = tuple(ids[: ids.index(EOS)] if EOS in ids else ids)
    metrics = {"forwards": 3, "nfe": 3}
    trace.append(RunFinished("done", last, ("w11 …",), metrics, answer=answer))
    return trace


def step_of(step: int, first: int, detail: bool, shared: bool) -> StepEvent:
    """One step, whose first masked answer token is `first`."""
    ids, ok, accepted = STEPS[step]
    fell, stopped = accepted == 0, ids[-1] == EOS
    taken = max(accepted, 1)
    filled = ANSWER - first - taken if stopped else 0
    count = taken + filled
    flops = np.zeros(len(PARTS), np.int64)
    flops[0], flops[PARTS.index("guider")] = MODEL_FLOPS, GUIDER_FLOPS
    verdicts = verdicts_of(step, first, shared) if detail else None
    guider_ids = [] if verdicts is None else [OTHER, *verdicts.guider_ids.tolist()]
    guider_pieces = {i: PIECE % i for i in guider_ids if i > EOS}
    guided = GuidedStep(
        len(ids), accepted, len(ids), sum(ok), sum(ok), len(ids), 0.5 + step, fell, stopped, 0, 1,
        len(ids), 4 if step == 0 else 0, GUIDER_MS, PREFILL_MS if step == 0 else 0.0,
        GUIDER_FLOPS, PREFILL_FLOPS if step == 0 else 0, verdicts, guider_pieces,
    )  # fmt: skip
    return StepEvent(
        step, 0, step, KINDS[0], PROMPT + ANSWER, PROMPT + ANSWER, 1, np.zeros(count, np.int32),
        np.arange(PROMPT + first, PROMPT + first + count, dtype=np.int32),
        np.array([*ids[:taken], *[EOS] * filled], np.int32),
        np.array([P_F] * taken + [np.nan] * filled, np.float32),
        ANSWER - first - count, FORWARD_MS, DECIDE_MS, flops, 1.0,
        recording(first) if detail else None, {i: piece(i) for i in ids}, guided,
    )  # fmt: skip


def recording(first: int) -> Recording:
    """A recording in which every row was computed and the first mask is the only candidate."""
    bits = np.packbits(np.ones((1, 4, PROMPT + ANSWER), bool), axis=-1)
    return Recording(
        bits, np.array([PROMPT + first], np.int32), np.array([[11, 12]], np.int32),
        np.array([[0.5, 0.4]], np.float32), np.zeros(3, np.uint8),
    )  # fmt: skip


def verdicts_of(step: int, first: int, shared: bool) -> Verdicts:
    """The verdicts of a step; without `shared`, the guider has two tokens for each drafted one."""
    ids, ok, _ = STEPS[step]
    sizes = [0 if i == EOS else len(piece(i)) for i in ids]
    ends = np.cumsum(sizes)
    places = np.arange(len(ids))
    own = np.array([p_g(step, p) for p in range(len(ids))], np.float32)
    halves = 1 if shared else 2
    tokens = [(i, e) for i, e in zip(ids, ends, strict=True)] if shared else [
        pair for i, e, n in zip(ids, ends, sizes, strict=True)
        for pair in (((i, e),) if n == 0 else ((i - 1, e - n + 2), (i, e)))
    ]  # fmt: skip
    repeat = [1 if n == 0 else halves for n in sizes]
    flags = np.repeat(np.array(ok, bool), repeat)
    return Verdicts(
        (PROMPT + first + places).astype(np.int32), np.array(ids, np.int32), ends.astype(np.int32),
        np.full(len(ids), P_F, np.float32), own, np.array(ok, bool),
        np.full(len(ids), 0.25 if shared else np.nan, np.float32),
        np.array([i for i, _ in tokens], np.int32), np.array([e for _, e in tokens], np.int32),
        np.repeat(own, repeat), flags, np.where(flags, 0, 4).astype(np.uint8),
        np.where(flags, [i for i, _ in tokens], OTHER).astype(np.int32),
        np.where(flags, np.repeat(own, repeat), 0.97).astype(np.float32),
    )  # fmt: skip

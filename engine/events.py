"""Events of a run: ints, floats and numpy arrays, picklable, so they cross processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

KINDS = ("full", "partial", "reuse", "frozen")
PARTS = ("projections", "attention", "ffn", "head", "selection")  # what FLOPs are spent on
SITES = ("k", "v", "attn", "ffn")
QUANTITIES = (*SITES, "q0")  # q0: head 0's query
REASONS = ("done", "stopped", "failed")


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing is computed for the moment: `state` is `lock`, `loading`, `warmup` or `paused`."""

    state: str


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The canvas before the first step; of a branch with the answer tokens known by then.

    `canvas` [B, T] int32 ids; `prompt_mask`, `fixed_mask`, `pad_mask` [B, T] bool (prompt,
    given answer tokens, real positions); `spec` as RunSpec.to_dict; `environment` as
    environment.describe; `model` as ModelInfo.to_dict; `pieces` id -> bytes of every id shown;
    `facts` as CachePolicy.facts.
    """

    spec: Mapping[str, Any]
    model: Mapping[str, Any]
    environment: Mapping[str, Any]
    canvas: np.ndarray
    prompt_mask: np.ndarray
    fixed_mask: np.ndarray
    pad_mask: np.ndarray
    pieces: Mapping[int, bytes] = field(default_factory=dict)
    facts: Mapping[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShadowStep:
    """A step beside an exact forward on the same canvas (level `probe`); rows of sequence 0.

    `error` [layers, SITES, T] uint8: log codes of 1 - cosine between the value that the step used
    and the exact one, 255 where the row took no part; `moved` the same for the value last computed
    before the step, 255 where there was none. `positions` [n] int32 had their logits computed:
    `tv` [n] float32 is the total variation between both predictions, `top` [n, 2] int32 the best
    id of the run and the exact one; all of raw logits.
    """

    error: np.ndarray
    moved: np.ndarray
    positions: np.ndarray
    tv: np.ndarray
    top: np.ndarray


@dataclass(frozen=True, slots=True)
class Similarity:
    """How alike the K and V of two steps are (level `layers`), estimated from random sketches.

    `codes` [X (X + 1) / 2, 2, layers, G] uint8: log codes of 1 - mean cosine, for each pair of
    the steps `steps` [X] int32 (lower triangle by rows), K and V, and the groups of positions
    `groups` [G, 2] int32, each [lo, hi).
    """

    codes: np.ndarray
    steps: np.ndarray
    groups: np.ndarray


@dataclass(frozen=True, slots=True)
class Recording:
    """What level `steps` adds for one step, and the levels above it; arrays are of sequence 0.

    `plan` [layers, SITES, ceil(T/8)] uint8, np.packbits of the rows recomputed; `positions` [n]
    int32 the candidates; `top_ids` [n, k] int32 and `top_probs` [n, k] float32, best first;
    `planned` [3] uint8 the kinds (index into KINDS) of prompt, block and rest by the policy's
    clock; `drift` [layers, QUANTITIES, T] uint8 (level `layers`): log codes of 1 - cosine between
    what a row was computed to be and what it last was, 255 where it was not or for the first time.
    """

    plan: np.ndarray
    positions: np.ndarray
    top_ids: np.ndarray
    top_probs: np.ndarray
    planned: np.ndarray
    drift: np.ndarray | None = None
    shadow: ShadowStep | None = None


@dataclass(frozen=True, slots=True)
class StepEvent:
    """One denoising step, after its commit.

    `block_step` counts on from the parent's schedule in a block that a branch found begun.
    `sequences`, `positions`, `ids` [n] int32 and `confidence` [n] float32 (probability of the
    id, NaN where it was filled by the end-of-text rule) say what was committed; `kind` is one of
    KINDS; `rows` is how many rows of [0, T) entered the network; `forwards` counts branch
    forwards too (CFG); the clocks are milliseconds of the engine alone; `flops` int64 by part
    (PARTS), all sequences together; `recomputed` is the share of token-layers recomputed,
    the mean over K, V, attention and feed-forward.
    """

    step: int
    block: int
    block_step: int
    kind: str
    rows: int
    forwards: int
    sequences: np.ndarray
    positions: np.ndarray
    ids: np.ndarray
    confidence: np.ndarray
    masks_left: int
    forward_ms: float
    decide_ms: float
    flops: np.ndarray
    recomputed: float
    recording: Recording | None = None
    pieces: Mapping[int, bytes] = field(default_factory=dict)

    @property
    def step_ms(self) -> float:
        """Forward and decision together, in milliseconds."""
        return self.forward_ms + self.decide_ms


@dataclass(frozen=True, slots=True)
class RunFinished:
    """The end of a run, however it came: `reason` is one of REASONS.

    `canvas` [B, T] int32; `texts` one answer a sequence, cut before the first end of text;
    `metrics` of the run (see metrics.Tally); `message` says what failed and the remedy;
    `similarity` is what level `layers` gathered over the run.
    """

    reason: str
    canvas: np.ndarray
    texts: tuple[str, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    similarity: Similarity | None = None


Event = Waiting | RunStarted | StepEvent | RunFinished

"""Events of a run: ints, floats and numpy arrays, picklable, so they cross processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

KINDS = ("full", "partial", "reuse", "frozen")
PARTS = (  # what FLOPs are spent on; guider: all of the other model's
    "projections", "attention", "ffn", "head", "selection", "guider",
)  # fmt: skip
GUIDED = (  # columns of a trace's guided_count; the fields of GuidedStep of these names
    "drafted", "accepted", "judged", "top1", "top2", "top5", "fell_back", "stopped",
    "straddle_loss", "forwards", "fed", "prefilled",
)  # fmt: skip
SITES = ("k", "v", "attn", "ffn")
QUANTITIES = (*SITES, "q0")  # q0: head 0's query
REASONS = ("done", "stopped", "failed", "memory")  # memory: there was none left


@dataclass(frozen=True, slots=True)
class Waiting:
    """Nothing is computed for the moment.

    `state` is `lock`, `gpu`, `fetching` (a model from the Hub), `loading` (from disk), `warmup` or
    `paused`. While fetching and loading `done` of `total` bytes are there, total 0 where it is not
    known yet, and `what` is the name of the model. At the lock `ahead` runs come first, which need
    about `seconds` at most (None: not known); at `gpu` a shared one is asked for, for `seconds`.
    """

    state: str
    done: int = 0
    total: int = 0
    what: str = ""
    ahead: int = 0
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The canvas before the first step; of a branch with the answer tokens known by then.

    `canvas` [B, T] int32 ids; `prompt_mask`, `fixed_mask`, `pad_mask` [B, T] bool (prompt,
    given answer tokens, real positions); `spec` as RunSpec.to_dict; `environment` as
    environment.describe; `model` as ModelInfo.to_dict; `pieces` id -> bytes of every id shown;
    `facts` as CachePolicy.facts; `guider` as Guider.describe where one guides the run: name,
    shared (vocabulary), prompt (shared or own_template), vocab_size, layers, parameters, digest.
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
    guider: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The draft of a step token by token, and the guider's tokens (levels `steps` and above).

    The draft's [n], masked positions judged, in order: `positions` int32, `ids` int32, `ends`
    int32 (the byte of the draft's text that each ends before), `p_f` float32 its probability by
    the model that drafts, `p_g` float32 by the guider (of several guider tokens the product, NaN
    where it was not told), `ok` bool whether the rule accepts it by itself, beyond the first
    mismatch too, `kl` float32 KL(p_f || p_g) in nats, NaN where the vocabularies differ.

    The guider's [m], in its own vocabulary: `guider_ids` int32 the tokens that spell the draft,
    `guider_ends` int32 in the same bytes, `guider_p` float32 their probabilities, `guider_ok` bool,
    `guider_rank` uint8 (0 is its first choice, 5 and above are 5), `top_ids` int32 and `top_p`
    float32 its first choice. With a shared vocabulary both halves go token by token, m = n. A STOP
    has no bytes: its end is that of the token before.
    """

    positions: np.ndarray
    ids: np.ndarray
    ends: np.ndarray
    p_f: np.ndarray
    p_g: np.ndarray
    ok: np.ndarray
    kl: np.ndarray
    guider_ids: np.ndarray
    guider_ends: np.ndarray
    guider_p: np.ndarray
    guider_ok: np.ndarray
    guider_rank: np.ndarray
    top_ids: np.ndarray
    top_p: np.ndarray


@dataclass(frozen=True, slots=True)
class GuidedStep:
    """What a guider made of one step's draft (unmasker `guided`); of sequence 0 but for the costs.

    `drafted` masked positions were judged and `accepted` of them agreed to, in an unbroken run;
    the first mismatch is the one after. Of the `judged` guider tokens that spell them `top1`,
    `top2` and `top5` are among the guider's first choices, and `nll` is the mean of -log p, in
    nats (NaN: nothing was judged). `fell_back`: nothing was accepted, one token was committed by
    the fallback; `stopped`: the text was ended. `straddle_loss` bytes were agreed to without
    making up a whole token of the draft.

    The costs, all sequences together: `forwards` of the guider over `fed` tokens, and `prefilled`
    tokens before the first of them; `ms` and `flops` hold all of it, `prefill_ms` and
    `prefill_flops` the prefill's part. They are already counted in StepEvent.decide_ms and flops.
    `pieces` guider id -> bytes of ids shown for the first time.
    """

    drafted: int
    accepted: int
    judged: int
    top1: int
    top2: int
    top5: int
    nll: float
    fell_back: bool
    stopped: bool
    straddle_loss: int
    forwards: int
    fed: int
    prefilled: int
    ms: float
    prefill_ms: float
    flops: int
    prefill_flops: int
    verdicts: Verdicts | None = None
    pieces: Mapping[int, bytes] = field(default_factory=dict)


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
    the mean over K, V, attention and feed-forward; `guided` is there where a guider judged the
    step's draft, its clocks and FLOPs are inside the step's.
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
    guided: GuidedStep | None = None

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

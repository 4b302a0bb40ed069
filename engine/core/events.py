"""The events that a run yields: plain, picklable data of numbers and numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

KINDS = ("full", "partial", "reuse", "frozen")
PARTS = (  # of the FLOPs; guider: everything that the guider model computes
    "projections", "attention", "ffn", "head", "selection", "guider",
)  # fmt: skip
GUIDED = (  # fields of GuidedStep that are the columns of a trace's guided_count
    "drafted", "accepted", "judged", "top1", "top2", "top5", "fell_back", "stopped",
    "straddle_loss", "forwards", "fed", "prefilled",
)  # fmt: skip
SITES = ("k", "v", "attn", "ffn")
QUANTITIES = (*SITES, "q0")  # q0: the query of the first head
PROBABILITY_SCALE = 254  # a probability's code uint8 is the probability times this, rounded
NOT_COMPUTED = 255  # the code in place of a probability that was not computed
REASONS = ("done", "stopped", "failed", "memory")  # memory: out of memory


class QueueFullError(ValueError):
    """Too many runs wait for the engine; nothing was computed, and a later try may succeed."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run that is not computing at the moment.

    `state` is `lock` (queued behind other runs), `gpu` (a shared GPU is requested), `fetching` (a
    model from the Hub), `loading` (a model from disk), `images` (they are encoded), `calibrating`
    (what a cache needs to know of the model is measured or derived), `warmup` or `paused`. Of what
    takes long, `done` of `total` (0: not known yet) are done, in the `unit` bytes, forwards or
    layers, for the model `what`. At the lock, `ahead` runs come first and need at most about
    `seconds` (None: unknown); at `gpu`, `seconds` is the time requested.
    """

    state: str
    done: int = 0
    total: int = 0
    what: str = ""
    ahead: int = 0
    seconds: float | None = None
    unit: str = "bytes"


@dataclass(frozen=True, slots=True)
class RunStarted:
    """The start of a run: its settings and the canvas before the first step.

    `canvas` [B, T] int32 ids; a branch's canvas includes the tokens committed before its start.
    `prompt_mask`, `fixed_mask` and `pad_mask` [B, T] bool mark the prompt, given answer tokens and
    real (not padding) positions; `spec` is RunSpec.to_dict; `model` is ModelInfo.to_dict of the
    model that decodes, with its `name` and the digest of its `vocabulary` (Tokenizer.vocabulary);
    `environment` is that of environment.describe; `pieces` maps every id shown to its bytes;
    `facts` is CachePolicy.facts; `guider` is Guider.describe (name, shared vocabulary or not,
    prompt `shared` or `own_template`, vocab_size, layers, parameters, digest), empty without a
    guider. `images` are those of the prompt, in order: `name` (RunSpec.images), `width` and
    `height` in pixels, `mode` (anyres or pad), `first` position and `rows` on the canvas, `crops`,
    `grid` [columns, rows] of tiles and `map` [columns, rows] of patches. An image in mode `anyres`
    has 27 x 27 rows of the whole image, then the map, each row of which ends with a newline; one in
    mode `pad` has 27 x 27 rows and a newline. `steps_before` are the steps of the runs that
    a branch continues, 0 for other runs. `stops` are the token ids of each text of RunSpec.stop.
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
    images: tuple[Mapping[str, Any], ...] = ()
    steps_before: int = 0
    stops: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Verdicts:
    """A step's draft and the guider's tokens for it, one by one (from level `steps`).

    Of the n drafted tokens, masked positions in order: `positions` int32; `ids` int32; `ends`
    int32, the end of each token in the bytes of the draft's text; `p_f` float32, its probability
    by the drafting model; `p_g` float32, by the guider (the product over several guider tokens,
    NaN if not computed); `ok` bool, whether the rule accepts the token by itself, also beyond the
    first mismatch; `kl` float32, KL(p_f || p_g) in nats, NaN if the vocabularies differ.

    Of the m guider tokens that spell the draft, in the guider's vocabulary: `guider_ids` int32;
    `guider_ends` int32, in the same bytes; `guider_p` float32; `guider_ok` bool; `guider_rank`
    uint8, 0 for the guider's first choice, 5 for the sixth and below; `top_ids` int32 and `top_p`
    float32, the first choice. With a shared vocabulary m = n. A STOP has no bytes: its end is that
    of the token before.
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
    """The verification of one step's draft by a guider (unmasker `guided`).

    All but the costs are of sequence 0. Of `drafted` masked positions the first `accepted` were
    accepted. Of the `judged` guider tokens that spell them, `top1`, `top2` and `top5` are among
    the guider's first 1, 2 and 5 choices; `nll` is the mean -log p in nats (NaN: none judged).
    `fell_back`: nothing was accepted, and the fallback committed one token. `stopped`: the text
    was ended. `straddle_loss`: accepted bytes that do not complete a token of the draft.

    The costs are of all sequences: `forwards` of the guider over `fed` tokens, and before them a
    prefill of `prefilled` tokens. `ms` and `flops` include `prefill_ms` and `prefill_flops`, and
    are included in StepEvent.decide_ms and flops. `pieces` maps guider ids shown for the first
    time to their bytes.
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
class RecordedCells:
    """The cells of which drifts are recorded, by indices from 0 that rise, int32.

    `layers` [I]; `quantities` [O], indices into QUANTITIES; `positions` [B].
    """

    layers: np.ndarray
    quantities: np.ndarray
    positions: np.ndarray

    @property
    def sites(self) -> np.ndarray:
        """Those of the quantities that are sites [F], which a probe compares."""
        found: np.ndarray = self.quantities[self.quantities < len(SITES)]
        return found


@dataclass(frozen=True, slots=True)
class LogitLens:
    """What each layer of a probed step would predict for the answer (nostalgebraist, 2020).

    The hidden state after each layer goes through the final norm and the head; the mask is no
    candidate, and guidance and rules for the end of text are not applied. `positions` [N] int32
    rise: those of the answer that are recorded. Of the run's own pass (0) and of the exact forward
    (1): `ids` [2, L, N] int32 is the best token after each layer, `probs` [2, L, N] uint8 the code
    of its probability and `token_probs` [2, L, N] uint8 that of the token which is best after the
    last layer of the exact forward.

    A row that is reused in a layer still has a hidden state, with stale branch outputs added. One
    that did not enter the run's own forward has none, nor may one whose logits the step does not
    read have one after its last layer: their codes are NOT_COMPUTED, and their ids 0.
    """

    positions: np.ndarray
    ids: np.ndarray
    probs: np.ndarray
    token_probs: np.ndarray


@dataclass(frozen=True, slots=True)
class ProbeStep:
    """A step compared with an exact forward on the same canvas (level `probe`).

    Rows are of sequence 0, of its RecordedCells. `error` [I, F, B] uint8: drift codes of 1 - cosine
    between the value that the step used and the exact one, 255 for rows that took no part; `moved`,
    the same for the value last computed before the step, 255 if there was none. Of the `positions`
    [n] int32 with logits, by raw logits: `tv` [n] float32 is the total variation between both
    predictions, `top` [n, 2] int32 the best id of the run and of the exact forward. `lens` is None
    if no position of the answer is recorded. `expert_changes` [I, B] uint8, None without experts:
    how many of the experts of the exact forward are others than those with which the feed-forward
    output in use was computed, 255 for rows that took no part and in layers without experts.
    """

    error: np.ndarray
    moved: np.ndarray
    positions: np.ndarray
    tv: np.ndarray
    top: np.ndarray
    lens: LogitLens | None = None
    expert_changes: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class Similarity:
    """Similarity of K and V between pairs of steps (level `layers`), estimated from sketches.

    `codes` [X (X + 1) / 2, 2, I, G] uint8: drift codes of 1 - mean cosine for each pair of the
    steps `steps` [X] int32 (lower triangle by rows), for K and V, the recorded layers, and the
    groups of positions `groups` [G, 2] int32, each [lo, hi).
    """

    codes: np.ndarray
    steps: np.ndarray
    groups: np.ndarray


@dataclass(frozen=True, slots=True)
class Proposals:
    """What the unmasker chose from in one step, for each candidate of its Recording, [n] each.

    `ids` int32, the proposed token; `confidence` float32, its probability, and `score` float64,
    what candidates are ranked by, both as the unmasker read them (unmask.base.Candidates);
    `entropy` float32, sum of p log p of the model's distribution; `order` int32, the candidate's
    place from 0 in the order that the step had planned, -1 if it was not planned.
    """

    ids: np.ndarray
    confidence: np.ndarray
    score: np.ndarray
    entropy: np.ndarray
    order: np.ndarray


@dataclass(frozen=True, slots=True)
class Recording:
    """What the recording levels add to one step; arrays are of sequence 0.

    `plan` [layers, SITES, ceil(T/8)] uint8, np.packbits of the rows recomputed; `positions` [n]
    int32, the candidates; `top_ids` [n, k] int32 and `top_probs` [n, k] float32, best first;
    `planned` [3] uint8, the kinds (index into KINDS) of prompt, block and rest that the policy
    planned. From level `layers`, `cells` are the recorded ones, and `drift` [I, O, B] uint8 holds
    their drift codes of 1 - cosine between a row's new value and its last one, 255 if it has no new
    or no last one; None in a step that is not recorded. `proposals` [n] are what the unmasker read
    of the candidates, None if not recorded. `expert_changes` [I, B] uint8, which a model with
    experts has beside `drift`: how many of a row's experts are others than those with which its
    feed-forward output was last computed, 255 for a row that is not computed now or was not before.
    """

    plan: np.ndarray
    positions: np.ndarray
    top_ids: np.ndarray
    top_probs: np.ndarray
    planned: np.ndarray
    cells: RecordedCells | None = None
    drift: np.ndarray | None = None
    probe: ProbeStep | None = None
    proposals: Proposals | None = None
    expert_changes: np.ndarray | None = None


@dataclass(frozen=True, slots=True)
class StepEvent:
    """One denoising step, after its commit.

    In a block that a branch continues, `block_step` counts on from the parent's schedule.
    `sequences`, `positions`, `ids` [n] int32 and `confidence` [n] float32 describe the committed
    tokens; the confidence is the id's probability, NaN if the end-of-text rule filled it in.
    `kind` is one of KINDS; `rows` counts the rows of [0, T) that entered the network, `rows_plain`
    those that would without a cache, 0 in a step that only fills a cache; `forwards` includes those
    of guidance (CFG); times are milliseconds of the engine alone; `flops` int64 by
    PARTS, of all sequences; `recomputed` is the share of token-layers recomputed, averaged over K,
    V, attention and feed-forward. The times and FLOPs of `guided` are included in the step's.
    """

    step: int
    block: int
    block_step: int
    kind: str
    rows: int
    rows_plain: int
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
    """The end of a run, normal or not: `reason` is one of REASONS.

    `canvas` [B, T] int32; `texts`, one answer per sequence, cut before its first end of text or
    stop, without the suffix; `answer`, the token ids of the first sequence's text;
    `metrics` of the run (see metrics.Tally); `message`, what failed and the remedy; `similarity`,
    which level `layers` collects over the run.
    """

    reason: str
    canvas: np.ndarray
    texts: tuple[str, ...] = ()
    metrics: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    similarity: Similarity | None = None
    answer: tuple[int, ...] = ()


Event = Waiting | RunStarted | StepEvent | RunFinished

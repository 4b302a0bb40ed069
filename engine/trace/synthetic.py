"""Synthetic runs: events of any size with plausible drifts, made without a model.

The schedule is that of dLLM-Cache with the intervals 25 and 5 and the ratio 0.25: the prompt is
refreshed in every 25th step, the answer in every 5th, and in between V of the answer and a quarter
of its rows. Layer 1 is dense. Each step commits one token, block by block.

Drifts are log-normal over positions, larger in later layers, near tokens that were just committed,
and in rows that were reused for long. Everything follows from the spec and its seed.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from engine.config.spec import MAX_LENGTH, RunSpec
from engine.core import drift_codes
from engine.core.drift_codes import NOT_EVALUATED
from engine.core.events import (
    KINDS,
    NOT_COMPUTED,
    PARTS,
    PROBABILITY_SCALE,
    QUANTITIES,
    SITES,
    Event,
    LogitLens,
    ProbeStep,
    Recording,
    RunFinished,
    RunStarted,
    Similarity,
    StepEvent,
)
from engine.core.regions import is_refresh_step
from engine.trace.metrics import Tally
from engine.trace.schema import MAX_LAYERS, MAX_POSITIONS

PROMPT_INTERVAL, RESPONSE_INTERVAL, RATIO = 25, 5, 0.25
VOCAB, MASK, CANDIDATES = 512, 511, 5
MAX_BLOCK, PROBES, COMPARED_STEPS, COMPARED_BLOCKS = 32, 8, 256, 5
V = QUANTITIES.index("v")
# Natural logarithms of drifts: the grid of the table of codes, the medians of the quantities in
# layer 1, what the last layer adds, and what a token adds that was just committed beside the row.
LOWEST, HIGHEST, PER_UNIT = -16.0, 2.0, 512
MEDIANS = np.array((-8.0, -7.0, -6.6, -6.2, -7.2), np.float32)
LATER, NEAR = 1.6, 2.5
REACH, FADE = 6.0, 0.7  # positions and share kept per step of the effect of a new token
LASTING, PASSING = 0.7, 0.5  # spread over positions, and over positions and steps


def synthetic_spec(steps: int, probe: bool = False, seed: int = 0) -> RunSpec:
    """The spec of a synthetic run of `steps` steps, recorded at level `layers` or `probe`.

    The answer has a token for each step. Raises ValueError naming the field.
    """
    if not 1 <= steps <= MAX_LENGTH:
        raise ValueError(f"steps: {steps} is outside 1 to {MAX_LENGTH}")
    block = next(size for size in range(min(MAX_BLOCK, steps), 0, -1) if steps % size == 0)
    return RunSpec(
        model="synthetic", gen_length=steps, block_length=block, steps=steps, cache="dllm_cache",
        seed=seed, record="probe" if probe else "layers", probe_steps=PROBES,
    )  # fmt: skip


def synthetic_events(spec: RunSpec, layers: int, positions: int) -> Iterator[Event]:
    """The events of a synthetic run of a spec of `synthetic_spec`.

    The canvas has `positions` positions: the prompt, then the answer. Raises ValueError naming
    `layers` or `positions`.
    """
    if not 1 <= layers <= MAX_LAYERS:
        raise ValueError(f"layers: {layers} is outside 1 to {MAX_LAYERS}")
    if not spec.gen_length < positions <= MAX_POSITIONS:
        raise ValueError(
            f"positions: {positions} is outside {spec.gen_length + 1} to {MAX_POSITIONS}; they "
            "hold the prompt and a token of the answer for each step"
        )
    return _Run(spec, layers, positions).events()


class _Run:
    """The state of a synthetic run: what is on the canvas, and when each row was computed."""

    def __init__(self, spec: RunSpec, layers: int, positions: int) -> None:
        self._spec, self._layers, self._length = spec, layers, positions
        self._prompt = positions - spec.gen_length
        self._random = np.random.default_rng(spec.seed)
        self._canvas = np.full(positions, MASK, np.int32)
        self._canvas[: self._prompt] = self._random.integers(0, MASK, self._prompt)
        depth = np.linspace(0, LATER, layers, dtype=np.float32)
        self._medians = (depth[:, None] + MEDIANS)[:, :, None]
        self._own = LASTING * self._random.standard_normal(positions, np.float32)
        self._heat = np.zeros(positions, np.float32)
        self._computed = np.zeros((layers, len(QUANTITIES), positions), np.int16)  # last step
        grid = np.arange(LOWEST, HIGHEST, 1 / PER_UNIT)
        self._codes = drift_codes.encode(np.exp(grid))
        self._logs = 0.5 * np.log(np.arange(1, spec.steps + 2, dtype=np.float32))
        self._order = self._commit_order()
        self._cells = spec.narrowing.cells(layers, positions, spec.gen_length)

    def events(self) -> Iterator[Event]:
        """The start, the steps and the end."""
        tally, prompt = Tally(self._length), np.arange(self._length)[None] < self._prompt
        yield RunStarted(
            spec=self._spec.to_dict(), model=self._model(), environment=self._environment(),
            canvas=self._canvas[None].copy(), prompt_mask=prompt, fixed_mask=np.zeros_like(prompt),
            pad_mask=np.ones_like(prompt), pieces={i: f" t{i}".encode() for i in range(VOCAB)},
            facts={"budget": [1.0, *[RATIO] * (self._layers - 1)]},
        )  # fmt: skip
        for step in range(self._spec.steps):
            event = self._step(step)
            tally.add(event)
            yield event
        text = "".join(f" t{i}" for i in self._canvas[self._prompt :])
        metrics = tally.metrics(self._spec.gen_length, self._spec.steps, {"cache_bytes": None})
        similarity = self._similarity()
        yield RunFinished("done", self._canvas[None].copy(), (text,), metrics, "", similarity)

    def _model(self) -> dict[str, object]:
        return {
            "name": self._spec.model, "family": "synthetic", "layers": self._layers,
            "vocab_size": VOCAB, "mask_id": MASK, "logit_shift": 0, "stop_ids": [],
        }  # fmt: skip

    def _environment(self) -> dict[str, object]:
        return {"device": "none", "device_name": "synthetic", "dtype": "none", "checkpoint": ""}

    def _commit_order(self) -> np.ndarray:
        """The position that each step commits: at random inside a block, block after block."""
        blocks = np.arange(self._prompt, self._length).reshape(self._spec.blocks, -1)
        return self._random.permuted(blocks, axis=1).ravel()

    def _step(self, step: int) -> StepEvent:
        block, block_step = divmod(step, self._spec.block_length)
        plan, drift = self._layers_of(step)
        masked = np.sort(self._order[step : (block + 1) * self._spec.block_length]).astype(np.int32)
        place = self._order[step : step + 1].astype(np.int32)
        recording = self._recording(step, plan, drift, masked)
        ids = recording.top_ids[masked == place[0], 0]
        self._canvas[place] = ids
        distance = np.abs(np.arange(self._length) - place[0])
        self._heat = FADE * self._heat + NEAR * np.exp(-distance / REACH, dtype=np.float32)
        share, full = float(plan.mean()), step % PROMPT_INTERVAL == 0
        flops = (np.arange(len(PARTS), 0, -1) * share * self._length * 1e6).astype(np.int64)
        flops[-1] = 0  # without a guider
        return StepEvent(
            step=step, block=block, block_step=block_step, kind="full" if full else "partial",
            rows=self._length, rows_plain=self._length, forwards=1,
            sequences=np.zeros(1, np.int32), positions=place, ids=ids,
            confidence=recording.top_probs[masked == place[0], 0],
            masks_left=self._spec.steps - step - 1, forward_ms=1 + 9 * share, decide_ms=0.5,
            flops=flops, recomputed=share, recording=recording,
        )  # fmt: skip

    def _layers_of(self, step: int) -> tuple[np.ndarray, np.ndarray]:
        """What a step recomputed, [L, SITES, T] bool, and its drift codes [L, QUANTITIES, T]."""
        rows = np.zeros((self._layers, len(QUANTITIES), self._length), bool)
        drift = np.full(rows.shape, NOT_EVALUATED, np.uint8)
        answer, every = slice(self._prompt, None), slice(None)
        whole = is_refresh_step(step, PROMPT_INTERVAL)
        for layers, area in ((slice(0, 1), every), (slice(1, None), every if whole else answer)):
            due = rows[layers, :, area]
            drifts = self._drifts(step, layers, area)
            if whole or layers.start == 0 or is_refresh_step(step, RESPONSE_INTERVAL):
                due[:] = True
            else:
                count = max(1, int(RATIO * due.shape[-1]))
                moved = drifts[:, V]
                limit = np.partition(moved, -count, axis=-1)[:, None, -count, None]
                due[:] = moved[:, None] >= limit
                due[:, V] = True
            codes = self._coded(drifts)
            drift[layers, :, area] = np.where(due & (step > 0), codes, NOT_EVALUATED)
            self._computed[layers, :, area][due] = step
        return rows[:, : len(SITES)], drift

    def _drifts(self, step: int, layers: slice, area: slice) -> np.ndarray:
        """Logarithms of the drifts since each row was computed, float32 [L, QUANTITIES, n]."""
        age = step - self._computed[layers, :, area]
        noise = self._random.standard_normal(age.shape, np.float32)
        drifts: np.ndarray = PASSING * noise
        drifts += self._medians[layers]
        drifts += self._logs[age]
        drifts += (self._own + self._heat)[area]
        return drifts.clip(LOWEST, HIGHEST - 1 / PER_UNIT, out=drifts)

    def _coded(self, drifts: np.ndarray) -> np.ndarray:
        """Drift codes uint8 of logarithms of drifts inside the grid."""
        codes: np.ndarray = self._codes[((drifts - LOWEST) * PER_UNIT).astype(np.int16)]
        return codes

    def _recording(
        self, step: int, plan: np.ndarray, drift: np.ndarray, masked: np.ndarray
    ) -> Recording:
        share = self._random.uniform(0.3, 0.99, (len(masked), 1))
        probs = (share * (1 - share) ** np.arange(CANDIDATES)).astype(np.float32)
        first = self._random.integers(0, MASK - CANDIDATES, (len(masked), 1))
        ids = (first + np.arange(CANDIDATES)).astype(np.int32)
        planned, probe = self._planned(step), None
        if self._spec.record == "probe" and step % -(-self._spec.steps // PROBES) == 0:
            probe = self._probe(step, masked, ids)
        bits, found = np.packbits(plan, axis=-1), self._cells
        if step % self._spec.record_every:
            return Recording(bits, masked, ids, probs, planned, probe=probe)
        drift = drift[np.ix_(found.layers, found.quantities, found.positions)]
        return Recording(bits, masked, ids, probs, planned, found, drift, probe)

    def _planned(self, step: int) -> np.ndarray:
        """Kinds [3] uint8 of prompt, block and rest."""
        answer = is_refresh_step(step, RESPONSE_INTERVAL)
        rest = answer or self._spec.blocks == 1  # an empty region is full
        full = (is_refresh_step(step, PROMPT_INTERVAL), answer, rest)
        return np.array([KINDS.index("full" if one else "partial") for one in full], np.uint8)

    def _probe(self, step: int, masked: np.ndarray, ids: np.ndarray) -> ProbeStep:
        """Errors that grow with the age of a row; before the first step there were no values."""
        found = []
        for ahead in (0, 1):
            age = step + ahead - self._computed[:, : len(SITES)]
            drifts = PASSING * self._random.standard_normal(age.shape, np.float32)
            drifts += self._medians[:, : len(SITES)] - 1 + self._logs[age] + self._own + self._heat
            codes = self._coded(drifts.clip(LOWEST, HIGHEST - 1 / PER_UNIT))
            found.append(np.where(age == 0, 0, codes).astype(np.uint8))
        if step == 0:
            found[1][:] = NOT_EVALUATED
        tv = self._random.beta(1, 20, len(masked)).astype(np.float32)
        top = np.stack((ids[:, 0], ids[:, 0] + (tv > 0.1)), -1).astype(np.int32)
        places = np.ix_(self._cells.layers, self._cells.sites, self._cells.positions)
        errors = found[0][places], found[1][places]
        return ProbeStep(*errors, masked, tv, top, self._lens(masked, top))

    def _lens(self, masked: np.ndarray, top: np.ndarray) -> LogitLens | None:
        """Each token is best from some layer on, in the run's pass a little later."""
        positions = self._cells.positions[self._cells.positions >= self._prompt]
        if not len(positions):
            return None
        canvas, drawn = self._canvas[positions], self._random.integers(0, MASK, len(positions))
        best = np.tile(np.where(canvas == MASK, drawn, canvas), (2, 1))
        places = np.searchsorted(positions, masked[np.isin(masked, positions)])
        best[:, places] = top[np.isin(masked, positions)].T
        depth = np.arange(1, self._layers + 1)[None, :, None] / self._layers
        from_layer = self._random.uniform(0.2, 0.9, (1, 1, len(positions)))
        sure = (depth - from_layer - np.array((0.05, 0)).reshape(2, 1, 1)).clip(-0.5, 0.5) + 0.5
        sure[:, -1] = np.maximum(sure[:, -1], 0.51)
        ids = np.where(sure > 0.5, best[:, None], self._random.integers(0, MASK, sure.shape))
        same = np.where(best == best[1], sure[:, -1], 0.1)[:, None] * sure
        codes = [np.round(share * PROBABILITY_SCALE).astype(np.uint8) for share in (sure, same)]
        unread = ~np.isin(positions, masked)
        for code in codes:
            code[:, -1, unread] = NOT_COMPUTED
        ids[:, -1, unread] = 0
        return LogitLens(positions, ids.astype(np.int32), *codes)

    def _similarity(self) -> Similarity:
        """Cosines that fall with the steps between, in later layers more."""
        every = -(-self._spec.steps // COMPARED_STEPS)
        steps = np.arange(0, self._spec.steps, every, dtype=np.int32)
        size, blocks = self._spec.block_length, self._spec.blocks
        chosen = np.unique(np.linspace(0, blocks - 1, min(COMPARED_BLOCKS, blocks)).round())
        starts = self._prompt + size * chosen.astype(np.int32)
        groups = np.stack((np.append(0, starts), np.append(self._prompt, starts + size)), -1)
        gaps = 1 - np.exp(-np.arange(len(steps)) / 40)
        depth = np.linspace(0.05, 0.4, self._layers)[None, None, :, None]
        kinds = np.array((0.6, 1.0))[None, :, None, None]
        areas = np.linspace(0.3, 1, len(groups))
        by_gap = drift_codes.encode(gaps[:, None, None, None] * kinds * depth * areas)
        later, earlier = np.tril_indices(len(steps))
        by_gap = np.ascontiguousarray(by_gap[:, :, self._cells.layers])
        return Similarity(by_gap[later - earlier], steps, groups.astype(np.int32))

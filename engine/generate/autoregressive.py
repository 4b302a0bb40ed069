"""Autoregressive decoding as a run of steps, on the canvas and the clock of diffusion runs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache

from engine.config.spec import RunSpec
from engine.core.device import Clock, HostCopy
from engine.core.events import KINDS, SITES, Proposals, Recording, StepEvent
from engine.generate.end_of_text import Answer, answer_before_end
from engine.guider.model import Guider, causal_info
from engine.models.ops import upcast
from engine.record.recorder import TOP_CANDIDATES
from engine.unmask.base import Candidates
from engine.unmask.proposals import propose

ONE_ROW = np.ones((1, 1), bool)


class AutoregressiveDecoder:
    """A causal model that writes the answer of one prompt, and its KV cache.

    The first step reads the prompt, each later one the token of the step before. Of a settled end
    of text the rest of the answer is filled, as in a diffusion run with the rule fill_safe.

    Attributes:
        info: sizes of the model; `mask_id` stands at positions that are not written yet.
        ids: the canvas [1, T] int64, prompt and answer.
        masked: positions [1, T] bool that are not written yet.
    """

    def __init__(self, model: Guider, spec: RunSpec, prompt: list[int]) -> None:
        self._model, self._spec, self._prompt = model, spec, prompt
        self._device = model.model.device
        self.info = causal_info(model.model.config, model.stop_ids)
        self._real = torch.ones(1, 1, dtype=torch.bool, device=self._device)  # one row, no padding
        self.rewind()

    @property
    def prompt_length(self) -> int:
        """Number of tokens of the prompt."""
        return len(self._prompt)

    def rewind(self) -> None:
        """Return to the state before the first step."""
        length = len(self._prompt) + self._spec.gen_length
        self.ids = np.full((1, length), self.info.mask_id, np.int64)
        self.ids[0, : len(self._prompt)] = self._prompt
        self.masked = self.ids == self.info.mask_id
        self._cache = DynamicCache()
        self._noise = torch.Generator().manual_seed(self._spec.seed)

    def answer(self) -> Answer:
        """The tokens written so far, before the end of the text."""
        written = slice(len(self._prompt), None)
        return answer_before_end(self.ids[0, written], self.masked[0, written], self.info.stop_ids)

    def cached_bytes(self) -> int:
        """Bytes of the keys and values so far."""
        return self._model.cache_bytes(self._cache.get_seq_length())

    def steps(self) -> Iterator[StepEvent]:
        """Write token by token until the first end of text or the end of the answer.

        Raises RuntimeError if the model's logits are not finite numbers.
        """
        read = 0
        for step in range(self._spec.gen_length):
            event = self._step(step, read)
            read = len(self._prompt) + step
            yield event
            if not self.masked.any():
                return

    @torch.inference_mode()
    def _step(self, step: int, read: int) -> StepEvent:
        """Read the tokens from `read` on, and write the token after them."""
        clock, place = Clock(self._device), len(self._prompt) + step
        started = clock.mark()
        fed = torch.from_numpy(self.ids[:, read:place]).to(self._device)
        logits = self._model.model(
            input_ids=fed, past_key_values=self._cache, use_cache=True, logits_to_keep=1
        ).logits
        forwarded = clock.mark()
        found = propose(
            logits, self._real, "confidence", self._spec.temperature, [self._noise],
            real_host=ONE_ROW,
        )  # fmt: skip
        decided = clock.mark()
        ids, confidence = HostCopy(found.ids, found.confidence.float()).get()
        if not np.isfinite(confidence).all():
            raise RuntimeError("the logits of the causal model are not finite numbers")
        positions, written = self._write(place, int(ids[0, 0]))
        rows, length = place - read, self.ids.shape[1]
        written_confidence = np.full(len(positions), np.nan, np.float32)
        written_confidence[0] = confidence[0, 0]
        return StepEvent(
            step=step,
            block=step // self._spec.block_length,
            block_step=step % self._spec.block_length,
            kind="partial",
            rows=rows,
            rows_plain=place,
            forwards=1,
            sequences=np.zeros(len(positions), np.int32),
            positions=positions,
            ids=written,
            confidence=written_confidence,
            masks_left=int(self.masked.sum()),
            forward_ms=clock.ms(started, forwarded),
            decide_ms=clock.ms(forwarded, decided),
            flops=self._model.flop_parts(rows, place, 1),
            recomputed=rows / length,
            recording=self._recording(slice(read, place), logits, found),
        )

    def _write(self, place: int, token: int) -> tuple[np.ndarray, np.ndarray]:
        """Write a token; returns the positions and ids written, those after an end included."""
        stop = place + 1
        if token in self.info.stop_ids:
            stop = self.ids.shape[1]
            self.ids[0, place:] = self.info.fill_id
        self.ids[0, place] = token
        self.masked[0, place:stop] = False
        return np.arange(place, stop, dtype=np.int32), self.ids[0, place:stop].astype(np.int32)

    def _recording(self, rows: slice, logits: Tensor, found: Candidates) -> Recording | None:
        """The rows read and the best candidates, from level `steps` on; no drift, since none is."""
        if self._spec.record == "off":
            return None
        mask = np.zeros(self.ids.shape[1], bool)
        mask[rows] = True
        p = upcast(logits[0]).softmax(-1)
        top = p.topk(min(TOP_CANDIDATES, p.shape[-1]), -1)
        entropy = torch.special.xlogy(p, p).sum(-1).float()
        ids, probs, chosen, confidence, score, sums = HostCopy(
            top.indices, top.values.float(), found.ids[0], found.confidence[0].float(),
            found.score[0].double(), entropy,
        ).get()  # fmt: skip
        return Recording(
            plan=np.tile(np.packbits(mask), (self.info.layers, len(SITES), 1)),
            positions=np.array([rows.stop], np.int32),
            top_ids=ids.astype(np.int32),
            top_probs=probs,
            planned=self._planned(rows),
            proposals=Proposals(
                chosen.astype(np.int32), confidence, score, sums, np.zeros(1, np.int32)
            ),
        )

    def _planned(self, rows: slice) -> np.ndarray:
        """The kinds of prompt, block and rest; an empty region is `full`, as in every recording.

        The row before a token predicts it, so the last row of the prompt belongs to the block.
        """
        prompt = "full" if rows.start == 0 else "frozen"
        block = (rows.stop - len(self._prompt)) // self._spec.block_length
        rest = "frozen" if block == self._spec.blocks - 1 else "reuse"
        rest = rest if self._spec.blocks > 1 else "full"
        return np.array([KINDS.index(kind) for kind in (prompt, "partial", rest)], np.uint8)

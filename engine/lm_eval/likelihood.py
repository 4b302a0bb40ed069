"""Monte Carlo estimate of the log-likelihood of a text under a masked diffusion model."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from engine.cache.methods.none import exact_logits
from engine.config.blocks import BlockGrid
from engine.config.spec import MAX_LENGTH, RunSpec
from engine.generate.loop import Denoiser, denoise
from engine.models.base import ModelAdapter, ModelInfo
from engine.models.flops import FlopCounter
from engine.serve.loaded_model import LoadedModel, make_job


def continuation_logits(adapter: ModelAdapter, canvas: Tensor, start: int) -> Tensor:
    """Logits [B, T - start, V] of the positions from `start` on, of an exact forward."""
    length, shift = canvas.shape[1], adapter.info.logit_shift
    return exact_logits(adapter, canvas.to(adapter.device), slice(start - shift, length - shift))


def factors(info: ModelInfo, start: int, stop: int) -> list[tuple[int, int]]:
    """The parts of the positions `start` to `stop` that are predicted one after the other.

    All of them are one part if attention is full. If it is block-causal, each block is a part, that
    follows from the blocks before it (Block Diffusion, arXiv 2503.09573). With shifted
    logits the first position of a block is a part of its own: it follows from the last row of the
    block before (Fast-dLLM v2, arXiv 2509.26328).
    """
    if not info.block_causal:
        return [(start, stop)]
    parts = []
    for block in BlockGrid.of(start, stop - start, info.block_size, True):
        low, high = max(block.start, start), min(block.stop, stop)
        if info.logit_shift and low == block.start:
            parts.append((low, low + 1))
            low += 1
        if low < high:
            parts.append((low, high))
    return parts


def likelihood_gflops(info: ModelInfo, start: int, stop: int) -> float:
    """GFLOPs of a sample of `log_likelihood` for the positions `start` to `stop`."""
    return sum(forward_gflops(info, high, high - low) for low, high in factors(info, start, stop))


def forward_gflops(info: ModelInfo, length: int, answer: int) -> float:
    """GFLOPs of `continuation_logits` of one text of `length` tokens, `answer` of them asked."""
    counter = FlopCounter(info)
    for layer in range(info.layers):
        counter.project(layer, "qkv", length)
        counter.attend(layer, length, length)
        counter.feed_forward(layer, length)
    counter.head(answer)
    return float(counter.flops.sum()) / 1e9


def seed_of(seed: int, context: list[int], target: list[int]) -> int:
    """A seed of one request, which depends neither on the order nor on the process."""
    data = repr((seed, context, target)).encode()
    return int.from_bytes(hashlib.sha256(data).digest()[:7], "big")


def mask_patterns(length: int, samples: int, generator: torch.Generator) -> Tensor:
    """Random masks, [samples, length] bool.

    The number of masked positions is uniform over 1 to `length`, stratified over the samples.
    """
    offset = torch.rand((), generator=generator, dtype=torch.float64)
    places = (torch.arange(samples, dtype=torch.float64) + offset) / samples
    counts = (places * length).long().clamp_(max=length - 1) + 1
    order = torch.rand((samples, length), generator=generator).argsort(1).argsort(1)
    return order < counts[:, None]


@torch.inference_mode()
def log_likelihood(
    adapter: ModelAdapter,
    context: list[int],
    target: list[int],
    samples: int,
    batch: int = 32,
    seed: int = 0,
) -> float:
    """Estimate of the lower bound of log p(target | context) of LLaDA (Nie et al. 2025).

    A sample masks l of the L target tokens and weighs the sum of their log-probabilities by L / l.
    With block-causal attention that is done for each of the `factors`, and the sum is returned. An
    empty target has log-likelihood 0.
    """
    if not target:
        return 0.0
    generator = torch.Generator().manual_seed(seed_of(seed, context, target))
    text, total = torch.tensor(context + target), 0.0
    for start, stop in factors(adapter.info, len(context), len(text)):
        goal = text[start:stop]
        for masked in mask_patterns(len(goal), samples, generator).split(batch):
            answer = goal.expand(len(masked), -1).masked_fill(masked, adapter.info.mask_id)
            canvas = torch.cat([text[:start].expand(len(masked), -1), answer], 1)
            logits = continuation_logits(adapter, canvas, start).double().log_softmax(-1).cpu()
            found = logits.gather(-1, goal.expand(len(masked), -1)[..., None])[..., 0]
            weights = len(goal) / masked.sum(1)
            total += float(((found * masked).sum(1) * weights).sum())
    return total / samples


def greedy_check(
    model: LoadedModel, spec: RunSpec, context: list[int], target: list[int]
) -> tuple[bool, int, float]:
    """Whether plain decoding gives exactly the target, its forwards and GFLOPs (Nie et al. 2025).

    It decodes one token a step, the most confident one first, in one block of the target's length,
    or in the blocks of a model with block-causal attention. Raises ValueError naming `greedy` if
    the target is longer than a run.
    """
    info, block = model.adapter.info, len(target)
    if info.block_causal:
        block = spec.block_length
    length = -(-len(target) // block) * block
    if length > MAX_LENGTH:
        raise ValueError(
            f"greedy: a continuation of {len(target)} tokens is longer than the {MAX_LENGTH} of a "
            "run; leave greedy out"
        )
    plain = RunSpec(
        model=spec.model, gen_length=length, block_length=block, steps=length, chat=False,
        dtype=spec.dtype, device=spec.device, seed=spec.seed,
    )  # fmt: skip
    state = Denoiser(make_job(model, plain, [context]))
    forwards, flops = 0, 0
    for event in denoise(state):
        forwards, flops = forwards + event.forwards, flops + int(event.flops.sum())
    found: list[int] = state.ids[0, state.run.prompt_length :].tolist()
    return found[: len(target)] == target, forwards, flops / 1e9

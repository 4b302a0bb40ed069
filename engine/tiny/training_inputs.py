"""Training inputs: what the network reads in a step, and the tokens that it has to predict.

There are three kinds. `causal`: next-token prediction on worked answers. `copies`: a clean answer
read from left to right, and noisy copies of it divided into blocks; a block attends to the clean
text before it and to itself, so that one forward supervises every block of every copy. `canvas`:
a decoding state, prompt and answer region in one bidirectional canvas, clean before a window,
partly masked within it and fully masked after it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.config.answers import fitting_length
from engine.tiny.network import NO_COPIES, Copies
from engine.tiny.tokenizer import EOS, MASK

SIZES = (1, 2, 4, 8, 16, 32)
CONTEXT = 1024  # positions of the network
_CLEAN_BLOCK, _NO_KEY = -1, 1 << 20  # block number of clean rows; position of hidden keys


@dataclass(frozen=True)
class Recipe:
    """How the states of a phase are drawn."""

    kind: str = "causal"  # causal | masked
    copies: float = 0.0  # masked: share of `copies` batches; the others are `canvas`
    families: tuple[tuple[str, float], ...] = ()  # names of families and their weights
    sizes: tuple[float, float] = (1.0, 1.0)  # range of the sizes of problems
    few_shot: float = 0.0  # share of samples with worked examples in the prompt
    turns: int = 5  # most problems in such a sample
    extra: tuple[int, ...] = (0,)  # canvas: positions after the longest answer, rounded up to 16
    tokens: int = 4000  # about how many canvas tokens a batch has
    uniform: float = 0.2  # canvas: share of states with masks over the whole region
    sums: float = 0.0  # canvas: share of states in which a result is the next token
    number_weight: float = 2.0
    shift: int = 0  # masked: distance of a position from the row that predicts it (Dream: 1)
    block: int = 0  # masked: block size of a block-causal network, all of whose states are copies


@dataclass(frozen=True)
class Sample:
    """An encoded prompt with its answers.

    `spans` are the ranges [start, end) of the worked answers in `ids`, in order, and `sums` the
    indices of the results in the answers.
    """

    ids: list[int]
    spans: list[tuple[int, int]]
    sums: list[int]


@dataclass(frozen=True)
class Batch:
    """Input of one step: canvas [B, T], rows of the flat canvas, their targets and weights."""

    ids: Tensor
    positions: Tensor
    mask: Tensor | None
    rows: Tensor
    targets: Tensor
    weights: Tensor
    copies: Copies = NO_COPIES

    def to(self, device: str) -> Batch:
        """The batch on another device."""
        moved = {k: v.to(device) for k, v in vars(self).items() if isinstance(v, Tensor)}
        return Batch(**vars(self) | moved)


def causal(group: list[Sample], recipe: Recipe, generator: torch.Generator) -> Batch:
    """Next-token batches: every answer token of every turn is a target."""
    length = max(len(s.ids) for s in group)
    ids = _padded([s.ids for s in group], length)
    wanted = torch.zeros(len(group), length, dtype=torch.bool)
    for i, sample in enumerate(group):
        for start, end in sample.spans:
            wanted[i, start:end] = True
    rows = wanted.flatten().nonzero()[:, 0]
    targets = ids.flatten()[rows]
    return Batch(ids, torch.arange(length), None, rows - 1, targets, torch.ones(len(rows)))


def copies(
    group: list[Sample], recipe: Recipe, generator: torch.Generator, count: int = 3
) -> Batch:
    """A clean text and `count` noisy copies of its end, in one canvas.

    The end begins with the last answer or an earlier one; only answers are masked. With a shift
    of 1 the clean row before a block predicts the block's first token. With `recipe.block` blocks
    lie on a grid from position 0, and clean rows see their block and those before it, as in block
    diffusion (arXiv 2503.09573): the states of a block-causal network. Its first token of a block
    follows from the clean row before and is always visible if the shift is 1 (arXiv 2509.26328).
    """
    batch, size = len(group), recipe.block
    begin, prompt = _copied_from(group, size, generator)
    end = torch.tensor([s.spans[-1][1] for s in group])
    end += torch.randint(1, 9, (batch,), generator=generator)
    end = -(-end // size) * size if size else end
    most, width = int(end.max()), int((end - begin).max())
    clean = _padded([s.ids[: s.spans[-1][1]] for s in group], most)
    position = torch.arange(most).expand(batch, most)
    inside = position < end[:, None]
    asked = _answers(group, prompt, most)
    # Clean rows attend to keys before `limit`, noisy rows to clean keys before their block.
    limit = (position // size + 1) * size if size else torch.maximum(position + 1, prompt[:, None])
    parts = [(clean, position, limit, torch.full_like(position, _CLEAN_BLOCK), inside)]
    offset = torch.arange(width).expand(batch, width)
    where = begin[:, None] + offset
    real = where < end[:, None]
    text, wanted = (x.gather(1, where.clamp(max=most - 1)) for x in (clean, asked))
    masks, loss_weights = [], [torch.zeros(clean.shape)]
    sources = [position]  # the row of the canvas that predicts each position
    for copy in range(count):
        block, start = _copy_blocks(where, begin, size, generator)
        masked = _random_mask(block, generator) & real & wanted
        first = where == start
        if size and recipe.shift:
            masked |= first & real & wanted
        masks.append(masked)
        loss_weights.append(_loss_weights(masked, block))
        shown = masked & ~first if size and recipe.shift else masked
        parts.append((torch.where(shown, MASK, text), where, start, block + CONTEXT * copy, real))
        own = most + copy * width + offset
        sources.append(torch.where(first, where - 1, own - 1) if recipe.shift else own)
    ids, position, limit, block, real = (torch.cat(p, dim=1) for p in zip(*parts, strict=True))
    mask = _copy_attention(position, limit, block, real)
    chosen = torch.cat([torch.zeros_like(inside), *masks], dim=1).flatten().nonzero()[:, 0]
    targets = torch.cat([clean, *[text] * count], dim=1).flatten()[chosen]
    weights = torch.cat(loss_weights, dim=1).flatten()[chosen]
    rows = torch.cat(sources, dim=1).flatten()[chosen] + chosen // ids.shape[1] * ids.shape[1]
    position = position.clamp(max=CONTEXT - 1)
    return Batch(ids, position, mask, rows, targets, weights, Copies(count, width))


def _copied_from(
    group: list[Sample], size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """The first copied position of each text and the start of its first copied answer, [B] each."""
    draw = torch.rand(len(group), generator=generator).tolist()
    prompt = torch.tensor(
        [s.spans[int(x * len(s.spans))][0] for s, x in zip(group, draw, strict=True)]
    )
    return prompt // size * size if size else prompt, prompt


def _answers(group: list[Sample], prompt: Tensor, width: int) -> Tensor:
    """The positions [B, width] bool of the answers from `prompt` [B] on, and all after the last."""
    asked = torch.zeros(len(group), width, dtype=torch.bool)
    for i, sample in enumerate(group):
        for start, end in sample.spans:
            if start >= int(prompt[i]):
                asked[i, start:end] = True
        asked[i, sample.spans[-1][1] :] = True
    return asked


def _copy_blocks(
    where: Tensor, begin: Tensor, size: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Block numbers and first positions of blocks, [B, W] each, for positions `where` [B, W].

    `size` is that of all blocks of a grid from position 0; with 0 each text draws a size and,
    half of the time, a shorter first block.
    """
    batch, offset = len(where), where - begin[:, None]
    if size:
        return offset // size, where // size * size
    sizes = torch.tensor(SIZES)[torch.randint(len(SIZES), (batch, 1), generator=generator)]
    shift = (torch.rand(batch, 1, generator=generator) * sizes).long()
    shift = torch.where(torch.rand(batch, 1, generator=generator) < 0.5, 0, shift)
    block = (offset + shift) // sizes
    return block, begin[:, None] + (block * sizes - shift).clamp(min=0)


def _copy_attention(position: Tensor, limit: Tensor, block: Tensor, real: Tensor) -> Tensor:
    """Which row of the canvas sees which key, [B, T, T] bool.

    A row sees clean keys at positions below its `limit`, and its own noisy block.
    """
    is_clean = block == _CLEAN_BLOCK
    key = torch.where(is_clean & real, position, _NO_KEY)
    mask = key[:, None, :] < limit[:, :, None]
    mask |= (block[:, :, None] == block[:, None, :]) & (~is_clean & real)[:, None, :]
    return mask | torch.eye(position.shape[1], dtype=torch.bool)


def canvas(group: list[Sample], recipe: Recipe, generator: torch.Generator) -> Batch:
    """Decoding states: clean before a window, partly masked within it, fully masked after it."""
    batch = len(group)
    pick = int(torch.randint(len(recipe.extra), (1,), generator=generator))
    prompt = torch.tensor([s.spans[-1][0] for s in group])
    answer = torch.tensor([s.spans[-1][1] for s in group]) - prompt
    region = fitting_length(int(answer.max()), 16) + recipe.extra[pick]
    most = min(int(prompt.max()) + region, CONTEXT)
    ids = _padded([s.ids[: s.spans[-1][1]] for s in group], most)
    offset = torch.arange(most) - prompt[:, None]
    inside = offset >= 0  # regions of shorter prompts are a little longer
    draw = torch.rand(batch, 4, generator=generator)
    size = torch.tensor(SIZES[2:])[(draw[:, 0] * 4).long()]
    size = torch.where(draw[:, 1] < 0.6, 32, size)
    # A window starts within the answer or just after it; blocks of 32 are aligned.
    first = (draw[:, 2] * (answer + 4)).long().clamp(max=region - 1)
    first = torch.where(draw[:, 1] < 0.6, first // 32 * 32, first)
    whole = draw[:, 3] < recipe.uniform
    first, size = torch.where(whole, 0, first), torch.where(whole, region, size)
    window = (offset >= first[:, None]) & (offset < (first + size)[:, None]) & inside
    masked = _random_mask(window.long(), generator) & window
    # In some states the result of a calculation and all its repetitions are masked.
    result = _random_results(group, [len(s.spans) - 1 for s in group], generator)
    before_result = (torch.rand(batch, generator=generator) < recipe.sums) & (result >= 0)
    result = result.clamp(min=0)
    aligned = (result - prompt) // 32 * 32 + 32
    same = ids == ids.gather(1, result[:, None])
    scattered = torch.rand(batch, most, generator=generator) < torch.rand(
        batch, 1, generator=generator
    )
    rest = (offset >= (result - prompt)[:, None]) & (offset < aligned[:, None]) & inside
    masked = torch.where(before_result[:, None], rest & (scattered | same), masked)
    answers, masked_examples = _examples(group, most, recipe, generator)
    masked |= masked_examples
    first, size = (
        torch.where(before_result, aligned - 32, first),
        torch.where(before_result, 32, size),
    )
    after = inside & (offset >= (first + size)[:, None])
    shown = torch.where(masked | after, MASK, ids)
    rows = masked.flatten().nonzero()[:, 0]
    targets = ids.flatten()[rows]
    weights = _loss_weights(masked, answers).flatten()[rows]
    return Batch(shown, torch.arange(most), None, rows - recipe.shift, targets, weights)


def _padded(texts: list[list[int]], width: int) -> Tensor:
    """Token ids as [B, width], padded with EOS."""
    return torch.tensor([ids + [EOS] * (width - len(ids)) for ids in texts])


def _examples(
    group: list[Sample], width: int, recipe: Recipe, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Number the answers in canvases [B, width] from 1, and mask parts of those in the prompts.

    One forward thus trains several answers of a canvas, each in a state of its own. Returns the
    numbers and the mask, both [B, width].
    """
    most = max(len(s.spans) for s in group)
    number = torch.zeros(len(group), width, dtype=torch.long)
    masked = torch.zeros(len(group), width, dtype=torch.bool)
    for k in range(most):
        result = _random_results(group, [min(k, len(s.spans) - 1) for s in group], generator)
        before_result = torch.rand(len(group), generator=generator) < recipe.sums
        for i, sample in enumerate(group):
            if k >= len(sample.spans):
                continue
            start, end = sample.spans[k]
            last = k == len(sample.spans) - 1
            number[i, start : width if last else end] = k + 1
            if before_result[i] and result[i] >= 0 and not last:
                masked[i, int(result[i]) : end] = True
    spans = torch.tensor([len(s.spans) for s in group])
    share = torch.rand(len(group), most + 1, generator=generator).gather(1, number)
    example = (share < 0.75) & (number > 0) & (number < spans[:, None])
    scattered = _random_mask(number, generator) & example
    chosen = torch.zeros(len(group), most + 1, dtype=torch.bool)
    chosen = chosen.scatter_reduce(1, number, masked, "amax").gather(1, number)
    return number, torch.where(chosen, masked, scattered)


def _random_results(group: list[Sample], spans: list[int], generator: torch.Generator) -> Tensor:
    """The index of a random result in answer `spans[i]` of each sample; -1 if it has none."""
    draw = torch.rand(len(group), generator=generator).tolist()
    found = [
        [place for place in sample.sums if sample.spans[k][0] <= place < sample.spans[k][1]]
        for sample, k in zip(group, spans, strict=True)
    ]
    return torch.tensor(
        [own[int(x * len(own))] if own else -1 for own, x in zip(found, draw, strict=True)]
    )


def _random_mask(block: Tensor, generator: torch.Generator) -> Tensor:
    """Mask a random share of each block of `block` [B, W], the block numbers.

    The positions with the lowest scores in a block stay visible. A score is random, in most rows
    plus a term that grows with the position, so that answers written from the left are as common
    as scattered ones.
    """
    batch, width = block.shape
    share = torch.rand(batch, int(block.max()) + 1, generator=generator)
    lean = 3 * torch.rand(batch, 1, generator=generator)
    lean = lean * (torch.rand(batch, 1, generator=generator) < 0.6)
    place = torch.arange(width, dtype=torch.float).expand(batch, width)
    low = torch.full_like(share, 1e9).scatter_reduce(1, block, place, "amin")
    high = torch.full_like(share, -1e9).scatter_reduce(1, block, place, "amax")
    span = (high - low + 1).gather(1, block)
    score = torch.rand(batch, width, generator=generator)
    score = score + lean * (place - low.gather(1, block)) / span
    # Rank inside the block, by sorting on (block, score).
    order = (block * 10.0 + score).argsort(dim=1)
    rank = torch.empty_like(order).scatter_(1, order, torch.arange(width).expand(batch, width))
    begin = torch.full_like(share, 1e9).scatter_reduce(1, block, rank.float(), "amin")
    rank = rank - begin.gather(1, block)
    return (rank + 1) / span > 1 - share.gather(1, block).clamp(min=1e-4)


def _loss_weights(hidden: Tensor, block: Tensor) -> Tensor:
    """Weight of each masked position [B, W]: 1 / (1 + masked positions before it in its block).

    Far from known text many words are possible, and the loss would be mostly noise.
    """
    counted = hidden.float().cumsum(1)
    before = counted - hidden.float()
    base = torch.full((block.shape[0], int(block.max()) + 1), 1e9)
    base = base.scatter_reduce(1, block, before, "amin")
    return 1.0 / (1.0 + before - base.gather(1, block))

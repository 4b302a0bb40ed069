"""Training batches use every sample that is drawn, and are masked as decoding does."""

import random
from dataclasses import replace
from functools import partial
from itertools import islice

import pytest
import torch

from engine.tiny import tokenizer
from engine.tiny.batches import BatchStream
from engine.tiny.tokenizer import MASK
from engine.tiny.training_inputs import Recipe

CHUNK = 12
SHORT = (("short_problems", 1.0),)
FewConversations = partial(BatchStream, chunk=40)


def stream(tokens):
    """A stream of prompts with one answer and with many."""
    families = (("short_problems", 1.0), ("lookup", 1.0))
    recipe = Recipe(kind="masked", families=families, tokens=tokens)
    return BatchStream(tokenizer.build("llada"), recipe, "llada", 3, chunk=CHUNK)


@pytest.mark.parametrize("tokens", [1, 600, 10**8])
def test_every_sample_of_a_chunk_is_in_a_batch(tokens):
    groups = stream(tokens)._groups(random.Random(1))
    assert sum(len(group) for _, group in groups) == CHUNK
    assert all(group for _, group in groups)


def test_batches_larger_than_a_chunk_come_to_an_end():
    sizes = [len(batch.ids) for batch in islice(stream(10**8).batches(), 4)]
    assert sum(sizes) == 2 * CHUNK


def test_the_targets_of_masked_states_are_masked():
    recipe = Recipe(kind="masked", families=SHORT, tokens=600)
    built = tokenizer.build("llada")
    for seed in range(3):
        source = FewConversations(built, replace(recipe, copies=0.0), "llada", seed)
        batch = next(iter(source.batches()))
        assert (batch.ids.flatten()[batch.rows] == tokenizer.MASK).all()
        assert (batch.targets != tokenizer.MASK).all()


def test_batches_drawn_by_another_process_are_the_same():
    recipe = Recipe(kind="masked", families=SHORT, tokens=300, copies=0.5)
    stream = FewConversations(tokenizer.build("llada"), recipe, "llada", 3)
    pairs = zip(stream.batches(2), stream.batches_ahead(2), strict=False)
    for one, other in islice(pairs, 5):
        assert one.copies == other.copies
        assert all(
            torch.equal(value, getattr(other, name))
            for name, value in vars(one).items()
            if isinstance(value, torch.Tensor)
        )


def test_a_shifted_state_is_predicted_by_the_row_before():
    recipe = Recipe(kind="masked", families=SHORT, tokens=300)
    built = tokenizer.build("qwen2")
    one, other = (
        next(FewConversations(built, replace(recipe, shift=shift), "qwen2", 3).batches())
        for shift in (0, 1)
    )
    assert (one.rows - other.rows == 1).all()
    assert (one.targets == other.targets).all()
    assert (one.ids == other.ids).all()


@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("shift", [0, 1])
def test_block_states_see_no_text_that_they_predict(shift, block):
    recipe = Recipe(
        kind="masked", families=(("balance", 1.0),), tokens=2000, copies=1.0, shift=shift,
        block=block,
    )  # fmt: skip
    batch = next(FewConversations(tokenizer.build("qwen2"), recipe, "qwen2", 3).batches())
    width = batch.ids.shape[1]
    position = batch.positions.expand(batch.ids.shape)
    texts = [
        {int(p): int(t) for p, t in zip(position[i], batch.ids[i], strict=True) if t != MASK}
        for i in range(len(batch.ids))
    ]
    first_rows = 0
    for row, target in zip(batch.rows.tolist(), batch.targets.tolist(), strict=True):
        i, own = divmod(row, width)
        place = int(position[i, own]) + shift
        assert texts[i].get(place, target) == target
        seen = batch.mask[i, own] & (position[i] == place)
        assert (batch.ids[i][seen] == MASK).all()
        first_rows += int(batch.ids[i, own] != MASK and not seen.any())
    assert (first_rows > 0) == bool(shift)


@pytest.mark.parametrize("few_shot", [0.0, 1.0])
def test_states_of_a_block_causal_network_are_those_of_block_diffusion(few_shot):
    size = 16
    recipe = Recipe(
        kind="masked", families=(("balance", 1.0),), tokens=2000, shift=1, block=size,
        few_shot=few_shot,
    )  # fmt: skip
    batch = next(BatchStream(tokenizer.build("qwen2"), recipe, "qwen2", 3).batches())
    position = batch.positions.expand(batch.ids.shape)
    most = int((position[0].diff() < 0).nonzero()[0]) + 1  # clean rows stand before the copies
    number = position // size
    clean = batch.mask[:, :most, :most]
    allowed = number[:, None, :most] <= number[:, :most, None]
    ends = allowed & (clean.any(1) | (number[:, :most] == 0))[:, None, :]  # without padding
    assert (clean == (ends | torch.eye(most, dtype=torch.bool))).all()
    noisy = batch.mask[:, most:, :most]
    same_or_later = number[:, None, :most] >= number[:, most:, None]
    assert not (noisy & same_or_later).any()
    firsts = position[:, most:] % size == 0
    assert (batch.ids[:, most:][firsts] != MASK).all()
    assert (batch.ids[:, most:] == MASK).any(1).all()

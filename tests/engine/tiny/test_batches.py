"""The stream of training batches uses every sample that it draws."""

import random
from itertools import islice

import pytest

from engine.tiny import tokenizer
from engine.tiny.batches import BatchStream
from engine.tiny.training_inputs import Recipe

CHUNK = 12


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

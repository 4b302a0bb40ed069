"""The training network: attention of canvases with noisy copies, and of seeded heads."""

import pytest
import torch

from engine.tiny import tokenizer
from engine.tiny.batches import BatchStream
from engine.tiny.network import DISTANCES, NO_COPIES, Copies, Network, NetworkShape
from engine.tiny.training_inputs import Recipe
from engine.tiny.training_state import new_network

SMALL = NetworkShape(width=16, layers=2, heads=2, hidden=24)


def gradients(model, batch, copies):
    model.zero_grad()
    canvas = (batch.ids, batch.positions, batch.rows, batch.mask)
    logits = model(*canvas, False, torch.float64, copies)
    torch.nn.functional.cross_entropy(logits, batch.targets).backward()
    return [logits.detach(), *(p.grad.clone() for p in model.parameters())]


@pytest.mark.parametrize("block", [0, 16])
def test_scores_left_out_of_canvases_with_copies_are_those_that_the_mask_hides(block):
    recipe = Recipe(
        kind="masked", families=(("balance", 1.0),), tokens=800, copies=1.0, shift=1, block=block
    )
    batch = next(BatchStream(tokenizer.build("qwen2"), recipe, "qwen2", 3).batches())
    torch.manual_seed(0)
    model = Network(SMALL).double()
    assert batch.copies.number == 3
    full, split = gradients(model, batch, NO_COPIES), gradients(model, batch, batch.copies)
    for one, other in zip(full, split, strict=True):
        assert one.abs().max() > 1e-3
        torch.testing.assert_close(one, other, atol=1e-12, rtol=1e-9)
    pieces = Copies(3 * batch.copies.width // 5, 5)  # cut blocks
    wrong = gradients(model, batch, pieces)
    assert not torch.allclose(full[0], wrong[0])


def first_choices(model, block, ids):
    """The distance [H, T] from each position to the one that each head of a block attends to most.

    The input is that of the first layer, whatever the block.
    """
    x = torch.nn.functional.rms_norm(model.embed[ids], (model.shape.width,))
    heads = model.shape.heads, model.shape.width // model.shape.heads
    q, k = ((x @ weights.T).view(len(ids), *heads) for weights in (block.q, block.k))
    turned = []
    for t in (q, k):
        a, b = t.chunk(2, dim=-1)
        places = model.cos[: len(ids), None], model.sin[: len(ids), None]
        turned.append(t * places[0] + torch.cat((-b, a), dim=-1) * places[1])
    found = torch.einsum("ihd,jhd->hij", *turned).argmax(-1)
    return found - torch.arange(len(ids))


@pytest.mark.parametrize("layer", range(len(DISTANCES)))
def test_seeded_heads_attend_to_their_distance_whatever_the_tokens(layer):
    model = new_network(1)
    ids = torch.randint(model.shape.vocab, (200,), generator=torch.Generator().manual_seed(2))
    found = first_choices(model, model.blocks[layer], ids)[:, 10:-10]
    for head, distance in enumerate(DISTANCES[layer]):
        assert (found[head] == distance).float().mean() > 0.95
    assert (found[len(DISTANCES[layer])] == -1).float().mean() < 0.1

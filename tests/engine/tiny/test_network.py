"""The training network: attention of canvases with noisy copies."""

import pytest
import torch

from engine.tiny import tokenizer
from engine.tiny.batches import BatchStream
from engine.tiny.network import NO_COPIES, Copies, Network, NetworkShape
from engine.tiny.states import Recipe

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

"""The optimizers of training: Muon in float32, and what each of them trains."""

import pytest
import torch

from engine.tiny.train import Float32Muon, optimizers
from engine.tiny.training_state import new_network


@pytest.mark.parametrize("shape", [(32, 8), (8, 32), (16, 16)])
def test_muon_takes_the_steps_of_torch_but_in_float32(shape):
    start = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    grads = torch.randn(4, 3, *shape, generator=torch.Generator().manual_seed(2))
    ends = []
    for kind in (torch.optim.Muon, Float32Muon):
        matrices = [torch.nn.Parameter(one.clone()) for one in start]
        optimizer = kind(matrices, lr=0.1, weight_decay=0.0)
        for step in grads:
            for one, grad in zip(matrices, step, strict=True):
                one.grad = grad.clone()
            optimizer.step()
        ends.append(torch.stack(matrices).detach())
    moved = (ends[0] - start).norm()
    assert (ends[1] - ends[0]).norm() < 0.02 * moved
    assert (start - 0.1 * grads.sum(0) - ends[0]).norm() > 0.5 * moved  # not gradient descent


def test_muon_trains_the_matrices_of_the_mlps_alone():
    model = new_network(1)
    muon, adam = optimizers(model, 1e-3, 1e-2)
    sizes = [
        sum(p.numel() for group in o.param_groups for p in group["params"]) for o in (muon, adam)
    ]
    shape = model.shape
    assert sizes[0] == 3 * shape.layers * shape.width * shape.hidden
    assert sum(sizes) == sum(p.numel() for p in model.parameters())

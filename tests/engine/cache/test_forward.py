"""The engine's forward against another route to the same arithmetic."""

import pytest
import torch

from engine.cache.base import StepPlan
from engine.cache.forward import forward
from engine.cache.methods.none import NoCache
from engine.cache.store import ActivationStore
from engine.core.rows import ALL
from engine.generate.job import Job
from engine.generate.loop import Denoiser
from tests.support.micro import ATOL, FAMILIES, MASK, make_model, make_spec, model_of, tapped
from tests.support.reference import reference_logits


def full(model, canvas, pad_mask=None):
    store = ActivationStore(model.info, (), *canvas.shape, model.dtype, model.device)
    return forward(model, store, NoCache(), StepPlan(), canvas, pad_mask, ALL)


def canvas_of(seed, batch=2, length=17):
    return torch.randint(0, 40, (batch, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("family", FAMILIES)
def test_full_forward_equals_the_reference(model):
    canvas = canvas_of(1)
    torch.testing.assert_close(
        full(model, canvas), reference_logits(model, canvas), atol=ATOL, rtol=0
    )


def test_padded_positions_are_not_attended_to(model):
    canvas = canvas_of(2)
    pad = torch.ones(canvas.shape, dtype=torch.bool)
    pad[1, :5] = False
    seen = full(model, canvas, pad)
    torch.testing.assert_close(seen, reference_logits(model, canvas, pad), atol=ATOL, rtol=0)
    assert (seen[1, 5:] - full(model, canvas)[1, 5:]).abs().max() > 1e-3


def test_left_padding_changes_no_logits(model):
    canvas = canvas_of(3, batch=1)
    padded = torch.cat((torch.zeros(1, 4, dtype=torch.long), canvas), 1)
    pad = (torch.arange(21) >= 4)[None]
    torch.testing.assert_close(
        full(model, padded, pad)[:, 4:], full(model, canvas), atol=ATOL, rtol=0
    )
    assert (full(model, padded)[:, 4:] - full(model, canvas)).abs().max() > 1e-3


def test_attention_is_not_causal(model):
    canvas = canvas_of(4, batch=1)
    other = canvas.clone()
    other[0, -1] = (other[0, -1] + 1) % 40
    assert (full(model, canvas)[0, 0] - full(model, other)[0, 0]).abs().max() > 1e-6


@pytest.mark.parametrize("family", ["gqa", "shifted-gqa"])
def test_needed_logits_are_the_reference_rows_shifted_once(family):
    model = model_of(family)
    _, steps = tapped(model, make_spec())
    view, _, logits, canvas = steps[0]
    raw = reference_logits(model, canvas)[0, view.needs[0] - model.info.logit_shift]
    torch.testing.assert_close(logits[0, :, :MASK], raw[:, :MASK], atol=ATOL, rtol=0)
    wrong = reference_logits(model, canvas)[0, view.needs[0] + model.info.logit_shift - 1]
    assert (logits[0, :, :MASK] - wrong[:, :MASK]).abs().max() > 1e-3


def test_shifted_model_refuses_an_empty_prompt():
    model, spec = make_model(shift=1), make_spec()
    job = Job(model, spec, torch.full((1, 16), MASK), 0, NoCache, None)
    with pytest.raises(ValueError, match="prompt"):
        Denoiser(job)

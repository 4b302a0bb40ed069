"""What a recorder notes of a layer: copies, which keep nothing else in memory."""

import torch

from engine.record.layer_hooks import LayerHooks
from engine.record.notes import ForwardNotes
from tests.support.micro import model_of


def test_notes_keep_nothing_but_what_is_noted():
    model, notes = model_of("mha"), ForwardNotes()
    hooks = LayerHooks(model, notes)
    rows = torch.randn(1, 5, model.info.d_model, dtype=model.dtype)
    out = hooks.project(0, "qkv", rows, slice(0, 5), 9)
    assert {name for name, _ in notes.outputs} == {"q0", "k", "v"}
    for name, values in zip("qkv", out, strict=True):
        noted = notes.outputs["q0" if name == "q" else name, 0]
        assert torch.equal(noted, values[:, :, 0] if name == "q" else values)
        assert noted.untyped_storage().nbytes() == noted.nbytes < values.untyped_storage().nbytes()

"""Tape: a replay repeats the operations on the current contents of its inputs."""

import gc
import weakref

import pytest
import torch

from engine.generate.capture import tape as tape_module
from engine.generate.capture.tape import Tape


@pytest.fixture(autouse=True)
def inference():
    with torch.inference_mode():
        yield


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def taped(call):
    """The result of `call` on a tape, and a function that replays it."""
    tape = Tape()
    with tape:
        out = call()
    assert tape.failure == ""
    replay = tape.make_replay([out])
    return out, lambda: replay()[0]


def views(x, kept):
    part = x[:, 2:6].transpose(0, 1)
    return (part * 2).add_(kept.view(-1)[:3]).mT.contiguous()


def several(x, kept):
    left, right = x.split([3, 5], 1)
    values, places = right.topk(2, 1)
    return torch.cat((left, values, places.float()), 1) + kept.sum()


def in_place(x, kept):
    y = x.clone()
    y[:, :3].mul_(kept[:, :3])
    y.narrow(1, 3, 2).copy_(kept[:, 3:5])
    return torch.div(y, kept.abs().amax(), out=y)


def by_name(x, kept):
    y = torch.zeros(3, 8, dtype=torch.float64) + torch.arange(8, dtype=torch.float64)
    return (y + torch.sum(x * kept, dim=1, keepdim=True, dtype=torch.float64)).to(torch.float64)


def formats(x, kept):
    wide = torch.promote_types(x.dtype, torch.float64)
    return x.to(wide).to(wide) * kept


def attended(x, kept):
    q = x.view(1, 1, 3, 8)
    mask = (kept[:1] > -9).view(1, 1, 1, 8)[..., :3]
    return torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=mask, scale=0.5)


@pytest.mark.parametrize("call", [views, several, in_place, by_name, formats, attended])
def test_a_replay_uses_the_current_values_of_its_inputs(call):
    x, kept = drawn(3, 8), drawn(3, 8).roll(1, 1)
    first, replay = taped(lambda: call(x, kept))
    before = first.clone()
    assert torch.equal(replay(), before)
    x.mul_(1.5)
    kept[:, 0] += 1
    wanted = call(x, kept)
    assert not torch.equal(wanted, before)
    for _ in range(2):
        assert torch.equal(replay(), wanted)
    assert torch.equal(first, before)


@pytest.mark.parametrize(
    ("operation", "function"),
    [
        (torch.ops.aten.mul.Tensor, torch.mul),
        (torch.ops.aten.mul_.Tensor, torch.Tensor.mul_),
        (torch.ops.aten.linear.default, torch.nn.functional.linear),
        (torch.ops.aten.linalg_vector_norm.default, torch.linalg.vector_norm),
        (torch.ops.aten.slice.Tensor, torch.ops.aten.slice.Tensor.op),
    ],
)
def test_an_operation_is_repeated_by_a_function_of_torch_if_there_is_one(operation, function):
    assert tape_module._torch_function(operation) is function


def test_an_operation_is_repeated_itself_if_the_function_has_other_parameters(monkeypatch):
    def function(*args, **kwargs):
        raise TypeError

    monkeypatch.setattr(tape_module, "_torch_function", lambda operation: function)
    x = drawn(3, 8)
    _, replay = taped(lambda: views(x, x))
    x.mul_(1.5)
    assert torch.equal(replay(), views(x, x))


def test_an_equal_view_is_made_once():
    """Other places are other views; a view of a tensor whose shape was changed in place is new."""
    x, tape = drawn(4, 4), Tape()

    def call():
        y = x * 2
        y[0].add_(1)
        total = y[0] + y[1] + y.view(2, 8)[0, :4]
        y.t_()
        return total + y[0]

    with tape:
        first = call()
    made = [str(function) for function, _, _ in tape._operations].count(str(torch.select))
    assert made == 3 + 1
    replay = tape.make_replay([first])
    assert torch.equal(replay()[0], first)
    x.mul_(3)
    assert torch.equal(replay()[0], call())


def test_tensors_from_outside_are_written_in_place():
    x, kept = drawn(3, 8), torch.zeros(3, 8)
    seen = kept[1:]

    def call():
        seen.copy_(x[1:])
        return kept.index_copy_(0, torch.zeros(1, dtype=torch.int64), x[:1]).sum()

    _, replay = taped(call)
    x.neg_()
    assert torch.equal(replay(), kept.sum())
    assert torch.equal(kept, x)


@pytest.mark.parametrize(
    "read",
    [
        lambda x: float(x.sum()),
        lambda x: bool((x > 0).all()),
        lambda x: x.sum().item(),
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: torch.equal(x, x + 1),
        lambda x: x.masked_select(x > 0),
    ],
)
def test_an_operation_that_depends_on_values_is_reported(read):
    x, tape = drawn(3, 8), Tape()
    with tape:
        read(x)
    assert "depends on the values of a tensor" in tape.failure


def test_intermediate_tensors_are_freed():
    x, made = drawn(3, 8), []

    def call():
        y = x * 2
        for _ in range(5):
            y = y + 1
            made.append(weakref.ref(y))
        assert [one() is None for one in made] == [True] * 4 + [False]
        return y * 3

    _, replay = taped(call)
    replay()
    gc.collect()
    assert {one() for one in made} == {None}


def test_a_reused_id_is_another_tensor():
    """Python soon reuses the id of a freed tensor."""
    x = drawn(3, 8)

    def call():
        total = torch.zeros(3, 8)
        for _ in range(200):
            total = total + torch.tensor(1.0) * x
            freed = x + 1
            del freed
        return total

    first, replay = taped(call)
    assert torch.equal(replay(), first)
    x.mul_(2)
    assert torch.equal(replay(), 2 * first)

"""Out of memory: a state of its own, remedies that work when they are tried, all given back."""

import re
from dataclasses import replace

import pytest
import torch

import engine.serve.lane
from engine.config.spec import RaceSpec, RunSpec
from engine.core.events import RunFinished
from engine.serve.out_of_memory import out_of_memory_message
from engine.serve.session import Session
from tests.engine.serve.test_release import assert_released, held  # noqa: F401
from tests.engine.serve.test_turns import is_free
from tests.support.micro import write_checkpoint

SPEC = RunSpec(
    model="big", prompt="Ann has 3 apples.", gen_length=64, block_length=8, steps=64, cache="dual"
)


@pytest.fixture
def session(tmp_path):
    """Two models, one with at least twice the other's weights."""
    return Session({
        "big": write_checkpoint(tmp_path / "big", layers=12),
        "small": write_checkpoint(tmp_path / "small"),
    })  # fmt: skip


def weight(job):
    """What a run takes, as the device of these tests sees it."""
    numbers = sum(tensor.nbytes for tensor in job.adapter.parameters())
    return numbers * job.canvas.shape[1] ** 2


@pytest.fixture
def narrow(session, monkeypatch):
    """A device that has just less memory than SPEC takes; gives what was refused."""
    refused, made = [], engine.serve.lane.Denoiser
    spec = replace(SPEC, gen_length=8, steps=8)
    most = []

    class Short(made):
        def __init__(self, job):
            if job.spec == SPEC and not most:
                most.append(weight(job))
            if most and weight(job) >= most[0]:
                refused.append(job.spec)
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
            super().__init__(job)

    assert list(session.run(spec))[-1].reason == "done"
    monkeypatch.setattr(engine.serve.lane, "Denoiser", Short)
    return refused


def remedies(message):
    """The changes of a spec that a message offers."""
    found = [{"gen_length": int(n)} for n in re.findall(r"lower gen_length to (\d+)", message)]
    found += [{"dtype": name} for name in re.findall(r"set dtype to (\w+)", message)]
    return found + [{"model": name} for name in re.findall(r"choose (\w+) as the model", message)]


def test_it_is_a_state_with_remedies_that_work(session, narrow):
    end = list(session.run(SPEC))[-1]
    assert (end.reason, narrow) == ("memory", [SPEC])
    assert "has been given back" in end.message
    offered = remedies(end.message)
    assert [*offered[0], *offered[1], *offered[2]] == ["gen_length", "dtype", "model"]
    for change in offered:
        assert list(session.run(replace(SPEC, **change)))[-1].reason == "done"
    assert list(session.run(SPEC))[-1].reason == "memory"  # and it was not luck
    assert is_free(session)


def test_in_the_middle_of_a_race_all_is_given_back(session, held, monkeypatch):  # noqa: F811
    collected, advance, left = [], engine.serve.lane.Lane.advance, iter(range(5))

    def fail(self):
        if next(left, None) is None:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return advance(self)

    monkeypatch.setattr(engine.serve.lane.Lane, "advance", fail)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: collected.append(alive_now(held)))
    monkeypatch.setattr("engine.serve.session.present_devices", lambda: ["cpu"])
    ends = [e for _, e in session.race(RaceSpec(SPEC, SPEC)) if isinstance(e, RunFinished)]
    assert [end.reason for end in ends] == ["memory", "memory"]
    assert collected[-1] == 0
    assert_released(session, held)


def alive_now(refs):
    """How many of them live, without a collection of this test's own."""
    return sum(ref() is not None for ref in refs)


def test_where_nothing_is_left_to_shorten_it_says_so(session):
    spec = replace(SPEC, gen_length=8, steps=8, dtype="bfloat16", model="small")
    said = out_of_memory_message(MemoryError(), [spec], session._models)
    assert "shorten the prompt" in said
    assert remedies(said) == []
    assert "ran out of memory" not in out_of_memory_message(
        RuntimeError("odd"), [spec], session._models
    )


@pytest.mark.parametrize("spec", [SPEC, replace(SPEC, device="cpu", dtype="bfloat16")])
def test_the_memory_before_and_after_loading_is_in_the_environment(session, spec):
    start = next(e for e in session.run(spec) if hasattr(e, "environment"))
    before, after = (start.environment[f"free_{when}_bytes"] for when in ("before", "after"))
    assert min(before, after) > 0

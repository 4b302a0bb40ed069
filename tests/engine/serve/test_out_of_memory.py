"""Out of memory: which errors count, the remedies offered work, and the memory is given back."""

import errno
import re
from dataclasses import replace

import pytest
import torch

import engine.serve.lane
from engine.config.spec import RaceSpec, RunSpec
from engine.core.device import is_out_of_memory
from engine.core.events import RunFinished
from engine.models.loading.hub import Hub
from engine.serve.out_of_memory import out_of_memory_message
from engine.serve.session import Session
from tests.engine.serve.test_pause_and_stop import is_free
from tests.engine.serve.test_release import assert_released, held  # noqa: F401
from tests.support.micro import write_checkpoint

SPEC = RunSpec(
    model="big", prompt="Ann has 3 apples.", gen_length=32, block_length=8, steps=32, cache="dual"
)


@pytest.fixture
def session(tmp_path):
    """Two models, one with at least twice the weights of the other."""
    return Session({
        "big": write_checkpoint(tmp_path / "big", layers=12),
        "small": write_checkpoint(tmp_path / "small"),
    })  # fmt: skip


def weight(job):
    """The memory of a run on the device of these tests."""
    numbers = sum(tensor.nbytes for tensor in job.adapter.parameters())
    return numbers * job.canvas.shape[1] ** 2


@pytest.fixture
def narrow(session, monkeypatch):
    """A device with slightly less memory than SPEC needs; gives the specs that failed."""
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
    """The changes of a spec that a message suggests."""
    found = [{"gen_length": int(n)} for n in re.findall(r"lower gen_length to (\d+)", message)]
    found += [{"dtype": name} for name in re.findall(r"set dtype to (\w+)", message)]
    return found + [{"model": name} for name in re.findall(r"choose (\w+) as the model", message)]


def test_a_run_out_of_memory_ends_with_remedies_that_work(session, narrow):
    end = list(session.run(SPEC))[-1]
    assert (end.reason, narrow) == ("memory", [SPEC])
    assert "memory was freed" in end.message
    offered = remedies(end.message)
    assert [*offered[0], *offered[1], *offered[2]] == ["gen_length", "dtype", "model"]
    for change in offered:
        assert list(session.run(replace(SPEC, **change)))[-1].reason == "done"
    assert list(session.run(SPEC))[-1].reason == "memory"  # the failure is reproducible
    assert is_free(session)


@pytest.mark.parametrize(
    ("error", "reason"), [(RuntimeError("device-side assert"), "failed"), (MemoryError(), "memory")]
)
def test_a_failure_is_reported_also_if_the_device_answers_no_more(
    session, monkeypatch, error, reason
):
    def lost(*args):
        raise RuntimeError("CUDA error: device-side assert triggered")

    def fail(self):
        monkeypatch.setattr("engine.serve.number_format.free_bytes", lost)
        raise error

    monkeypatch.setattr(engine.serve.lane.Lane, "advance", fail)
    end = list(session.run(replace(SPEC, dtype="auto")))[-1]
    assert (end.reason, bool(end.message)) == (reason, True)
    assert is_free(session)


def test_memory_is_given_back_in_the_middle_of_a_race(session, held, monkeypatch):  # noqa: F811
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


@pytest.mark.parametrize("answers", [True, False])
def test_memory_is_given_back_before_another_run_may_compute(session, monkeypatch, answers):
    """While another thread captures a graph, torch frees nothing; a device may not answer."""
    locked = []

    def free():
        locked.append(not is_free(session))
        if not answers:
            raise RuntimeError("CUDA error: device-side assert triggered")

    def fail(self):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(engine.serve.lane.Lane, "advance", fail)
    monkeypatch.setattr("engine.serve.session.free_memory", free)
    assert list(session.run(SPEC))[-1].reason == "memory"
    assert locked == [True]
    assert is_free(session)


def alive_now(refs):
    """How many of the referents are alive, without a garbage collection."""
    return sum(ref() is not None for ref in refs)


def test_the_shortest_run_gets_the_remedy_to_shorten_the_prompt(session):
    spec = replace(SPEC, gen_length=8, steps=8, dtype="bfloat16", model="small")
    said = out_of_memory_message(MemoryError(), [spec], session._models)
    assert "shorten the prompt" in said
    assert remedies(said) == []
    assert "ran out of memory" not in out_of_memory_message(
        RuntimeError("odd"), [spec], session._models
    )


def test_memory_that_runs_out_while_an_unknown_model_is_fetched_is_reported(tmp_path):
    session = Session({}, Hub(tmp_path))
    spec = replace(SPEC, model="owner/unknown")
    said = out_of_memory_message(MemoryError(), [spec], session._models)
    assert said.endswith("memory was freed; choose a smaller model.")


@pytest.mark.parametrize("model", ["big", "owner/unknown"])
def test_a_causal_run_gets_no_remedy_by_a_model_that_does_not_decode_it(tmp_path, model):
    sizes = {"big": 12, "small": 2}
    folders = {n: write_checkpoint(tmp_path / n, layers=size) for n, size in sizes.items()}
    session = Session(folders, Hub(tmp_path))
    spec = replace(SPEC, model=model, unmasker="autoregressive", cache="none")
    said = out_of_memory_message(MemoryError(), [spec], session._models)
    assert remedies(said) == [{"gen_length": 16}, {"dtype": "bfloat16"}]


@pytest.mark.parametrize("spec", [SPEC, replace(SPEC, device="cpu", dtype="bfloat16")])
def test_the_memory_before_and_after_loading_is_in_the_environment(session, spec):
    start = next(e for e in session.run(spec) if hasattr(e, "environment"))
    before, after = (start.environment[f"free_{when}_bytes"] for when in ("before", "after"))
    assert min(before, after) > 0


OUT_OF_MEMORY = [
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    RuntimeError("CUDA error: out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError(
        "[enforce fail at alloc_cpu.cpp:118] err == 0. DefaultCPUAllocator: can't allocate memory: "
        "you tried to allocate 99 bytes. Error code 12 (Cannot allocate memory)"
    ),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 99 bytes."),
]
OTHER_FAILURES = [
    RuntimeError("handle was not allocated"),
    RuntimeError("CUDA error: invalid argument to cudaMallocAsync's allocator"),
    ValueError("prompt: the words 'out of memory' are in it"),
    OSError(errno.ENOENT, "No such file or directory: 'allocations.json'"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY, ids=str)
def test_errors_of_allocators_count_as_out_of_memory(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize("error", OTHER_FAILURES, ids=str)
def test_other_errors_that_mention_allocation_do_not(session, error):
    assert not is_out_of_memory(error)
    assert "ran out of memory" not in out_of_memory_message(error, [SPEC], session._models)


def test_a_real_failure_of_the_cpu_allocator_counts():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)

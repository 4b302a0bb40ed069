import json

import pytest
import torch.distributed as dist

from engine.distributed.processes import Processes
from tests.support.launched import start

SCRIPT = """
import json
import os
from engine.distributed.processes import Processes
with Processes(wait_s=60) as processes:
    own = list(processes.share(5))
    found = processes.gather(own)
    processes.add("done", len(own))
    processes.barrier()
    print(json.dumps([processes.rank, found, processes.add("done", 0)]), flush=True)
    processes.barrier()
    if processes.rank == 1:
        os._exit(3)
    processes.gather(1)
"""


@pytest.fixture(scope="module")
def ended():
    """What two processes print, say and return, of which the second dies after both have printed.

    tests/engine/evaluate/test_shared_exam.py has two that both end well.
    """
    processes = start(2, "-c", SCRIPT)
    return [(*one.communicate(timeout=60), one.returncode) for one in processes]


def test_two_processes_share_everything_once_and_all_have_the_results(ended):
    for rank, (out, err, _) in enumerate(ended):
        assert out, err
        assert json.loads(out) == [rank, [[0, 2, 4], [1, 3]], 5]


def test_a_process_that_dies_ends_the_wait_of_the_others(ended):
    (_, err, code), (_, _, dead) = ended
    assert dead == 3
    assert code == 1
    assert "process 0 of 2 lost another one" in err


def test_one_process_alone_needs_no_launcher():
    with Processes({}) as processes:
        assert processes.is_main
        assert list(processes.share(3)) == [0, 1, 2]
        assert processes.gather("own") == ["own"]
        assert processes.add("done", 2) + processes.add("done", 1) == 5
        assert processes.device("cuda") == "cuda"


@pytest.mark.parametrize("port", ["abc", "0", "99999"])
def test_a_wrong_port_of_the_launcher_is_named(port):
    launched = {"WORLD_SIZE": "2", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with pytest.raises(ValueError, match=r"^MASTER_PORT must be"):
        Processes(launched, wait_s=1)


class OneOfSeveral(Processes):
    """A process as its launcher describes it, without the others."""

    def __init__(self, environment):
        launched = {"WORLD_SIZE": "1", "RANK": "0"} | environment
        super().__init__(launched)
        self.count, self.seen = 4, launched


@pytest.mark.parametrize(("rank", "visible", "own"), [
    (0, None, "0,1,2"), (1, None, "3,4,5"), (1, "9,8,GPU-c,7,6,5", "7,6,5"),
])  # fmt: skip
def test_processes_of_a_machine_divide_its_gpus_for_a_device_map(monkeypatch, rank, visible, own):
    def seen_gpus():
        return len(process.seen.get("CUDA_VISIBLE_DEVICES", "0,1,2,3,4,5").split(","))

    monkeypatch.setattr("torch.cuda.device_count", seen_gpus)
    given = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    process = OneOfSeveral({"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": "2"} | given)
    assert process.device("cpu") == "cpu"
    assert process.device("cuda") == f"cuda:{rank}"
    assert process.seen.get("CUDA_VISIBLE_DEVICES") == visible
    for _ in range(2):
        assert process.device("auto") == "auto"
        assert process.seen["CUDA_VISIBLE_DEVICES"] == own
    assert process.device("cuda") == "cuda", "the first of its own"


def test_a_gpu_is_named_by_its_number_after_the_gpus_are_divided(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    second = OneOfSeveral({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    assert second.devices(["cuda", "auto", "cpu"]) == {"auto": "auto", "cuda": "cuda", "cpu": "cpu"}
    assert second.seen["CUDA_VISIBLE_DEVICES"] == "1"


@pytest.mark.parametrize("kind", ["cuda", "auto"])
def test_a_process_without_a_gpu_of_its_own_is_refused(monkeypatch, kind):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 3)
    last = OneOfSeveral({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"})
    with pytest.raises(ValueError, match="process 3 of this machine has no GPU of its own: there"):
        last.device(kind)


def test_one_gpu_for_several_processes_of_a_machine_is_refused():
    alone = OneOfSeveral({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"})
    assert alone.device("cuda:1") == "cuda:1"
    first = OneOfSeveral({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"})
    with pytest.raises(ValueError, match=r"^device: cuda:1 is one GPU for all 2 processes"):
        first.device("cuda:1")


def test_a_process_alone_on_a_machine_keeps_its_only_gpu(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    process = OneOfSeveral({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"})
    assert process.device("auto") == "auto"
    assert process.seen["CUDA_VISIBLE_DEVICES"] == "0"


def test_a_device_map_without_gpus_is_left_to_each_process(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    process = OneOfSeveral({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"})
    assert process.device("auto") == "auto"
    assert "CUDA_VISIBLE_DEVICES" not in process.seen


@pytest.mark.parametrize(
    ("local", "count"),
    [({}, 1), ({"LOCAL_RANK": "1"}, 2), ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}, 1)],
)
def test_processes_with_local_ranks_alone_are_on_one_machine(monkeypatch, local, count):
    group = iter([(dist.HashStore(), 1, 2)])
    monkeypatch.setattr(dist, "rendezvous", lambda *_, **__: group)
    monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: None)
    launched = {"WORLD_SIZE": "2", "RANK": "1", "MASTER_PORT": "1"}
    assert Processes(launched | local).local_count == count


@pytest.mark.parametrize("values", [{"WORLD_SIZE": "two"}, {"WORLD_SIZE": "0"}, {"RANK": "1"}])
def test_values_of_the_launcher_that_cannot_be_are_named(values):
    with pytest.raises(ValueError, match=next(iter(values))):
        Processes(values)

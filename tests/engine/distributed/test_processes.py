import json

import pytest

from engine.distributed.processes import Processes
from tests.support.launched import start

SCRIPT = """
import json
from engine.distributed.processes import Processes
with Processes(wait_s=20) as processes:
    own = list(processes.share(5))
    found = processes.gather(own)
    processes.add("done", len(own))
    processes.barrier()
    print(json.dumps([processes.rank, found, processes.add("done", 0)]))
"""
DYING = """
import os
from engine.distributed.processes import Processes
with Processes(wait_s=60) as processes:
    processes.barrier()
    if processes.rank == 1:
        os._exit(3)
    processes.gather(1)
"""


def test_two_processes_share_everything_once_and_all_have_the_results():
    for rank, process in enumerate(start(2, "-c", SCRIPT)):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert json.loads(out) == [rank, [[0, 2, 4], [1, 3]], 5]


def test_a_process_that_dies_ends_the_wait_of_the_others():
    main, dead = start(2, "-c", DYING)
    _, err = main.communicate(timeout=40)
    assert dead.wait(10) == 3
    assert main.returncode == 1
    assert "process 0 of 2 lost another one" in err


def test_one_process_alone_needs_no_launcher():
    with Processes({}) as processes:
        assert processes.is_main
        assert list(processes.share(3)) == [0, 1, 2]
        assert processes.gather("own") == ["own"]
        assert processes.add("done", 2) + processes.add("done", 1) == 5
        assert processes.device("cuda") == "cuda"


@pytest.mark.parametrize("values", [{"WORLD_SIZE": "two"}, {"WORLD_SIZE": "0"}, {"RANK": "1"}])
def test_values_of_the_launcher_that_cannot_be_are_named(values):
    with pytest.raises(ValueError, match=next(iter(values))):
        Processes(values)

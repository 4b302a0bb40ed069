"""Commands run as a launcher runs them: in processes over gloo on this machine, or in this one."""

import os
import runpy
import socket
import subprocess
import sys

import pytest

from tests.support.micro import ROOT


def start(count, *arguments):
    """Start Python `count` times with the variables of a launcher; returns the processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    return [
        subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env=os.environ | where | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(count)
    ]


def interrupted(monkeypatch, module, called):
    """The exit code of a module in whose `called` function Control-C is pressed."""

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(called, interrupt)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(module, run_name="__main__")
    return ended.value.code

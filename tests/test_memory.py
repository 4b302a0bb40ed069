"""Peak memory: seen after it is given back, forgotten on request."""

import platform
import subprocess
import sys

import pytest
import torch

from engine import memory
from tests.browser import ROOT

CPU = torch.device("cpu")
BYTES = 200_000_000
FAULTS = """
import resource, torch
from engine.memory import keep_freed

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        first, second = (torch.ones(1 << 20) for _ in range(2))
        del first, second
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

print(faults())
keep_freed()
faults()
print(faults())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is Linux's to tell")
def test_a_peak_is_remembered_until_it_is_reset():
    memory.reset_peak(CPU)
    before = memory.peak(CPU)
    held = torch.ones(BYTES // 4)
    del held
    after = memory.peak(CPU)
    assert after - before > 0.9 * BYTES
    memory.reset_peak(CPU)
    assert memory.peak(CPU) < after - 0.5 * BYTES


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc alone has such a measure")
def test_what_a_step_frees_is_kept_for_the_next():
    done = subprocess.run(
        [sys.executable, "-c", FAULTS], check=True, capture_output=True, text=True, cwd=ROOT
    )
    given_back, kept = map(int, done.stdout.split())
    assert given_back > 10_000
    assert kept < 1_000

"""Peak memory: seen after it is given back, forgotten on request."""

import sys

import pytest
import torch

from engine import memory

CPU = torch.device("cpu")
BYTES = 200_000_000


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

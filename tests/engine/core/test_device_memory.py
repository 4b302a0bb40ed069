"""Peak memory includes memory that was freed, until it is reset."""

import sys

import pytest
import torch

from engine.core.device import peak_memory, reset_peak_memory

CPU = torch.device("cpu")
BYTES = 200_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux reports the peak of a process")
def test_a_peak_is_remembered_until_it_is_reset():
    reset_peak_memory(CPU)
    before = peak_memory(CPU)
    held = torch.ones(BYTES // 4)
    del held
    after = peak_memory(CPU)
    assert after - before > 0.9 * BYTES
    reset_peak_memory(CPU)
    assert peak_memory(CPU) < after - 0.5 * BYTES


def test_the_name_of_the_process_may_be_any_text(tmp_path, monkeypatch):
    status = tmp_path / "status"
    status.write_text("Name:\tpythön\nVmHWM:\t     12 kB\n", "utf-8")
    monkeypatch.setattr("engine.core.device._STATUS", status)
    assert peak_memory(CPU) == 12 * 1024

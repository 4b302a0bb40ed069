"""ZeroGPU with the real `spaces` package: a model on the pretended GPU, a race in the worker."""

import json
import subprocess
import sys

import pytest

from tests.support.micro import ROOT


@pytest.fixture(scope="module")
def found():
    pytest.importorskip("spaces")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.proofs.real_spaces"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    return json.loads(ran.stdout.splitlines()[-1])


def test_a_preloaded_model_is_packed_from_the_pretended_gpu(found):
    assert found["devices"] == ["cuda:0"]
    assert found["packed"] > 1_000_000


def test_the_worker_decodes_what_this_process_decodes(found):
    assert found["worker"] == found["here"]
    for reason, text, message in found["worker"]:
        assert (reason, message) == ("done", "")
        assert text.endswith("The answer is 25.")


def test_seconds_are_asked_for_and_a_refusal_is_told(found):
    (seconds,) = found["asked"]
    assert 0 < seconds <= 60
    assert found["calls"] == ["schedule", "allow", "release", "schedule"]
    for reason, *_, message in found["refused"]:
        assert reason == "failed"
        assert "quota does not suffice" in message

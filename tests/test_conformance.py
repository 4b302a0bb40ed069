"""The engine against recorded runs of the public implementations."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.conformance import METHODS, run_case

GOLDENS = Path(__file__).parent / "goldens"
CASES = [c for c in json.loads((GOLDENS / "cases.json").read_text()) if c["method"] in METHODS]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_a_recorded_run_is_reproduced(case):
    assert run_case(case, GOLDENS) == []


def perturbed(case, folder, change):
    """The differences found in a recording whose arrays `change` has modified."""
    with np.load(GOLDENS / f"{case['id']}.npz", allow_pickle=False) as golden:
        arrays = dict(golden)
    change(arrays)
    np.savez(folder / f"{case['id']}.npz", **arrays)
    if not (folder / "models").exists():
        shutil.copytree(GOLDENS / "models", folder / "models")
    return run_case(case, folder)


def one_off(name, delta):
    def change(arrays):
        array = arrays[name].copy()
        array.reshape(-1)[-1] += delta
        arrays[name] = array

    return change


def reordered(arrays):
    order = arrays["unmask_call"].copy()
    order[[0, -1]] = order[[-1, 0]]
    arrays["unmask_call"] = order


def unfed(arrays):
    arrays["in_pos_mask"] = arrays["in_pos_mask"] ^ np.uint8(128)


PERTURBATIONS = {
    "final_ids": one_off("final_ids", 1),
    "nfe": one_off("nfe", 1),
    "unmask_call": reordered,
    "fed positions": unfed,
    "logits": one_off("logits", 0.5),
}


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_a_perturbed_recording_is_detected(tmp_path, name):
    case = next(c for c in CASES if c["method"] == "fastdllm_llada" and "dual" in c["id"])
    differences = perturbed(case, tmp_path, PERTURBATIONS[name])
    assert len(differences) == 1
    assert differences[0].startswith(name)

"""Drift codes: round trips, centres and resolution, the same in numpy and torch."""

import numpy as np
import pytest
import torch

from engine.core import drift_codes
from engine.record import last_values

CODES = np.arange(255)


def test_every_code_is_restored_from_its_centre():
    assert np.array_equal(drift_codes.encode(drift_codes.decode(CODES)), CODES)
    assert drift_codes.decode(0) == 0
    assert drift_codes.decode(254) == pytest.approx(2)
    assert np.isnan(drift_codes.decode(255))
    assert drift_codes.encode(np.nan) == 255


def test_the_codes_are_those_of_the_formula():
    drift = np.array([0.0, 1.4e-5, 1.6e-5, 1e-3, 0.1, 1.0, 2.0])
    expected = np.round(254 * np.log(1 + drift / 1e-3) / np.log(1 + 2 / 1e-3))
    assert drift_codes.encode(drift).tolist() == expected.tolist()
    assert drift_codes.encode([1.4e-5, 1.6e-5]).tolist() == [0, 1]
    steps = np.diff(drift_codes.decode(CODES[100:])) / drift_codes.decode(CODES[100:-1])
    assert 0.029 < steps.min() <= steps.max() < 0.034


def test_values_outside_the_range_are_clipped():
    assert drift_codes.encode([-1e-7, 2.5]).tolist() == [0, 254]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_device_gives_the_same_codes(dtype):
    drift = np.append(drift_codes.decode(CODES), [np.nan, -1e-7, 3.0])
    found = last_values.encode_drift(torch.from_numpy(drift).to(dtype))
    assert np.array_equal(found.numpy(), drift_codes.encode(drift))


def test_a_difference_of_one_code_is_detected():
    assert not np.array_equal(drift_codes.encode(drift_codes.decode(CODES) * 1.05), CODES)

"""Arrays as text for the page."""

import base64
import tracemalloc
import zlib

import numpy as np
import pytest

from inspector.page_data.packing import packed

ARRAYS = {
    "flags": np.array([[True, False], [False, True]]),
    "transposed": np.arange(6, dtype=np.int32).reshape(2, 3).T,
    "big endian": np.array([1.5, -2.0], ">f4"),
    "single": np.array(7, np.uint16),
    "empty": np.zeros((0, 3), np.uint8),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_what_is_packed_comes_back(name):
    array, found = ARRAYS[name], packed(ARRAYS[name])
    data = zlib.decompress(base64.b64decode(found["data"]))
    back = np.frombuffer(data, "<" + found["type"]).reshape(found["shape"])
    assert back.shape == array.shape
    assert (back == array).all()


def test_a_large_array_is_packed_without_a_copy():
    array = np.zeros((64, 1 << 16), np.uint8)
    tracemalloc.start()
    try:
        packed(array)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < array.nbytes / 2

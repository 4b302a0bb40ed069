"""The page's packed arrays and slices, read back as numpy would have them."""

import base64
import json
import struct
import zlib

import numpy as np


def unpacked(item):
    """The array of a packed item."""
    raw = zlib.decompress(base64.b64decode(item["data"]))
    return np.frombuffer(raw, "<" + item["type"]).reshape(item["shape"])


def decoded(data):
    """The arrays and the facts of a slice's bytes (inspector.slices.message.encoded)."""
    (length,) = struct.unpack_from("<I", data)
    start = 4 + length
    header = json.loads(data[4:start])
    arrays = {}
    for row in header["arrays"]:
        count = int(np.prod(row["shape"], dtype=np.int64))
        flat = np.frombuffer(data, "<" + row["type"], count, start + row["offset"])
        arrays[row["name"]] = flat.reshape(row["shape"])
    return arrays, header["facts"]

"""The page's packed arrays, read back as numpy would have them."""

import base64
import zlib

import numpy as np


def unpacked(item):
    """The array of a packed item."""
    raw = zlib.decompress(base64.b64decode(item["data"]))
    return np.frombuffer(raw, "<" + item["type"]).reshape(item["shape"])

"""Drift codes: 1 - cosine on a logarithmic scale of one byte, finest near 0.

code = round(254 ln(1 + d / d0) / ln(1 + 2 / d0)) with d0 = 0.001 and d clipped to [0, 2]. Steps are
about 3 % of d well above d0; below 1.5e-5, the noise of 16-bit formats, the code is 0.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

OFFSET = 1e-3
SCALE = 254 / math.log1p(2 / OFFSET)
NOT_EVALUATED = 255


def encode(drift: ArrayLike) -> np.ndarray:
    """Codes uint8 of drifts of any shape; NOT_EVALUATED for NaN."""
    exact = np.asarray(drift, np.float64)
    code = np.round(np.log1p(np.clip(exact, 0, 2) / OFFSET) * SCALE)
    return np.where(np.isnan(exact), NOT_EVALUATED, code).astype(np.uint8)


def decode(code: ArrayLike) -> np.ndarray:
    """Drifts float64, the centres of the codes; NaN for NOT_EVALUATED."""
    known = np.asarray(code)
    return np.where(known == NOT_EVALUATED, np.nan, OFFSET * np.expm1(known / SCALE))


DRIFTS = decode(np.arange(NOT_EVALUATED + 1))  # of every code, to decode large arrays by index

"""The log code of drifts: 1 - cosine in one byte, fine near 0 where drifts lie.

u = round(254 ln(1 + s / s0) / ln(1 + 2 / s0)) with s0 = 0.001 and s clipped to [0, 2]: steps of
about 3 % well above s0, code 0 below 1.5e-5, the noise of 16-bit formats; 255 says that nothing
was evaluated.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

START = 1e-3
SCALE = 254 / math.log1p(2 / START)
NOTHING = 255


def encode(drift: ArrayLike) -> np.ndarray:
    """Codes uint8 of drifts of any shape; NOTHING where the drift is NaN."""
    exact = np.asarray(drift, np.float64)
    code = np.round(np.log1p(np.clip(exact, 0, 2) / START) * SCALE)
    return np.where(np.isnan(exact), NOTHING, code).astype(np.uint8)


def decode(code: ArrayLike) -> np.ndarray:
    """The drifts, float64, at the centres of the codes; NaN for NOTHING."""
    known = np.asarray(code)
    return np.where(known == NOTHING, np.nan, START * np.expm1(known / SCALE))

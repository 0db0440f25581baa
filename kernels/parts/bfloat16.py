"""float32 as bfloat16, on NumPy: weights as kernels read them. Imports nothing of ours."""

from __future__ import annotations

import numpy as np


def rounded(x: np.ndarray) -> np.ndarray:
    """The bits of the bfloat16 next to each float32, ties to even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    result = ((bits + (((bits >> 16) & 1) + np.uint32(0x7FFF))) >> 16).astype(np.uint16)
    strange = np.isnan(x)
    return np.where(strange, (bits >> 16 | 0x40).astype(np.uint16), result) if strange.any() else result

"""Sparse tensors that a graph gives out."""

from __future__ import annotations

import numpy as np

from jitonnx.support.records import NamedTuple


class Coordinates(NamedTuple):
    """The stored elements of a tensor, and where they are in the flat tensor."""

    shape: tuple[int, ...]
    values: np.ndarray
    indices: np.ndarray

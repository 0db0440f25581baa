"""Sizes that a run meets and a schedule was not planned for."""

from __future__ import annotations

from collections.abc import Mapping

from jitonnx.ir.assumptions import holds
from jitonnx.ir.dims import DimLike


class Unforeseen(Exception):
    """A run met sizes that the schedule was not planned for."""


def check_equal(a: DimLike, b: DimLike, sizes: Mapping[str, int]) -> None:
    """Unforeseen if two sizes that were taken to be equal are not, for values of the dimension variables."""
    if not holds((a, b), sizes):
        raise Unforeseen(f"{a} was taken to be equal to {b}")

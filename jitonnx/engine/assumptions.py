"""Sizes that a run meets and a schedule was not planned for."""

from __future__ import annotations

from collections.abc import Mapping

from jitonnx.ir.assumptions import Pair, holds
from jitonnx.ir.dims import DimLike


class AssumptionError(Exception):
    """A run met sizes that the schedule was planned without: an assumption about them does not hold.

    pair: the two sizes that were taken to be equal, if that is what does not hold. untold: the value whose elements
    were taken for sizes and are none, if it is that. ranks: of values by name, if it is that they were not known, or
    are others. sizes: values of the dimension variables, as far as the run has bound them.
    """

    def __init__(
        self, text: str, pair: Pair | None = None, untold: str = "", ranks: Mapping[str, int] | None = None
    ) -> None:
        super().__init__(text)
        self.pair, self.untold, self.ranks = pair, untold, ranks or {}
        self.sizes: Mapping[str, int] = {}


def check_equal(a: DimLike, b: DimLike, sizes: Mapping[str, int]) -> None:
    """AssumptionError if two sizes that were taken to be equal are not, for values of the dimension variables."""
    if not holds((a, b), sizes):
        raise AssumptionError(f"{a} was taken to be equal to {b}", (a, b))

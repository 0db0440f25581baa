"""Constants that the sizes of a run make: a plan says how, and each program has its own.

A maker is plain data, so artifacts for ranges of shapes hold it; it makes arrays of a few integers. Where those are
known when the plan is made, the arrays are constants like others.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from jitonnx.errors import InvalidArgument
from jitonnx.ir.computation.drawing import Distribution, seeded
from jitonnx.ir.computation.resampling import axis_table, clamped
from jitonnx.ir.dtypes import DType
from jitonnx.kernels.parts.packing import aligned
from jitonnx.kernels.resize.spec import Table, pack_table, pack_windows
from jitonnx.support.records import dataclass

if TYPE_CHECKING:
    from jitonnx.plan.parametric_program import Array

_TABLES_KEPT = 512
_LOCAL = ("half_pixel", "asymmetric", "tf_half_pixel_for_nn")
"""Coordinate transformations in which an output's coordinate follows from its position and the scale alone."""
_ENDLESS = 1 << 30


@dataclass(frozen=True)
class ResamplingTable:
    """The `Table` of an axis of Resize, with the operator's attributes.

    Made of the axis's length and outputs, how many taps it is filled up to, and where an aspect ratio is kept pairs of
    a wanted size and a length.
    """

    mode: str
    coordinates: str
    nearest: str
    cubic_coefficient: float
    exclude_outside: bool
    antialias: bool
    roi: tuple[float, float] | None
    scale: float | None
    """None: the quotient of outputs and length, or with a policy that of a pair."""
    policy: str
    """"not_larger" and "not_smaller" choose the pair of the smallest and largest quotient."""

    def table(self, sizes: Sequence[int]) -> Table:
        """InvalidArgument for outputs that nothing can be made of."""
        length, outputs, taps, *pairs = sizes
        if length == 0 and outputs > 0:
            raise InvalidArgument(f"Resize: an axis of 0 elements cannot be resized to {outputs}")
        scale = self._scale(length, outputs, pairs)
        if self._is_regular(scale):
            begun = _beginning(self, scale, taps, 1 << max(outputs - 1, 0).bit_length())
            return Table(*clamped(begun.positions[:outputs], begun.weights[:outputs], length))
        return self._made(length, outputs, scale, taps)

    def _is_regular(self, scale: float) -> bool:
        """Whether an output's position and weights depend neither on the length, but where that ends, nor on how many
        outputs there are; and the scale is one that other lengths have, too."""
        often = scale > 0 and (float(scale).is_integer() or (1 / scale).is_integer())
        return often and self.coordinates in _LOCAL and not (self.exclude_outside or self.antialias)

    def _made(self, length: int, outputs: int, scale: float, taps: int) -> Table:
        made = axis_table(
            length,
            outputs,
            scale,
            self.roi,
            mode=self.mode,
            coordinates=self.coordinates,
            nearest=self.nearest,
            cubic_coefficient=self.cubic_coefficient,
            exclude_outside=self.exclude_outside,
            antialias=self.antialias,
            taps=taps if self.antialias else None,
        )
        return pack_table(made.indices, made.weights, made.outside, taps)

    def _scale(self, length: int, outputs: int, pairs: Sequence[int]) -> float:
        if self.scale is not None:
            return self.scale
        if not self.policy:
            return outputs / max(length, 1)
        quotients = [wanted / max(size, 1) for wanted, size in zip(pairs[::2], pairs[1::2], strict=True)]
        return min(quotients) if self.policy == "not_larger" else max(quotients)

    def arrays(self, sizes: Sequence[int]) -> tuple[Array, ...]:
        """Positions and weights."""
        return self.table(sizes)


@dataclass(frozen=True)
class WindowTable(ResamplingTable):
    """The `Windows` of an axis, of the same sizes as its table. They must be known to be wide enough."""

    lanes: int
    vectors: int

    def arrays(self, sizes: Sequence[int]) -> tuple[Array, ...]:
        """Starts, columns and weights."""
        windows = pack_windows(self.table(sizes), sizes[0], self.lanes, self.vectors)
        assert windows is not None, f"Bug: windows of {self.vectors} vectors are too narrow for {tuple(sizes)}"
        return windows


@functools.lru_cache(_TABLES_KEPT)
def _beginning(maker: ResamplingTable, scale: float, taps: int, outputs: int) -> Table:
    """The table of the first outputs of an axis that does not end, from which those of axes that do are cut."""
    return maker._made(_ENDLESS, outputs, scale, taps)


@dataclass(frozen=True)
class SeededTable:
    """The random numbers of a seed, made of how many there are."""

    distribution: Distribution
    seed: int
    dtype: DType

    def arrays(self, sizes: Sequence[int]) -> tuple[Array, ...]:
        """The numbers."""
        return (seeded(self.distribution, self.seed, sizes[0], self.dtype.numpy),)


Maker: TypeAlias = ResamplingTable | SeededTable
MAKERS: dict[str, type[Maker]] = {
    "ResamplingTable": ResamplingTable,
    "WindowTable": WindowTable,
    "SeededTable": SeededTable,
}
"""The makers by name, as artifacts hold them."""


def made(maker: Maker, sizes: tuple[int, ...]) -> tuple[Array, ...]:
    """The arrays that a maker makes of some sizes. Those of resampling are kept: other layers and programs have the
    same."""
    return _arrays(maker, sizes) if isinstance(maker, SeededTable) else _kept(maker, sizes)


def _arrays(maker: Maker, sizes: tuple[int, ...]) -> tuple[Array, ...]:
    return tuple(map(aligned, maker.arrays(sizes)))


_kept = functools.lru_cache(_TABLES_KEPT)(_arrays)

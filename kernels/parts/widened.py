"""Elements that lie in memory in another type than a kernel computes in."""

from __future__ import annotations

from jitonnx.kernels.language import types
from jitonnx.kernels.language.code import Mask, Pointer
from jitonnx.kernels.language.simd import convert
from jitonnx.kernels.language.trace import Traced


class Widened(Pointer):
    """A pointer to elements of some type, such as bytes, that are loaded as `wide` ones. It is for reading."""

    def __init__(self, stored: Pointer, wide: types.Type) -> None:
        super().__init__(stored._code, stored.element, stored.value)
        self.wide = wide

    def at(self, index: Traced | int) -> Pointer:
        return Widened(super().at(index), self.wide)

    def settled(self) -> Pointer:
        return Widened(super().settled(), self.wide)

    def not_before(self, index: Traced) -> Pointer:
        return Widened(super().not_before(index), self.wide)

    def load(self, index: Traced | int, lanes: int | None = None, live: Traced | Mask | None = None) -> Traced:
        return convert(super().load(index, lanes, live), self.wide)

"""Elements that lie in memory in another type than a kernel computes in."""

from __future__ import annotations

from jitonnx.emit import types
from jitonnx.emit.builder import Mask, Pointer
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue


class Widened(Pointer):
    """A pointer to elements of some type, such as bytes, that are loaded as `wide` ones. It is for reading."""

    def __init__(self, stored: Pointer, wide: types.ElementType) -> None:
        super().__init__(stored._code, stored.element, stored.value)
        self.wide = wide

    def at(self, index: SSAValue | int) -> Pointer:
        return Widened(super().at(index), self.wide)

    def pinned(self) -> Pointer:
        return Widened(super().pinned(), self.wide)

    def not_before(self, index: SSAValue) -> Pointer:
        return Widened(super().not_before(index), self.wide)

    def load(self, index: SSAValue | int, lanes: int | None = None, active: SSAValue | Mask | None = None) -> SSAValue:
        return convert(super().load(index, lanes, active), self.wide)

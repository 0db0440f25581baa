"""What pooling does with the values of a window, one after the other."""

from __future__ import annotations

from jitonnx.emit.builder import KernelBuilder
from jitonnx.emit.mathematics.vecmath import pow
from jitonnx.emit.ssa import SSAValue, absolute, select, sqrt


def step(kind: str, power: int, total: SSAValue, x: SSAValue) -> SSAValue:
    """The fold's next value: of a maximum, of a sum, or of a sum of powers of magnitudes."""
    if kind == "max":
        return select(x > total, x, total)
    return total + term(kind, power, x)


def term(kind: str, power: int, x: SSAValue) -> SSAValue:
    """What a value adds to a sum."""
    if kind == "average":
        return x
    magnitude = absolute(x)
    product = magnitude
    for _ in range(power - 1):
        product = product * magnitude
    return product


def root(code: KernelBuilder, x: SSAValue, power: int) -> SSAValue:
    """x to the power of 1 / power."""
    if power <= 2:
        return x if power == 1 else sqrt(x)
    return pow(x, x.constant(1 / power))

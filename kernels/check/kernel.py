"""The kernel of checks."""

from __future__ import annotations

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.check.spec import CheckBuffers, CheckSizes, CheckSpec
from jitonnx.kernels.parts.masks import each_mask


def build(spec: CheckSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of 4 * lanes bytes."""

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        buffers, sizes = code.buffers(CheckBuffers, types.uint8, error=types.int64), code.sizes(CheckSizes)
        found = code.variable(code.integer(0))

        def chosen(at: SSAValue, width: int | None) -> SSAValue:
            return buffers.met.load(at, width).differs(0)

        each_mask(code, sizes.elements, 4 * lanes, chosen, lambda first, mask: found.set(found.get() | mask))
        with code.if_then(found.get().differs(0)):
            buffers.error.store(0, code.integer(1))

    return body

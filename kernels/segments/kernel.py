"""The kernel of reductions by segments."""

from __future__ import annotations

import math

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Mask, each_vector, larger, smaller
from jitonnx.emit.ssa import SSAValue, isnan, select, to_float, to_single
from jitonnx.kernels.segments.spec import SegmentsBuffers, SegmentsSizes, SegmentsSpec


def build(spec: SegmentsSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    element = getattr(types, spec.element)

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        size = code.sizes(SegmentsSizes)
        x, offsets, y, error = code.buffers(SegmentsBuffers, element, offsets=types.int64, error=types.int64)
        together = size.task_segments
        with code.loop(smaller(end * together, size.segments), begin * together) as segment:
            first, stop = offsets.load(segment), offsets.load(segment + 1)
            valid = (first >= 0) & (first <= stop) & (stop <= size.rows)
            with code.if_then(~valid):
                error.store(0, code.integer(1))
            count = select(valid, stop - first, 0)
            divisor = to_float(larger(count, 1))
            divisor = to_single(divisor) if spec.element == "float32" else divisor
            least = select(count > 0, code.number(element, -math.inf if spec.kind == "max" else 0.0), 0.0)

            def reduce(column: SSAValue, width: int, mask: Mask | None, active: SSAValue) -> None:
                total = code.variable(least.splat(width))
                with code.loop(first + count, first) as row:
                    value = x.load(row * size.columns + column, width, mask)
                    total.set(_larger(total.get(), value) if spec.kind == "max" else total.get() + value)
                whole = total.get() / divisor.splat(width) if spec.kind == "mean" else total.get()
                y.store(segment * size.columns + column, whole, mask)

            each_vector(code, size.columns, lanes * 4 // (element.bitwidth // 8), reduce)

    return body


def _larger(a: SSAValue, b: SSAValue) -> SSAValue:
    """NaN where one is."""
    return select(isnan(a), a, select(a > b, a, b))

"""Packed weights multiplied by a factor a row: what is left of scaling the columns of a, where b has fewer elements."""

from __future__ import annotations

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, remainder
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.kernels.gemm.spec import ScaleBuffers, ScaleSizes, ScaleSpec


def build_scale(spec: ScaleSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` elements."""
    element = getattr(types, spec.element)

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        packed, factors, scaled = code.buffers(ScaleBuffers, element)
        _, k, full, width, last, factor_image, factor_step = code.sizes(ScaleSizes)
        panels, elements = full + 1, (full * width + last) * k
        with code.loop(end, begin) as task:
            image, panel = task / panels, remainder(task, panels)
            columns = select(panel < full, width, last)
            start = panel * width * k
            source, target = packed.at(start), scaled.at(image * elements + start)
            with code.loop(k) as row:
                factor = code.splat(factors.load(image * factor_image + row * factor_step), lanes)
                _scale_row(code, source.at(row * columns), factor, target.at(row * columns), columns, lanes)

    return body


def _scale_row(
    code: KernelBuilder, source: Pointer, factor: SSAValue, target: Pointer, columns: SSAValue, lanes: int
) -> None:
    rest = remainder(columns, code.integer(lanes))
    whole = columns - rest
    with code.loop(whole, step=lanes) as column:
        target.store(column, source.load(column, lanes) * factor)
    with code.if_then(rest > 0):
        active = code.active(rest, lanes)
        target.store(whole, source.load(whole, lanes, active) * factor, active)

"""The kernels of DynamicQuantizeLinear: the extremes of parts of x, and x quantised by those of all parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, Variable, larger, remainder, smaller
from jitonnx.emit.simd import convert, maximum, minimum, quotient
from jitonnx.emit.ssa import SSAValue, nearest_integer, rint, select, within
from jitonnx.kernels.dynamic_quantization.spec import (
    PARTS_MOST,
    ExtremesBuffers,
    ExtremesSpec,
    QuantiseBuffers,
    QuantiseSpec,
    RowsSizes,
)

_VECTORS = 4
"""Vectors at a time, which wait for nothing of each other."""
_LEVELS = 255.0
_SMALLEST_SCALE = 1e-30
"""A factor in the place of the division might overflow below."""

_Pair: TypeAlias = "tuple[SSAValue, SSAValue]"


def build(spec: ExtremesSpec | QuantiseSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""

    def extremes(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        x, found = code.buffers(ExtremesBuffers, types.float32)
        with code.loop(end, begin) as task:
            least, most = _extremes(code, x, lanes, task)
            found.store(task, least)
            found.store(task + PARTS_MOST, most)

    def quantise(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        x, found, y, scale, zero = code.buffers(QuantiseBuffers, types.float32, y=types.uint8, zero=types.uint8)
        size = code.sizes(RowsSizes)
        if spec.alone:  # type: ignore[union-attr]
            least, most = _extremes(code, x, lanes, code.integer(0))
        else:
            least, most = _of_all(code, found, _parts(size))
        step = select(most.equals(least), 1.0, (most - least) / _LEVELS)
        shift = rint(within((0.0 - least) / step, step.constant(0.0), step.constant(_LEVELS)))
        with code.if_then(begin.equals(0)):
            scale.store(0, step)
            zero.store(0, convert(shift, types.uint8))
        place = nearest_integer(shift).splat(lanes)
        low, high = (0.0 - shift).splat(lanes), (_LEVELS - shift).splat(lanes)
        wide, factor = step.splat(lanes), (1.0 / step).splat(lanes)

        def by_division(number: SSAValue) -> SSAValue:
            return number / wide

        def by_factor(number: SSAValue) -> SSAValue:
            return quotient(number, wide, factor)

        def store(divided: Callable[[SSAValue], SSAValue]) -> None:
            def write(at: SSAValue, columns: SSAValue, active: SSAValue | None, number: int) -> None:
                whole = nearest_integer(within(divided(x.load(at, lanes, active)), low, high)) + place
                y.store(columns, convert(whole, types.uint8), active)

            with code.loop(end, begin) as task:
                _each(code, lanes, task, write)

        if not code.target.has_multiply_adds:
            store(by_division)
            return
        with code.if_else(step > _SMALLEST_SCALE) as (usual, tiny):
            with usual:
                store(by_factor)
            with tiny:
                store(by_division)

    return extremes if isinstance(spec, ExtremesSpec) else quantise


def _each(
    code: KernelBuilder, lanes: int, task: SSAValue, body: Callable[[SSAValue, SSAValue, SSAValue | None, int], None]
) -> None:
    """body(at, at_y, live, number) for each vector of a part: where it is in x and in y, how many lanes count (None:
    all), and its number among those that are done together."""
    size = code.sizes(RowsSizes)
    columns = larger((size.length + (size.task_length - 1)) / size.task_length, 1)
    first, start = task / columns * size.task_rows, remainder(task, columns) * size.task_length
    stop = smaller(size.length, start + size.task_length)
    together = _VECTORS * lanes
    with code.loop(smaller(first + size.task_rows, size.rows), first) as row:
        x, y = row * size.x_row, row * size.y_row
        whole = stop - remainder(stop - start, code.integer(together))
        with code.loop(whole, start, together) as column:
            for number in range(_VECTORS):
                at = column + number * lanes
                body(x + at, y + at, None, number)
        with code.loop(stop, whole, lanes) as column:
            body(x + column, y + column, stop - column, 0)


def _extremes(code: KernelBuilder, x: Pointer, lanes: int, task: SSAValue) -> _Pair:
    """The least and the largest element of a part, and 0; NaN if one is."""
    zero = code.number(types.float32, 0.0, lanes)
    found = [(code.variable(zero), code.variable(zero)) for _ in range(_VECTORS)]

    def note(at: SSAValue, _: SSAValue, active: SSAValue | None, number: int) -> None:
        value, (least, most) = x.load(at, lanes, active), found[number]  # lanes that do not count are 0, which does
        least.set(minimum(value, least.get()))
        most.set(maximum(value, most.get()))

    _each(code, lanes, task, note)
    return _together(code, [least for least, _ in found], minimum), _together(
        code, [most for _, most in found], maximum
    )


def _together(
    code: KernelBuilder, vectors: list[Variable], combine: Callable[[SSAValue, SSAValue], SSAValue]
) -> SSAValue:
    """What `combine` makes of all lanes."""
    total = vectors[0].get()
    for vector in vectors[1:]:
        total = combine(total, vector.get())
    width = total.lanes
    while width > 1:
        width //= 2
        total = combine(code.part(total, 0, width), code.part(total, width, width))
    return total.like(total.builder.extract_element(total.value, code.integer(0).value))


def _of_all(code: KernelBuilder, found: Pointer, parts: SSAValue) -> _Pair:
    """The extremes of all parts, and 0."""
    zero = code.number(types.float32, 0.0)
    least, most = code.variable(zero), code.variable(zero)
    with code.loop(parts) as part:
        least.set(minimum(found.load(part), least.get()))
        most.set(maximum(found.load(part + PARTS_MOST), most.get()))
    return least.get(), most.get()


def _parts(size: RowsSizes) -> SSAValue:
    rows = (size.rows + (size.task_rows - 1)) / size.task_rows
    return rows * ((size.length + (size.task_length - 1)) / size.task_length)

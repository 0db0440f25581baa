"""Regions as kernels: loops over rows, the innermost in vectors.

For `maximum(x0 + x1, 0)` with x0 dense and x1 broadcast along rows (two loops):

    for task in [begin, end):
        for row in the task's rows:
            q0, q1, q2 = x0, x1 and y at the row
            for j in steps of LANES, while they are whole:
                y[j : j + LANES] = maximum(x0[j : j + LANES] + x1, 0)
            the rest of the row, as a part of a vector

A row that is all there is, of any length, begins with a part of a vector, up to where whole ones lie in lines of the
cache.
"""

from __future__ import annotations

from typing import Any

from jitonnx.codegen.expression import ELEMENTS, emit_expr
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, remainder, smaller
from jitonnx.emit.simd import LINE_BYTES
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import HALVES
from jitonnx.plan.region import BROADCAST, UNIT, RegionSpec

_ALIGNED_VECTORS = 16
"""Rows of so many vectors are written to aligned places."""


def region_kernel(spec: RegionSpec, lanes: int) -> Kernel:
    """The kernel of a region, for vectors of 4 * lanes bytes."""
    return lambda code, begin, end: _Region(code, spec, lanes * 4 // _widest(spec)).emit(begin, end)


_SHORT = frozenset(("operand", "constant", "index", "add", "sub", "mul", "neg", "abs", "maximum", "minimum", "cast"))


def _widest(spec: RegionSpec) -> int:
    """Bytes of the widest type that a region computes with: narrow elements fill a vector by more lanes.

    Where 64 bits are computed with at length they count as 32: two vectors at once wait less for one another. What only
    loads, adds and stores waits for memory, and two vectors that are stored side by side took 1.3 times as long.
    """
    nodes = [node for root in spec.exprs for node in e.children_first(root)]
    most = 8 if all(map(_is_short, nodes)) else 4
    dtypes = {node.dtype for node in nodes} | {dtype for dtype, _ in (*spec.inputs, *spec.outputs)}
    return max(4 if dtype in HALVES else min(most, dtype.itemsize) for dtype in dtypes)


def _is_short(node: e.Expr) -> bool:
    """Whether a node takes an instruction or two; to integers floats are converted with a view to what does not fit."""
    return node.op in _SHORT and not (node.op == "cast" and node.dtype.is_integer and node.arguments[0].dtype.is_float)


class _Region:
    """Emits one kernel."""

    def __init__(self, code: KernelBuilder, spec: RegionSpec, lanes: int) -> None:
        self.code, self.spec, self.lanes = code, spec, lanes
        operands = (*spec.inputs, *spec.outputs)
        self.pointers = [code.buffer(number, ELEMENTS[dtype]) for number, (dtype, _) in enumerate(operands)]
        self.size: Any = code.sizes(spec.SIZES)
        self.steps = self.size.strides[spec.rank - 1 :: spec.rank]
        """How far apart an operand's elements are along a row."""
        used = set().union(*(e.operands(root) for root in spec.exprs))
        self.read = [(number, movement) for number, (_, movement) in enumerate(spec.inputs) if number in used]

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        code, spec, size = self.code, self.spec, self.size
        columns, rows = size.extents[-1], size.rows
        rows_each, columns_each, pieces = size.rows_each, size.columns_each, size.pieces
        with code.loop(end, begin) as task:
            first_row, first_column = task / pieces * rows_each, remainder(task, pieces) * columns_each
            last_column = smaller(columns, first_column + columns_each)
            with code.loop(smaller(rows, first_row + rows_each), first_row) as row:
                self._row(row, first_column, last_column)
        if spec.streams:
            code.drain()

    def _row(self, row: SSAValue, first: SSAValue, last: SSAValue) -> None:
        """Columns [first, last) of a row."""
        code, spec, lanes = self.code, self.spec, self.lanes
        place, rest = {}, row
        for loop in reversed(range(spec.rank - 1)):
            extent = self.size.extents[loop]
            place[loop] = remainder(rest, extent) if loop else rest
            rest = rest / extent if loop else rest
        pointers = []
        for number, pointer in enumerate(self.pointers):
            offset = code.integer(0)
            for loop, coordinate in sorted(place.items()):
                offset = offset + coordinate * self.size.strides[spec.rank * number + loop]
            pointers.append(pointer.at(offset))
        spread = {
            number: pointers[number].load(0).splat(lanes) for number, movement in self.read if movement == BROADCAST
        }
        if not (spec.streams or (spec.rank == 1 and spec.outputs[-1][1] == UNIT)):
            whole = last - remainder(last - first, code.integer(lanes))
            with code.loop(whole, first, lanes, unroll=True) as column:
                self._vector(pointers, place, spread, column, None)
            with code.if_then(whole < last):
                self._vector(pointers, place, spread, whole, last - whole)
            return
        active = self._to_alignment(pointers[-1].at(first), last - first)
        begin = first + active
        end = last - remainder(last - begin, code.integer(lanes))
        with code.loop(2) as part:  # one piece of code for the parts of a vector in front of whole ones and behind them
            behind = part.equals(1)
            with code.loop(select(behind, end, begin), begin, lanes, unroll=True) as column:
                self._vector(pointers, place, spread, column, None)
            rest = select(behind, last - end, active)
            with code.if_then(rest > 0):
                self._vector(pointers, place, spread, select(behind, end, first), rest)

    def _to_alignment(self, target: Pointer, columns: SSAValue) -> SSAValue:
        """How many of so many columns lie in front of where whole vectors are aligned: stores that straddle cache lines
        take twice as long, and results that a caller gets lie anywhere. Of short rows none."""
        code, itemsize = self.code, max(1, target.element.bitwidth // 8)
        size = min(LINE_BYTES, self.lanes * itemsize)
        away = (code.integer(size) - target.misalignment(size)) & (size - 1)
        least = 0 if self.spec.streams else _ALIGNED_VECTORS * self.lanes
        return smaller(select(columns > least, away / itemsize, 0), columns)

    def _vector(
        self,
        pointers: list[Pointer],
        place: dict[int, SSAValue],
        spread: dict[int, SSAValue],
        column: SSAValue,
        active: SSAValue | None,
    ) -> None:
        """Load, compute and store one vector of a row; `active`: only so many lanes.

        place: the coordinates of the row. spread: what is the same for all of it, in all lanes.
        """
        code, spec, lanes = self.code, self.spec, self.lanes
        values = dict(spread)
        for number, movement in self.read:
            if movement != BROADCAST:
                values[number] = self._load(pointers[number], number, movement, column, active)

        def leaf(node: e.Expr) -> SSAValue:
            if node.op == "operand":
                return values[node.value]
            if node.value == spec.rank - 1:
                return column.splat(lanes) + code.iota(lanes)
            return place[node.value].splat(lanes)

        results = emit_expr(code, spec.exprs, lanes, leaf, calls=True)
        for number, ((_, movement), value) in enumerate(zip(spec.outputs, results, strict=True), len(spec.inputs)):
            target = pointers[number]
            if movement != UNIT:
                step = self.steps[number]
                target.store_apart(column * step, step, value, lanes if active is None else active)
            elif spec.streams and active is None:
                target.stream(column, value)
            else:
                target.store(column, value, active)

    def _load(
        self, pointer: Pointer, number: int, movement: int, column: SSAValue, active: SSAValue | None
    ) -> SSAValue:
        if movement == UNIT:
            return pointer.load(column, self.lanes, active)
        step = self.steps[number]
        return pointer.load_apart(column * step, step, self.lanes if active is None else active, self.lanes)

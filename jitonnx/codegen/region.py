"""Regions as Numba source: loops over rows, the innermost in vectors.

For `maximum(x0 + x1, 0)` with x0 dense and x1 broadcast along rows (two loops):

    def kernel(buffers, sizes, begin, end, scratch):
        p0 = pointer(buffers, 0, float32)
        ...
        for task in range(begin, end):
            for row in range(first_row, last_row):
                q0 = advance(p0, (row) * sizes[2])
                ...
                j = first_column
                while j + LANES <= last_column:
                    x0 = load(q0, j, LANES)
                    ...
                    store(q2, j, t1)
                    j += LANES
                if j < last_column:              # the tail, with the same statements on part of a vector
                    ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jitonnx.codegen.source import NUMBA_TYPES, Source, compile_source, emit_expr, namespace
from jitonnx.ir import expr as e
from jitonnx.ir.dtypes import HALVES
from jitonnx.plan.region import BROADCAST, UNIT, RegionSpec


def region_function(spec: RegionSpec, lanes: int) -> Callable[..., Any]:
    """The kernel of a region, for vectors of 4 * lanes bytes."""
    return compile_source(region_source(spec), "kernel", namespace(lanes * 4 // _widest(spec)))


def _widest(spec: RegionSpec) -> int:
    """Bytes, at most 4, of the widest type that a region computes with: narrow elements fill a vector by more lanes."""
    dtypes = {node.dtype for root in spec.exprs for node in e.children_first(root)}
    dtypes.update(dtype for dtype, _ in (*spec.inputs, *spec.outputs))
    return max(4 if dtype in HALVES else min(4, dtype.itemsize) for dtype in dtypes)


def region_source(spec: RegionSpec) -> str:
    """The source of a region's kernel."""
    source = Source()
    operands = (*spec.inputs, *spec.outputs)
    cut = spec.first_cut
    with source.block("def kernel(buffers, sizes, begin, end, scratch):"):
        for number, (dtype, _) in enumerate(operands):
            source.line(f"p{number} = pointer(buffers, {number}, {NUMBA_TYPES[dtype]})")
        source.line(f"columns = sizes[{spec.rank - 1}]")
        for name, position in (("rows_each", cut), ("columns_each", cut + 1), ("pieces", cut + 2), ("rows", cut + 3)):
            source.line(f"{name} = sizes[{position}]")
        for number, (_, movement) in enumerate(operands):
            if movement not in (BROADCAST, UNIT):
                source.line(f"s{number} = sizes[{spec.rank * (2 + number) - 1}]")
        with source.block("for task in range(begin, end):"):
            source.line("first_row = task // pieces * rows_each")
            source.line("first_column = task % pieces * columns_each")
            source.line("last_column = min(columns, first_column + columns_each)")
            with source.block("for row in range(first_row, min(rows, first_row + rows_each)):"):
                _emit_row(source, spec)
        if spec.streams:
            source.line("drain()")
    return source.text


def _emit_row(source: Source, spec: RegionSpec) -> None:
    """Coordinates of the row, the operands' pointers to it, and the loop along it."""
    outer = spec.rank - 1
    source.line("rest = row")
    for loop in reversed(range(outer)):
        if loop == 0:
            source.line("c0 = rest")
        else:
            source.line(f"c{loop} = rest % sizes[{loop}]")
            source.line(f"rest = rest // sizes[{loop}]")
    for number in range(len(spec.inputs) + len(spec.outputs)):
        first = spec.rank * (1 + number)
        offset = " + ".join(f"c{loop} * sizes[{first + loop}]" for loop in range(outer)) or "0"
        source.line(f"q{number} = advance(p{number}, {offset})")
    source.line("j = first_column")
    if spec.streams:  # a part of a vector, up to where whole ones are aligned
        source.line(f"live = min(before_aligned(q{len(spec.inputs)}, j, LANES), last_column - j)")
        with source.block("if live > 0:"):
            _emit_body(source, spec, part=True)
            source.line("j += live")
    with source.block("while j + LANES <= last_column:"):
        _emit_body(source, spec, part=False)
        source.line("j += LANES")
    with source.block("if j < last_column:"):
        source.line("live = last_column - j")
        _emit_body(source, spec, part=True)


def _emit_body(source: Source, spec: RegionSpec, part: bool) -> None:
    """Load, compute and store one vector; `part`: only its first `live` lanes."""
    used = set().union(*(e.operands(root) for root in spec.exprs))
    for number, (_, movement) in enumerate(spec.inputs):
        if number in used:
            source.line(f"x{number} = {_load(number, movement, part)}")
    results = emit_expr(source, spec.exprs, lambda leaf: _leaf(leaf, spec.rank))
    for number, (_, movement) in enumerate(spec.outputs):
        target = len(spec.inputs) + number
        value = results[number]
        if spec.exprs[number].op == "constant" or _is_scalar(spec.exprs[number]):
            value = f"broadcast({value}, LANES)"
        if movement == UNIT:
            store = "stream" if spec.streams else "store"
            source.line(f"store_part(q{target}, j, {value}, live)" if part else f"{store}(q{target}, j, {value})")
        else:
            live = "live" if part else "LANES"
            source.line(f"scatter(q{target}, j * s{target}, s{target}, {value}, {live})")


def _load(number: int, movement: int, part: bool) -> str:
    if movement == BROADCAST:
        return f"broadcast(q{number}[0], LANES)"
    if movement == UNIT:
        return f"load_part(q{number}, j, live, LANES)" if part else f"load(q{number}, j, LANES)"
    return f"load_strided(q{number}, j * s{number}, s{number}, {'live' if part else 'LANES'}, LANES)"


def _leaf(leaf: e.Expr, rank: int) -> str:
    if leaf.op == "operand":
        return f"x{leaf.value}"
    return "iota(j, LANES)" if leaf.value == rank - 1 else f"broadcast(c{leaf.value}, LANES)"


def _is_scalar(root: e.Expr) -> bool:
    """Whether an expression is made of constants only, so that no vector gives it its width."""
    return not any(node.op in ("operand", "index") for node in e.children_first(root))

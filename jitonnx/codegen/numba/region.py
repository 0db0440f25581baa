"""Regions as source: a loop for each axis, or one over the rows that tasks share out, and the scalars inside.

What tasks are is the schedule's: `rows_each` rows of `columns_each` columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any

from jitonnx.codegen.numba.expression import write_expressions
from jitonnx.codegen.numba.kernel import KernelWriter
from jitonnx.codegen.numba.writing import Amount, least, plus, split, times
from jitonnx.ir.computation import expressions as e
from jitonnx.plan.region import RegionSpec

_AXES = "ijklmnopqr"


def write_region(kernel: KernelWriter) -> str:
    """Write a region's body; a line that says what it computes."""
    spec, code = kernel.spec, kernel.code
    loops = [_AXES[loop] if loop < len(_AXES) else f"i{loop}" for loop in range(spec.rank)]
    with _rows(kernel, loops) as (place, first, last):
        bases: dict[int, Amount] = {}
        for number in range(len(kernel.call.tensors)):
            if number >= len(spec.inputs) or number in _used(spec):
                base = _at(kernel, number, place)
                text = isinstance(base, str) and not base.isidentifier()
                bases[number] = code.named(f"at_{number}", str(base)) if text else base
        for number, base in bases.items():  # what a row has once is read once
            if number < len(spec.inputs) and not _steps(kernel)[number]:
                code.named(kernel.value_name(number), kernel.load(number, base, spec.inputs[number][0]))
        inner = code.fresh(loops[-1])
        with code.block(f"for {inner} in range({first}, {last}):" if first else f"for {inner} in range({last}):"):
            _element(kernel, [*place, inner], bases)
    operations = [node.op for root in spec.exprs for node in e.children_first(root) if node.arguments]
    return ", ".join(dict.fromkeys(operations)) or "the elements as they are, elsewhere"


def _steps(kernel: KernelWriter) -> list[Amount]:
    """How far apart the elements of each operand are along the innermost loop."""
    rank = kernel.spec.rank
    return list(kernel.sizes.strides[rank - 1 :: rank])


def _used(spec: RegionSpec) -> set[int]:
    return set().union(*(e.operands(root) for root in spec.exprs))


def _at(kernel: KernelWriter, number: int, place: list[Amount]) -> Amount:
    """The place at which a row of an operand begins, in elements."""
    rank = len(place) + 1
    strides = kernel.sizes.strides[rank * number : rank * (number + 1)]
    return plus(*(times(coordinate, stride) for coordinate, stride in zip(place, strides[:-1], strict=True)))


@contextmanager
def _rows(kernel: KernelWriter, loops: list[str]) -> Iterator[tuple[list[Amount], Amount, Amount]]:
    """The loops around the innermost: the coordinates in these, and the columns to do."""
    code, size = kernel.code, _settled(kernel)
    extents, columns = list(size.extents), size.extents[-1]
    with ExitStack() as stack:
        if kernel.tasks is not None and kernel.tasks <= 1:
            place: list[Amount] = []
            for loop, extent in zip(map(code.fresh, loops[:-1]), extents[:-1], strict=True):
                stack.enter_context(code.block(f"for {loop} in range({extent}):"))
                place.append(loop)
            yield place, 0, columns
            return
        if size.pieces == 1:
            first, last = times("begin", size.rows_each), least(times("end", size.rows_each), size.rows)
            yield _row_place(kernel, stack, loops, first, last), 0, columns
            return
        if len(extents) == 1:
            yield [], times("begin", size.columns_each), least(times("end", size.columns_each), columns)
            return
        task = code.fresh("task")
        stack.enter_context(code.block(f"for {task} in range(begin, end):"))
        block, piece = split(code, task, [("block", 0), ("piece", size.pieces)])
        row = code.named("first_row", str(times(block, size.rows_each)))
        column = code.named("first_column", str(times(piece, size.columns_each)))
        stop = code.named("stop_column", str(least(plus(column, size.columns_each), columns)))
        place = _row_place(kernel, stack, loops, row, least(plus(row, size.rows_each), size.rows))
        yield place, column, stop


def _settled(kernel: KernelWriter) -> Any:
    """The sizes. How rows are cut into pieces depends on their length alone: where that is known, so is this."""
    spec, size = kernel.spec, kernel.sizes
    if kernel.fixed or not isinstance(size.extents[-1], int):
        return size
    extents = [1] * (spec.rank - 1) + [size.extents[-1]]
    given = type(kernel.call.sizes).make([*extents, *[0] * len(size.strides)])
    like = spec.complete(given)
    known = size.named() | {name: getattr(like, name) for name in ("rows_each", "columns_each", "pieces")}
    if spec.rank == 2:
        known["rows"] = size.extents[0]
    return SimpleNamespace(**known)


def _row_place(kernel: KernelWriter, stack: ExitStack, loops: list[str], first: Amount, last: Amount) -> list[Amount]:
    """A loop over rows, and the coordinates of one."""
    code, extents = kernel.code, kernel.sizes.extents[:-1]
    if not loops[:-1]:
        stack.enter_context(code.block(f"for _ in range({first}, {last}):"))
        return []
    row = code.fresh(loops[0] if len(loops) == 2 else "row")
    stack.enter_context(code.block(f"for {row} in range({first}, {last}):"))
    return [row] if len(loops) == 2 else split(code, row, list(zip(loops[:-1], extents, strict=True)))


def _element(kernel: KernelWriter, place: list[Amount], bases: dict[int, Amount]) -> None:
    """Read, compute and store one element of each operand."""
    spec, code = kernel.spec, kernel.code
    steps = _steps(kernel)

    def where(number: int) -> Amount:
        return plus(bases[number], times(place[-1], steps[number]))

    def leaf(node: e.Expr) -> str:
        if node.op == "index":
            return f"np.int64({place[node.value]})"
        read = kernel.load(node.value, where(node.value), spec.inputs[node.value][0])
        return code.named(kernel.value_name(node.value), read)

    results = write_expressions(code, spec.exprs, leaf)
    held = [code.named(kernel.value_name(number), text) for number, text in enumerate(results, len(spec.inputs))]
    for number, text in enumerate(held, len(spec.inputs)):
        kernel.store(number, where(number), text)

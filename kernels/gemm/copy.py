"""Copying a matrix of any strides to rows that lie one behind the other, for tiles to read."""

from __future__ import annotations

from jitonnx.emit import llvm_ir
from jitonnx.emit.builder import KernelBuilder, Pointer
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.support.records import NamedTuple

_I32 = llvm_ir.IntType(32)


def emit_copy(
    code: KernelBuilder,
    source: Pointer,
    strides: tuple[SSAValue, SSAValue],
    shape: tuple[SSAValue, SSAValue],
    target: Pointer,
    padded: SSAValue,
    lanes: int,
) -> None:
    """target[r * padded + c] = source[r * strides[0] + c * strides[1]] for r, c below shape; zero for c up to `padded`.

    `padded`, the target's row stride, is a multiple of lanes; up to lanes - 1 rows behind the last may be written.
    Rows of unit stride are copied as vectors, columns of unit stride turned in blocks of lanes x lanes, others copied
    one by one. The code is a function of the module, so that several copies share it.
    """
    code.subroutine(
        f"copy_matrix.{source.element}.{lanes}",
        _Copy(source, *strides, *shape, target, padded),
        lambda inner, *values: _write_copy(inner, lanes, _Copy(*values)),
        inline=False,
    )


class _Copy(NamedTuple):
    """What `emit_copy` copies, and to where."""

    source: Pointer
    row_stride: SSAValue
    column_stride: SSAValue
    rows: SSAValue
    columns: SSAValue
    target: Pointer
    padded: SSAValue


def _write_copy(code: KernelBuilder, lanes: int, copy: _Copy) -> None:
    with code.if_else(copy.column_stride.equals(1)) as (by_rows, otherwise):
        with by_rows:
            _copy_rows(code, lanes, copy)
        with otherwise, code.if_else(copy.row_stride.equals(1)) as (by_columns, scattered):
            with by_columns:
                _turn(code, lanes, copy)
            with scattered:
                _copy_single(code, copy)


def _copy_rows(code: KernelBuilder, lanes: int, copy: _Copy) -> None:
    with code.loop(copy.rows) as row, code.loop(copy.padded, step=lanes) as column:
        vector = copy.source.load(row * copy.row_stride + column, lanes, copy.columns - column)
        copy.target.store(row * copy.padded + column, vector)


def _copy_single(code: KernelBuilder, copy: _Copy) -> None:
    source, row_stride, column_stride, rows, columns, target, padded = copy
    with code.loop(rows) as row:
        with code.loop(columns) as column:
            target.store(row * padded + column, source.load(row * row_stride + column * column_stride))
        with code.loop(padded, columns) as column:
            target.store(row * padded + column, code.number(target.element, 0))


def _turn(code: KernelBuilder, lanes: int, copy: _Copy) -> None:
    """Blocks of lanes x lanes: a vector of each column, turned in registers, stored as a vector of each row."""
    source, _, column_stride, rows, columns, target, padded = copy
    with code.loop(rows, step=lanes) as row, code.loop(padded, step=lanes) as column:
        block = []
        for number in range(lanes):
            active = select(column + number < columns, rows - row, 0)
            block.append(source.load((column + number) * column_stride + row, lanes, active).value)
        for number, vector in enumerate(_transpose(code.builder, block)):
            target.store((row + number) * padded + column, SSAValue(code.builder, target.element, vector))


def _transpose(builder: llvm_ir.IRBuilder, block: list[llvm_ir.Value]) -> list[llvm_ir.Value]:
    """The transpose of a square block: for each power of two, exchange off-diagonal quarters of squares."""
    lanes = len(block)
    block, distance = list(block), 1
    while distance < lanes:
        low = [j if not j & distance else lanes + j - distance for j in range(lanes)]
        high = [j + distance if not j & distance else lanes + j for j in range(lanes)]
        for i in range(lanes):
            if not i & distance:
                a, b = block[i], block[i + distance]
                block[i], block[i + distance] = (
                    builder.shuffle_vector(a, b, llvm_ir.Constant(llvm_ir.VectorType(_I32, lanes), mask))
                    for mask in (low, high)
                )
        distance *= 2
    return block

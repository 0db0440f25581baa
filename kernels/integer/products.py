"""Sums of products of small integers in registers: a tile of rows times a panel of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import KernelBuilder, Pointer
from jitonnx.emit.instructions import add_dot_products
from jitonnx.emit.intrinsics import declared, splat
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.integer.spec import IntegerSpec
from jitonnx.kernels.parts.layouts import LINE
from jitonnx.kernels.parts.microkernel import emit_prefetch
from jitonnx.support.records import NamedTuple
from jitonnx.target.products import IntegerProducts

_I32 = llvm_ir.IntType(32)
_BYTE_PAIRS = {16: "llvm.x86.avx512.pmaddubs.w.512", 8: "llvm.x86.avx2.pmadd.ub.sw"}
_PAIRS = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd"}


class Ahead(NamedTuple):
    """Memory that will be needed soon, and how many bytes of it to ask for in each step."""

    place: Pointer
    each: SSAValue


class Runs(NamedTuple):
    """Rows of x that lie in runs of one length."""

    number: SSAValue
    """How many there are."""
    steps: SSAValue
    """Groups of elements of a run."""
    apart_bytes: SSAValue
    """The bytes from the beginning of a run to the next one's."""


class Factors(NamedTuple):
    """Rows of x times a panel of w, as they lie copied and packed."""

    rows: Sequence[Pointer]
    """The beginning of each row of x."""
    w: Pointer
    steps: SSAValue
    """Groups of elements of a row."""
    runs: Runs | None = None
    """None: all of a row is one run."""


def evenly_apart(first: Pointer, row_bytes: SSAValue, count: int) -> list[Pointer]:
    """Rows so many bytes apart."""
    return [first.to(types.uint8).at(row_bytes * r) for r in range(count)]


def emit_products(
    code: KernelBuilder,
    spec: IntegerSpec,
    height: int,
    first: Sequence[SSAValue],
    factors: Factors,
    ahead: Ahead | None = None,
) -> list[SSAValue]:
    """The sums of `height` rows, int32 vectors row after row, that begin with `first`. All sums stay in registers.
    ahead: what is asked for meanwhile."""
    if spec.multiply == "signed matrices":
        return _matrix_products(code, spec, height, first, factors)
    builder, group, vectors, lanes = code.builder, spec.group, len(first), first[0].lanes
    sums = [code.variable(vector) for _ in range(height) for vector in first]
    element = {4: types.int8, 2: types.int16, 1: types.int32}[group]
    rows = [row.to(types.int32) for row in factors.rows]

    def add(step: SSAValue, word: SSAValue) -> None:
        panel = factors.w.at(step * (group * spec.width))
        if spec.prefetch_distance:
            soon = panel.at(spec.prefetch_distance * group * spec.width)
            for line in range(0, group * spec.width, LINE):
                emit_prefetch(builder, soon.at(line).value, level=1)
        if ahead is not None:
            emit_prefetch(builder, ahead.place.at(step * ahead.each).value)
        right = [_widened(panel.load(vector * lanes * group, lanes * group), element) for vector in range(vectors)]
        for r in range(height):
            left = splat(builder, rows[r].load(word).value, lanes)
            for vector in range(vectors):
                place = sums[r * vectors + vector]
                place.set(add_products(code, spec.multiply, place.get(), left, right[vector], lanes))

    _each_step(code, factors, add)
    return [place.get() for place in sums]


def _matrix_products(
    code: KernelBuilder,
    spec: IntegerSpec,
    height: int,
    first: Sequence[SSAValue],
    factors: Factors,
) -> list[SSAValue]:
    """`emit_products` by products of matrices: two rows of x by two columns of w, whose four sums share a register. A
    last row without another is multiplied twice."""
    builder, sums = code.builder, llvm_ir.VectorType(_I32, 4)
    bytes_type = llvm_ir.VectorType(llvm_ir.IntType(8), 16)
    function = declared(builder, "llvm.aarch64.neon.smmla.v4i32.v16i8", sums, [sums, bytes_type, bytes_type])
    pairs = [(r, min(r + 1, height - 1)) for r in range(0, height, 2)]
    halves = [_picked(vector, vector, [2 * half, 2 * half + 1] * 2) for vector in first for half in (0, 1)]
    blocks = [[code.variable(half) for half in halves] for _ in pairs]
    rows = [row.to(types.int8) for row in factors.rows]

    def add(step: SSAValue, word: SSAValue) -> None:
        panel = factors.w.at(step * (8 * spec.width))
        groups = [row.load(word * 4, 8) for row in rows]
        left = [_picked(groups[a], groups[b], range(16)).value for a, b in pairs]
        for number in range(len(halves)):
            right = panel.load(16 * number, 16).value
            for of_pair, matrix in zip(blocks, left, strict=True):
                total = of_pair[number].get()
                of_pair[number].set(total.like(builder.call(function, [total.value, matrix, right])))

    _each_step(code, factors, add, words=2)
    results = []
    for r in range(height):
        done = [block.get() for block in blocks[r // 2]]
        columns = [2 * (r % 2), 2 * (r % 2) + 1]
        results += [
            _picked(a, b, [*columns, *(4 + column for column in columns)])
            for a, b in zip(done[::2], done[1::2], strict=True)
        ]
    return results


def _each_step(
    code: KernelBuilder, factors: Factors, body: Callable[[SSAValue, SSAValue], None], words: int = 1
) -> None:
    """body(step, word) for each group of elements: its number, and of which word of 32 bits of a row it is the first of
    `words`."""
    runs = factors.runs
    if runs is None:
        with code.loop(factors.steps) as step:
            body(step, step * words)
        return
    with code.loop(runs.number) as run:
        first, begin = run * runs.steps, run * (runs.apart_bytes / 4)
        with code.loop(runs.steps) as step:
            body(first + step, begin + step * words)


def _picked(a: SSAValue, b: SSAValue, places: Sequence[int]) -> SSAValue:
    """Elements of two vectors, one after the other, by their places."""
    mask = llvm_ir.Constant(llvm_ir.VectorType(_I32, len(places)), list(places))
    return a.like(a.builder.shuffle_vector(a.value, b.value, mask))


def _widened(vector: SSAValue, element: types.ElementType) -> llvm_ir.Value:
    if vector.element is element:
        return vector.value
    return vector.builder.sext(vector.value, llvm_ir.VectorType(element.llvm, vector.lanes))


def byte_pairs(builder: llvm_ir.IRBuilder, left: llvm_ir.Value, right: llvm_ir.Value, lanes: int) -> llvm_ir.Value:
    """The sums of pairs of products of unsigned and signed bytes, in 16 bits."""
    of_bytes = llvm_ir.VectorType(llvm_ir.IntType(8), 4 * lanes)
    function = declared(builder, _BYTE_PAIRS[lanes], llvm_ir.VectorType(llvm_ir.IntType(16), 2 * lanes), [of_bytes] * 2)
    return builder.call(function, [builder.bitcast(operand, of_bytes) for operand in (left, right)])


def add_products(
    code: KernelBuilder,
    multiply: IntegerProducts,
    total: SSAValue,
    left: llvm_ir.Value,
    right: llvm_ir.Value,
    lanes: int,
) -> SSAValue:
    """The sums with the products of a group added; `left` are 32 bits in each lane, `right` as many bits."""
    builder, sums = code.builder, llvm_ir.VectorType(_I32, lanes)
    if multiply in ("dot", "signed dot"):
        return add_dot_products(total, total.like(builder.bitcast(right, sums)), total.like(left), multiply)
    if multiply in ("pairs", "byte pairs"):
        pairs = llvm_ir.VectorType(llvm_ir.IntType(16), 2 * lanes)
        operands = [builder.bitcast(operand, pairs) for operand in (left, right)]
        if multiply == "byte pairs":
            operands = [byte_pairs(builder, left, right, lanes), llvm_ir.Constant(pairs, [1] * (2 * lanes))]
        function = declared(builder, _PAIRS[lanes], sums, [pairs] * 2)
        return total.like(builder.add(total.value, builder.call(function, operands)))
    return total.like(builder.add(total.value, builder.mul(left, right)))

"""Products and convolutions in bfloat16: which are, and which values lie as that between them.

Their operands are rounded, their sums are float32. Rounding an activation is done by whoever makes it, where nobody but
such kernels reads it: it then lies as bfloat16, half the memory, and kernels read it in place. What others read, too,
lies as float32 and is rounded by the kernels as they copy it, or once for all of them where they have many columns.
The result is the same either way. Large images are an exception: elementwise computations beside, the sums of residual
blocks, read them rounded, as what these take is the time to read and write them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowered, Statement
from jitonnx.ir.dims import concrete, integers, known, product, usual
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.types import TensorType

NO_BFLOAT16 = (
    "bfloat16 was asked for; products and convolutions are done in float32, as the CPU has no instructions that "
    "multiply bfloat16 faster (AMX, AVX512-BF16 at twice float32's rate, AArch64's bfmmla), or this process may not "
    "use them; large weights of few rows alone are rounded"
)
_LEAST_PRODUCTS = 1 << 9
"""Elements of the weights from which on bfloat16 is faster, in a convolution, which has many rows."""
_LEAST_OF_MATRIX = 1 << 12
"""The same in a product, which may have one: 0.67 of float32's speed was measured with 512 elements and few rows."""
_LEAST_COLUMNS, _LEAST_DEPTH = 8, 20
_LEAST_ROWS = 16
"""Rows of a product of computed matrices."""
_LEAST_OF_COMPUTED = 1 << 16
"""Products of all of these."""
_DEPTH_IN_PLANES = 27
"""Products of an element, such as 3 x 3 of 3 channels, up to which a convolution is faster in float32 if its result is
given out: it then writes planes of pixels, which tile registers do not, and copying 64 channels of 224 x 224 takes
as long as their products."""
_LARGE_IMAGE = 1 << 16
"""Elements of an image from which on reading and writing it takes longer than what is computed."""
_LEAST_CHANNELS = 16
"""Channels of a depthwise convolution from which on its kernel is the one for vectors of channels."""
_SHARED_COLUMNS = 768
"""Columns of all products of a value from which on it is rounded once, in a pass of its own, if it is nowhere else."""


def in_bfloat16(
    lowered: Lowered,
    takes_epilogue: Callable[[Statement], bool],
    outruns: Callable[[Statement], bool],
    *,
    exactly: bool,
    packs: bool,
) -> Lowered:
    """The same statements with products and convolutions in bfloat16 where that is faster.

    outruns: whether a convolution takes less time in float32. exactly: only those whose operands are numbers of
    bfloat16 anyway, as in models of that type. packs: computed matrices are packed in a run, so that products of two of
    them are among these.
    """
    given_out = _given_out(lowered)
    made = {s: _in_bfloat16(s, given_out, packs=packs) for s in lowered.statements}
    chosen = {
        s: computation
        for s, computation in made.items()
        if computation is not None and not (isinstance(computation, c.Bfloat16Convolution) and outruns(s))
    }
    if exactly:
        numbers = _numbers(lowered) if chosen else set()
        chosen = {
            s: made
            for s, made in chosen.items()
            if all(value in numbers or _are_numbers(value) for value in s.inputs[:2])
        }
    if not chosen:
        return lowered
    rounding = _Rounding(_Values(lowered, chosen, takes_epilogue))
    for statement in lowered.statements:
        rounding.add(statement)
    return replace(lowered, statements=_read(rounding.statements, lowered.outputs))


def _read(statements: Sequence[Statement], outputs: Sequence[Value]) -> list[Statement]:
    """The statements without those that keep rounding and whose float32 results nobody reads any more."""
    wanted, found = set(outputs), []
    for statement in reversed(statements):
        if not _keeps_rounding(statement) or not wanted.isdisjoint(statement.outputs):
            wanted.update(value for value in statement.inputs if value is not None)
            found.append(statement)
    return found[::-1]


def _given_out(lowered: Lowered) -> set[Value]:
    """What the caller gets, and what computations element by element alone are behind."""
    found = set(lowered.outputs)
    for statement in reversed(lowered.statements):
        if isinstance(statement.computation, c.Map) and not found.isdisjoint(statement.outputs):
            found.update(value for value in statement.inputs if value is not None)
    return found


def _in_bfloat16(statement: Statement, given_out: set[Value], *, packs: bool) -> c.Computation | None:
    """What stands in the place of a statement's computation; None for what stays as it is."""
    computation = statement.computation
    if not isinstance(computation, c.MatMul | c.Convolution):
        return None
    x, weights = statement.inputs[:2]
    assert x is not None and weights is not None
    if x.constant is not None or x.dtype is not DType.FLOAT:
        return None
    if weights.constant is None:
        return c.Bfloat16MatMul() if packs and isinstance(computation, c.MatMul) and _packing_pays(x, weights) else None
    if isinstance(computation, c.MatMul):
        *batch, depth, columns = weights.constant.shape
        pays = _pays(depth, columns) and depth * columns >= _LEAST_OF_MATRIX
        return c.Bfloat16WeightMatMul() if pays and all(dim == 1 for dim in batch) else None
    columns, *rest = weights.constant.shape
    pads = (*computation.pads_before, *computation.pads_after)
    depth = weights.constant.size // max(columns, 1)
    if computation.group != 1 or computation.exact or len(rest) not in (2, 3) or not _pays(depth, columns):
        return None
    if any(known((pad,)) and integers((pad,))[0] < 0 for pad in pads):
        return None
    if depth <= _DEPTH_IN_PLANES and statement.outputs[0] in given_out:
        return None
    return c.Bfloat16Convolution(
        computation.strides, computation.dilations, computation.pads_before, computation.pads_after
    )


def _numbers(lowered: Lowered) -> set[Value]:
    """The float32 values whose elements are all numbers of bfloat16."""
    found: set[Value] = set()
    for statement in lowered.statements:
        computation, inputs = statement.computation, [value for value in statement.inputs if value is not None]
        if isinstance(computation, c.Map):
            known_ones = {number for number, value in enumerate(inputs) if value in found}
            is_one = e.is_rounded(computation.expr, DType.BFLOAT16, known_ones)
        else:
            keeps = isinstance(computation, c.View | c.Concat) or (
                isinstance(computation, c.Pool) and computation.kind == "max"
            )
            is_one = keeps and all(value in found for value in inputs)
        if is_one and statement.outputs[0].dtype is DType.FLOAT:
            found.add(statement.outputs[0])
    return found


def _are_numbers(weights: Value | None) -> bool:
    array = None if weights is None else weights.constant
    if array is None:
        return False
    flat = array.ravel(order="K")
    pieces = (flat[start : start + _PIECE] for start in range(0, flat.size, _PIECE))
    return all(not (piece.view(np.uint32) & 0xFFFF).any() for piece in pieces)


_PIECE = 1 << 16


def _pays(depth: int, columns: int) -> bool:
    return depth >= _LEAST_DEPTH and columns >= _LEAST_COLUMNS and depth * columns >= _LEAST_PRODUCTS


def _packing_pays(a: Value, b: Value) -> bool:
    """Whether a product of computed matrices is faster with the second one packed: for several rows."""
    if len(a.shape) < 2 or len(b.shape) < 2:
        return False
    rows, (depth, columns) = (
        usual(product(a.shape[:-1]) if len(b.shape) == 2 else a.shape[-2]),
        map(usual, b.shape[-2:]),
    )
    matrices = 1 if len(b.shape) == 2 else usual(product(b.shape[:-2]))
    many = matrices * rows * depth * columns >= _LEAST_OF_COMPUTED
    return rows >= _LEAST_ROWS and many and _pays(depth, columns)


class _Values:
    """Which values lie as bfloat16.

    rounded: those that do. images: those of them that are images which others read, too, but only element by element,
    and are so large that they are read and written in less time: sums of residual blocks.
    """

    def __init__(
        self,
        lowered: Lowered,
        chosen: dict[Statement, c.Computation],
        takes_epilogue: Callable[[Statement], bool],
    ) -> None:
        self.chosen, self._takes_epilogue = chosen, takes_epilogue
        self._readers: dict[Value, list[Statement | None]] = {}
        for statement in lowered.statements:
            for value in dict.fromkeys(statement.inputs):
                if value is not None:
                    self._readers.setdefault(value, []).append(statement)
        for value in lowered.outputs:
            self._readers.setdefault(value, []).append(None)
        self._makers = {value: statement for statement in lowered.statements for value in statement.outputs}
        self.rounded: set[Value] = set()
        self.images: set[Value] = set()
        for statement in reversed(lowered.statements):
            for value in statement.outputs:
                if value.dtype is DType.FLOAT:
                    self._decide(value)
        # A view is one of what lies in bfloat16, or it is none: its operand is rounded whole, once.
        for statement in lowered.statements:
            if _keeps_rounding(statement) and statement.inputs[0] not in self.rounded:
                self.rounded.discard(statement.outputs[0])
                self.images.discard(statement.outputs[0])

    def _decide(self, value: Value) -> None:
        found = self._readers.get(value, [])
        wanting = [reader for reader in found if reader is not None and self._wants(reader, value)]
        if not wanting:
            return
        others = [reader for reader in found if reader not in wanting]
        columns = sum(
            _columns(reader) for reader in wanting if isinstance(self.chosen.get(reader), c.Bfloat16WeightMatMul)
        )
        free = _keeps_rounding(self._makers[value]) or self._made_free(value)
        by_element = all(reader is not None and isinstance(reader.computation, c.Map) for reader in others)
        if free and others and by_element and _is_large_image(value):
            self.images.add(value)
            self.rounded.add(value)
        elif columns >= _SHARED_COLUMNS or (free and not others):
            self.rounded.add(value)

    def _wants(self, reader: Statement, value: Value) -> bool:
        """Whether a reader would rather have a value in bfloat16."""
        if reader in self.chosen:
            if isinstance(self.chosen[reader], c.Bfloat16MatMul):
                return True
            return reader.inputs[0] is value and value not in reader.inputs[1:]
        return _keeps_rounding(reader) and reader.outputs[0] in self.rounded

    def _made_free(self, value: Value) -> bool:
        """Whether who makes a value can write it as bfloat16: regions, and epilogues of products in bfloat16 and of
        depthwise convolutions."""
        maker = self._makers.get(value)
        if maker is None or not isinstance(maker.computation, c.Map):
            return maker is not None and self._writes(maker)
        anchors = []
        for source in maker.inputs:
            before = None if source is None else self._makers.get(source)
            if source is None or before is None or self._readers[source] != [maker] or source.shape != value.shape:
                continue
            if isinstance(before.computation, c.Map):
                if not self._made_free(source):
                    return False
            elif before in self.chosen or self._takes_epilogue(before):
                anchors.append(before)
        return not anchors or any(map(self._writes, anchors))

    def _writes(self, statement: Statement) -> bool:
        return statement in self.chosen or writes_bfloat16(statement)


def _keeps_rounding(statement: Statement) -> bool:
    """Whether what a statement makes of rounded numbers are the numbers that it makes otherwise, rounded: views, and
    the largest of some."""
    computation = statement.computation
    largest = isinstance(computation, c.Pool) and computation.kind == "max" and len(statement.outputs) == 1
    return largest or isinstance(computation, c.View)


def writes_bfloat16(statement: Statement) -> bool:
    """Whether a convolution of float32 can write bfloat16: a depthwise one of images of many channels."""
    computation = statement.computation
    if not isinstance(computation, c.Convolution) or computation.group < _LEAST_CHANNELS:
        return False
    weights = statement.inputs[1]
    assert weights is not None
    return len(weights.shape) == 4 and weights.constant is not None and weights.shape[:2] == (computation.group, 1)


def _is_large_image(value: Value) -> bool:
    size = concrete(product(value.shape))
    return len(value.shape) == 4 and (size is None or size >= _LARGE_IMAGE)


def _columns(statement: Statement) -> int:
    weights = statement.inputs[1]
    assert weights is not None and weights.constant is not None
    return int(weights.constant.shape[-1])


class _Rounding:
    """Writes the statements anew."""

    def __init__(self, values: _Values) -> None:
        self._values = values
        self.statements: list[Statement] = []
        self._half: dict[Value, Value] = {}
        """Give the bfloat16 of values."""

    def add(self, statement: Statement) -> None:
        """The statement, and what rounds its results."""
        computation, node = self._values.chosen.get(statement, statement.computation), statement.node
        inputs = list(statement.inputs)
        if statement in self._values.chosen:
            rounded = 2 if isinstance(computation, c.Bfloat16MatMul) else 1
            inputs[:rounded] = [value and self._half.get(value, value) for value in inputs[:rounded]]
        if isinstance(computation, c.Map):
            computation, inputs = self._on_images(computation, inputs)
        if _keeps_rounding(statement):
            (source,), output = inputs, statement.outputs[0]
            if output in self._values.rounded and source is not None:
                self._append(computation, [self._half[source]], self._halved(output), node)
        self.statements.append(Statement(computation, tuple(inputs), statement.outputs, node))
        if _keeps_rounding(statement):
            return
        for value in statement.outputs:
            if value in self._values.rounded and (same := _widened(statement)) is not None:
                self._half[value] = same
            elif value in self._values.rounded:
                expr = e.cast_for_products(e.operand(0, DType.FLOAT))
                self._append(c.Map(expr), [value], self._halved(value), node)

    def _on_images(self, computation: c.Map, inputs: list[Value | None]) -> tuple[c.Map, list[Value | None]]:
        """An elementwise computation that reads images in bfloat16."""
        given = [value for value in inputs if value is not None]
        images = {number for number, value in enumerate(given) if value in self._values.images}
        if not images:
            return computation, inputs

        def widened(leaf: e.Expr) -> e.Expr | None:
            if leaf.op != "operand" or leaf.value not in images:
                return None
            return e.cast(e.operand(leaf.value, DType.BFLOAT16), DType.FLOAT)

        operands = [self._half[value] if number in images else value for number, value in enumerate(given)]
        return c.Map(e.substitute(computation.expr, widened)), list(operands)

    def _halved(self, value: Value) -> Value:
        half = self._half[value] = Value(f"{value.name} in bfloat16", TensorType(DType.BFLOAT16, value.shape))
        return half

    def _append(self, computation: c.Computation, inputs: Sequence[Value | None], output: Value, node: Node) -> None:
        self.statements.append(Statement(computation, tuple(inputs), (output,), node))


def _widened(statement: Statement) -> Value | None:
    """The value in bfloat16 of which a statement's result is the float32 of equal value; None if it is none."""
    expr = statement.computation.expr if isinstance(statement.computation, c.Map) else None
    if expr is None or expr.op != "cast" or expr.dtype is not DType.FLOAT:
        return None
    (leaf,) = expr.arguments
    if leaf.op != "operand" or leaf.dtype is not DType.BFLOAT16:
        return None
    source = [value for value in statement.inputs if value is not None][leaf.value]
    return source if source.shape == statement.outputs[0].shape else None

"""Products and convolutions in bfloat16: which are, and which values lie as that between them.

Their operands are rounded, their sums are float32. Rounding an activation is done by whoever makes it, where nobody but
such kernels reads it: it then lies as bfloat16, half the memory, and kernels read it in place. What others read, too,
lies as float32 and is rounded by the kernels as they copy it, or once for all of them where they have many columns.
The result is the same either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from jitonnx.computation import computations as c
from jitonnx.computation import expr as e
from jitonnx.computation.lowering import Lowered, Statement
from jitonnx.ir.dims import integers, known
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.types import TensorType

NO_BFLOAT16 = (
    "bfloat16 was asked for; products and convolutions are done in float32, as the CPU has no matrix instructions for "
    "bfloat16 (AMX), or this process may not use them"
)
_LEAST_PRODUCTS = 1 << 10
"""Elements of the weights from which on bfloat16 is faster."""
_LEAST_COLUMNS, _LEAST_DEPTH = 8, 8
_SHARED_COLUMNS = 768
"""Columns of all products of a value from which on it is rounded once, in a pass of its own, if it is nowhere else."""


def in_bfloat16(lowered: Lowered) -> Lowered:
    """The same statements with products and convolutions in bfloat16 where that is faster."""
    chosen = {statement: made for statement in lowered.statements if (made := _in_bfloat16(statement)) is not None}
    if not chosen:
        return lowered
    rounding = _Rounding(chosen, _rounded_values(lowered, chosen))
    for statement in lowered.statements:
        rounding.add(statement)
    return replace(lowered, statements=rounding.statements)


def _in_bfloat16(statement: Statement) -> c.Computation | None:
    """What stands in the place of a statement's computation; None for what stays as it is."""
    computation = statement.computation
    if not isinstance(computation, c.MatMul | c.Convolution):
        return None
    x, weights = statement.inputs[:2]
    assert x is not None and weights is not None
    if weights.constant is None or x.constant is not None or x.dtype is not DType.FLOAT:
        return None
    if isinstance(computation, c.MatMul):
        *batch, depth, columns = weights.constant.shape
        plain = all(dim == 1 for dim in batch)
        return c.BfloatMatMul() if plain and _pays(depth, columns) else None
    columns, *rest = weights.constant.shape
    pads = (*computation.pads_before, *computation.pads_after)
    depth = weights.constant.size // max(columns, 1)
    if computation.group != 1 or computation.exact or len(rest) not in (2, 3) or not _pays(depth, columns):
        return None
    if any(known((pad,)) and integers((pad,))[0] < 0 for pad in pads):
        return None
    return c.BfloatConvolution(
        computation.strides, computation.dilations, computation.pads_before, computation.pads_after
    )


def _pays(depth: int, columns: int) -> bool:
    return depth >= _LEAST_DEPTH and columns >= _LEAST_COLUMNS and depth * columns >= _LEAST_PRODUCTS


def _rounded_values(lowered: Lowered, chosen: dict[Statement, c.Computation]) -> set[Value]:
    """The values that lie as bfloat16, too, or alone."""
    readers: dict[Value, list[Statement | None]] = {}
    for statement in lowered.statements:
        for value in dict.fromkeys(statement.inputs):
            if value is not None:
                readers.setdefault(value, []).append(statement)
    for value in lowered.outputs:
        readers.setdefault(value, []).append(None)
    makers = {value: statement for statement in lowered.statements for value in statement.outputs}
    rounded: set[Value] = set()
    for statement in reversed(lowered.statements):
        for value in statement.outputs:
            if value.dtype is not DType.FLOAT:
                continue
            found = readers.get(value, [])
            wanting = [reader for reader in found if reader is not None and _wants(reader, value, chosen, rounded)]
            columns = sum(_columns(reader) for reader in wanting if isinstance(chosen.get(reader), c.BfloatMatMul))
            if wanting and (len(wanting) == len(found) or columns >= _SHARED_COLUMNS):
                rounded.add(value)
    # A view is one of what lies in bfloat16, or it is none: its operand is rounded whole, once.
    for statement in lowered.statements:
        if isinstance(statement.computation, c.View) and statement.inputs[0] not in rounded:
            rounded.discard(statement.outputs[0])
    return {value for value in rounded if value in makers}


def _wants(reader: Statement, value: Value, chosen: dict[Statement, c.Computation], rounded: set[Value]) -> bool:
    """Whether a reader would rather have a value in bfloat16."""
    if reader in chosen:
        return reader.inputs[0] is value and value not in reader.inputs[1:]
    return isinstance(reader.computation, c.View) and reader.outputs[0] in rounded


def _columns(statement: Statement) -> int:
    weights = statement.inputs[1]
    assert weights is not None and weights.constant is not None
    return int(weights.constant.shape[-1])


class _Rounding:
    """Writes the statements anew."""

    def __init__(self, chosen: dict[Statement, c.Computation], rounded: set[Value]) -> None:
        self._chosen, self._values = chosen, rounded
        self.statements: list[Statement] = []
        self._half: dict[Value, Value] = {}
        """Give the bfloat16 of values."""

    def add(self, statement: Statement) -> None:
        """The statement, and what rounds its results."""
        computation, node = self._chosen.get(statement, statement.computation), statement.node
        inputs = list(statement.inputs)
        if statement in self._chosen and inputs[0] is not None:
            inputs[0] = self._half.get(inputs[0], inputs[0])
        source = inputs[0] if inputs else None
        output = statement.outputs[0]
        if isinstance(computation, c.View) and output in self._values and source is not None:
            self._append(computation, [self._half[source]], self._halved(output), node)
        self.statements.append(Statement(computation, tuple(inputs), statement.outputs, node))
        if isinstance(computation, c.View):
            return
        for value in statement.outputs:
            if value in self._values:
                expr = e.cast(e.operand(0, DType.FLOAT), DType.BFLOAT16)
                self._append(c.Map(expr), [value], self._halved(value), node)

    def _halved(self, value: Value) -> Value:
        half = self._half[value] = Value(f"{value.name} in bfloat16", TensorType(DType.BFLOAT16, value.shape))
        return half

    def _append(self, computation: c.Computation, inputs: Sequence[Value | None], output: Value, node: Node) -> None:
        self.statements.append(Statement(computation, tuple(inputs), (output,), node))

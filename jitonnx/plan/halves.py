"""Half precision between kernels: which values lie in memory as 16 bits, and which, already rounded, as float32.

Products, windows, reductions and normalisations compute on float32, so their operands of half precision are converted
in front of them and their results rounded behind them (`lower_halves` in `jitonnx.ops.base`). Converting is a pass over
memory of its own. It is saved where the value between is one that our own kernels write: that is kept as the float32 of
equal value, rounded in the registers of whoever computes it, an epilogue at best. So float32 it is

- where a conversion to float32 reads the value, directly or through views, concatenations and padding;
- where it is computed from an anchor's result that nobody else reads, so that it can go into the anchor's epilogue.

All else lies as 16 bits: graph inputs and outputs, constants, what only elementwise operators read and write, what is
gathered from tables. Results are the same bits either way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from jitonnx.computation import computations as c
from jitonnx.computation import expr as e
from jitonnx.computation.lowering import Lowered, Statement
from jitonnx.ir.dtypes import HALVES, DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.types import TensorType

_MOVES = (c.View, c.Concat, c.Pad)


def place_halves(lowered: Lowered, takes_epilogue: Callable[[Statement], bool]) -> Lowered:
    """The same statements with values of half precision kept as float32 where that saves conversions."""
    if not any(value.dtype in HALVES for statement in lowered.statements for value in statement.outputs):
        return lowered
    widening = _Widening(_kept_wide(lowered, takes_epilogue))
    for statement in lowered.statements:
        widening.add(statement)
    last = lowered.statements[-1].node
    outputs = [widening.as_it_is(value, last) for value in lowered.outputs]
    return replace(lowered, outputs=outputs, statements=widening.statements)


# ---------------------------------------------------------------- which values


def _kept_wide(lowered: Lowered, takes_epilogue: Callable[[Statement], bool]) -> set[Value]:
    """The values of half precision that are to lie as float32."""
    readers: dict[Value, list[Statement | None]] = {}
    for statement in lowered.statements:
        for value in statement.inputs:
            if value is not None:
                readers.setdefault(value, []).append(statement)
    for value in lowered.outputs:
        readers.setdefault(value, []).append(None)
    able, behind = _able(lowered), _behind_anchors(lowered, readers, takes_epilogue)
    chosen: set[Value] = set()
    for statement in reversed(lowered.statements):
        for value in statement.outputs:
            wanted = value in behind or any(_wants(reader, chosen) for reader in readers.get(value, ()))
            if wanted and value in able:
                chosen.add(value)
    return chosen


def _able(lowered: Lowered) -> set[Value]:
    """The values that can be computed as float32 at no more cost. A slice of what lies as 16 bits is not among them:
    all of that would be converted."""
    able: set[Value] = set()
    for statement in lowered.statements:
        value = statement.outputs[0]
        if value.dtype not in HALVES:
            continue
        computation, sources_able = statement.computation, any(v in able for v in statement.inputs)
        if isinstance(computation, c.Slice | c.Concat | c.Pad):
            if sources_able:
                able.add(value)
        elif isinstance(computation, c.Map | c.View):
            able.add(value)
    return able


def _behind_anchors(
    lowered: Lowered, readers: dict[Value, list[Statement | None]], takes_epilogue: Callable[[Statement], bool]
) -> set[Value]:
    """What elementwise statements compute from the result of an anchor, as long as nobody else reads what is between:
    the anchors' epilogues."""
    behind: set[Value] = set()
    for statement in lowered.statements:
        value = statement.outputs[0]
        if isinstance(statement.computation, c.Map):
            sources = [v for v in statement.inputs if v in behind and v is not None and v.shape == value.shape]
            if not any(all(reader is statement for reader in readers[source]) for source in sources):
                continue
        elif not takes_epilogue(statement):
            continue
        behind.add(value)
    return behind


def _wants(reader: Statement | None, chosen: set[Value]) -> bool:
    """Whether a reader would rather have float32."""
    if reader is None:
        return False
    return _is_widening(reader) or (isinstance(reader.computation, _MOVES) and reader.outputs[0] in chosen)


def _is_widening(statement: Statement) -> bool:
    """Whether all that a statement does is to convert half precision to float32."""
    expr = statement.computation.expr if isinstance(statement.computation, c.Map) else None
    return expr is not None and _is_widened_operand(expr)


def _is_widened_operand(expr: e.Expr) -> bool:
    return expr.op == "cast" and expr.dtype is DType.FLOAT and _is_half_operand(expr.arguments[0])


def _is_half_operand(expr: e.Expr) -> bool:
    return expr.op == "operand" and expr.dtype in HALVES


# ---------------------------------------------------------------- the statements with them


class _Widening:
    """Writes the statements anew."""

    def __init__(self, chosen: set[Value]) -> None:
        self._chosen = chosen
        self.statements: list[Statement] = []
        self._wide: dict[Value, Value] = {}
        """Give the float32 of equal value for one of half precision."""
        self._made_half: set[Value] = set()
        """Values that lie as float32 and as 16 bits, too."""
        self._same: dict[Value, Value] = {}
        """Conversions to float32 that are none any more."""

    def add(self, statement: Statement) -> None:
        """The statement on what its operands have become."""
        if isinstance(statement.computation, c.Map):
            self._add_map(statement, statement.computation.expr)
            return
        value, node = statement.outputs[0], statement.node
        if value in self._chosen:
            inputs = tuple(None if v is None else self._as_float(v, node) for v in statement.inputs)
            self._append(statement.computation, inputs, self._widened(value), node)
            return
        inputs = tuple(None if v is None else self.as_it_is(v, node) for v in statement.inputs)
        self.statements.append(Statement(statement.computation, inputs, statement.outputs, node))

    def as_it_is(self, value: Value, node: Node) -> Value:
        """A value with the element type it had: rounded to 16 bits once for all who want it so."""
        if value in self._chosen and value not in self._made_half:
            self._made_half.add(value)
            self._append(c.Map(e.cast(e.operand(0, DType.FLOAT), value.dtype)), (self._wide[value],), value, node)
        return self._same.get(value, value)

    def _as_float(self, value: Value, node: Node) -> Value:
        """A value of half precision as float32."""
        if value not in self._wide:
            if value.constant is not None:
                array = value.constant.astype("float32")
                self._wide[value] = Value(f"{value.name} as float", TensorType(DType.FLOAT, value.shape), array)
            else:
                expr = e.cast(e.operand(0, value.dtype), DType.FLOAT)
                self._append(c.Map(expr), (value,), self._widened(value), node)
        return self._wide[value]

    def _widened(self, value: Value) -> Value:
        wide = self._wide[value] = Value(f"{value.name} as float", TensorType(DType.FLOAT, value.shape))
        return wide

    def _add_map(self, statement: Statement, expr: e.Expr) -> None:
        given, value = [v for v in statement.inputs if v is not None], statement.outputs[0]
        if _is_widening(statement):
            if given[0] in self._wide:
                self._same[value] = self._wide[given[0]]
                return
            self._wide[given[0]] = value
        operands = [self._wide[v] if v in self._chosen else self._same.get(v, v) for v in given]
        wide = {i: v.dtype for i, v in enumerate(given) if v in self._chosen}
        if value in self._chosen:
            expr = _on_floats(e.cast(expr, DType.FLOAT), wide)
            self._append(c.Map(expr), operands, self._widened(value), statement.node)
        else:
            self._append(c.Map(_on_floats(expr, wide)), operands, value, statement.node)

    def _append(self, computation: c.Computation, inputs: Sequence[Value | None], output: Value, node: Node) -> None:
        self.statements.append(Statement(computation, tuple(inputs), (output,), node))


def _on_floats(root: e.Expr, wide: Mapping[int, DType]) -> e.Expr:
    """The expression with the operands `wide`, of half precision before, given as float32 that are rounded already."""
    done: dict[e.Expr, e.Expr] = {}
    for node in e.children_first(root):
        if _is_half_operand(node) and node.value in wide:
            done[node] = e.cast(e.operand(node.value, DType.FLOAT), node.dtype)
        else:
            done[node] = _without_rounding_twice(e.rebuild(node, [done[a] for a in node.arguments]), wide)
    return done[root]


def _without_rounding_twice(node: e.Expr, wide: Mapping[int, DType]) -> e.Expr:
    """float(half(x)) is x where x is a number of half precision."""
    if node.op != "cast" or node.dtype is not DType.FLOAT or node.arguments[0].op != "cast":
        return node
    half, (inner,) = node.arguments[0].dtype, node.arguments[0].arguments
    rounded = [number for number, dtype in wide.items() if dtype is half]
    return inner if inner.dtype is DType.FLOAT and e.is_rounded(inner, half, rounded) else node

"""Half precision between kernels: which values lie in memory as 16 bits, and which, already rounded, as float32.

Products, windows, reductions and normalisations compute on float32, so their operands of half precision are converted
in front of them and their results rounded behind them (`lower_halves` in `jitonnx.ops.base`). Converting is a pass over
memory of its own. It is saved where the value between is one that our own kernels write: that is kept as the float32 of
equal value, rounded in the registers of whoever computes it, an epilogue at best. So float32 it is

- where a conversion to float32 reads the value, directly or through views, concatenations and padding;
- where it is computed from an anchor's result that nobody else reads, so that it can go into the anchor's epilogue;
- where it is of float16, and elementwise operators compute it and are all that read it, so that it stays in registers.

All else lies as 16 bits: graph inputs and outputs, constants, what only elementwise operators read and write, what is
gathered from tables.

What lies as float32 alone is of float16 not rounded, either: onnxruntime computes such nodes in float32, and takes out
the casts between them, one of the model's with one of its own, too. So a value has one number for all who read it, the
rounded one if it lies as 16 bits anywhere, if the model casts to float16 and back, or if an operator that jumps (Round,
Less, a cast to integers, ArgMax) comes of it by elementwise operators: the last bit would decide there. All other
results are not rounded where onnxruntime's are not. Numbers of bfloat16 are rounded, since products in tile registers
take them as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowered, Statement
from jitonnx.ir.dtypes import HALVES, DType
from jitonnx.ir.graph import Node, Value
from jitonnx.ir.types import TensorType

_MOVES = (c.View, c.Concat, c.Pad)


def place_halves(lowered: Lowered, takes_epilogue: Callable[[Statement], bool]) -> Lowered:
    """The same statements with values of half precision kept as float32 where that saves conversions."""
    if not any(value.dtype in HALVES for statement in lowered.statements for value in statement.outputs):
        return lowered
    chosen = _kept_wide(lowered, takes_epilogue)
    widening = _Widening(chosen, _rounded(lowered, chosen))
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
            reading = readers.get(value, [])
            wanted = value in behind or any(_wants(reader, chosen) for reader in reading)
            if value in able and (wanted or _stays_in_registers(statement, reading)):
                chosen.add(value)
    return chosen


def _rounded(lowered: Lowered, chosen: set[Value]) -> set[Value]:
    """Those of the values `chosen` to lie as float32 whose numbers are rounded to half precision all the same."""
    rounded = {value for value in chosen if value.dtype is not DType.FLOAT16} | (chosen & set(lowered.outputs))
    rounded |= chosen & _behind_jumps(lowered)
    cast: set[Value | None] = set()
    for statement in reversed(lowered.statements):
        value = statement.outputs[0]
        if not isinstance(statement.computation, c.Map):
            if value not in chosen or value in rounded:
                rounded |= {operand for operand in statement.inputs if operand in chosen}
            if value in cast:
                cast |= set(statement.inputs)
        elif statement.node.operator.name in _CASTS:
            if value in chosen and value in cast:
                rounded.add(value)
            cast |= set(statement.inputs)
    return rounded


def _behind_jumps(lowered: Lowered) -> set[Value | None]:
    """The values that decide where an operator jumps, directly or by elementwise operators and moves."""
    deciding: set[Value | None] = set()
    for statement in reversed(lowered.statements):
        computation, decides = statement.computation, any(value in deciding for value in statement.outputs)
        if isinstance(computation, c.Map):
            decides |= statement.node.operator.name not in _CONTINUOUS and e.jumps(computation.expr)
        elif not isinstance(computation, _MOVES):
            decides = isinstance(computation, c.UserKernel)  # of which nobody knows whether it jumps
            decides |= not any(value.dtype.is_float for value in statement.outputs)
        if decides:
            deciding.update(statement.inputs)
    return deciding


_CONTINUOUS = ("Celu", "LeakyRelu", "PRelu")
"""Operators that compare, and give the same on both sides of where they do."""

_CASTS = ("Cast", "CastLike")
"""Operators by which a model asks for a rounding: two of them, one behind the other."""


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


def _stays_in_registers(statement: Statement, readers: Sequence[Statement | None]) -> bool:
    """Whether elementwise statements alone compute and read a value of float16, which are fused then."""
    value = statement.outputs[0]
    return value.dtype is DType.FLOAT16 and all(
        one is not None and isinstance(one.computation, c.Map) and one.outputs[0].shape == value.shape
        for one in (statement, *readers)
    )


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

    def __init__(self, chosen: set[Value], rounded: set[Value]) -> None:
        self._chosen, self._rounded = chosen, rounded
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
        rounded = {i for i in wide if given[i] in self._rounded}
        if value in self._chosen:
            single = e.cast(expr, DType.FLOAT) if value in self._rounded else _unrounded(expr)
            single = _on_floats(single, wide, rounded)
            if single.op == "operand" and operands[single.value].shape == value.shape:
                self._wide[value] = operands[single.value]
            else:
                self._append(c.Map(single), operands, self._widened(value), statement.node)
        else:
            self._append(c.Map(_on_floats(expr, wide, rounded)), operands, value, statement.node)

    def _append(self, computation: c.Computation, inputs: Sequence[Value | None], output: Value, node: Node) -> None:
        self.statements.append(Statement(computation, tuple(inputs), (output,), node))


def _unrounded(root: e.Expr) -> e.Expr:
    """The number of an expression of half precision as float32, before it is rounded."""
    if root.op == "cast":
        return e.cast(root.arguments[0], DType.FLOAT)
    if root.op == "where":
        condition, *numbers = root.arguments
        return e.where(condition, *map(_unrounded, numbers))
    return e.cast(root, DType.FLOAT)


def _on_floats(root: e.Expr, wide: Mapping[int, DType], rounded: Collection[int]) -> e.Expr:
    """The expression with the operands `wide`, of half precision before, given as float32, some `rounded` already."""
    done: dict[e.Expr, e.Expr] = {}
    for node in e.children_first(root):
        if _is_half_operand(node) and node.value in wide:
            done[node] = e.cast(e.operand(node.value, DType.FLOAT), node.dtype)
        else:
            done[node] = _as_it_lies(e.rebuild(node, [done[a] for a in node.arguments]), wide, rounded)
    return done[root]


def _as_it_lies(node: e.Expr, wide: Mapping[int, DType], rounded: Collection[int]) -> e.Expr:
    """float(half(x)) is x where x is an operand that lies as float32, or a number of half precision."""
    if node.op != "cast" or node.dtype is not DType.FLOAT or node.arguments[0].op != "cast":
        return node
    half, (inner,) = node.arguments[0].dtype, node.arguments[0].arguments
    if inner.op == "operand" and wide.get(inner.value) is half:
        return inner
    numbers = [number for number, dtype in wide.items() if dtype is half and number in rounded]
    return inner if inner.dtype is DType.FLOAT and e.is_rounded(inner, half, numbers) else node

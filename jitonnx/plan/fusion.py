"""Fusion: statements gathered into groups that each become one kernel.

A group is a region (elementwise statements over one iteration space), or an anchor (a product, a window, a reduction
...) with elementwise statements behind it (its epilogue). Views are no work and no group: they are applied to where
values lie. Every decision is noted with its reason, for `explain`.

An elementwise statement begins a region. The region then takes in, as long as there is one, each region whose result
has its shape and is read by nobody outside of it; at last it goes, as a whole, into the epilogue of an anchor of which
the same holds. A product that can multiply its weights instead of its operand absorbs the multiplication in front of
it: the gate of a squeeze-and-excite block.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import field

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowered, Statement
from jitonnx.ir.dtypes import HALVES, DType
from jitonnx.ir.graph import Node, Value
from jitonnx.plan.precision import writes_bfloat16
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

_WITH_INTEGERS = frozenset({DType.INT32, DType.FLOAT, DType.UINT8, DType.INT8})
"""What epilogues of integer products read and give."""

_BYTES = frozenset({DType.UINT8, DType.INT8})
"""What tensors are quantised to."""


@dataclass(eq=False)
class Group:
    """Statements that become one kernel. `position` orders groups: that of the last statement."""

    position: int
    output: Value
    """What it makes; the first result of an anchor that has several."""
    anchor: Statement | None = None
    maps: list[Statement] = field(default_factory=list)
    """The elementwise statements: of a region, or of an anchor's epilogue."""
    expr: e.Expr | None = None
    """What they compute together, over `operands`; in an epilogue operand(0) is the anchor's result."""
    operands: list[Value] = field(default_factory=list)
    scaling: Group | None = None
    """The region operands[0] * operands[1], which only the anchor reads, and which is done on its weights: the second
    operand has one number for each channel of the first."""
    reasons: list[str] = field(default_factory=list)

    @property
    def outputs(self) -> tuple[Value, ...]:
        """The anchor's results."""
        assert self.anchor is not None
        return self.anchor.outputs

    @property
    def statements(self) -> list[Statement]:
        """All statements, in order."""
        front = self.scaling.statements if self.scaling else []
        return [*front, *([self.anchor] if self.anchor else []), *self.maps]

    @property
    def origin(self) -> tuple[str, ...]:
        """Names of the model's nodes that the group stands for."""
        names: dict[str, None] = {}
        for statement in self.statements:
            names.update(dict.fromkeys(statement.node.origin or (statement.node.name,)))
        return tuple(names)


def fuse(
    lowered: Lowered,
    takes_epilogue: Callable[[Statement], bool],
    takes_scaling: Callable[[Statement, Value], bool],
    apart: Collection[Node] = (),
) -> list[Group]:
    """The groups of `lowered`, in an order in which producers come first. Deterministic.

    takes_scaling(statement, factors): whether the statement's first operand may be multiplied by them in its weights.
    apart: nodes whose statements are fused with nothing.
    """
    fusion = _Fusion(lowered, takes_epilogue, takes_scaling, apart)
    for position, statement in enumerate(lowered.statements):
        fusion.add(position, statement)
    fusion.finish()
    return sorted(fusion.groups, key=lambda group: group.position)


class _Fusion:
    def __init__(
        self,
        lowered: Lowered,
        takes_epilogue: Callable[[Statement], bool],
        takes_scaling: Callable[[Statement, Value], bool],
        apart: Collection[Node],
    ) -> None:
        self.takes_epilogue, self.takes_scaling, self.apart = takes_epilogue, takes_scaling, apart
        self.groups: dict[Group, None] = {}
        """They stand in order; a dictionary, of which a group is taken out without a search."""
        self.made_by: dict[Value, Group] = {}
        self.widening: list[Group] = []
        """Regions that make floats of an anchor's bytes, and wait for who reads them."""
        self.readers: dict[Value, set[Statement | None]] = {}
        for statement in lowered.statements:
            for value in statement.inputs:
                if value is not None:
                    self.readers.setdefault(value, set()).add(statement)
        for value in lowered.outputs:  # a graph output has a reader outside
            self.readers.setdefault(value, set()).add(None)

    def add(self, position: int, statement: Statement) -> None:
        if isinstance(statement.computation, c.Map | c.Fill):
            self._add_map(position, statement)
            return
        group = Group(position, statement.outputs[0], anchor=statement)
        if statement.node in self.apart:
            self.groups[group] = None
            return
        self._absorb_scaling(group, statement)
        self._keep(group, statement.outputs)

    def _keep(self, group: Group, outputs: Sequence[Value]) -> None:
        self.groups[group] = None
        for value in outputs:
            self.made_by[value] = group

    def _add_map(self, position: int, statement: Statement) -> None:
        region = Group(position, statement.outputs[0], maps=[statement])
        region.operands, region.expr = _operands_of(statement)
        if statement.node in self.apart:
            self.groups[region] = None
            return
        self._keep(region, [region.output])
        while (producer := self._absorbable(region, self._fits_region)) is not None:
            self._merge(producer, region)
        if (anchor := self._absorbable(region, self._fits_epilogue)) is not None:
            if _widens(region, anchor):
                self.widening.append(region)
            else:
                self._extend(anchor, region)

    def finish(self) -> None:
        """Put what widens bytes, and no region has taken to read bytes itself, into the epilogue of what makes them."""
        for region in self.widening:
            if region in self.groups and (anchor := self._absorbable(region, self._fits_epilogue)) is not None:
                self._extend(anchor, region)

    def _absorbable(self, region: Group, fits: Callable[[Group, Group], bool]) -> Group | None:
        """The last made group whose result is an operand of `region`, of its shape, and read by nobody else."""
        found = []
        for value in region.operands:
            group = self.made_by.get(value)
            if group is None or group.output is not value or value.type.shape != region.output.type.shape:
                continue
            if self.readers[value] <= set(region.maps) and fits(group, region):
                found.append(group)
        return max(found, key=lambda group: group.position, default=None)

    def _fits_region(self, group: Group, region: Group) -> bool:
        if group.anchor is not None or len(group.maps) + len(region.maps) > tuning.MOST_STATEMENTS:
            return False
        return len({*group.operands, *region.operands}) - 1 <= tuning.MOST_OPERANDS

    def _fits_epilogue(self, group: Group, region: Group) -> bool:
        assert region.expr is not None
        softmax = group.anchor is not None and isinstance(group.anchor.computation, c.Softmax)
        if group.anchor is None or not (softmax or self.takes_epilogue(group.anchor)):
            return False
        if len(group.maps) + len(region.maps) > tuning.MOST_STATEMENTS:
            return False
        types = {value.dtype for value in region.operands} - set(HALVES)  # which a stage reads as float32
        coordinates = any(node.op == "index" for node in e.children_first(region.expr))
        operands = {*group.operands, *region.operands}
        of_integers = isinstance(
            group.anchor.computation, c.IntegerWeightMatMul | c.IntegerConvolution | c.IntegerMatMul
        )
        if coordinates or len(operands) - 1 > (
            tuning.MOST_OPERANDS_OF_INTEGERS if of_integers else tuning.MOST_OPERANDS
        ):
            return False
        if of_integers:
            return types <= _WITH_INTEGERS and region.output.dtype in _WITH_INTEGERS
        bfloats = c.Bfloat16WeightMatMul | c.Bfloat16Convolution | c.Bfloat16MatMul
        if isinstance(group.anchor.computation, bfloats) or writes_bfloat16(group.anchor):
            return types <= {DType.FLOAT} and region.output.dtype in (DType.FLOAT, DType.BFLOAT16)
        normalised = softmax or isinstance(group.anchor.computation, c.Normalize)
        if normalised and region.output.dtype in _BYTES:
            return types <= _WITH_INTEGERS and group.anchor.outputs[0].dtype is DType.FLOAT
        if group.anchor.outputs[0].dtype is not DType.FLOAT:
            return False
        if softmax:  # of which what follows in float32 is a pass of its own
            return False
        return types == {DType.FLOAT} == {region.output.dtype}

    def _extend(self, group: Group, region: Group) -> None:
        """Put what `region` computes at the end of an anchor's epilogue."""
        assert region.expr is not None
        before = group.expr or e.operand(0, group.output.dtype)
        group.operands = list(
            dict.fromkeys([*group.operands, *(value for value in region.operands if value is not group.output)])
        )
        result = group.output

        def place(leaf: e.Expr) -> e.Expr | None:
            if leaf.op != "operand":
                return None
            value = region.operands[leaf.value]
            return before if value is result else e.operand(group.operands.index(value) + 1, leaf.dtype)

        group.expr = e.substitute(region.expr, place)
        group.maps += region.maps
        group.position, group.output = region.position, region.output
        names = ", ".join(f"{s.node.operator.name} {s.node.name}" for s in region.maps)
        group.reasons.append(f"{names}: epilogue, nobody else reads the result")
        self.made_by[region.output] = group
        del self.groups[region]

    def _merge(self, region: Group, into: Group) -> None:
        """Let region `into` compute what `region` did for it, and forget `region`."""
        assert region.expr is not None and into.expr is not None
        operands = list(dict.fromkeys([*region.operands, *(v for v in into.operands if v is not region.output)]))
        inner = region.expr  # whose operands keep their numbers
        into.expr = e.substitute(
            into.expr,
            lambda leaf: (
                inner
                if leaf.op == "operand" and into.operands[leaf.value] is region.output
                else _moved(leaf, into.operands, operands)
            ),
        )
        into.operands, into.maps = operands, region.maps + into.maps
        into.reasons = [
            *region.reasons,
            *into.reasons,
            f"{region.maps[-1].node.name}: same elements, nobody else reads it",
        ]
        del self.groups[region]

    def _absorb_scaling(self, group: Group, statement: Statement) -> None:
        scaled = statement.inputs[0] if statement.inputs else None
        region = None if scaled is None else self.made_by.get(scaled)
        if scaled is None or region is None or region.anchor is not None or self.readers[scaled] != {statement}:
            return
        operands = _factors(region)
        if operands is None or not self.takes_scaling(statement, operands[1]):
            return
        region.operands, region.expr = operands, e.operand(0, scaled.dtype) * e.operand(1, scaled.dtype)
        group.scaling = region
        group.reasons.append(f"{region.maps[-1].node.name}: done on the weights, which are fewer")
        del self.groups[region]


def _widens(region: Group, anchor: Group) -> bool:
    """Whether all that a region does is to make floats of an anchor's bytes (DequantizeLinear)."""
    whole = [value for value in region.operands if value.type.shape == region.output.type.shape]
    return whole == [anchor.output] and anchor.output.dtype in _BYTES and region.output.dtype is DType.FLOAT


def _factors(region: Group) -> list[Value] | None:
    """The operands of a region that multiplies two, that of its own shape first; None if it does anything else."""
    assert region.expr is not None
    shape = region.output.type.shape
    if region.expr.op != "mul" or any(leaf.op != "operand" for leaf in region.expr.arguments):
        return None
    if len(region.operands) != 2 or any(value.dtype is not region.output.dtype for value in region.operands):
        return None
    whole = [value for value in region.operands if value.type.shape == shape]
    return [whole[0], *(value for value in region.operands if value is not whole[0])] if whole else None


def _operands_of(statement: Statement) -> tuple[list[Value], e.Expr]:
    """The distinct operands of a Map or Fill, and its expression over them."""
    computation = statement.computation
    assert isinstance(computation, c.Map | c.Fill)
    given = [value for value in statement.inputs if value is not None]
    operands = list(dict.fromkeys(given))
    return operands, e.substitute(computation.expr, lambda leaf: _moved(leaf, given, operands))


def _moved(leaf: e.Expr, old: Sequence[Value], new: list[Value]) -> e.Expr | None:
    """An operand leaf renumbered from its place in `old` to its place in `new`."""
    if leaf.op != "operand":
        return None
    return e.operand(new.index(old[leaf.value]), leaf.dtype)

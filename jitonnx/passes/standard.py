"""Graphs in ONNX's own words: what rewrites and older operator versions have left that no newest operator says.

`standardise` exchanges it for nodes that say it, so that a graph can be written as a model:

- operators that ONNX has dropped (Upsample, Scatter), and what fields that are no attributes (`ir.operator.internal`)
  keep of older versions: a Softmax over several axes is one between two reshapes;
- expressions of dimensions, which stand in the place of shapes, are computed of the sizes that their variables are
  bound to;
- outputs that are inputs, constants or one another are copies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from jitonnx.ir.dims import Atom, Dim, DimLike, not_negative, variable, variables
from jitonnx.ir.dtypes import DType
from jitonnx.ir.errors import GraphError
from jitonnx.ir.graph import Binding, Graph, Node, Value, describe
from jitonnx.ir.operator import Operator, attributes_of
from jitonnx.ir.types import is_symbolic
from jitonnx.ops.base import normalize_axis
from jitonnx.ops.onnx.arithmetic import Add, Div, Max, Min, Mod, Mul, Sqrt, Sub
from jitonnx.ops.onnx.cast import Cast
from jitonnx.ops.onnx.concat_split import Concat, Split
from jitonnx.ops.onnx.dropout import Dropout
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.identity import Identity
from jitonnx.ops.onnx.logic import Less, Where
from jitonnx.ops.onnx.normalization import BatchNormalization, GroupNormalization
from jitonnx.ops.onnx.one_hot import OneHot
from jitonnx.ops.onnx.pooling import AveragePool
from jitonnx.ops.onnx.resize import Resize, Upsample
from jitonnx.ops.onnx.scatter import Scatter, ScatterElements
from jitonnx.ops.onnx.shape import Expand, Flatten, Reshape, Shape
from jitonnx.ops.onnx.softmax import Hardmax, LogSoftmax, Softmax


def standardise(graph: Graph) -> None:
    """Exchange in a graph and its bodies, in place, what ONNX does not say.

    GraphError names a node for which there is no way to say it.
    """
    _standardise(graph, None)


def _standardise(graph: Graph, around: _Sizes | None, node: Node | None = None) -> None:
    sizes = _Sizes(graph, around, node)
    for one in graph:
        form = _FORMS.get(type(one.operator))
        if form is not None:
            form(_Nodes(graph, one))
    for one in graph:
        for body in one.bodies:
            _standardise(body, sizes, one)
        if any(map(_is_expression, one.inputs)):
            graph.set_inputs(one, [sizes.computed(value) for value in one.inputs])
    graph.outputs = [sizes.computed(value) for value in graph.outputs]  # type: ignore[misc]
    for place, value in enumerate(graph.outputs):
        if value.producer is None or value.producer not in graph or value in graph.outputs[:place]:
            (graph.outputs[place],) = graph.add(Identity(), [value], outputs=[value.name])
    graph.bindings = {}  # what nobody reads but those is not computed
    graph.remove_dead()
    graph.sort()


# ---------------------------------------------------------------- expressions of dimensions


def _is_expression(value: Value | None) -> bool:
    """Whether a value is a constant but for dimension variables."""
    return value is not None and value.producer is None and value.contents is not None and is_symbolic(value.contents)


class _Sizes:
    """Nodes that compute dimensions in a graph.

    around: those of the graph around it, if it is a body of `node` there.
    """

    def __init__(self, graph: Graph, around: _Sizes | None, node: Node | None) -> None:
        self._graph, self._around, self._node = graph, around, node
        self._values: dict[DimLike | Atom, Value] = {}
        self._vectors: dict[Any, Value] = {}
        self._places = dict(graph.bindings)
        for value in graph.inputs:
            for axis, dim in enumerate(value.type.shape or ()):
                if isinstance(dim, Dim) and dim == variable(name := next(iter(variables(dim)))):
                    self._places.setdefault(name, Binding(value, axis, element=False))

    def computed(self, value: Value | None) -> Value | None:
        """The value; that which computes it, if it is made of dimension expressions."""
        if value is None or not _is_expression(value):
            return value
        assert value.contents is not None
        elements = tuple(value.contents.ravel().tolist())
        vector = (elements, value.contents.shape, value.dtype)
        if vector not in self._vectors:
            self._vectors[vector] = self._computed(value, [self._dim(element) for element in elements])
        return self._vectors[vector]

    def _computed(self, value: Value, parts: Sequence[Value]) -> Value:
        assert value.contents is not None
        made = parts[0] if len(parts) == 1 else self._add(Concat(axis=0), *parts)
        if value.contents.shape != (len(parts),):
            made = self._add(Reshape(), made, self._constant(value.contents.shape))
        return made if value.dtype is DType.INT64 else self._add(Cast(to=int(value.dtype)), made)

    def _dim(self, dim: DimLike) -> Value:
        """A dimension as a vector of one element."""
        if dim not in self._values:
            self._values[dim] = self._constant([dim]) if isinstance(dim, int) else self._sum(dim)
        return self._values[dim]

    def _sum(self, dim: Dim) -> Value:
        terms = [(self._product(monomial), coefficient) for monomial, coefficient in dim.terms]
        terms.sort(key=lambda term: term[1] < 0)  # what is taken away stands behind what it is taken from
        total: Value | None = None
        for factors, coefficient in terms:
            size = abs(coefficient)
            term = self._constant([size]) if factors is None else factors
            if factors is not None and size != 1:
                term = self._add(Mul(), factors, self._constant([size]))
            if total is None:
                total = term if coefficient > 0 else self._add(Sub(), self._constant([0]), term)
            else:
                total = self._add(Add() if coefficient > 0 else Sub(), total, term)
        assert total is not None
        return total

    def _product(self, monomial: tuple[Atom, ...]) -> Value | None:
        result: Value | None = None
        for atom in monomial:
            factor = self._atom(atom)
            result = factor if result is None else self._add(Mul(), result, factor)
        return result

    def _atom(self, atom: Atom) -> Value:
        if atom not in self._values:
            self._values[atom] = self._made(atom)
        return self._values[atom]

    def _made(self, atom: Atom) -> Value:
        if atom.function == "variable":
            return self._variable(str(atom.arguments[0]))
        dims: list[DimLike] = list(atom.arguments)  # type: ignore[arg-type]
        a, b = map(self._dim, dims)
        if atom.function == "max":
            return self._add(Max(), a, b)
        if not not_negative(dims[0]):  # Div rounds towards 0
            a = self._add(Sub(), a, self._add(Mod(), a, b))
        return self._add(Div(), a, b)

    def _variable(self, name: str) -> Value:
        found = self._places.get(name)
        if found is None:
            if self._around is None or self._node is None:
                raise GraphError(f"the size {name!r} cannot be computed: no input tells it, and no node")
            outer = self._around._dim(variable(name))
            captured = self._graph.add_input(outer.name, outer.type)
            for body in self._node.bodies:
                if body is not self._graph:
                    body.add_input(outer.name, outer.type)
            self._node.captures += 1
            self._around._graph.set_inputs(self._node, [*self._node.inputs, outer])
            return captured
        value, place = found.value, self._constant([found.place])
        if not found.element:
            return self._add(Gather(), self._add(Shape(), value), place)
        element = self._add(Gather(), self._add(Reshape(), value, self._constant([-1])), place)
        return element if value.dtype is DType.INT64 else self._add(Cast(to=int(DType.INT64)), element)

    def _constant(self, elements: Sequence[int]) -> Value:
        return self._graph.add_constant(np.array(elements, np.int64))

    def _add(self, operator: Operator, *inputs: Value) -> Value:
        return self._graph.add(operator, inputs, name=f"size_{operator.name}")[0]


# ---------------------------------------------------------------- operators


class _Nodes:
    """A node that others take the place of, in its graph."""

    def __init__(self, graph: Graph, node: Node) -> None:
        self.graph, self.node = graph, node

    def add(self, operator: Operator, *inputs: Value | None) -> Value:
        """The first output of a node beside this one."""
        return self.add_many(operator, inputs, 1)[0]

    def add_many(self, operator: Operator, inputs: Sequence[Value | None], outputs: int) -> tuple[Value, ...]:
        """The outputs of a node beside this one."""
        names = [f"{self.node.name}_{operator.name}_{n}" for n in range(outputs)]
        origin = self.node.origin
        return self.graph.add(operator, inputs, outputs=names, origin=origin)

    def constant(self, elements: object) -> Value:
        """A constant of integers."""
        return self.graph.add_constant(np.array(elements, np.int64))

    def like(self, declaration: type[Operator], **changed: object) -> Operator:
        """The node's operator, or one with its attributes, some of them changed."""
        names = attributes_of(declaration()) if declaration is not type(self.node.operator) else None
        kept = {name: value for name, value in attributes_of(self.node.operator).items() if not names or name in names}
        return declaration(**{**kept, **changed})

    def substitute(self, *results: Value) -> None:
        """Let `results` stand for the node's outputs."""
        for old, new in zip(self.node.outputs, results, strict=True):
            new.name, old.name = old.name, new.name
            new.contents, new.measured = old.contents, old.measured
            self.graph.replace(old, new)
        self.graph.remove(self.node)

    def refuse(self, why: str) -> GraphError:
        """What to raise where there is no way."""
        return GraphError(f"{describe(self.node)} cannot be written in ONNX's newest form: {why}")


def _softmax(nodes: _Nodes) -> None:
    """before: Softmax of version 11 over the axes from 1 on
    after:  Flatten -> Softmax -> Reshape to the shape of the input
    """
    operator = nodes.node.operator
    assert isinstance(operator, Softmax | LogSoftmax | Hardmax)
    if not operator.flatten:
        return
    (x,) = nodes.node.inputs
    assert x is not None
    axis = None if x.type.shape is None else normalize_axis(operator.axis, len(x.shape))
    if axis is not None and axis == len(x.shape) - 1:
        nodes.substitute(nodes.add(type(operator)(axis=-1), x))
        return
    rows = nodes.add(type(operator)(axis=-1), nodes.add(Flatten(axis=operator.axis), x))
    nodes.substitute(nodes.add(Reshape(), rows, nodes.add(Shape(), x)))


def _split(nodes: _Nodes) -> None:
    """Parts are of one size: ONNX's newest form makes the last one smaller where a size does not divide."""
    operator = nodes.node.operator
    assert isinstance(operator, Split)
    if operator.equal:
        values = nodes.add_many(nodes.like(Split, equal=False), nodes.node.inputs, len(nodes.node.outputs))
        nodes.substitute(*values)


def _reshape(nodes: _Nodes) -> None:
    """Leave out `allowzero`, which asks for version 14, where it says nothing: no size of 0 is wanted."""
    operator = nodes.node.operator
    assert isinstance(operator, Reshape)
    x, shape = nodes.node.inputs
    assert shape is not None
    if operator.allowzero and shape.constant is not None and shape.constant.all():
        nodes.substitute(nodes.add(Reshape(), x, shape))


def _one_hot(nodes: _Nodes) -> None:
    """before: OneHot of version 9, to which negative indices mean nothing
    after:  OneHot of indices that are `depth` where they were negative
    """
    operator = nodes.node.operator
    assert isinstance(operator, OneHot)
    if operator.negative_from_end:
        return
    indices, depth, values = nodes.node.inputs
    assert indices is not None and depth is not None
    kind = Cast(to=int(indices.dtype))
    zero, beyond = nodes.add(kind, nodes.constant(0)), nodes.add(kind, nodes.add(Reshape(), depth, nodes.constant([1])))
    chosen = nodes.add(Where(), nodes.add(Less(), indices, zero), beyond, indices)
    nodes.substitute(nodes.add(OneHot(axis=operator.axis), chosen, depth, values))


def _resize(nodes: _Nodes) -> None:
    """before: Resize of version 10
    after:  Resize of the axes that grow (floor) -> Resize of those that shrink (ceil)
    """
    operator = nodes.node.operator
    assert isinstance(operator, Resize)
    if not operator.nearest_by_scale:
        return
    x, roi, scales = (*nodes.node.inputs, None, None)[:3]
    if operator.mode != "nearest":
        nodes.substitute(nodes.add(nodes.like(Resize, nearest_by_scale=False), x, roi, scales))
        return
    assert scales is not None
    factors, one = scales.constant, nodes.graph.add_constant(np.ones(1, np.float32))
    if factors is None or (factors > 1).any():
        grown = scales if factors is not None and (factors >= 1).all() else nodes.add(Max(), scales, one)
        x = nodes.add(nodes.like(Resize, nearest_by_scale=False, nearest_mode="floor"), x, roi, grown)
    if factors is None or not (factors > 1).any() or (factors < 1).any():
        shrunk = scales if factors is not None and (factors <= 1).all() else nodes.add(Min(), scales, one)
        x = nodes.add(nodes.like(Resize, nearest_by_scale=False, nearest_mode="ceil"), x, roi, shrunk)
    assert x is not None
    nodes.substitute(x)


def _upsample(nodes: _Nodes) -> None:
    """before: Upsample; after: Resize, as of version 10"""
    operator = nodes.node.operator
    assert isinstance(operator, Upsample)
    x, scales = nodes.node.inputs
    resize = Resize(mode=operator.mode, coordinate_transformation_mode="asymmetric", nearest_by_scale=True)
    made = nodes.add(resize, x, None, scales)
    nodes.substitute(made)
    assert made.producer is not None
    _resize(_Nodes(nodes.graph, made.producer))


def _scatter(nodes: _Nodes) -> None:
    """before: Scatter; after: ScatterElements"""
    nodes.substitute(nodes.add(nodes.like(ScatterElements), *nodes.node.inputs))


def _dropout(nodes: _Nodes) -> None:
    """before: Dropout of version 7, whose mask is of the type of the data
    after:  Dropout -> Cast of the mask
    """
    operator = nodes.node.operator
    assert isinstance(operator, Dropout)
    if operator.mask_is_bool:
        return
    outputs = len(nodes.node.outputs)
    results = list(nodes.add_many(nodes.like(Dropout, mask_is_bool=True), nodes.node.inputs, outputs))
    if outputs > 1:
        results[1] = nodes.add(Cast(to=int(nodes.node.outputs[1].dtype)), results[1])
    nodes.substitute(*results)


def _batch_normalization(nodes: _Nodes) -> None:
    """before: BatchNormalization of version 7 with statistics for each place of an image
    after:  (X - mean) / sqrt(variance + epsilon) * scale + B
    """
    operator = nodes.node.operator
    assert isinstance(operator, BatchNormalization)
    if operator.spatial:
        return
    if operator.training_mode:
        raise nodes.refuse("statistics for each place are computed anew in training")
    x, scale, bias, mean, variance = nodes.node.inputs
    assert variance is not None
    epsilon = nodes.graph.add_constant(np.array(operator.epsilon, variance.dtype.numpy))
    deviation = nodes.add(Sqrt(), nodes.add(Add(), variance, epsilon))
    normal = nodes.add(Div(), nodes.add(Sub(), x, mean), deviation)
    nodes.substitute(nodes.add(Add(), nodes.add(Mul(), normal, scale), bias))


def _group_normalization(nodes: _Nodes) -> None:
    """before: GroupNormalization of version 18, whose scale and bias are of groups
    after:  GroupNormalization of scale and bias repeated for the channels of a group
    """
    operator = nodes.node.operator
    assert isinstance(operator, GroupNormalization)
    if not operator.by_group:
        return
    x, *parameters = nodes.node.inputs
    assert x is not None
    channels, groups = x.shape[1], operator.num_groups
    if not isinstance(channels, int):
        raise nodes.refuse("only a run tells how many channels there are")
    column, rows = nodes.constant([groups, 1]), nodes.constant([groups, channels // groups])
    repeated = []
    for value in parameters:
        each = nodes.add(Expand(), nodes.add(Reshape(), value, column), rows)
        repeated.append(nodes.add(Reshape(), each, nodes.constant([channels])))
    nodes.substitute(nodes.add(nodes.like(GroupNormalization, by_group=False), x, *repeated))


def _average_pool(nodes: _Nodes) -> None:
    """The order of sums is that of the newest version."""
    operator = nodes.node.operator
    assert isinstance(operator, AveragePool)
    if operator.by_columns:
        nodes.substitute(nodes.add(replace(operator, by_columns=False), *nodes.node.inputs))


_FORMS: dict[type[Operator], Callable[[_Nodes], None]] = {
    AveragePool: _average_pool,
    BatchNormalization: _batch_normalization,
    Dropout: _dropout,
    GroupNormalization: _group_normalization,
    Hardmax: _softmax,
    LogSoftmax: _softmax,
    OneHot: _one_hot,
    Reshape: _reshape,
    Resize: _resize,
    Scatter: _scatter,
    Softmax: _softmax,
    Split: _split,
    Upsample: _upsample,
}
"""What is said otherwise, by operator."""

"""Sequences of tensors that are known to be parts of one tensor, or named one by one: these are read instead.

What frameworks write as lists ends up so: PyTorch's unbind and chunk are SplitToSequence and SequenceAt, and a list
that a loop appends to is a sequence that it carries. A sequence that the caller gets is made at the end, of one tensor.

A sequence is known if all its elements are (`_elements`), or if it is made of the elements of a tensor along an axis
(`_split`), however many there are.
"""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dims import DimLike, maximum, variables
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Graph, GraphError, Node, Value
from jitonnx.ir.types import OptionalType, SequenceType
from jitonnx.ops.base import normalize_axis
from jitonnx.ops.onnx.concat_split import Concat, Split
from jitonnx.ops.onnx.control_flow import Loop, Scan, parts_of, plain
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.identity import Identity
from jitonnx.ops.onnx.optional import Optional, OptionalGetElement, OptionalHasElement
from jitonnx.ops.onnx.sequence import (
    ConcatFromSequence,
    SequenceAt,
    SequenceConstruct,
    SequenceEmpty,
    SequenceErase,
    SequenceInsert,
    SequenceLength,
    SequenceMap,
    SplitToSequence,
)
from jitonnx.ops.onnx.shape import Unsqueeze
from jitonnx.passes.rewriting import Edit, Result, array, producer, rule, scalar
from jitonnx.passes.rules.loops import UNROLLED_NODES, changed, copied, without
from jitonnx.support.records import NamedTuple

PARTS = 256
"""A tensor that is split into more parts than this, of given sizes, stays a sequence."""


class _Elements(NamedTuple):
    """The elements of a tensor along an axis, which stays as one of size 1 with keepdims."""

    x: Value
    axis: int
    keepdims: bool

    @property
    def length(self) -> DimLike:
        return self.x.shape[self.axis]

    @property
    def shape(self) -> tuple[DimLike, ...]:
        """The shape of each of them."""
        shape = self.x.shape
        return (*shape[: self.axis], *((1,) if self.keepdims else ()), *shape[self.axis + 1 :])


def _split(sequence: Value | None) -> _Elements | None:
    """What a sequence was split from into parts of size 1; None for others."""
    node = producer(sequence, SplitToSequence)
    if node is None or (len(node.inputs) > 1 and node.inputs[1] is not None):
        return None
    x, operator = node.inputs[0], node.operator
    assert x is not None and isinstance(operator, SplitToSequence)
    if x.type.shape is None:
        return None
    return _Elements(x, normalize_axis(operator.axis, len(x.shape)), bool(operator.keepdims))


def _elements(sequence: Value | None) -> list[Value] | None:
    """The elements of a sequence where nodes name them one by one."""
    changes: list[tuple[Node, Value | None]] = []
    while (node := producer(sequence, SequenceInsert, SequenceErase)) is not None:
        place = 1 if isinstance(node.operator, SequenceErase) else 2
        changes.append((node, node.inputs[place] if len(node.inputs) > place else None))
        sequence = node.inputs[0]
    node = producer(sequence, SequenceConstruct, SequenceEmpty)
    if node is None:
        return None
    elements = [value for value in node.inputs if value is not None]
    for node, position in reversed(changes):
        inserts = isinstance(node.operator, SequenceInsert)
        number = _number(position) if position is not None else len(elements) - (not inserts)
        if number is None or not -len(elements) <= number < len(elements) + inserts:
            return None
        number += len(elements) if number < 0 else 0
        if inserts:
            assert node.inputs[1] is not None
            elements.insert(number, node.inputs[1])
        else:
            del elements[number]
    return elements


def _number(position: Value | None) -> int | None:
    number = scalar(position)
    return None if number is None else int(number)


# ---------------------------------------------------------------- what is read of a sequence


@rule("split sequence", SplitToSequence, equation="SplitToSequence(x, [2, 3]) = SequenceConstruct(Split(x, [2, 3]))")
def split_sequence(node: Node, edit: Edit) -> Result:
    """Parts of sizes that are known before the run, each a tensor of its own."""
    x, split = (*node.inputs, None)[:2]
    assert x is not None and isinstance(node.operator, SplitToSequence)
    if split is None or x.type.shape is None or not node.output.users:
        return None
    sizes, axis = array(split), normalize_axis(node.operator.axis, len(x.shape))
    if sizes is None:
        return None
    length = x.shape[axis]
    if sizes.ndim == 0:
        size = int(sizes)
        if size == 1:
            return edit.add(SplitToSequence(axis=axis, keepdims=1), x)
        if size < 1 or not isinstance(length, int) or not 0 < length <= PARTS * size:
            return None
        sizes = np.array([min(size, length - start) for start in range(0, length, size)], np.int64)
    if not 0 < sizes.size <= PARTS or (sizes < 0).any() or (isinstance(length, int) and length != sizes.sum()):
        return None
    parts = edit.add_many(Split(axis=axis), [x, edit.constant(sizes.astype(np.int64))], sizes.size)
    return edit.add(SequenceConstruct(), *parts)


@rule("copied sequence", Identity, equation="Identity(sequence) = sequence")
def copied_sequence(node: Node, edit: Edit) -> Result:
    """Copies of what is no tensor; those of tensors are views."""
    (x,) = node.inputs
    return x if x is not None and isinstance(x.type, SequenceType | OptionalType) else None


@rule("element of a sequence", SequenceAt, equation="SequenceAt(SequenceConstruct(a, b, c), 1) = b")
def element(node: Node, edit: Edit) -> Result:
    """An element of a known sequence: the tensor itself, or what a Gather takes out of what was split."""
    sequence, position = node.inputs
    split, elements = _split(sequence), _elements(sequence)
    if split is not None and position is not None and position.type.shape is not None:
        return edit.add(Gather(axis=split.axis), split.x, edit.reshape(position, (1,) if split.keepdims else ()))
    number = _number(position)
    if elements is None or number is None or not -len(elements) <= number < len(elements):
        return None
    return elements[number]


@rule("length of a sequence", SequenceLength, equation="SequenceLength(SequenceConstruct(a, b, c)) = 3")
def length(node: Node, edit: Edit) -> Result:
    """How many elements a known sequence has."""
    split, elements = _split(node.inputs[0]), _elements(node.inputs[0])
    if split is not None:
        return edit.reshape(edit.dims([split.length]), ())
    return None if elements is None else edit.constant(np.array(len(elements), np.int64))


@rule(
    "joined sequence", ConcatFromSequence, equation="ConcatFromSequence(SequenceConstruct(a, b, c)) = Concat(a, b, c)"
)
def joined(node: Node, edit: Edit) -> Result:
    """The elements of a known sequence, joined: a Concat, or what was split with its axis in another place."""
    operator, split, elements = node.operator, _split(node.inputs[0]), _elements(node.inputs[0])
    assert isinstance(operator, ConcatFromSequence)
    if elements and all(value.type.shape is not None for value in elements):
        axis = normalize_axis(operator.axis, len(elements[0].shape) + operator.new_axis)
        if operator.new_axis:
            elements = [edit.add(Unsqueeze(), value, edit.dims([axis])) for value in elements]
        return edit.add(Concat(axis=axis), *elements)
    if split is None:
        return None
    some, assumptions = (maximum(split.length, 1), split.length), edit.graph.assumptions
    if isinstance(split.length, int):
        if split.length < 1:
            return None  # nothing to join is an error of the run's
    elif assumptions.demands_only or not assumptions.hold(*some):
        return None
    else:
        assumptions.note(*some)
    shape = list(split.shape)
    axis = normalize_axis(operator.axis, len(shape) + operator.new_axis)
    if operator.new_axis:
        shape.insert(axis, split.length)
    else:
        shape[axis] = split.length * shape[axis]
    order = [one for one in range(len(split.x.shape)) if one != split.axis]
    # The split axis comes before those that follow the new place; an element's axis of size 1 says nothing.
    order.insert(axis - (split.keepdims and axis > split.axis), split.axis)
    return edit.reshape(edit.transpose(split.x, order), shape)


@rule(
    "mapped sequence", SequenceMap, equation="SequenceMap(SequenceConstruct(a, b), f) = SequenceConstruct(f(a), f(b))"
)
def mapped(node: Node, edit: Edit) -> Result:
    """A body for each element of a known sequence, and for those beside it of others."""
    (body,) = node.bodies
    given: list[list[Value] | Value] = []
    for value in node.arguments:
        assert value is not None
        elements = _elements(value) if isinstance(value.type, SequenceType) else value
        if elements is None:
            return None
        given.append(elements)
    first = given[0]
    assert isinstance(first, list)
    lengths = {len(one) for one in given if isinstance(one, list)}
    if len(lengths) > 1 or not first or len(first) * len(body) > UNROLLED_NODES:
        return None
    rows = []
    try:
        for number in range(len(first)):
            inputs = [one[number] if isinstance(one, list) else one for one in given]
            rows.append(edit.inline(copied(body, list(body), body.inputs, body.outputs), [*inputs, *node.captured]))
    except GraphError:  # an element is one that the run has to refuse
        return None
    return [edit.add(SequenceConstruct(), *column) for column in zip(*rows, strict=True)]


@rule("value of an optional", OptionalGetElement, equation="OptionalGetElement(Optional(x)) = x")
def optional_value(node: Node, edit: Edit) -> Result:
    """What an optional was made of."""
    made = producer(node.inputs[0], Optional)
    return made.inputs[0] if made is not None and made.inputs else None


@rule("optional with a value", OptionalHasElement, equation="OptionalHasElement(Optional(x)) = true")
def optional_has_value(node: Node, edit: Edit) -> Result:
    """Whether an optional was made of something."""
    made = producer(node.inputs[0], Optional) if node.inputs else None
    if made is None or any(isinstance(value.type, OptionalType) for value in made.inputs if value is not None):
        return None
    return edit.constant(np.array(bool(made.inputs) and made.inputs[0] is not None))


# ---------------------------------------------------------------- loops


@rule("appended sequence", Loop, equation="seq' = SequenceInsert(seq, x) in a loop = SplitToSequence(all x, stacked)")
def appended(node: Node, edit: Edit) -> Result:
    """A list that a loop appends a tensor to in each iteration, all of one shape, is what the loop stacks."""
    parts = parts_of(node)
    assert parts is not None
    (body,) = node.bodies
    found = [_appended(body, *carried) for carried in zip(parts.initial, parts.carried, parts.carried_out, strict=True)]
    gone = [value is not None for value in found]
    if not any(gone):
        return None
    states = zip(parts.carried, parts.carried_out, gone, strict=True)
    lists = {one for before, behind, is_gone in states if is_gone for one in (*_uses(before), *_uses(behind))}
    rest = parts._replace(
        initial=without(parts.initial, gone),
        carried=without(parts.carried, gone),
        carried_out=without(parts.carried_out, gone),
        rows=(*parts.rows, *(value for value in found if value is not None)),
    )
    made = changed(node, rest, [one for one in body if one not in lists], edit)
    kept, rows = iter(made[: len(rest.carried_out)]), made[len(rest.carried_out) :]
    stacks = iter(rows[len(parts.rows) :])
    results = []
    for initial, is_gone in zip(parts.initial, gone, strict=True):
        if is_gone:
            first = [edit.add(Unsqueeze(), value, edit.dims([0])) for value in _elements(initial) or ()]
            stack = next(stacks)
            whole = edit.add(Concat(axis=0), *first, stack) if first else stack
            results.append(edit.add(SplitToSequence(axis=0, keepdims=0), whole))
        else:
            results.append(next(kept))
    return [*results, *rows[: len(parts.rows)]]


def _appended(body: Graph, initial: Value, before: Value, behind: Value) -> Value | None:
    """What each iteration appends to a carried sequence, which it does not read; None where that is not so."""
    insert, elements = producer(behind, SequenceInsert), _elements(initial)
    if insert is None or elements is None or [one for one in _uses(before) if not _copies(one)] != [insert]:
        return None
    x, position = (*insert.inputs[1:], None)[:2]
    if position is not None or not all(map(_copies, _uses(behind))):
        return None
    assert x is not None
    if x.dtype in (None, DType.STRING) or x.type.shape is None or any(value.type != x.type for value in elements):
        return None
    given = [plain(value) for value in body.outputs]
    changes = any(not variables(size).isdisjoint(body.bindings) for size in x.shape)
    return None if changes or before in given or given.count(behind) > 1 else x


def _uses(value: Value) -> list[Node]:
    """Who reads a value, or a copy of it; those who make the copies, too."""
    uses = list(value.users)
    return uses + [other for one in uses if _copies(one) for other in _uses(one.output)]


def _copies(node: Node) -> bool:
    return isinstance(node.operator, Identity)


@rule("captured sequence", Loop, Scan, equation="a loop that reads SplitToSequence(x) reads x")
def captured(node: Node, edit: Edit) -> Result:
    """A sequence whose elements a loop reads is made in its body, where these are read out of the tensor instead."""
    (body,) = node.bodies
    own = len(body.inputs) - node.captures
    for place, outer in enumerate(node.captured):
        made, inner = producer(outer, SplitToSequence, SequenceConstruct), body.inputs[own + place]
        if made is None or not all(_reads_known(user, split=_split(outer) is not None) for user in inner.users):
            continue
        copy = copied(body, list(body), body.inputs, body.outputs)
        sequence = copy.inputs[own + place]
        given = [value for value in made.inputs if value is not None]
        (own_sequence,) = copy.add(
            made.operator, [copy.add_input(value.name, value.type) for value in given], origin=made.origin
        )
        copy.replace(sequence, own_sequence)
        copy.inputs.remove(sequence)
        copy.sort()
        captures = [*node.captured[:place], *node.captured[place + 1 :], *given]
        names = [f"{node.name}_{number}" for number in range(len(node.outputs))]
        return edit.add_loop(node, [*node.arguments, *captures], copy, len(captures), names)
    return None


def _reads_known(user: Node, *, split: bool) -> bool:
    """Whether a node reads what the rules for known sequences find: any element of what is split, others by number."""
    if isinstance(user.operator, SequenceAt):
        return split or _number(user.inputs[1]) is not None
    return isinstance(user.operator, SequenceLength | ConcatFromSequence)


RULES = (
    split_sequence,
    copied_sequence,
    element,
    length,
    joined,
    mapped,
    optional_value,
    optional_has_value,
    appended,
    captured,
)

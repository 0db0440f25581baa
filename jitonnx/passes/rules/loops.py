"""Loops and Scans: what need not be done in each iteration is done once, and what has no fixed type gets one.

Bodies are as they were loaded: they are rewritten when the graph around them is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.extract import extract, specialise
from jitonnx.ir.graph import Graph, GraphError, Node, Value
from jitonnx.ir.operator import evaluate_arrays
from jitonnx.ir.types import TensorType
from jitonnx.ops.onnx.arithmetic import Add, Div, Mod, Sub
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.control_flow import Loop, Parts, Scan, appended_axis, parts_of
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.matmul import Gemm, MatMul
from jitonnx.ops.onnx.shape import Transpose, Unsqueeze
from jitonnx.passes.rewriting import Edit, Result, array, producer, ranked, rule, scalar
from jitonnx.passes.rules import control


def changed(node: Node, parts: Parts, nodes: Sequence[Node], edit: Edit) -> tuple[Value, ...]:
    """The outputs of a loop with these parts, whose body has these nodes."""
    copy = copied(node.bodies[0], nodes, parts.body_inputs, parts.body_outputs)
    names = [f"{node.name}_{place}" for place in range(len(parts.carried_out) + len(parts.rows))]
    given = [*parts.arguments, *(outer for outer, _ in parts.captured)]
    return edit.add_loop(node, given, copy, len(parts.captured), names)


def copied(body: Graph, nodes: Sequence[Node], inputs: Sequence[Value], outputs: Sequence[Value]) -> Graph:
    """A graph of some of a body's nodes."""
    copy = Graph(assumptions=body.assumptions.apart())
    extract(nodes, inputs, [value.type for value in inputs], outputs, into=copy)
    copy.name = body.name
    return copy


@rule("loop invariants", Loop, Scan, equation="s' = s in a loop: s is read, and not carried")
def loop_invariants(node: Node, edit: Edit) -> Result:
    """What a body hands on as it is, is captured: constants, such as weights, become the body's own."""
    parts = parts_of(node)
    if parts is None:
        return None
    still = [before is behind for before, behind in zip(parts.carried, parts.carried_out, strict=True)]
    if not any(still):
        return None
    pairs = zip(parts.initial, parts.carried, strict=True)
    moved = tuple(pair for pair, same in zip(pairs, still, strict=True) if same)
    rest = parts._replace(
        initial=without(parts.initial, still),
        carried=without(parts.carried, still),
        carried_out=without(parts.carried_out, still),
        captured=(*parts.captured, *moved),
    )
    if not rest.carried_out and not rest.rows:
        return list(parts.initial)
    made = iter(changed(node, rest, list(node.bodies[0]), edit))
    states = [before if same else next(made) for before, same in zip(parts.initial, still, strict=True)]
    return [*states, *made]


def without(values: Sequence[Value], taken: Sequence[bool]) -> tuple[Value, ...]:
    return tuple(value for value, gone in zip(values, taken, strict=True) if not gone)


@rule("work before a loop", Loop, Scan, equation="f(w) in a loop = f(w) before it")
def hoisted(node: Node, edit: Edit) -> Result:
    """What depends on captured values alone is computed once; only what cannot fail, as there may be no iterations."""
    parts = parts_of(node)
    if parts is None:
        return None
    (body,) = node.bodies
    outer: dict[Value, Value] = {inner: given for given, inner in parts.captured}
    fixed = set(outer)
    hoisted: dict[Node, None] = {}
    for one in body:
        given = [value for value in one.inputs if value is not None]
        known = all(value in fixed or (value.producer is None and value.contents is not None) for value in given)
        if known and any(value in fixed for value in given) and _never_fails(one):
            hoisted[one] = None
            fixed.update(one.outputs)
    if not hoisted:
        return None
    copy = copied(body, list(hoisted), list(outer), [value for one in hoisted for value in one.outputs])
    results = edit.inline(copy, list(outer.values()))
    made = dict(zip((value for one in hoisted for value in one.outputs), results, strict=True))
    left = [one for one in body if one not in hoisted]
    read = {value for one in left for value in one.inputs} | set(body.outputs)
    captured = tuple((new, inner) for inner, new in made.items() if inner in read)
    return changed(node, parts._replace(captured=(*parts.captured, *captured)), left, edit)


def _never_fails(node: Node) -> bool:
    """Whether a node has a result for all elements and sizes that it may be given."""
    operator = node.operator
    if not operator.deterministic or node.bodies or not ranked(node):
        return False
    if isinstance(operator, MatMul | Gemm | Transpose):
        return True
    whole = any(value.dtype is None or not value.dtype.is_float for value in node.outputs)
    return operator.elementwise and not (whole and isinstance(operator, Div | Mod))


@rule("products before a loop", Loop, Scan, equation="x[i] W in a loop = (x W)[i], with x W before it")
def batched_products(node: Node, edit: Edit) -> Result:
    """Products of the elements of a tensor with one matrix are one product of many rows.

    Of a captured tensor only where the elements are those of numbers that are counted up, since all are multiplied.
    """
    parts = parts_of(node)
    if parts is None:
        return None
    (body,) = node.bodies
    outer = {inner: given for given, inner in parts.captured}
    for product in body:
        if not isinstance(product.operator, MatMul) or not ranked(product):
            continue
        x, weights = product.inputs
        assert x is not None and weights is not None
        matrix = outer.get(weights, weights)
        if len(weights.shape) != 2 or len(x.shape) < 1 or (weights.producer is not None or matrix.producer is not None):
            continue
        if weights not in outer and weights.constant is None:
            continue
        if x in parts.elements:
            return _scanned_product(node, parts, product, edit)
        gather = producer(x, Gather)
        if gather is not None and _counts_up(gather, parts, outer):
            return _gathered_product(node, parts, product, gather, outer, edit)
    return None


def _counts_up(gather: Node, parts: Parts, outer: dict[Value, Value]) -> bool:
    table, index = gather.inputs
    assert isinstance(gather.operator, Gather)
    if table not in outer or index is None or index.type.shape != () or table.type.shape is None:
        return False
    rank = len(table.shape)
    if rank < 2 or gather.operator.axis % rank or len(gather.output.users) != 1:
        return False
    if index is parts.counted:
        return True
    if index not in parts.carried:
        return False
    behind = producer(parts.carried_out[parts.carried.index(index)], Add, Sub)
    return behind is not None and index in behind.inputs and any(scalar(one) in (1, -1) for one in behind.inputs)


def _outer_matrix(weights: Value, outer: dict[Value, Value], edit: Edit) -> Value:
    constant = weights.constant
    return outer[weights] if constant is None else edit.constant(constant)


def _scanned_product(node: Node, parts: Parts, product: Node, edit: Edit) -> Result:
    x, weights = product.inputs
    assert x is not None and weights is not None
    place = parts.elements.index(x)
    if any(parts.axes) or len(x.users) != 1:
        return None
    outer = {inner: given for given, inner in parts.captured}
    done = edit.add(MatMul(), parts.scanned[place], _outer_matrix(weights, outer, edit))
    scanned = (*parts.scanned[:place], done, *parts.scanned[place + 1 :])
    elements = (*parts.elements[:place], product.output, *parts.elements[place + 1 :])
    left = [one for one in node.bodies[0] if one is not product]
    return changed(node, parts._replace(scanned=scanned, elements=elements), left, edit)


def _gathered_product(
    node: Node, parts: Parts, product: Node, gather: Node, outer: dict[Value, Value], edit: Edit
) -> Result:
    table, index = gather.inputs
    assert table is not None and index is not None and product.inputs[1] is not None
    done = edit.add(MatMul(), outer[table], _outer_matrix(product.inputs[1], outer, edit))
    # The body as a graph of its own, in which the gather reads the product.
    (body,) = node.bodies
    copy = copied(body, list(body), parts.body_inputs, parts.body_outputs)
    inner = copy.add_input(f"{product.output.name}_of_all", done.type)
    values = dict(zip((v for one in body for v in one.outputs), (v for one in copy for v in one.outputs), strict=True))
    values |= dict(zip(parts.body_inputs, copy.inputs, strict=False))
    (row,) = copy.add(gather.operator, [inner, values[index]], origin=gather.origin)
    copy.replace(values[product.output], row)
    copy.sort()
    copy.remove_dead()
    names = [f"{node.name}_{place}" for place in range(len(node.outputs))]
    given = [*parts.arguments, *(one for one, _ in parts.captured), done]
    return edit.add_loop(node, given, copy, len(parts.captured) + 1, names)


@rule("peeled loop", Loop, equation="a loop = its first iteration, and the others")
def peeled(node: Node, edit: Edit) -> Result:
    """The first iteration lies in front of a loop that runs at all, where what is carried has types only behind it."""
    parts = parts_of(node)
    assert parts is not None and isinstance(node.operator, Loop)
    times, condition = parts.head
    if all(_is_tensor(value) for value in parts.carried) or not all(map(_is_tensor, parts.initial)):
        return None
    if node.operator.first or (times is not None and (scalar(times) or 0) < 1) or parts.condition_out is None:
        return None
    if condition is not None and not (condition.constant is not None and condition.constant.all()):
        return None
    (body,) = node.bodies
    begins = [edit.constant(np.array(0, np.int64)), edit.constant(np.array(True))]
    captured = [outer for outer, _ in parts.captured]
    first = _settled(body, [*begins, *parts.initial, *captured], edit)
    count = len(parts.carried_out)
    carried_out = first.outputs[1 : 1 + count]
    if not all(map(_is_tensor, first.outputs)):
        return None
    assert parts.counted is not None and parts.trip_condition is not None
    rest = _settled(body, [parts.counted, parts.trip_condition, *carried_out, *captured], edit)
    if [value.type for value in rest.outputs[1 : 1 + count]] != [value.type for value in carried_out]:
        return None
    results = edit.inline(first, [*begins, *parts.initial, *captured])
    names = [f"{node.name}_{place}" for place in range(len(node.outputs))]
    given = [times, results[0], *results[1 : 1 + count], *captured]
    made = edit.add_loop(node, given, rest, len(captured), names, Loop(first=1))
    axis = edit.dims([0])
    rows = [
        edit.add(Concat(axis=0), edit.add(Unsqueeze(), row, axis), others)
        for row, others in zip(results[1 + count :], made[count:], strict=True)
    ]
    return [*made[:count], *rows]


@rule("scan of a batch", Scan, equation="a Scan over samples = a Scan of Scans")
def batched(node: Node, edit: Edit) -> Result:
    """Before version 9 a Scan went through each sample of a batch: those of one length are elements of another Scan."""
    operator = node.operator
    assert isinstance(operator, Scan)
    lengths, *given = node.arguments
    if not operator.batched or lengths is not None or any(x is None or not x.type.shape for x in given):
        return None
    (body,) = node.bodies
    count = len(given)
    around = Graph(body.name, body.assumptions.apart())
    inputs = [TensorType(x.dtype, x.shape[1:]) for x in given if x is not None]
    inputs += [value.type for value in node.captured]
    values = [around.add_input(value.name, type_) for value, type_ in zip(body.inputs, inputs, strict=True)]
    around.outputs = list(
        around.add(
            Scan(
                num_scan_inputs=operator.num_scan_inputs,
                scan_input_directions=operator.scan_input_directions,
                scan_output_directions=operator.scan_output_directions,
            ),
            values,
            name=node.name,
            outputs=[value.name for value in body.outputs],
            origin=edit.origin,
            bodies=(copied(body, list(body), body.inputs, body.outputs),),
            captures=node.captures,
        )
    )
    names = [f"{node.name}_{place}" for place in range(len(body.outputs))]
    made = edit.add_loop(node, [*given, *node.captured], around, node.captures, names, Scan(num_scan_inputs=count))
    return list(made[: len(node.outputs)])


@rule("caches by rows", Loop, Scan, equation="s' = concat(s, x) in a loop: s lies with what it grows along first")
def appended(node: Node, edit: Edit) -> Result:
    """A carried value that grows along an inner axis is carried with that axis in front: rows are appended in place.

    Within the body and around it transposes give it as it was; these are views but for those around it.
    """
    parts = parts_of(node)
    if parts is None:
        return None
    axes = [appended_axis(before, behind) or 0 for before, behind in zip(parts.carried, parts.carried_out, strict=True)]
    if not any(axes):
        return None
    (body,) = node.bodies
    joined = [value for value, axis in zip(parts.carried_out, axes, strict=True) if axis]
    if len(set(joined)) < len(joined) or not all(map(ranked, (one.producer for one in joined if one.producer))):
        return None
    copy = copied(body, list(body), parts.body_inputs, parts.body_outputs)
    state = len(parts.head)
    given = list(parts.initial)
    for place, axis in enumerate(axes):
        if not axis:
            continue
        before, behind = copy.inputs[state + place], copy.outputs[bool(parts.head) + place]
        there, back = _orders(axis, len(before.shape))
        given[place] = edit.add(Transpose(perm=there), given[place])
        concat = behind.producer
        assert concat is not None
        rows = [copy.add(Transpose(perm=there), [value], origin=concat.origin)[0] for value in concat.inputs[1:]]
        type_ = before.type
        carried = copy.add_input(
            f"{before.name}_by_rows", TensorType(type_.dtype, tuple([before.shape[one] for one in there]))
        )
        (whole,) = copy.add(Concat(axis=0), [carried, *rows], origin=concat.origin)
        (again,) = copy.add(Transpose(perm=back), [carried], origin=concat.origin)
        (seen,) = copy.add(Transpose(perm=back), [whole], origin=concat.origin)
        copy.replace(before, again)
        copy.replace(behind, seen)
        copy.outputs[bool(parts.head) + place] = whole
        copy.inputs.remove(carried)
        copy.inputs[state + place] = carried
    copy.sort()
    copy.remove_dead()
    names = [f"{node.name}_{place}" for place in range(len(node.outputs))]
    arguments = [*parts.head, *given, *parts.scanned, *(outer for outer, _ in parts.captured)]
    made = list(edit.add_loop(node, arguments, copy, len(parts.captured), names))
    for place, axis in enumerate(axes):
        if axis:
            made[place] = edit.add(Transpose(perm=_orders(axis, len(parts.carried[place].shape))[1]), made[place])
    return made


def _orders(axis: int, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The orders of axes that bring an axis to the front, and back."""
    there = (axis, *(one for one in range(rank) if one != axis))
    return there, tuple([there.index(one) for one in range(rank)])


UNROLLED_NODES = 64
"""A loop whose iterations have no more nodes than this together becomes these."""
COUNTED_ELEMENTS = 1024
"""The elements that a tensor may have from which it follows how often a loop runs."""


@rule("unrolled loop", Loop, Scan, equation="a loop of a few iterations = these, one after the other")
def unrolled(node: Node, edit: Edit) -> Result:
    """Short loops of few nodes, whose iterations are counted before the run, are no loops: also within others.

    Nodes that follow from the number of the iteration alone do not count where the condition is such a node.
    """
    parts, (body,) = parts_of(node), node.bodies
    if parts is None or any(value.dtype is DType.STRING for value in (*parts.carried_out, *parts.rows)):
        return None
    if not parts.always:
        numbers = _until_false(parts, body)
    elif all(map(_is_tensor, (*parts.carried_out, *parts.rows))):
        numbers = _iterations(node, parts)
        if numbers is not None and len(numbers) * len(body) > UNROLLED_NODES:
            return None
    else:
        return None
    if numbers is None:
        return None
    captured = [outer for outer, _ in parts.captured]
    states, rows = list(parts.initial), list[list[Value]]([] for _ in parts.rows)
    try:
        for number in numbers:
            head = [edit.constant(np.array(number, np.int64)), edit.constant(np.array(True))] if parts.head else []
            elements = [
                edit.add(Gather(axis=axis), x, edit.constant(np.array(len(numbers) - 1 - number if back else number)))
                for x, axis, back in zip(parts.scanned, parts.axes, parts.backwards, strict=True)
            ]
            own = copied(body, list(body), body.inputs, body.outputs)
            results = edit.inline(own, [*head, *states, *elements, *captured])
            results = results[len(results) - len(states) - len(rows) :]  # without the condition
            states = results[: len(states)]
            for stack, row in zip(rows, results[len(states) :], strict=True):
                stack.append(row)
        return [*states, *_stacks(parts, rows, edit)]
    except GraphError:  # an iteration is one that the run has to refuse
        return None


def _iterations(node: Node, parts: Parts) -> range | None:
    """The numbers of the iterations, if there are any, and they are known."""
    if isinstance(node.operator, Scan):
        x = parts.scanned[0]
        length = x.shape[parts.axes[0]] if x.type.shape is not None else None
        return range(length) if isinstance(length, int) and length else None
    times, condition = parts.head
    if condition is not None and not (condition.constant is not None and condition.constant.all()):
        return None
    last = None if times is None else scalar(times)
    return range(parts.first, int(last)) if last is not None and last > parts.first else None


def _until_false(parts: Parts, body: Graph) -> range | None:
    """The numbers of the iterations of a Loop that its condition ends, where that follows from constants alone, as
    exporters write a loop that counts; None if they are not known, or have too many other nodes."""
    times, condition = parts.head
    most = None if times is None else scalar(times)
    if (times is not None and most is None) or (condition is not None and scalar(condition) != 1):
        return None
    fixed = {inner: array(outer) for outer, inner in parts.captured}
    states: Mapping[Value, np.ndarray | None] = {
        value: array(initial) for value, initial in zip(parts.carried, parts.initial, strict=True)
    }
    behind = dict(zip(parts.carried, parts.carried_out, strict=True))
    while True:
        told = {value for value, known in (*fixed.items(), *states.items()) if known is not None}
        told |= {value for value in (parts.counted, parts.trip_condition) if value is not None}
        following = []
        for one in body:
            given = [value for value in one.inputs if value is not None]
            whole = (
                one.operator.deterministic and not one.bodies and all(value.dtype is not None for value in one.outputs)
            )
            if whole and all(value in told or array(value) is not None for value in given):
                following.append(one)
                told.update(one.outputs)
        left = {value: known for value, known in states.items() if known is not None and behind[value] in told}
        if left.keys() == {value for value, known in states.items() if known is not None}:
            break
        states = left
    if parts.condition_out not in told:
        return None
    return _counted(parts, following, {**fixed, **states}, max(len(body) - len(following), 1), most)


def _counted(
    parts: Parts, nodes: Sequence[Node], known: Mapping[Value, np.ndarray | None], others: int, most: float | None
) -> range | None:
    """The numbers of iterations until the condition, which `nodes` work out of what is known, is false."""
    behind = dict(zip(parts.carried, parts.carried_out, strict=True))
    needed, wanted = set[Value](), [parts.condition_out]
    by_output = {value: one for one in nodes for value in one.outputs}
    while wanted:
        value = wanted.pop()
        if value is None or value in needed:
            continue
        needed.add(value)
        if value in by_output:
            wanted += by_output[value].inputs
        elif value in behind:
            wanted.append(behind[value])
    nodes = [one for one in nodes if not needed.isdisjoint(one.outputs)]
    if not all(_is_small(value) for one in nodes for value in one.outputs):
        return None  # a state that grows from iteration to iteration, or is large: for the run
    for number in range(parts.first, parts.first + UNROLLED_NODES // others):
        if most is not None and number >= most:
            return range(parts.first, number) if number > parts.first else None
        values: dict[Value | None, np.ndarray | None] = dict(known.items())
        values |= {parts.counted: np.array(number, np.int64), parts.trip_condition: np.array(True)}

        def of(value: Value | None, values: dict[Value | None, np.ndarray | None] = values) -> np.ndarray | None:
            return None if value is None else values[value] if value in values else array(value)

        for one in nodes:
            try:
                results = evaluate_arrays(one.operator, [of(value) for value in one.inputs])
            except (ValueError, IndexError, ArithmeticError, TypeError):
                return None  # an iteration is one that the run has to refuse
            values.update(zip(one.outputs, map(np.asarray, results), strict=False))
        again = of(parts.condition_out)
        if again is not None and not again.all():
            return range(parts.first, number + 1)
        carried = {value: of(behind[value]) for value in behind if value in known and value in needed}
        known = {**known, **carried}
    return None


def _stacks(parts: Parts, rows: Sequence[Sequence[Value]], edit: Edit) -> Iterator[Value]:
    for stack, axis, reverse in zip(rows, parts.row_axes, parts.rows_backwards, strict=True):
        wide = [edit.add(Unsqueeze(), row, edit.dims([axis])) for row in stack]
        yield edit.add(Concat(axis=axis), *(wide[::-1] if reverse else wide))


def _is_small(value: Value) -> bool:
    return _is_tensor(value) and value.type.static and value.type.elements <= COUNTED_ELEMENTS


def _is_tensor(value: Value) -> bool:
    return value.dtype not in (None, DType.STRING) and value.type.shape is not None


def _settled(body: Graph, inputs: Sequence[Value], edit: Edit) -> Graph:
    """The body for inputs of these types, with choices made where that settles types."""
    made = specialise(body, [value.type for value in inputs])
    control.settle(made, edit.report)
    made.name = body.name
    return made


RULES = (unrolled, loop_invariants, hoisted, batched_products, peeled, batched, appended)

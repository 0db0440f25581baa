"""If, Loop, Scan and sequences in sessions, against onnxruntime; and sizes that only a run can tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from jitonnx import GraphOptimizationLevel, InferenceSession, OrtValue, SessionOptions, errors
from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.engine.schedule import Schedule
from jitonnx.ir.dims import variable
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Graph
from jitonnx.ir.types import TensorType
from jitonnx.model.checker import check_model
from jitonnx.ops.onnx.selection import NonZero
from jitonnx.support.kernel_cache import KernelCache
from tests.session.bodies import bytes_of, check, constant, graph, numbers
from tests.session.models import BOOL, FLOAT, INT64, model, node, tensor

CONTROL_FLOW = [
    *(("If", opset) for opset in (1, 11, 13, 16, 19, 21, 23, 24, 25)),
    *(("Loop", opset) for opset in (1, 11, 13, 16, 19, 21, 23, 24, 25)),
    *(("Scan", opset) for opset in (8, 9, 11, 16, 19, 21, 23, 24, 25)),
    *((name, 11) for name in ("ConcatFromSequence", "SequenceAt", "SequenceConstruct", "SequenceErase")),
    *(("NonMaxSuppression", opset) for opset in (10, 11)),
    *(("SplitToSequence", opset) for opset in (11, 24)),
    *(("Optional", opset) for opset in (15, 28)),
    *(("OptionalHasElement", opset) for opset in (15, 18, 28)),
    *(("OptionalGetElement", opset) for opset in (15, 18, 28)),
]
"""Operators and operator sets that are tested here and not in the tables of cases."""

NEWEST_OF_ONNXRUNTIME = 24


TRUE = constant("yes", True, BOOL)


# ------------------------------------------------------------------------------------------------ If


def choice(opset: int = 20) -> bytes:
    """x * 2 or rows of x, as the sum of x says; both read what is around them."""
    then = graph([node("Mul", ["r", "r"], ["a"])], [], [tensor("a", None)], "then")
    other = graph([node("Relu", ["r"], ["h"]), node("Add", ["h", "x"], ["b"])], [], [tensor("b", None)], "other")
    nodes = [
        node("Neg", ["x"], ["r"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        node("Exp", ["y"], ["z"]),
    ]
    return bytes_of(nodes, [tensor("x"), tensor("c", [1] if opset < 11 else [], BOOL)], [tensor("z", None)], opset)


@pytest.mark.parametrize("opset", [opset for name, opset in CONTROL_FLOW if name == "If"])
def test_if(opset: int) -> None:
    shape = [1] if opset < 11 else []
    feeds = [{"x": numbers(n, 3), "c": np.full(shape, n % 2 == 0)} for n in (1, 2, 5, 4)]
    if opset <= NEWEST_OF_ONNXRUNTIME and opset >= 7:
        check(choice(opset), *feeds)
    for feed in feeds:
        (z,) = InferenceSession(choice(opset)).run(None, feed)
        x = feed["x"]
        np.testing.assert_allclose(z, np.exp(x * x if feed["c"] else np.maximum(-x, 0) + x), 1e-5)


def test_branches_of_different_shapes() -> None:
    then = graph([node("Transpose", ["x"], ["a"])], [], [tensor("a", None)], "then")
    other = graph([node("Flatten", ["x"], ["b"], axis=0)], [], [tensor("b", None)], "other")
    nodes = [
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
        node("Relu", ["y"], ["z"]),
        node("Shape", ["z"], ["s"]),
    ]
    outputs = [tensor("z", None), tensor("s", [2], INT64)]
    session = check(
        bytes_of(nodes, [tensor("x"), tensor("c", [], BOOL)], outputs),
        *({"x": numbers(n, 3), "c": np.array(n > 2)} for n in (1, 2, 3, 4)),
    )
    assert session.engine.schedule is not None


def test_a_condition_that_sizes_tell_is_right() -> None:
    then = graph([node("Neg", ["x"], ["a"])], [], [tensor("a", None)], "then")
    other = graph([node("Abs", ["x"], ["b"])], [], [tensor("b", None)], "other")
    nodes = [
        node("Size", ["x"], ["n"]),
        constant("six", 6, INT64),
        node("Greater", ["n", "six"], ["c"]),
        node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    check(bytes_of(nodes, [tensor("x")], [tensor("y", None)]), {"x": numbers(2, 3)}, {"x": numbers(3, 3)})


NEVER_TAKEN = {
    "a run tells": "picked = Identity(c)",
    "the rank tells": "rank = Size(sizes) none = Constant<value_int = 0>() picked = Equal(rank, none)",
    "sizes tell": "size = Gather(sizes, first) none = Constant<value_int = 99>() picked = Equal(size, none)",
}


@pytest.mark.parametrize("level", [GraphOptimizationLevel.ORT_DISABLE_ALL, GraphOptimizationLevel.ORT_ENABLE_ALL])
@pytest.mark.parametrize("condition", NEVER_TAKEN)
def test_a_branch_that_does_not_fit_what_it_reads_may_never_be_taken(
    condition: str, level: GraphOptimizationLevel
) -> None:
    """PyTorch's atleast_1d gives scalars one element, and what has a rank nothing; a matrix has no such shape."""
    data = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": 18]>
        branches (float[n, 4] x, bool c) => (float[n, 4] y)
        <int64[1] one = {{1}}, int64 first = {{0}}> {{
            doubled = Add(x, x)
            sizes = Shape(x)
            {NEVER_TAKEN[condition]}
            chosen = If(picked) <
                then_branch = scalar () => (a) {{ row = Reshape(doubled, one) a = Exp(row) }},
                else_branch = rest () => (b) {{ b = Neg(doubled) }}
            >
            y = Add(chosen, x)
        }}""").SerializeToString()
    options = SessionOptions()
    options.graph_optimization_level = level
    session = InferenceSession(data, options)
    for count in (3, 1, 0):
        x = numbers(count, 4)
        (y,) = session.run(None, {"x": x, "c": np.array(False)})
        assert np.array_equal(y, -x)
    if condition == "a run tells":
        with pytest.raises(errors.Error, match="Reshape"):
            session.run(None, {"x": numbers(3, 4), "c": np.array(True)})


@pytest.mark.parametrize("condition", ["Less(size, zero)", "Identity(c)"])
def test_a_branch_without_shapes_reads_what_is_known_outside(condition: str) -> None:
    """PyTorch's repeat adds axes that there are too few of in a branch that declares a scalar: known constants and
    shapes are arrays to it."""
    data = onnx.parser.parse_model(f"""
        <ir_version: 9, opset_import: ["": 18]>
        branches (float[n, 4] x, bool c) => (y)
        <int64[1] one = {{1}}, int64 two = {{2}}, int64 zero = {{0}}> {{
            sizes = Shape(x)
            rank = Size(sizes)
            size = Sub(rank, two)
            picked = {condition}
            chosen = If(picked) <
                then_branch = more () => (float a) {{
                    gap = Abs(size)
                    gaps = Reshape(gap, one)
                    ones = Expand(one, gaps)
                    grown = Concat<axis = 0>(ones, sizes)
                    a = Reshape(x, grown)
                }},
                else_branch = rest () => (b) {{ b = Identity(x) }}
            >
            y = Tile(chosen, sizes)
        }}""").SerializeToString()
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel.ORT_DISABLE_ALL
    session = InferenceSession(data, options)
    for count in (3, 1, 2, 0):  # from the second run on, steps are one call
        x = numbers(count, 4)
        (y,) = session.run(None, {"x": x, "c": np.array(False)})
        assert np.array_equal(y, np.tile(x, x.shape))


# ------------------------------------------------------------------------------------------------ Loop


def loop(opset: int = 20) -> bytes:
    """A state that is multiplied again and again by what is around the loop, until it is large; all states stacked."""
    body = graph(
        [
            node("MatMul", ["s", "w"], ["t"]),
            node("Abs", ["t"], ["t_abs"]),
            node("ReduceMax", ["t_abs"], ["m"], keepdims=0),
            constant("bound", 50.0, FLOAT),
            node("Less", ["m", "bound"], ["go"]),
            node("Identity", ["t"], ["row"]),
        ],
        [tensor("i", [], INT64), tensor("c", [], BOOL), tensor("s", None)],
        [tensor("go", [], BOOL), tensor("t", None), tensor("row", None)],
    )
    nodes = [node("Relu", ["v"], ["w"]), node("Loop", ["n", "", "x"], ["last", "all"], body=body)]
    inputs = [tensor("x", ("N", 3)), tensor("v", (3, 3)), tensor("n", [], INT64)]
    return bytes_of(nodes, inputs, [tensor("last", None), tensor("all", None)], opset)


@pytest.mark.parametrize("opset", [opset for name, opset in CONTROL_FLOW if name == "Loop"])
def test_loop(opset: int) -> None:
    if not 9 <= opset <= NEWEST_OF_ONNXRUNTIME:
        InferenceSession(loop(max(opset, 9)))
        return
    feeds = [{"x": numbers(n, 3), "v": numbers(3, 3), "n": np.array(k)} for n, k in ((1, 5), (2, 1), (4, 30))]
    check(loop(opset), *feeds)


def test_loop_without_iterations() -> None:
    session = InferenceSession(loop())
    x = numbers(2, 3)
    last, every = session.run(None, {"x": x, "v": numbers(3, 3), "n": np.array(0)})
    np.testing.assert_array_equal(last, x)
    assert every.shape[::2] == (0, 3)


def test_state_that_grows() -> None:
    body = graph(
        [
            node("Concat", ["s", "x"], ["t"], axis=0),
            node("ReduceSum", ["t"], ["row"], keepdims=0),
            node("Identity", ["c"], ["go"]),
        ],
        [tensor("i", [], INT64), tensor("c", [], BOOL), tensor("s", None)],
        [tensor("go", [], BOOL), tensor("t", None), tensor("row", None)],
    )
    nodes = [node("Loop", ["n", "", "x"], ["last", "sums"], body=body), node("Neg", ["last"], ["y"])]
    model = bytes_of(nodes, [tensor("x"), tensor("n", [], INT64)], [tensor("y", None), tensor("sums", None)])
    check(model, *({"x": numbers(n, 3), "n": np.array(k)} for n, k in ((1, 3), (2, 2), (1, 1), (3, 4))))


@pytest.mark.parametrize("rewrites", [GraphOptimizationLevel.ORT_DISABLE_ALL, GraphOptimizationLevel.ORT_ENABLE_ALL])
def test_bodies_alone_read_a_size_that_a_run_tells(rewrites: GraphOptimizationLevel) -> None:
    """What is found non-zero is counted for the sake of a branch or a loop, which reads nothing else of it."""
    data = onnx.parser.parse_model("""
        <ir_version: 9, opset_import: ["": 18]>
        bodies (float[n] x, bool c, int64 trips) => (int64[k] y, int64[2] z)
        <int64[1] three = {3}, int64[2] none = {0, 0}> {
            found = NonZero(x)
            sizes = Shape(found)
            y = If(c) <
                then_branch = more () => (int64[k] a) { a = Tile(sizes, three) },
                else_branch = rest () => (int64[2] b) { b = Neg(sizes) }
            >
            z = Loop(trips, , none) <
                body = again (int64 i, bool on, int64[2] sum) => (bool goes, int64[2] more) {
                    goes = Identity(on)
                    more = Add(sum, sizes)
                }
            >
        }""").SerializeToString()
    options = SessionOptions()
    options.graph_optimization_level = rewrites
    session = InferenceSession(data, options)
    for count, taken, trips in ((3, True, 2), (5, False, 0), (0, True, 3), (1, False, 1), (4, True, 5)):
        feeds = {"x": np.ones(count, np.float32), "c": np.array(taken), "trips": np.array(trips)}
        y, z = session.run(None, feeds)
        assert y.tolist() == ([1, count] * 3 if taken else [-1, -count]) and z.tolist() == [trips, trips * count]


def test_nested_loops_and_branches() -> None:
    then = graph([node("Add", ["u", "i"], ["p"])], [], [tensor("p", None, INT64)], "then")
    other = graph([node("Mul", ["u", "j"], ["q"])], [], [tensor("q", None, INT64)], "other")
    inner = graph(
        [
            constant("two", 2, INT64),
            node("Mod", ["j", "two"], ["odd"]),
            node("Cast", ["odd"], ["is_odd"], to=BOOL),
            node("If", ["is_odd"], ["next"], then_branch=then, else_branch=other),
            node("Identity", ["d"], ["go_in"]),
        ],
        [tensor("j", [], INT64), tensor("d", [], BOOL), tensor("u", None, INT64)],
        [tensor("go_in", [], BOOL), tensor("next", None, INT64)],
        "inner",
    )
    outer = graph(
        [
            node("Loop", ["m", "", "s"], ["t"], body=inner),
            node("Add", ["t", "x"], ["t2"]),
            node("Identity", ["c"], ["go"]),
        ],
        [tensor("i", [], INT64), tensor("c", [], BOOL), tensor("s", None, INT64)],
        [tensor("go", [], BOOL), tensor("t2", None, INT64)],
    )
    nodes = [node("Loop", ["n", "", "x"], ["y"], body=outer)]
    inputs = [tensor("x", ("N",), INT64), tensor("n", [], INT64), tensor("m", [], INT64)]
    feeds = [{"x": np.arange(k), "n": np.array(k), "m": np.array(5 - k)} for k in (1, 3, 4)]
    check(bytes_of(nodes, inputs, [tensor("y", None, INT64)]), *feeds)


def test_sequence_as_state() -> None:
    body = graph(
        [
            constant("one", 1, INT64),
            node("Add", ["i", "one"], ["rows"]),
            node("Unsqueeze", ["rows", "zero"], ["end"]),
            node("Slice", ["x", "zero", "end"], ["part"]),
            node("SequenceInsert", ["s", "part"], ["t"]),
            node("Identity", ["c"], ["go"]),
        ],
        [
            tensor("i", [], INT64),
            tensor("c", [], BOOL),
            helper.make_tensor_sequence_value_info("s", FLOAT, None),
        ],
        [tensor("go", [], BOOL), helper.make_tensor_sequence_value_info("t", FLOAT, None)],
    )
    nodes = [
        constant("zero", [0], INT64),
        node("SequenceEmpty", [], ["empty"]),
        node("Loop", ["n", "", "empty"], ["all"], body=body),
        node("ConcatFromSequence", ["all"], ["joined"], axis=0),
        node("Relu", ["joined"], ["y"]),
        node("SequenceLength", ["all"], ["count"]),
    ]
    outputs = [
        tensor("y", None),
        tensor("count", [], INT64),
        helper.make_tensor_sequence_value_info("all", FLOAT, None),
    ]
    model = bytes_of(nodes, [tensor("x"), tensor("n", [], INT64)], outputs)
    check(model, *({"x": numbers(4, 3), "n": np.array(k)} for k in (1, 3, 4)))


# ------------------------------------------------------------------------------------------------ Scan


def scan(opset: int = 20, **attributes: Any) -> bytes:
    body = graph(
        [node("Mul", ["s", "k"], ["h"]), node("Add", ["h", "x"], ["t"]), node("Tanh", ["t"], ["row"])],
        [tensor("s", (3,)), tensor("x", (3,))],
        [tensor("t", (3,)), tensor("row", (3,))],
    )
    first = ["", "s0", "x"] if opset < 9 else ["s0", "x"]
    nodes = [
        node("Exp", ["k0"], ["k"]),
        node("Scan", first, ["last", "all"], num_scan_inputs=1, body=body, **attributes),
    ]
    batch = ["B"] if opset < 9 else []
    inputs = [tensor("s0", [*batch, 3]), tensor("x", [*batch, None, None]), tensor("k0", [])]
    return bytes_of(nodes, inputs, [tensor("last", None), tensor("all", None)], opset)


@pytest.mark.parametrize("opset", [opset for name, opset in CONTROL_FLOW if name == "Scan"])
def test_scan(opset: int) -> None:
    if opset > NEWEST_OF_ONNXRUNTIME:
        InferenceSession(scan(opset))
        return
    batch = [2] if opset < 9 else []
    feeds = [{"s0": numbers(*batch, 3), "x": numbers(*batch, n, 3), "k0": np.array(-1, np.float32)} for n in (1, 4, 7)]
    check(scan(opset), *feeds)


def test_scan_along_axes_and_backwards() -> None:
    model = scan(scan_input_axes=[-1], scan_input_directions=[1], scan_output_axes=[1], scan_output_directions=[1])
    check(model, *({"s0": numbers(3), "x": numbers(3, n), "k0": np.array(-1, np.float32)} for n in (1, 4, 7)))


# ------------------------------------------------------------------------------------------------ sequences, optionals


@pytest.mark.parametrize(("axis", "level"), [(0, 99), (-1, 99), (-1, 0)])
def test_scan_of_what_has_one_rank_or_another(axis: int, level: int) -> None:
    """onnxruntime loads such models, and refuses to run them."""
    text = f"""<ir_version: 10, opset_import: ["": 18]>
    g (float[a, b] x, bool[] c) => (float[] s, float[] y) <int64[1] zero = {{0}}> {{
        v = If (c) <then_branch: graph = p () => (float[] t) {{ t = Identity(x) }},
                    else_branch: graph = q () => (float[] f) {{ f = Unsqueeze(x, zero) }}>
        first = ReduceSum <keepdims = 0> (v)
        s, y = Scan <num_scan_inputs = 1, scan_input_axes = [{axis}], scan_output_axes = [{axis}],
                     body: graph = r (float[] before, float[] e) => (float[] behind, float[] n) {{
                         sum = ReduceSum <keepdims = 0> (e)  behind = Add(before, sum)  n = Neg(e) }}> (first, v)
    }}"""
    session = _without_declared_shapes(text, level)
    for rows, flat in ((2, True), (3, False), (2, True), (1, False)):
        x = numbers(rows, 3)
        total, negated = session.run(None, {"x": x, "c": np.array(flat)})
        np.testing.assert_allclose(total, 2 * x.sum(), 1e-5)
        np.testing.assert_array_equal(negated, -x if flat else -x[None])


@pytest.mark.parametrize("level", [99, 0])
def test_the_rank_of_what_takes_a_graph_outputs_name(level: int) -> None:
    """`moved` is what If gives, which nothing but a run tells the rank of: as `moved` it has that rank still."""
    text = """<ir_version: 10, opset_import: ["": 15]>
    g (float[n] x, bool[] c) => (float[] turned, float[] moved, float[] cut)
    <int64[3] shape = {1, -1, 3}, int64[1] zero = {0}, int64[1] last = {-1}, int64[1] one = {1}> {
        v = If (c) <then_branch: graph = p () => (float[] t) { t = Identity(x) },
                    else_branch: graph = q () => (float[] f) { f = Reshape(x, shape) }>
        turned = Transpose <perm = [1, 0, 2]> (v)
        w = Identity (v)
        moved = Transpose <perm = [0, 1, 2]> (w)
        cut = Slice (w, zero, last, one)
    }"""
    session = _without_declared_shapes(text, level)
    for rows in (4, 1, 5):
        x = numbers(3 * rows)
        turned, moved, cut = session.run(None, {"x": x, "c": np.array(False)})
        np.testing.assert_array_equal(moved, x.reshape(1, rows, 3))
        np.testing.assert_array_equal(turned, moved.transpose(1, 0, 2))
        np.testing.assert_array_equal(cut, moved[:, :-1])


def test_assumptions_about_what_is_not_computed() -> None:
    """The shape that is asked for is of no axis, so that nothing of the If is needed, once its rank is known."""
    text = """<ir_version: 10, opset_import: ["": 18]>
    g (float[n, m] x, bool[] c) => (int64[k] y, float[] z)
    <int64[1] first = {-2}, int64[0] none = {}, int64[1] zero = {0}> {
        v = If (c) <then_branch: graph = p () => (float[] t) { t = Gather <axis = 1> (x, none) },
                    else_branch: graph = q () => (float[] f) { f = ReduceSum <keepdims = 0> (x) }>
        w = Gather <axis = 0> (v, first)
        y = Shape <start = 1, end = -2> (w)
        z = Neg (x)
    }"""
    session = _without_declared_shapes(text, 99)
    for rows in (4, 2, 5):
        x = numbers(rows, 3)
        y, z = session.run(None, {"x": x, "c": np.array(True)})
        assert y.shape == (0,)
        np.testing.assert_array_equal(z, -x)


def _without_declared_shapes(text: str, level: int) -> InferenceSession:
    """A session of a model of which nothing but a run tells the shapes of outputs."""
    read = onnx.parser.parse_model(text)
    for value in read.graph.output:
        value.type.tensor_type.ClearField("shape")
    options = SessionOptions()
    options.graph_optimization_level = GraphOptimizationLevel(level)
    return InferenceSession(read.SerializeToString(), options)


@pytest.mark.parametrize("opset", [11, 24])
def test_split_to_sequence(opset: int) -> None:
    nodes = [
        node("SplitToSequence", ["x", "parts"], ["all"], axis=0),
        constant("at", -1, INT64),
        node("SequenceAt", ["all", "at"], ["last"]),
        node("Neg", ["last"], ["y"]),
    ]
    outputs = [helper.make_tensor_sequence_value_info("all", FLOAT, None), tensor("y", None)]
    model = bytes_of(nodes, [tensor("x"), tensor("parts", ["P"], INT64)], outputs, opset)
    check(model, {"x": numbers(5, 3), "parts": np.array([1, 4])}, {"x": numbers(4, 3), "parts": np.array([1, 2, 1])})


@pytest.mark.parametrize("opset", [15, 18, 28])
@pytest.mark.conformance("value-types")
def test_optionals(opset: int) -> None:
    kind = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, ("N", 3)))
    nodes = [
        node("OptionalHasElement", ["o"], ["has"]),
        node("Optional", ["x"], ["given"]),
        node("OptionalGetElement", ["given"], ["y"]),
    ]
    outputs = [tensor("has", [], BOOL), tensor("y", None)]
    model = bytes_of(nodes, [helper.make_value_info("o", kind), tensor("x")], outputs, opset)
    for given in (None, numbers(1, 3)):
        has, y = InferenceSession(model).run(None, {"o": given, "x": numbers(2, 3)})
        assert has == (given is not None)
        np.testing.assert_array_equal(y, numbers(2, 3))


# ------------------------------------------------------------------------------------------------ unbacked sizes


def test_sizes_of_nonzero_flow_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are chosen by a mask, a range and a constant of their number, behind each other, compiled once."""
    nodes = [
        node("NonZero", ["mask"], ["at"]),
        node("Squeeze", ["at", "zero"], ["rows"]),
        node("Gather", ["x", "rows"], ["picked"]),
        node("MatMul", ["picked", "w"], ["p"]),
        node("Shape", ["rows"], ["n"]),
        node("ConstantOfShape", ["n"], ["blank"]),
        node("Unsqueeze", ["blank", "one"], ["column"]),
        node("Add", ["p", "column"], ["y"]),
    ]
    nodes = [constant("zero", [0], INT64), constant("one", [1], INT64), *nodes]
    inputs = [tensor("x", ("N", 4)), tensor("mask", ("N",), BOOL), tensor("w", (4, 5))]
    model = bytes_of(nodes, inputs, [tensor("y", None)])
    feeds = [{"x": numbers(6, 4), "mask": np.arange(6) < k, "w": numbers(4, 5)} for k in (3, 1, 6, 0)]
    session = check(model, *feeds)
    assert len(session.engine.schedule.steps) == 2


@pytest.mark.parametrize("count", [3, 0, 5])
def test_numbers_that_are_sizes(count: int) -> None:
    """Range, Expand, TopK and Slice take a number that the model computes."""
    nodes = [
        node("ReduceMax", ["k"], ["most"], keepdims=0),
        constant("zero", 0, INT64),
        constant("one", 1, INT64),
        constant("axis", [0], INT64),
        node("Range", ["zero", "most", "one"], ["r"]),
        node("Unsqueeze", ["most", "axis"], ["size"]),
        node("TopK", ["x", "size"], ["top", "at"]),
        node("Slice", ["x", "axis", "size", "minus"], ["cut"]),
        constant("minus", [-1], INT64),
        node("Expand", ["top", "size"], ["wide"]),
        node("Add", ["cut", "wide"], ["y"]),
    ]
    model = bytes_of(
        nodes, [tensor("x", ("N", 8)), tensor("k", (3,), INT64)], [tensor("r", None, INT64), tensor("y", None)]
    )
    check(model, {"x": numbers(2, 8), "k": np.array([count, 0, -1])})


def test_a_number_that_is_no_size_after_all() -> None:
    nodes = [node("Neg", ["k"], ["n"]), node("Tile", ["x", "two"], ["y"]), node("Range", ["zero", "n", "one"], ["r"])]
    nodes = [constant(name, value, INT64) for name, value in (("two", [2, 1]), ("zero", 0), ("one", 1))] + nodes
    model = bytes_of(nodes, [tensor("x"), tensor("k", [], INT64)], [tensor("y", None), tensor("r", None, INT64)])
    check(model, {"x": numbers(2, 3), "k": np.array(3)}, {"x": numbers(2, 3), "k": np.array(-3)})


def test_computed_sizes_that_turn_out_equal_or_not() -> None:
    """Two counts are added: equal ones, or one of 1 that broadcasts."""
    nodes = [
        node("Compress", ["x", "a"], ["p"], axis=0),
        node("Compress", ["x", "b"], ["q"], axis=0),
        node("Add", ["p", "q"], ["y"]),
    ]
    model = bytes_of(nodes, [tensor("x"), tensor("a", ("N",), BOOL), tensor("b", ("N",), BOOL)], [tensor("y", None)])
    x = numbers(4, 3)
    check(
        model,
        *({"x": x, "a": np.arange(4) < m, "b": np.arange(4) >= 4 - n} for m, n in ((2, 2), (1, 3), (3, 1), (3, 3))),
    )


def test_what_a_run_meets_otherwise_than_planned_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sizes that only a run tells are taken to be equal, and broadcast in some runs: a plan for each such case."""
    nodes = [
        node("Compress", ["x", "a"], ["p"], axis=0),
        node("Compress", ["x", "b"], ["q"], axis=0),
        node("Add", ["p", "q"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    model = bytes_of(nodes, [tensor("x"), tensor("a", ("N",), BOOL), tensor("b", ("N",), BOOL)], [tensor("y", None)])
    session = InferenceSession(model)
    for settled in (False, True):
        for size in (4, 7, 9):
            x = numbers(size, 3)
            for m, n in ((2, 2), (1, 3), (1, 4), (3, 1), (4, 1), (3, 3), (1, 1), (0, 0)):
                a, b = np.arange(size) < m, np.arange(size) >= size - n
                (y,) = session.run(None, {"x": x, "a": a, "b": b})
                np.testing.assert_array_equal(y, np.maximum(x[a] + x[b], 0))
        assert session.compile_status.numpy_runs == 0
        if not settled:
            monkeypatch.setattr(Engine, "_compile", None)  # nothing is compiled from now on
    with pytest.raises(errors.Error):
        session.run(None, {"x": numbers(5, 3), "a": np.arange(5) < 2, "b": np.arange(5) < 3})


def test_a_run_that_meets_much_otherwise_than_planned_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sums of rows that only a run counts, both broadcast, the second of what the first one gives: the plan that
    served the last run is tried first.

    A count that is an element of a shape is not taken for the 0 that copies a size, whatever else did not hold.
    """
    nodes = [
        *(node("Compress", ["x", mask], [f"p{mask}"], axis=0) for mask in "abc"),
        node("Add", ["pa", "pb"], ["s"]),
        node("Compress", ["s", "d"], ["pd"], axis=0),
        node("Add", ["pc", "pd"], ["t"]),
        node("Shape", ["t"], ["shape"]),
        node("Reshape", ["t", "shape"], ["r"]),
        *(node("Relu", [name], [output]) for name, output in (("s", "y"), ("r", "z"))),
    ]
    masks = [tensor(mask, ("M" if mask == "d" else "N",), BOOL) for mask in "abcd"]
    session = InferenceSession(bytes_of(nodes, [tensor("x"), *masks], [tensor("y", None), tensor("z", None)]))
    tries = []
    attempt = Schedule.run_owned
    monkeypatch.setattr(Schedule, "run_owned", lambda *given: (tries.append(1), attempt(*given))[1])
    x = numbers(9, 3)
    for counts, first, again in (
        ((4, 4, 3, 3), 1, 1),
        ((1, 4, 5, 1), 3, 1),
        ((1, 6, 7, 1), 1, 1),
        ((4, 4, 3, 3), 2, 1),
    ):
        a, b, c, d = (np.arange(9) < count for count in counts)
        for most in (first, again):
            tries.clear()
            total = x[a] + x[b]
            rows = d[: len(total)]
            y, z = session.run(None, {"x": x, "a": a, "b": b, "c": c, "d": rows})
            np.testing.assert_array_equal(y, np.maximum(total, 0))
            np.testing.assert_array_equal(z, np.maximum(x[c] + total[rows], 0))
            assert len(tries) <= most
    assert session.compile_status.numpy_runs == 0


@pytest.mark.parametrize("center", [0, 1])
def test_non_max_suppression(center: int) -> None:
    nodes = [
        node("Relu", ["raw"], ["boxes"]),
        node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "least"], ["chosen"], center_point_box=center),
        constant("column", [2], INT64),
        node("Gather", ["chosen", "column"], ["at"], axis=1),
        node("Squeeze", ["at", "one"], ["rows"]),
        constant("one", [1], INT64),
        constant("first", 0, INT64),
        node("Gather", ["boxes", "first"], ["of_first"]),
        node("Gather", ["of_first", "rows"], ["y"]),
    ]
    inputs = [tensor("raw", (2, "n", 4)), tensor("scores", (2, 3, "n")), tensor("most", [1], INT64)]
    inputs += [tensor("iou", [1]), tensor("least", [1])]
    model = bytes_of(nodes, inputs, [tensor("chosen", None, INT64), tensor("y", None)])
    feeds = []
    for n, most, iou, least in (
        (40, 10, 0.3, 0.2),
        (7, 2, 0.5, 0.9),
        (90, 30, 0.1, 0.5),
        (5, 0, 0.5, 0.0),
        (30, 9, 0.4, 2.0),
    ):
        raw = np.abs(numbers(2, n, 4)) * 10
        scores = np.random.default_rng(n).random((2, 3, n), np.float32)
        values = {"most": np.array([most]), "iou": np.array([iou], np.float32), "least": np.array([least], np.float32)}
        feeds.append({"raw": raw, "scores": scores, **values})
    check(model, *feeds)


@pytest.mark.conformance("value-types")
def test_sequences_as_inputs_and_outputs() -> None:
    inputs = [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None), tensor("x")]
    nodes = [node("SequenceInsert", ["s", "x"], ["t"]), node("SequenceLength", ["t"], ["n"])]
    outputs = [helper.make_tensor_sequence_value_info("t", TensorProto.FLOAT, None), tensor("n", [], INT64)]
    check(bytes_of(nodes, inputs, outputs), {"s": [numbers(1, 3), numbers(2, 3)], "x": numbers(4, 3)})


def test_a_sequence_is_made_and_shortened() -> None:
    nodes = [
        constant("second", 1, INT64),
        node("Neg", ["x"], ["n"]),
        node("SequenceConstruct", ["x", "n", "x"], ["all"]),
        node("SequenceErase", ["all", "second"], ["some"]),
        node("SequenceErase", ["some"], ["fewer"]),
        node("ConcatFromSequence", ["all"], ["y"], axis=-1, new_axis=1),
    ]
    outputs = [helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None) for name in ("some", "fewer")]
    check(bytes_of(nodes, [tensor("x")], [*outputs, tensor("y", None)]), {"x": numbers(2, 3)}, {"x": numbers(4, 3)})


@pytest.mark.parametrize("opset", [10, 11])
def test_non_max_suppression_alone(opset: int) -> None:
    nodes = [node("NonMaxSuppression", ["boxes", "scores", "most"], ["chosen"])]
    inputs = [tensor("boxes", (1, "n", 4)), tensor("scores", (1, 1, "n")), tensor("most", [1], INT64)]
    feed = {"boxes": numbers(1, 20, 4), "scores": numbers(1, 1, 20), "most": np.array([5])}
    check(bytes_of(nodes, inputs, [tensor("chosen", None, INT64)], opset), feed)


def test_assumptions_about_what_rewrites_took_out_are_not_asked() -> None:
    """Of a variable whose value is gone no run tells the size; nothing that is left was planned by it."""
    rewritten = Graph("gone")
    x = rewritten.add_input("x", TensorType(DType.FLOAT, (variable("n"),)))
    rewritten.outputs = list(rewritten.add(NonZero(), [x]))
    rewritten.assumptions.note(variable("gone.0"), 3)
    engine = Engine(rewritten, Settings(1), KernelCache())
    (found,) = engine.run([np.array([0, 2, 0, 5], np.float32)])
    np.testing.assert_array_equal(found, [[1, 3]])


def captured_shape(kind: str) -> bytes:
    """A body that captures the shape of x, which is added to z."""
    expand = [node("Expand", ["value", "s"], ["e"]), node("ReduceSum", ["e"], ["sum"], keepdims=0)]
    if kind == "Loop":
        nodes = [*expand, node("Add", ["state", "sum"], ["state_next"]), node("Identity", ["go"], ["condition_out"])]
        inputs = [tensor("i", (), INT64), tensor("go", (), BOOL), tensor("state", ())]
        body = graph(nodes, inputs, [tensor("condition_out", (), BOOL), tensor("state_next", ())])
        control = node("Loop", ["times", "", "null"], ["y"], body=body)
    else:
        body = graph(expand, [], [tensor("sum", ())], "then")
        other = graph([node("Identity", ["null"], ["none"])], [], [tensor("none", ())], "else")
        control = node("If", ["several"], ["y"], then_branch=body, else_branch=other)
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Greater", ["times", "one"], ["several"]),
        control,
        node("Add", ["x", "z"], ["w"]),
    ]
    constants = {"value": np.array(2, np.float32), "null": np.array(0, np.float32), "one": np.array(1)}
    inputs = [tensor("x", ("M", "N")), tensor("z", ("M", "N")), tensor("times", (), INT64)]
    return model(nodes, inputs, [tensor("y", ()), tensor("w", None)], constants)


@pytest.mark.filterwarnings("ignore:inputs disagree")
@pytest.mark.parametrize("kind", ["Loop", "If"])
def test_a_captured_shape_is_that_of_the_inputs(kind: str) -> None:
    """Also where inputs disagree on sizes that they share: the model is planned anew, with other names for these."""
    shapes = [((2, 7), (2, 7)), ((1, 7), (4, 7)), ((3, 1), (3, 5)), ((5, 2), (5, 2)), ((1, 6), (2, 6))]
    feeds = [
        {"x": np.ones(x, np.float32), "z": np.full(z, 3, np.float32), "times": np.array(times)}
        for (x, z), times in zip(shapes, (2, 3, 5, 1, 4), strict=True)
    ]
    check(captured_shape(kind), *feeds)


def test_a_body_reads_what_a_feed_puts_in_the_place_of_an_initializer() -> None:
    body = graph(
        [node("Add", ["state", "step"], ["state_next"]), node("Identity", ["go"], ["condition_out"])],
        [tensor("i", (), INT64), tensor("go", (), BOOL), tensor("state", (3,))],
        [tensor("condition_out", (), BOOL), tensor("state_next", (3,))],
    )
    nodes = [node("Loop", ["times", "", "x"], ["y"], body=body)]
    inputs = [tensor("x", (3,)), tensor("times", (), INT64), tensor("step", (3,))]
    data = model(nodes, inputs, [tensor("y", (3,))], {"step": np.ones(3, np.float32)})
    step = np.array([1, 2, 5], np.float32)
    feeds = {"x": np.zeros(3, np.float32), "times": np.array(4)}
    session = InferenceSession(data)
    for _ in range(3):
        np.testing.assert_array_equal(session.run(None, feeds)[0], [4, 4, 4])
        np.testing.assert_array_equal(session.run(None, {**feeds, "step": step})[0], 4 * step)
    options = SessionOptions()
    options.add_initializer("step", OrtValue.ortvalue_from_numpy(2 * step))
    np.testing.assert_array_equal(InferenceSession(data, options).run(None, feeds)[0], 8 * step)


def with_declared_constant(kind: str, first: bool, ir_version: int) -> bytes:
    """A node whose body declares its initializer `w` among its inputs: in front of the others, or behind them."""
    x, w = tensor("x", (3,)), tensor("w", (3,))
    constants = [numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")]

    def body(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> Any:
        return helper.make_graph(nodes, "body", [w, *inputs] if first else [*inputs, w], outputs, constants)

    if kind == "If":
        bodies = {
            f"{name}_branch": body([node(operator, ["x", "w"], [name])], [], [tensor(name, (3,))])
            for name, operator in (("then", "Add"), ("else", "Mul"))
        }
        nodes, inputs = [node("If", ["flag"], ["y"], **bodies)], [x, tensor("flag", (), BOOL)]
    elif kind == "Loop":
        steps = body(
            [node("Add", ["s", "w"], ["t"]), node("Identity", ["go"], ["on"])],
            [tensor("i", (), INT64), tensor("go", (), BOOL), tensor("s", (3,))],
            [tensor("on", (), BOOL), tensor("t", (3,))],
        )
        nodes, inputs = [node("Loop", ["count", "", "x"], ["y"], body=steps)], [x, tensor("count", (), INT64)]
    else:
        steps = body(
            [node("Mul", ["s", "w"], ["m"]), node("Add", ["m", "row"], ["t"])],
            [tensor("s", (3,)), tensor("row", (3,))],
            [tensor("t", (3,))],
        )
        scan = node("Scan", ["x", "rows"], ["y"], body=steps, num_scan_inputs=1)
        nodes, inputs = [scan], [x, tensor("rows", ("N", 3))]
    opset = [helper.make_opsetid("", 11)]
    return model(nodes, inputs, [tensor("y", (3,))], ir_version=ir_version, opset_imports=opset)


@pytest.mark.parametrize("kind", ["If", "Loop", "Scan"])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("ir_version", [3, 8])
def test_a_constant_among_the_inputs_of_a_body(kind: str, first: bool, ir_version: int) -> None:
    """It takes no place among what the node feeds, as in onnxruntime. IR 3 wants initializers there."""
    data = with_declared_constant(kind, first, ir_version)
    assert bool(check_model(data).errors) == (ir_version > 3)
    rows = np.arange(6, dtype=np.float32).reshape(2, 3)
    feed: dict[str, Any] = {"x": np.array([4, 5, 6], np.float32)}
    feed.update({"If": {"flag": np.array(False)}, "Loop": {"count": np.array(3)}, "Scan": {"rows": rows}}[kind])
    wanted = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feed)
    for level in (0, 99):
        options = SessionOptions()
        options.graph_optimization_level = GraphOptimizationLevel(level)
        np.testing.assert_array_equal(InferenceSession(data, options).run(None, feed), wanted)

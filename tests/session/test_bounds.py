"""Models and feeds that ask for more than there is, or for what has no meaning: refused in words that name the node or
the value, before memory or time is spent on them."""

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import jitonnx
from jitonnx import errors
from tests.session.models import BOOL, FLOAT, INT64, model, node, proto, tensor

HUGE = 1 << 62


def words(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def run(made: bytes, **feeds: Any) -> list[Any]:
    return jitonnx.InferenceSession(made).run(None, feeds)


X = np.zeros((4, 4), np.float32)
ONE = np.zeros(1, np.float32)


def fed(operator: str, inputs: dict[str, Any], outputs: Sequence[str] = ("y",), **attributes: Any) -> list[Any]:
    """A run of one node, all of whose inputs are fed, with open sizes."""
    kinds = {np.dtype(np.float32): FLOAT, np.dtype(np.int64): INT64, np.dtype(np.bool_): BOOL}
    kinds[np.dtype(np.int32)] = TensorProto.INT32
    arrays = {name: np.asarray(array) for name, array in inputs.items() if array is not None}
    declared = []
    for name, array in arrays.items():
        shape = (
            array.shape
            if array.dtype == np.int64 and array.ndim < 2
            else [f"{name}{axis}" for axis in range(array.ndim)]
        )
        declared.append(tensor(name, shape, kinds[array.dtype]))
    names = ["" if array is None else name for name, array in inputs.items()]
    nodes = [node(operator, names, outputs, "it", **attributes)]
    kind = INT64 if operator == "Range" else FLOAT
    return run(model(nodes, declared, [tensor(outputs[0], None, kind)]), **arrays)


SIZES = [
    ("ConstantOfShape", {"s": words(HUGE)}, "'y' would have the shape"),
    ("ConstantOfShape", {"s": words(1 << 40)}, "memory for output 'y'"),
    ("ConstantOfShape", {"s": words(-3)}, r"\[-3\] has a negative size"),
    ("Tile", {"x": X, "r": words(HUGE, HUGE)}, "'y' would have the shape"),
    ("Tile", {"x": X, "r": words(-1, 1)}, "negative"),
    ("Range", {"s": words(-HUGE)[0], "l": words(HUGE)[0], "d": words(1)[0]}, "RangeSize node 'it': .* bytes"),
    ("Range", {"s": words(0)[0], "l": words(5)[0], "d": words(0)[0]}, "delta is 0"),
    ("Reshape", {"x": X, "s": words(3, 5)}, "cannot take the shape"),
    ("Reshape", {"x": X, "s": words(3, -1)}, "cannot take the shape"),
    ("Expand", {"x": X, "s": words(3, 4)}, "does not broadcast"),
    ("Expand", {"x": X, "s": words(-1, 4)}, "does not broadcast"),
    ("Expand", {"x": X[:1, :1], "s": words(HUGE, HUGE)}, "beyond all memory"),
    ("CenterCropPad", {"x": X, "s": words(-3, 4)}, "negative size"),
    ("Pad", {"x": X, "p": words(0, -5, 0, 0)}, "cut more of"),
    ("Pad", {"x": X, "p": words(0, 0, 0, 1 << 40)}, "bytes|memory"),
    ("Resize", {"x": X, "roi": None, "scales": None, "sizes": words(1, -2)}, "negative element"),
    ("Resize", {"x": X, "roi": None, "scales": np.array([1, np.nan], np.float32)}, "above 0"),
    ("Resize", {"x": X, "roi": None, "scales": np.array([1, np.inf], np.float32)}, "finite"),
    ("OneHot", {"i": words(0, 1), "d": words(-3)[0], "v": np.zeros(2, np.float32)}, "depth is -3"),
    ("OneHot", {"i": words(0, 1), "d": words(1 << 61)[0], "v": np.zeros(2, np.float32)}, "beyond all memory"),
    ("TopK", {"x": ONE, "k": words(-2)}, "K is -2"),
    ("Slice", {"x": ONE, "s": words(0), "e": words(1), "a": words(0), "t": words(0)}, "step 0"),
]


@pytest.mark.parametrize(
    ("operator", "inputs", "text"), SIZES, ids=[f"{entry[0]}-{n}" for n, entry in enumerate(SIZES)]
)
def test_computed_sizes(operator: str, inputs: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.Error, match=text):
        fed(operator, inputs, ("y", "i") if operator == "TopK" else ("y",))


def test_split_by_negative_sizes() -> None:
    with pytest.raises(errors.Error, match=r"split \[-1, 2\] has a negative size"):
        fed("Split", {"x": ONE, "s": words(-1, 2)}, ("y", "z"))


@pytest.mark.parametrize("constants", [{"r": words(-1, 1)}, {"r": words(1 << 40, 1 << 40)}])
def test_tile_of_known_repeats(constants: dict[str, np.ndarray]) -> None:
    made = model([node("Tile", ["x", "r"], ["y"])], [tensor("x", ("a", "b"))], [tensor("y", None)], constants)
    with pytest.raises(errors.Error, match=r"negative element|beyond all memory"):
        run(made, x=X)


def test_a_constant_beyond_all_memory() -> None:
    made = model([node("ConstantOfShape", ["s"], ["y"])], [], [tensor("y", None)], {"s": words(HUGE)})
    with pytest.raises(errors.Error, match="'y' would have the shape"):
        run(made)


def test_fed_rows_beyond_memory() -> None:
    nodes = [node("MatMul", ["x", "w"], ["y"])]
    made = model(nodes, [tensor("x", ("n", 1))], [tensor("y", None)], {"w": np.zeros((1, 4), np.float32)})
    rows = np.lib.stride_tricks.as_strided(ONE, (1 << 45, 1), (0, 0))
    with pytest.raises(errors.RuntimeException, match="a copy of input 'x'"):
        run(made, x=rows)


def test_intermediate_results_beyond_memory() -> None:
    nodes = [node("Add", ["a", "b"], ["c"]), node("ReduceSum", ["c"], ["y"])]
    made = model(nodes, [tensor("a", ("n", 1)), tensor("b", ("m",))], [tensor("y", None)])
    with pytest.raises(errors.RuntimeException, match="intermediate results take 70368744177792 bytes"):
        run(made, a=np.zeros((1 << 22, 1), np.float32), b=np.zeros(1 << 22, np.float32))


def test_a_sparse_tensor_beyond_memory() -> None:
    made = proto([node("Add", ["x", "w"], ["y"])], [tensor("x", [1])], [tensor("y", None)])
    values, indices = numpy_helper.from_array(ONE, "w"), numpy_helper.from_array(words(0), "at")
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [1 << 50]))
    with pytest.raises(errors.Fail, match=r"'w': there is no memory for a tensor of shape \[1125899906842624\]"):
        run(made.SerializeToString(), x=ONE)


# ---------------------------------------------------------------- what only elements show


@pytest.mark.parametrize("operator", ["Div", "Mod"])
@pytest.mark.parametrize("dtype", [np.int64, np.int32])
def test_division_by_an_integer_zero(operator: str, dtype: type) -> None:
    """onnxruntime refuses it, too; other runs of the session go on."""
    kind = INT64 if dtype is np.int64 else TensorProto.INT32
    made = model(
        [node(operator, ["a", "b"], ["y"], "it")],
        [tensor("a", ("n",), kind), tensor("b", ("n",), kind)],
        [tensor("y", None, kind)],
    )
    session = jitonnx.InferenceSession(made)
    a, b = np.arange(100, dtype=dtype), np.arange(1, 101, dtype=dtype)
    for place in (0, 63, 64, 99):
        zero = b.copy()
        zero[place] = 0
        with pytest.raises(errors.InvalidArgument, match=f"{operator} node 'it': an element of B is 0"):
            session.run(None, {"a": a, "b": zero})
        expected = a // b if operator == "Div" else a % b
        np.testing.assert_array_equal(session.run(None, {"a": a, "b": b})[0], expected)


def test_division_by_a_constant_zero() -> None:
    x = tensor("x", ("n",), INT64)
    made = model([node("Div", ["x", "b"], ["y"])], [x], [tensor("y", None, INT64)], {"b": words(0)})
    with pytest.raises(errors.Error, match="an element of B is 0"):
        run(made, x=words(1, 2))


@pytest.mark.parametrize("layout", [0, 1])
@pytest.mark.parametrize("lengths", [[4, 5], [-1, 2]])
def test_sequence_lens_outside_of_the_sequence(lengths: list[int], layout: int) -> None:
    feeds = {"x": np.zeros((4, 2, 5) if layout == 0 else (2, 4, 5), np.float32), "l": np.array(lengths, np.int32)}
    constants = {"w": np.zeros((1, 12, 5), np.float32), "r": np.zeros((1, 12, 3), np.float32)}
    nodes = [node("LSTM", ["x", "w", "r", "", "l"], ["y"], "it", hidden_size=3, layout=layout)]
    inputs = [tensor("x", ("t", "n", 5) if layout == 0 else ("n", "t", 5)), tensor("l", ("n",), TensorProto.INT32)]
    session = jitonnx.InferenceSession(model(nodes, inputs, [tensor("y", None)], constants))
    with pytest.raises(errors.InvalidArgument, match="LSTM node 'it': sequence_lens has an element outside"):
        session.run(None, feeds)
    session.run(None, {**feeds, "l": np.array([0, 4], np.int32)})


# ---------------------------------------------------------------- models that grow while they are read


def calling(depth: int, width: int) -> bytes:
    """A call of a function that calls the next one `width` times, `depth` of them."""
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    functions = []
    for number in range(depth - 1):
        names = ["x", *(f"t{place}" for place in range(width - 1)), "y"]
        nodes = [helper.make_node(f"F{number + 1}", [a], [b], domain="f") for a, b in itertools.pairwise(names)]
        functions.append(helper.make_function("f", f"F{number}", ["x"], ["y"], nodes, opsets))
    last = [helper.make_node("Relu", ["x"], ["y"])]
    functions.append(helper.make_function("f", f"F{depth - 1}", ["x"], ["y"], last, opsets))
    call = helper.make_node("F0", ["x"], ["y"], domain="f")
    return model([call], [tensor("x")], [tensor("y", None)], functions=functions, opset_imports=opsets)


def test_functions_within_one_another() -> None:
    x = np.array([[-1, 2, 3]], np.float32)
    np.testing.assert_array_equal(run(calling(500, 1), x=x)[0], np.maximum(x, 0))
    with pytest.raises(errors.Fail, match=r"functions within one another 1100 deep"):
        run(calling(1100, 1), x=x)


@pytest.mark.parametrize(("depth", "width"), [(31, 2), (10, 8), (200, 50)])
def test_functions_that_would_be_too_many_nodes(depth: int, width: int) -> None:
    with pytest.raises(errors.Fail, match=r"stands for more than 1048576 nodes. In graph .* F0"):
        run(calling(depth, width), x=X)


def chained(count: int, *links: tuple[str, Sequence[str], dict[str, Any]], **others: Any) -> bytes:
    """Nodes, `count` times over; "<" and ">" stand for what the chain comes from and goes to."""
    nodes = []
    for number in range(count):
        names = {"<": f"t{number}" if number else "x", ">": f"t{number + 1}"}
        for operator, (*inputs, output), attributes in links:
            inner = {name: names.get(name, f"{name}{number}" if name.islower() else name) for name in (*inputs, output)}
            nodes.append(node(operator, [inner[name] for name in inputs], [inner[output]], **attributes))
    return model(nodes, [tensor("x", ("n",))], [tensor(f"t{count}", None)], **others)


def test_concatenations_that_double() -> None:
    made = chained(45, ("Concat", ("<", "<", ">"), {"axis": 0}))
    with pytest.raises(errors.RuntimeException, match=r"output 't45': .*35184372088832"):
        run(made, x=ONE)
    made = chained(12, ("Concat", ("<", "<", ">"), {"axis": 0}))
    np.testing.assert_array_equal(run(made, x=np.array([1, 2], np.float32))[0], np.tile([1, 2], 4096))


def test_concatenations_of_a_long_chain() -> None:
    made = chained(300, ("Concat", ("<", "X", ">"), {"axis": 0}), constants={"X": np.array([7], np.float32)})
    np.testing.assert_array_equal(run(made, x=ONE)[0], [0, *[7] * 300])


def test_constants_that_double() -> None:
    nodes = [node("Concat", [f"t{n}"] * 2, [f"t{n + 1}"], axis=0) for n in range(45)]
    made = model([*nodes, node("Add", ["t45", "x"], ["y"])], [tensor("x", [1])], [tensor("y", None)], {"t0": ONE})
    with pytest.raises(errors.RuntimeException, match="memory for output 'y'"):
        run(made, x=ONE)


SQUARES = (
    ("Shape", ("<", "s"), {}),
    ("Mul", ("s", "s", "m"), {}),
    ("ConstantOfShape", ("m", ">"), {}),
)


def test_sizes_squared_again_and_again() -> None:
    """Expressions of sizes become variables of their own where they get too large to work with."""
    assert run(chained(40, *SQUARES), x=ONE)[0].shape == (1,)
    assert run(chained(4, *SQUARES), x=np.zeros(2, np.float32))[0].shape == (1 << 16,)
    with pytest.raises(errors.Error, match=r"beyond all memory|memory for output"):
        run(chained(40, *SQUARES), x=np.zeros(3, np.float32))


def test_many_empty_nodes() -> None:
    made = proto([node("Relu", ["x"], ["y"])], [tensor("x")], [tensor("y")])
    graph = made.graph.SerializeToString() + b"\x0a\x00" * (1 << 21)
    made.ClearField("graph")
    length, size = bytearray(), len(graph)
    while size >= 0x80:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    with pytest.raises(errors.InvalidProtobuf, match=r"GraphProto .* has more than 1048576 parts"):
        jitonnx.InferenceSession(made.SerializeToString() + b"\x3a" + bytes([*length, size]) + graph)

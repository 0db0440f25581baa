"""Models on strings: every operator that takes them, and strings as inputs, outputs and constants in all ways."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from onnx import AttributeProto, TensorProto, ValueInfoProto, helper, numpy_helper, shape_inference

Array = Any


class Case(NamedTuple):
    """One node on strings.

    settled: the inputs that shapes follow from, initializers in any case. expected: the outputs where onnxruntime does
    not have the operator on strings.
    """

    operator: str
    opset: int
    inputs: tuple[Array, ...]
    attributes: dict[str, Any]
    settled: tuple[int, ...]
    outputs: int
    expected: tuple[Array, ...] | None

    def __str__(self) -> str:
        given = ",".join("-" if x is None else f"{x.dtype}{list(x.shape)}" for x in self.inputs)
        return f"{self.operator}-{self.opset} {given} {self.attributes or ''}".strip().replace(" ", "")


def case(
    operator: str,
    opset: int,
    *inputs: Any,
    settled: tuple[int, ...] = (),
    outputs: int = 1,
    expected: Any = None,
    **attributes: Any,
) -> Case:
    """A case; `expected` is one output or a tuple of them, and strings in lists become arrays of them."""
    arrays = tuple(None if x is None else _array(x) for x in inputs)
    known = None if expected is None else tuple(map(_array, expected if isinstance(expected, tuple) else (expected,)))
    return Case(operator, opset, arrays, attributes, settled, outputs, known)


def _array(given: Any) -> Array:
    return given if isinstance(given, np.ndarray) else np.array(given, object)


def integers(*elements: Any) -> Array:
    """An int64 array of one or more axes."""
    return np.array(elements, np.int64)


ROW = ["b", "a", "é日", "", "a"]
TABLE = np.array([["b", "a", "c"], ["d\0e", "", "b"]], object)
NOTHING = np.empty((0, 3), object)
ONE = np.array("x\0", object)
PIXELS = np.array([f"s{i}" for i in range(16)], object).reshape(1, 4, 2, 2)
TURNED = PIXELS.reshape(4, 4)

_STRING, _FLOAT, _INT8, _INT32, _INT64, _BOOL, _FLOAT16, _DOUBLE, _UINT8, _UINT64 = 8, 1, 3, 6, 7, 9, 10, 11, 2, 13

TO_STRING = [
    case("Cast", 19, np.array(numbers, kind), to=_STRING)
    for numbers, kind in (
        ([1, 0.1, 1e10, 1e-7, np.nan, np.inf, -np.inf, -0.0, 3.14159265, 123456789, 1e-45, 99999999], np.float32),
        ([1, 0.1, 1e10, np.nan, np.inf, -0.0, np.pi, 1e300, 5e-324, 1e17, 123456789012345678, 1 / 3], np.float64),
        ([1, 0.1, 65504, 1e-7, np.nan, np.inf], np.float16),
        ([1, -(2**63), 2**63 - 1], np.int64),
        ([2**64 - 1], np.uint64),
        ([-128, 127], np.int8),
        ([True, False], np.bool_),
        (np.zeros((0, 2)), np.float32),
    )
]
FROM_STRING = [
    case("Cast", 19, texts, to=to)
    for to, texts in (
        (
            _FLOAT,
            ["1", "-2.5", "1e3", "  3", "inf", "-inf", "nan", "INF", "+INF", "Infinity", "0x10", "1.", " .5", "+1"],
        ),
        (_FLOAT, ["3.5abc", "1 ", "1_0", "1,5", "nan(1)", "1e-40", "1e", "2e+", "1e39", "0x", "0x1p3", "7\0 8"]),
        (_DOUBLE, ["1", "0.1", "0x.8", "1_000.5", "-1e-300"]),
        (_FLOAT16, ["1", "0.1", "65504", "70000", "nan"]),
        (_INT64, ["1", "-5", "  7", "+3", "2.7", "1e3", str(2**63 - 1), str(-(2**63)), "12ab", "0x10", "1_0"]),
        (_INT32, ["1", "-5", str(2**31), str(-(2**31) - 1), "2.7"]),
        (_INT8, ["127", "128", "300", "-129"]),
        (_UINT8, ["255", "256", "-1"]),
        (_UINT64, [str(2**64 - 1), "-1"]),
        (_BOOL, ["1", "0", "2", "-1", "0.0", "0.5"]),
    )
]
REFUSED = [
    case("Cast", 19, [text], to=to)
    for to, text in (
        *((_FLOAT, text) for text in ("abc", "", "1e400", "e5", ".")),
        (_DOUBLE, "-1e400"),
        (_DOUBLE, "0x1p99999"),
        *((_INT64, text) for text in ("abc", "", str(2**63), "٣", "nan")),
        (_UINT64, str(2**64)),
        *((_BOOL, text) for text in ("True", "true", "", "abc")),
    )
]
"""What onnxruntime refuses too."""

PICKED = [
    case("Compress", 11, TABLE, np.array([True, False, True]), axis=1),
    case("Compress", 11, TABLE, np.array([True, False, True, False, True])),
    case("Compress", 11, TABLE, np.array([False]), axis=0),
    case("Gather", 13, TABLE, integers([1, 0], [-1, 0]), axis=1),
    case("Gather", 13, ROW, np.array(2)),
    case("Gather", 13, ROW, np.array(-1)),
    case("Gather", 13, ROW, integers()),
    # Of rows of strings onnxruntime gathers the first element alone.
    case("Gather", 11, TABLE, np.array([1], np.int32), expected=TABLE[1:]),
    case("GatherElements", 13, TABLE, integers([0, 1, 0], [1, 0, 0])),
    case("GatherElements", 13, TABLE, integers([0, -1]), axis=1),
    case("GatherElements", 13, ROW, np.array([0, 4], np.int32)),
    case("GatherND", 13, TABLE, integers([0, 1], [1, -1])),
    case("GatherND", 13, TABLE, integers(1)),
    case("GatherND", 13, TABLE, integers(0, 1)),
    case("GatherND", 13, TABLE, integers([0], [1]), batch_dims=1),
    case("GatherND", 13, TABLE, np.zeros((0, 2), np.int64)),
    case("ReverseSequence", 10, TABLE.T, integers(2, 3)),
    case("ReverseSequence", 10, TABLE, integers(2, 3), batch_axis=0, time_axis=1),
    case("Slice", 13, TABLE, integers(0, 2), integers(2, -4), integers(0, 1), integers(1, -1), settled=(1, 2, 3, 4)),
    case("Slice", 13, TABLE, integers(1), integers(1), settled=(1, 2)),
    case("Slice", 1, ROW, starts=[1], ends=[3]),
    case("Split", 18, TABLE, integers(1, 2), axis=1, outputs=2, settled=(1,)),
    case("Split", 18, ROW, num_outputs=2, outputs=2),
    case("Split", 18, NOTHING, integers(0, 0), outputs=2, settled=(1,)),
    case("Trilu", 14, TABLE, expected=[["b", "a", "c"], ["", "", "b"]]),
    case("Trilu", 14, TABLE, np.array(1), upper=0, expected=[["b", "a", ""], ["d\0e", "", "b"]]),
]
JOINED = [
    case("Concat", 13, TABLE, TABLE, axis=0),
    case("Concat", 13, TABLE, NOTHING, axis=0),
    case("Concat", 4, ROW, axis=-1),
    case("Concat", 13, NOTHING, NOTHING, axis=1),
    case("Expand", 13, TABLE[:, :1], integers(2, 2, 3), settled=(1,)),
    case("Expand", 13, ONE, integers(2), settled=(1,)),
    case("Expand", 13, ONE, integers(), settled=(1,)),
    case("Expand", 13, NOTHING, integers(2, 0, 3), settled=(1,)),
    case("Tile", 13, TABLE, integers(2, 2), settled=(1,)),
    case("Tile", 13, ONE, integers(), settled=(1,)),
    case("Tile", 13, ROW, integers(0), settled=(1,)),
    case("Pad", 19, TABLE, integers(1, 0, 0, 1), ONE, settled=(1,), expected=(
        [["x\0"] * 4, ["b", "a", "c", "x\0"], ["d\0e", "", "b", "x\0"]],
    )),
    case("Pad", 19, TABLE, integers(0, -1, 0, 1), settled=(1,), expected=[["a", "c", ""], ["", "b", ""]]),
    case("Pad", 19, ["b", "a", "c"], integers(1, 1), settled=(1,), mode="reflect", expected=["a", "b", "a", "c", "a"]),
    case("Pad", 19, ["b", "a", "c"], integers(1, 1), settled=(1,), mode="edge", expected=["b", "b", "a", "c", "c"]),
    case("CenterCropPad", 18, TABLE, integers(3, 2), settled=(1,), expected=[["b", "a"], ["d\0e", ""], ["", ""]]),
    case("OneHot", 11, integers(0, 2, -1, 5), np.array(3), ["off", "on"], settled=(1,)),
    case("OneHot", 11, integers(), np.array(3), ["off", "on"], settled=(1,)),
    case("ScatterElements", 18, TABLE, integers([1, 0, 1]), [["X", "Y", "Z"]]),
    case("ScatterElements", 18, ROW, integers(-1, 0), ["X", "Y"], axis=0, reduction="add"),
    case("ScatterElements", 18, ROW, integers(), []),
    case("ScatterND", 18, TABLE, integers([1], [0]), [["1", "2", "3"], ["4", "5", "6"]]),
    case("ScatterND", 18, TABLE, integers([1, 2], [1, 2]), ["X", "Y"], reduction="add"),
    case("Scatter", 9, TABLE, integers([1, 0, 1]), [["X", "Y", "Z"]]),
    case("TensorScatter", 24, TURNED.reshape(1, 4, 4), [[["u", "v", "w", "x"]]], integers(2), expected=(
        [[*TURNED[:2].tolist(), ["u", "v", "w", "x"], TURNED[3].tolist()]],
    )),
    case("Where", 16, np.array([[True], [False]]), TABLE, TABLE[:1]),
    case("Where", 9, np.array(True), ONE, ONE),
    case("Where", 16, np.array([True, False]), ONE, ["p", "q"]),
]  # fmt: skip
SHAPED = [
    case("DepthToSpace", 13, PIXELS, blocksize=2, expected=(
        PIXELS.reshape(1, 2, 2, 1, 2, 2).transpose(0, 3, 4, 1, 5, 2).reshape(1, 1, 4, 4),
    )),
    case("SpaceToDepth", 13, PIXELS, blocksize=2, expected=PIXELS.transpose(0, 2, 3, 1).reshape(1, 16, 1, 1)),
    case("Resize", 19, PIXELS, None, np.array([1, 1, 2, 2], np.float32), settled=(2,), mode="nearest", expected=(
        PIXELS.repeat(2, 2).repeat(2, 3),
    )),
    case("Upsample", 9, PIXELS, np.array([1, 1, 2, 2], np.float32), settled=(1,),
         expected=PIXELS.repeat(2, 2).repeat(2, 3)),
    case("Flatten", 21, PIXELS, axis=2),
    case("Flatten", 21, ONE, axis=0),
    case("Flatten", 21, NOTHING),
    case("Identity", 19, TABLE),
    case("Identity", 19, ONE),
    case("Identity", 19, NOTHING),
    case("Reshape", 19, TABLE, integers(3, -1), settled=(1,)),
    case("Reshape", 19, ONE, integers(1, 1), settled=(1,)),
    case("Reshape", 19, ["a"], integers(), settled=(1,)),
    case("Reshape", 19, NOTHING, integers(3, 0), settled=(1,), allowzero=1),
    case("Squeeze", 13, PIXELS, integers(0), settled=(1,)),
    case("Squeeze", 13, ["a"], integers(0), settled=(1,)),
    case("Squeeze", 13, ONE),
    case("Transpose", 21, TABLE),
    case("Transpose", 21, ONE),
    case("Transpose", 21, PIXELS, perm=[3, 0, 2, 1]),
    case("Unsqueeze", 13, TABLE, integers(0, -1), settled=(1,)),
    case("Unsqueeze", 13, ONE, integers(0), settled=(1,)),
    case("Cast", 19, ROW, to=_STRING),
    case("CastLike", 19, ROW, ONE),
    case("CastLike", 19, np.array([1.5], np.float32), ONE),
    case("CastLike", 19, ["1"], np.array([0], np.float32)),
]  # fmt: skip
ASKED = [
    case("Equal", 19, TABLE, TABLE[:1]),
    case("Equal", 19, ROW, ONE),
    case("Equal", 19, ONE, ONE),
    case("Equal", 19, NOTHING, NOTHING),
    case("Equal", 19, ["é", "a\0b"], ["e\u0301", "a"]),
    case("NonZero", 13, TABLE, expected=integers([0, 0, 0, 1, 1], [0, 1, 2, 0, 2])),
    case("Shape", 19, TABLE),
    case("Shape", 19, ONE),
    case("Size", 19, TABLE),
    case("Size", 19, NOTHING),
    case("Unique", 11, ROW, outputs=4),
    case("Unique", 11, ROW, outputs=4, sorted=0),
    case("Unique", 11, [["b", "a"], ["b", "a"], ["a", "z"]], outputs=4, axis=0),
    case("Unique", 11, TABLE, outputs=4, axis=1),
    case("Unique", 11, TABLE, outputs=4, axis=-1, sorted=0),
    case("Unique", 11, ONE, outputs=4),
    case("Unique", 11, [], outputs=4),
    case("Unique", 11, ["é", "z", "Z", "日", "\U0001f600", "\uffff"], outputs=4),
]
CASES = [*TO_STRING, *FROM_STRING, *PICKED, *JOINED, *SHAPED, *ASKED]


def model_of(tested: Case, *, symbolic: bool = False, constant: bool = False) -> bytes:
    """A model of one node. symbolic: all sizes are open; constant: all inputs are initializers."""
    given = [(f"x{i}", x, constant or i in tested.settled) for i, x in enumerate(tested.inputs) if x is not None]
    names = ["" if x is None else f"x{i}" for i, x in enumerate(tested.inputs)]
    results = [f"y{i}" for i in range(tested.outputs)]
    node = helper.make_node(tested.operator, names, results, "tested", **tested.attributes)
    inputs = [
        helper.make_tensor_value_info(name, _kind(x), [f"{name}_{a}" for a in range(x.ndim)] if symbolic else x.shape)
        for name, x, is_constant in given
        if not is_constant
    ]
    outputs = [ValueInfoProto(name=name) for name in results]
    initializers = [initializer(name, x) for name, x, is_constant in given if is_constant]
    return _bytes([node], inputs, outputs, initializers, tested.opset)


def feeds_of(tested: Case) -> dict[str, Array]:
    """The inputs that are fed to `model_of`."""
    return {f"x{i}": x for i, x in enumerate(tested.inputs) if x is not None and i not in tested.settled}


def initializer(name: str, array: Array) -> Any:
    """A TensorProto."""
    if array.dtype != object:
        return numpy_helper.from_array(array, name)
    texts = [text.encode() for text in array.ravel()]  # of which `make_tensor` would cut zeros off
    return TensorProto(name=name, data_type=_STRING, dims=array.shape, string_data=texts)


def _kind(array: Array) -> int:
    return _STRING if array.dtype == object else helper.np_dtype_to_tensor_dtype(array.dtype)


def _bytes(
    nodes: list[Any], inputs: list[Any], outputs: list[Any], initializers: list[Any], opset: int = 19, **graph: Any
) -> bytes:
    made = helper.make_graph(nodes, "strings", inputs, outputs, initializers, **graph)
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return shape_inference.infer_shapes(model).SerializeToString()


# ---------------------------------------------------------------------------------------------- whole models


class Whole(NamedTuple):
    """A model, and what it may be fed. expected: where onnxruntime cannot load the model."""

    model: bytes
    feeds: Mapping[str, Array]
    expected: tuple[Array, ...] | None = None


def wholes() -> dict[str, Whole]:
    """Strings as inputs, outputs and constants, in all ways and beside numbers, by a name."""
    node, value = helper.make_node, helper.make_tensor_value_info
    weights = initializer("w", np.arange(16, dtype=np.float32).reshape(4, 4))
    labels = initializer("labels", np.array(["first", "", "third é"], object))
    x, text, row = value("x", _FLOAT, ["n", 4]), value("text", _STRING, ["n"]), value("row", _STRING, [3])
    rows = np.arange(12, dtype=np.float32).reshape(3, 4)
    texts = np.array(["one", "two\0", "drei"], object)

    def strings(name: str, *shape: Any) -> Any:
        return value(name, _STRING, shape)

    constants = [
        node("Constant", [], ["one"], value_string="alone"),
        node("Constant", [], ["some"], value_strings=["a", "b"]),
        node("Constant", [], ["numbers"], value_floats=[1.5, 2.5]),
        node("Cast", ["numbers"], ["cast"], to=_STRING),
        node("Identity", ["labels"], ["same"]),
        node("Identity", ["x"], ["y"]),
    ]
    held = [strings("one"), strings("some", 2), strings("cast", 2), strings("same", 3), strings("labels", 3)]
    sparse = helper.make_sparse_tensor(
        initializer("p", np.array(["p", "q"], object)), initializer("places", np.array([0, 2])), [4]
    )
    mixed = [
        node("MatMul", ["x", "w"], ["product"]),
        node("Relu", ["product"], ["y"]),
        node("Gather", ["labels", "index"], ["label"], axis=0),
        node("Concat", ["text", "label"], ["joined"], axis=0),
    ]
    behind = [
        node("Cast", ["number"], ["cast"], to=_FLOAT),
        node("MatMul", ["cast", "w"], ["product"]),
        node("Cast", ["product"], ["back"], to=_STRING),
        node("Shape", ["number"], ["shape"]),
        node("Expand", ["extra", "shape"], ["spread"]),
        node("Add", ["spread", "product"], ["sum"]),
    ]
    default = helper.make_attribute("texts", ["p", "q"])
    function = helper.make_function(
        "own",
        "Own",
        ["x"],
        ["z", "k"],
        [node("Constant", [], ["k"]), node("Concat", ["x", "k"], ["z"], axis=0)],
        [helper.make_opsetid("", 19)],
        attribute_protos=[default],
    )
    function.node[0].attribute.append(
        AttributeProto(name="value_strings", ref_attr_name="texts", type=AttributeProto.STRINGS)
    )
    called = helper.make_model(
        helper.make_graph(
            [node("Own", ["text"], ["z", "k"], domain="own")], "g", [text], [strings("z", "m"), strings("k", 2)]
        ),
        opset_imports=[helper.make_opsetid("", 19), helper.make_opsetid("own", 1)],
        functions=[function],
        ir_version=10,
    )
    overridable = _bytes(
        [node("Identity", ["labels"], ["y"]), node("Concat", ["labels", "text"], ["z"], axis=0)],
        [text, strings("labels", 3)],
        [strings("y", 3), strings("z", "m")],
        [labels],
    )
    float_x = value("x", _FLOAT, [2])
    two = np.array([1, 2], np.float32)
    return {
        "an input that is an output": Whole(_bytes([], [text], [text], []), {"text": texts}),
        "an input of fixed size passed on": Whole(
            _bytes([node("Identity", ["row"], ["y"])], [row], [strings("y", 3), row], []), {"row": texts}
        ),
        "constants": Whole(
            _bytes(constants, [float_x], [*held, value("y", _FLOAT, [2])], [labels]), {"x": two}
        ),
        "an initializer": Whole(_bytes([], [float_x], [strings("labels", 3)], [labels]), {"x": two}),
        "a sparse initializer": Whole(
            _bytes([node("Identity", ["p"], ["y"])], [float_x], [strings("y", 4)], [], sparse_initializer=[sparse]),
            {"x": two}, (np.array(["p", "", "q", ""], object),),
        ),
        "a default that is fed": Whole(overridable, {"text": texts, "labels": texts}),
        "a default that is not fed": Whole(overridable, {"text": texts}),
        "a function's default": Whole(called.SerializeToString(), {"text": texts}),
        "strings beside numbers": Whole(
            _bytes(mixed, [x, text, value("index", _INT64, [1])],
                [value("y", _FLOAT, ["n", 4]), strings("joined", "m"), text], [weights, labels]),
            {"x": rows, "text": texts, "index": np.array([2])},
        ),
        "numbers behind strings": Whole(
            _bytes(behind, [strings("number", "n", 4), value("extra", _FLOAT, [1])],
                [strings("back", "n", 4), value("sum", _FLOAT, ["n", 4]), strings("number", "n", 4)], [weights]),
            {"number": rows.astype(str).astype(object), "extra": np.array([1], np.float32)},
        ),
        "a shape of strings": Whole(
            _bytes([node("Shape", ["text"], ["shape"]), node("Expand", ["x", "shape"], ["y"])],
                [value("x", _FLOAT, [1]), text], [value("y", _FLOAT, ["n"])], []),
            {"x": np.array([3], np.float32), "text": texts},
        ),
    }  # fmt: skip

"""Gradient against central differences in double, operator by operator, and the ways in which it names tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from jitonnx import InferenceSession, errors
from jitonnx.engine.interpreter import evaluate
from jitonnx.model import load

RANDOM = np.random.default_rng(0)
OPSETS = [helper.make_opsetid("", 28), helper.make_opsetid("ai.onnx.preview.training", 1)]
STEP = 1e-6


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape)


def positive(*shape: int) -> np.ndarray:
    return RANDOM.uniform(0.3, 2, size=shape)


def apart(*shape: int) -> np.ndarray:
    """Numbers that a step does not bring into another order."""
    return RANDOM.permutation(np.arange(np.prod(shape), dtype=np.int64)).reshape(shape) * 0.1 - 0.73


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


@dataclass(frozen=True)
class Case:
    """An operator whose output is weighted and differentiated by its floating-point inputs."""

    operator: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]
    outputs: int = 1
    note: str = ""

    def __str__(self) -> str:
        shapes = ",".join("-" if x is None else str(list(np.shape(x))) for x in self.inputs)
        return f"{self.operator} {shapes} {self.attributes or ''} {self.note}".strip().replace(" ", "")


def case(operator: str, *inputs: Any, outputs: int = 1, note: str = "", **attributes: Any) -> Case:
    return Case(operator, inputs, attributes, outputs, note)


X, IMAGE = apart(2, 3, 4), apart(2, 4, 7, 6)
UNARY = (
    *("Abs", "Exp", "Neg", "Sin", "Cos", "Tan", "Sinh", "Cosh", "Tanh", "Asinh", "Atan", "Erf", "Sigmoid", "Relu"),
    *("LeakyRelu", "Elu", "Selu", "Celu", "Softplus", "Softsign", "HardSigmoid", "HardSwish", "Mish", "Swish", "Gelu"),
    *("ThresholdedRelu", "Identity", "Shrink", "Floor", "Sign"),
)

CASES: list[Case] = [
    *(case(name, X) for name in UNARY),
    *(case(name, positive(2, 3)) for name in ("Sqrt", "Log", "Reciprocal", "ReduceLogSum")),
    *(case(name, RANDOM.uniform(-0.9, 0.9, (2, 3))) for name in ("Asin", "Acos", "Atanh")),
    case("Acosh", positive(3) + 1),
    case("Gelu", X, approximate="tanh"),
    case("Elu", X, alpha=0.3),
    *(case(name, normal(2, 3), positive(3)) for name in ("Add", "Sub", "Mul", "Div")),
    case("Mul", normal(2, 1, 3), normal(4, 1)),
    case("Pow", positive(2, 3), normal(3)),
    case("Pow", normal(2, 3), np.int64(3)),
    case("PRelu", X, normal(4)),
    case("Mod", positive(3) * 5, positive(3), fmod=1),
    *(case(name, apart(2, 3), apart(2, 3) + 0.05, apart(3) - 0.03) for name in ("Max", "Min", "Sum", "Mean")),
    case("Clip", X, np.float64(-0.31), np.float64(0.82)),
    case("Clip", X, None, np.float64(0.82)),
    case("Where", X > 0, X, normal(1, 4)),
    case("Cast", X, to=TensorProto.FLOAT),
    case("MatMul", normal(2, 3, 4), normal(4, 5)),
    case("MatMul", normal(3, 4), normal(2, 4, 5)),
    *(case("MatMul", a, b) for a, b in ((normal(4), normal(4, 2)), (normal(2, 4), normal(4)), (normal(4), normal(4)))),
    case("Gemm", normal(4, 3), normal(5, 4), normal(5), transA=1, transB=1, alpha=0.5, beta=2.0),
    *(case("Einsum", normal(2, 3), normal(3, 4), equation=text) for text in ("ij,jk->ik", "ij,jk->k", "ij,jk->ijk")),
    case("Einsum", normal(2, 3, 4), normal(2, 4), equation="bij,bj->bi"),
    case("Reshape", X, ints(4, 6)),
    case("Flatten", X, axis=2),
    case("Squeeze", normal(2, 1, 3), ints(1)),
    case("Unsqueeze", X, ints(0, 2)),
    case("Transpose", X, perm=[2, 0, 1]),
    case("Transpose", X),
    case("Expand", normal(3, 1), ints(2, 3, 4)),
    case("Tile", normal(2, 3), ints(2, 3)),
    case("Concat", normal(2, 3), normal(2, 1), axis=-1),
    case("Split", normal(5, 2), ints(2, 3), axis=0, outputs=2),
    case("Slice", X, ints(1, 0), ints(3, 9), ints(2, 1)),
    case("Slice", normal(7, 6), ints(-1, 1), ints(-99, 5), ints(0, 1), ints(-2, 3)),
    case("Pad", X, ints(1, 0, -1, 0, 2, 1)),
    case("Gather", normal(4, 3), ints(0, -1, 0), axis=0),
    case("Gather", normal(2, 4, 3), np.array([[1, 2], [1, 0]], np.int64), axis=1),
    case("Gather", normal(2, 4), np.int64(1), axis=1),
    case("GatherElements", normal(3, 4), np.array([[0, 2, 2], [1, -1, 0]], np.int64), axis=1),
    case("GatherND", normal(3, 4), np.array([[0], [2], [0]], np.int64)),
    case("ScatterElements", normal(3, 4), np.array([[0, 2], [1, 3]], np.int64), normal(2, 2), axis=1),
    case("ScatterElements", normal(3, 4), np.array([[0, 0], [1, 3]], np.int64), normal(2, 2), axis=1, reduction="add"),
    case("ScatterND", normal(3, 4), np.array([[0], [2]], np.int64), normal(2, 4)),
    case("ScatterND", normal(3, 4), np.array([[0], [0]], np.int64), normal(2, 4), reduction="add"),
    case("Trilu", normal(4, 4), upper=0),
    case("CumSum", X, np.int64(1), reverse=1),
    case("DepthToSpace", normal(1, 8, 2, 3), blocksize=2),
    case("SpaceToDepth", normal(1, 2, 4, 6), blocksize=2),
    case("Dropout", X),
    *(
        case(f"Reduce{kind}", positive(2, 3, 4), *axes, keepdims=keep)
        for kind in ("Sum", "Mean", "L1", "L2", "SumSquare", "LogSumExp", "Prod")
        for axes, keep in (((), 1), ((ints(1),), 0), ((ints(0, -1),), 1))
    ),
    *(case(f"Reduce{kind}", X, ints(1, 2), keepdims=0) for kind in ("Max", "Min")),
    case("ReduceProd", np.array([[0.0, 2, 3], [0, 0, 4]]), ints(1), note="zeros"),
    *(case(name, X, axis=axis) for name in ("Softmax", "LogSoftmax") for axis in (-1, 1)),
    case("Conv", IMAGE, normal(6, 4, 3, 2), normal(6), pads=[1, 0, 2, 1], strides=[2, 1], dilations=[1, 2]),
    case("Conv", IMAGE, normal(6, 2, 3, 3), group=2, auto_pad="SAME_UPPER", strides=[2, 3]),
    case("Conv", normal(2, 3, 8), normal(3, 1, 3), group=3, strides=[3]),
    case("ConvTranspose", IMAGE, normal(4, 3, 3, 2), normal(3), strides=[2, 1], pads=[1, 0, 1, 1]),
    case("ConvTranspose", IMAGE, normal(4, 2, 3, 3), group=2, strides=[2, 2], output_padding=[1, 1]),
    case("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1]),
    case("MaxPool", IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    *(
        case("AveragePool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], count_include_pad=counted)
        for counted in (0, 1)
    ),
    case("AveragePool", IMAGE, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
    case("GlobalAveragePool", IMAGE),
    case("GlobalMaxPool", IMAGE),
    case("BatchNormalization", IMAGE, normal(4), normal(4), normal(4), positive(4)),
    case("BatchNormalization", IMAGE, normal(4), normal(4), normal(4), positive(4), training_mode=1),
    case("LayerNormalization", normal(2, 3, 4), normal(3, 4), normal(3, 4), axis=1),
    case("RMSNormalization", normal(2, 3, 4), normal(4)),
    case("InstanceNormalization", IMAGE, normal(4), normal(4)),
    case("GroupNormalization", IMAGE, normal(4), normal(4), num_groups=2),
    *(case("LpNormalization", positive(2, 3), p=p, axis=1) for p in (1, 2)),
    *(
        case(
            name, normal(3, 5, 2), np.array([[0, 4], [2, 2], [1, 3]], np.int64), *weight, reduction=kind, ignore_index=2
        )
        for name in ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
        for kind, weight in (("mean", (positive(5),)), ("sum", ()), ("none", ()))
    ),
]


def tensor(name: str, x: np.ndarray, open_sizes: bool = False) -> onnx.ValueInfoProto:
    shape = [f"{name}_{axis}" if open_sizes and size > 1 else size for axis, size in enumerate(x.shape)]
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(x.dtype), shape)


def model(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[str], constants: Mapping[str, Any]) -> bytes:
    infos = [onnx.ValueInfoProto(name=name) for name in outputs]
    arrays = [numpy_helper.from_array(array, name) for name, array in constants.items()]
    graph = helper.make_graph(list(nodes), "g", list(inputs), infos, arrays)
    return helper.make_model(graph, opset_imports=OPSETS, ir_version=14).SerializeToString()


def gradient(xs: Sequence[str], y: str, outputs: Sequence[str], zs: Sequence[str] = (), inputs: Any = None) -> Any:
    given = {"zs": list(zs)} if zs else {}
    names = [*xs, *zs] if inputs is None else inputs
    return helper.make_node(
        "Gradient",
        names,
        outputs,
        name=f"gradient of {y}",
        domain="ai.onnx.preview.training",
        xs=list(xs),
        y=y,
        **given,
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_operator(case: Case) -> None:
    names = ["" if x is None else f"x{i}" for i, x in enumerate(case.inputs)]
    arrays = {f"x{i}": np.asarray(x) for i, x in enumerate(case.inputs) if x is not None}
    results = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.operator, names, results, **case.attributes)
    feeds = {name: x for name, x in arrays.items() if x.dtype == np.float64}
    constants = {name: x for name, x in arrays.items() if name not in feeds}
    plain = load(model([node], [tensor(n, x) for n, x in feeds.items()], results, constants)).graph
    weights = [normal(*x.shape) for x in evaluate(plain, feeds)]
    nodes = [node]
    for i, (weight, value) in enumerate(zip(weights, evaluate(plain, feeds), strict=True)):
        constants[f"w{i}"] = weight.astype(value.dtype)
        nodes.append(helper.make_node("Mul", [f"y{i}", f"w{i}"], [f"z{i}"]))
        nodes.append(helper.make_node("ReduceSum", [f"z{i}"], [f"s{i}"], keepdims=0))
    nodes.append(helper.make_node("Sum", [f"s{i}" for i in range(case.outputs)], ["loss"]))
    found = [f"d{name}" for name in feeds]
    nodes.append(gradient(list(feeds), "loss", found))

    def loss(changed: Mapping[str, np.ndarray]) -> float:
        values = evaluate(plain, changed)
        return sum(float((value * weight).sum()) for value, weight in zip(values, weights, strict=True))

    step = 1e-2 if case.operator == "Cast" else STEP
    expected = [differences(loss, feeds, name, step) for name in feeds]
    for open_sizes in (False, True):
        given = [tensor(n, x, open_sizes and (n == "x0" or "Conv" not in case.operator)) for n, x in feeds.items()]
        data = model(nodes, given, found, constants)
        for computed in (evaluate(load(data).graph, feeds), InferenceSession(data).run(None, feeds)):
            for result, value in zip(computed, expected, strict=True):
                assert result.dtype == np.float64 and result.shape == value.shape
                np.testing.assert_allclose(result, value, 1e-5, 1e-5)
        if any(name in constants for name in names):  # open sizes and constants that name sizes do not go together
            break


def differences(loss: Any, feeds: Mapping[str, np.ndarray], name: str, step: float) -> np.ndarray:
    """The derivative of `loss` by each element of one of the feeds, by central differences."""
    found = np.zeros(feeds[name].shape)
    for place in np.ndindex(*feeds[name].shape):
        ends = []
        for sign in (1, -1):
            moved = feeds[name].copy()
            moved[place] += sign * step
            ends.append(loss({**feeds, name: moved}))
        found[place] = (ends[0] - ends[1]) / (2 * step)
    return found


A, B = np.array([1, 2, 3], np.float32), np.array([4, 5, 6], np.float32)
INPUTS = [tensor("a", A), tensor("b", B)]
FEEDS = {"a": A, "b": B}
PRODUCT = helper.make_node("Mul", ["a", "b"], ["c"])
SQUARE = helper.make_node("Mul", ["c", "c"], ["y"])


def run(nodes: Sequence[Any], outputs: Sequence[str], **constants: Any) -> list[np.ndarray]:
    return InferenceSession(model(nodes, INPUTS, outputs, constants)).run(None, FEEDS)


def test_by_a_tensor_on_the_way() -> None:
    found = run([PRODUCT, SQUARE, gradient(["c"], "y", ["dc"])], ["dc"])
    np.testing.assert_allclose(found[0], 2 * A * B)


def test_at_other_values_than_those_named() -> None:
    nodes = [PRODUCT, SQUARE, gradient(["a"], "y", ["da"], ["b"], ["b", "a"])]
    np.testing.assert_allclose(run(nodes, ["da"])[0], 2 * B * A * A)


def test_second_derivatives() -> None:
    nodes = [PRODUCT, SQUARE, gradient(["a", "b"], "y", ["da", "db"]), gradient(["a", "b"], "da", ["daa", "dab"])]
    found = run(nodes, ["daa", "dab"])
    np.testing.assert_allclose(found[0], 2 * B * B)
    np.testing.assert_allclose(found[1], 4 * A * B)


def test_what_does_not_matter_has_the_derivative_zero_and_outputs_may_be_left_out() -> None:
    nodes = [helper.make_node("Exp", ["a"], ["y"]), gradient(["a", "b"], "y", ["", "db"])]
    np.testing.assert_array_equal(run(nodes, ["db"])[0], np.zeros(3))


def test_by_an_initializer_and_before_what_it_names() -> None:
    nodes = [gradient(["w"], "y", ["dw"], ["a"]), helper.make_node("Mul", ["a", "w"], ["y"])]
    np.testing.assert_allclose(run(nodes, ["dw"], w=np.float32(2))[0], A.sum())


def test_a_classifier_learns() -> None:
    """Gradient descent with Adam on a convolutional network: the loss of a batch falls."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(8, 1, 6, 6)).astype(np.float32)
    labels = np.arange(8) % 3
    weights = {
        "k": rng.normal(size=(4, 1, 3, 3)).astype(np.float32) * 0.3,
        "w": rng.normal(size=(16, 3)).astype(np.float32) * 0.3,
    }
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", "w"], ["s"]),
        helper.make_node("SoftmaxCrossEntropyLoss", ["s", "labels"], ["loss"]),
        gradient(["k", "w"], "loss", ["dk", "dw"], ["x", "labels"]),
    ]
    names = ["k", "w", "dk", "dw", "mk", "mw", "vk", "vw"]
    outputs = ["k2", "w2", "mk2", "mw2", "vk2", "vw2"]
    nodes.append(helper.make_node("Adam", ["rate", "t", *names], outputs, domain="ai.onnx.preview.training"))
    state = {**weights, **{f"{m}{n}": np.zeros_like(x) for m in "mv" for n, x in weights.items()}}
    fixed = {"x": images, "labels": labels, "rate": np.float32(0.05), "t": np.int64(0)}
    infos = [tensor(name, np.asarray(x)) for name, x in {**fixed, **state}.items()]
    session = InferenceSession(model(nodes, infos, ["loss", *outputs], {}))
    losses = []
    for count in range(30):
        loss, *updated = session.run(None, {**fixed, **state, "t": np.int64(count)})
        losses.append(float(loss))
        state = {name.removesuffix("2"): x for name, x in zip(outputs, updated, strict=True)}
    assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        (
            [helper.make_node("TopK", ["a", "k"], ["y", "i"]), gradient(["a"], "y", ["da"])],
            "TopK .* no derivative",
        ),
        ([PRODUCT, gradient(["a"], "nothing", ["da"])], "nothing"),
        ([PRODUCT, gradient(["a"], "c", ["da"], ["b"], ["a"])], "1 inputs"),
        ([helper.make_node("Shape", ["a"], ["y"]), gradient(["a"], "y", ["da"])], "floating-point"),
    ],
    ids=["operator", "name", "inputs", "integers"],
)
def test_refused(nodes: list[Any], text: str) -> None:
    with pytest.raises(errors.Error, match=text):
        run(nodes, ["da"], k=ints(2))

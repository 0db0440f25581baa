"""Old versions that mean something else than the newest: expected values are what ONNX's text of that version says.

What differs is in attributes that are gone (broadcast and axis, consumed_inputs, is_test), in defaults, in inputs that
were attributes, or in the meaning itself. Versions that differ in types alone are in the families' tables.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache
from typing import Any

import numpy as np
import pytest

from jitonnx.ir.schema import versions_of
from jitonnx.model import load
from jitonnx.ops.registry import registry
from tests.ops.coverage import differences, schemas
from tests.ops.harness import Case, build, case, check, ints, run_onnxruntime
from tests.ops.tables import all_cases

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


X = np.arange(1, 25, dtype=np.float32).reshape(2, 3, 4)
COLUMN = np.array([10, 20, 30], np.float32)
ROWS, PAIR = COLUMN[:, None], np.array([[1, 2, 3], [4, 5, 6]], np.float32)
IMAGE, BY_CHANNEL = normal(2, 3, 4, 5), COLUMN[:, None, None]
PARTS, AROUND = (X[..., :1], X[..., 1:]), ((0, 0), (1, 0), (0, 2))
LINE, WIDER = np.array([[[[1, 3]]]], np.float32), np.array([[[[1, 2, 3, 3]]]], np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def normalized(x: np.ndarray, axes: tuple[int, ...], epsilon: float = 1e-5) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


TESTED = {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]}
NORMAL = BY_CHANNEL * (IMAGE - BY_CHANNEL) / np.sqrt(BY_CHANNEL + np.float32(1e-5)) + BY_CHANNEL
ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide}
LOGIC = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}
COMPARISONS = {"Greater": np.greater, "Less": np.less}
WHOLE, SQUARE = X.astype(np.int32), PAIR @ PAIR.T
TRUTH, FLAGS = X > 9, np.array([True, False, True])

CASES: list[Case] = [
    # The second input is broadcast only if asked for, and its axes are lined up with the first's from `axis` on.
    *(
        case(name, version, X, other, broadcast=1, axis=axis, expected=function(X, seen))
        for name, function in ARITHMETIC.items()
        for version in (1, 6)
        for other, axis, seen in ((COLUMN, 1, ROWS), (PAIR, 0, PAIR[:, :, None]), (COLUMN, -2, ROWS), (X[0], 1, X[0]))
    ),
    *(case(name, 1, X, X, consumed_inputs=[0, 0], expected=function(X, X)) for name, function in ARITHMETIC.items()),
    *(case(name, v, X, X[0, 0], broadcast=1, expected=f(X, X[0, 0])) for name, f in ARITHMETIC.items() for v in (1, 6)),
    case(
        "Pow",
        1,
        X,
        np.array([0.5, 1, 2], np.float32),
        broadcast=1,
        axis=1,
        expected=X ** np.array([[0.5], [1], [2]], np.float32),
    ),
    *(case(n, 1, TRUTH, FLAGS, broadcast=1, axis=1, expected=f(TRUTH, FLAGS[:, None])) for n, f in LOGIC.items()),
    *(case(n, 1, X, COLUMN, broadcast=1, axis=1, expected=f(X, ROWS)) for n, f in COMPARISONS.items()),
    case("Equal", 1, WHOLE, WHOLE[0, :, 1], broadcast=1, axis=1, expected=X[0, :, 1, None] == X),
    *(
        case("Gemm", v, PAIR, PAIR.T, COLUMN[:2], broadcast=1, alpha=0.5, expected=0.5 * SQUARE + COLUMN[:2])
        for v in (1, 6)
    ),
    case("Gemm", 1, PAIR, PAIR, SQUARE, transB=1, expected=2 * SQUARE),
    # Slopes of rank 1 belong to the channels.
    *(case("PRelu", v, -X, COLUMN, expected=-X * ROWS) for v in (1, 6)),
    # Attributes that never meant anything.
    *(
        case(name, 1, X, consumed_inputs=[0], expected=function(X))
        for name, function in (
            *(("Abs", np.abs), ("Ceil", np.ceil), ("Exp", np.exp), ("Floor", np.floor), ("Log", np.log)),
            *(("Neg", np.negative), ("Reciprocal", lambda x: 1 / x), ("Sqrt", np.sqrt), ("Tanh", np.tanh)),
            *(("Relu", lambda x: np.maximum(x, 0)), ("Sigmoid", lambda x: 1 / (1 + np.exp(-x)))),
            *(
                ("Elu", lambda x: x),
                ("LeakyRelu", lambda x: x),
                ("HardSigmoid", lambda x: np.clip(0.2 * x + 0.5, 0, 1)),
            ),
            *(("Max", lambda x: x), ("Min", lambda x: x), ("Sum", lambda x: x), ("Mean", lambda x: x)),
        )
    ),
    case(
        "Selu",
        1,
        np.array([-1, 2], np.float32),
        expected=np.array([1.0507 * (1.6732 * np.expm1(-1)), 2.1014], np.float32),
    ),
    # Inputs that were attributes, and the defaults that they had.
    case("Clip", 1, X, min=3.0, consumed_inputs=[0], expected=np.maximum(X, 3)),
    case("Clip", 1, X, expected=X),
    case(
        "Clip",
        6,
        np.array([-np.inf, 0, np.inf], np.float32),
        expected=np.array([-3.4028235e38, 0, 3.4028235e38], np.float32),
    ),
    case("Clip", 6, X, min=3.0, max=5.0, expected=np.clip(X, 3, 5)),
    case("Concat", 1, X, X, expected=np.concatenate([X, X], 1)),
    case("Concat", 1, X, X, axis=0, expected=np.concatenate([X, X], 0)),
    case("Split", 1, X, outputs=2, expected=(X[:1], X[1:])),
    case("Split", 1, X, np.array([1, 3], np.float32), axis=2, outputs=2, constants=(1,), expected=PARTS),
    *(case("Split", v, X, axis=2, split=[1, 3], outputs=2, expected=PARTS) for v in (1, 2, 11)),
    case("Reshape", 1, X, shape=[4, 0, -1], consumed_inputs=[0], expected=X.reshape(4, 3, 2)),
    case(
        "Tile",
        1,
        X,
        np.array([2], np.float32),
        np.array([1], np.float32),
        constants=(1, 2),
        expected=np.tile(X, (1, 2, 1)),
    ),
    case(
        "Pad",
        1,
        X,
        paddings=[0, 1, 0, 0, 0, 2],
        value=1.5,
        expected=np.pad(X, AROUND, constant_values=1.5),
    ),
    case("Pad", 1, X, paddings=[0, 1, 0, 0, 0, 2], mode="edge", expected=np.pad(X, AROUND, mode="edge")),
    case(
        "Pad",
        2,
        X,
        pads=[0, 1, 0, 0, 0, 2],
        mode="reflect",
        expected=np.pad(X, AROUND, mode="reflect"),
    ),
    case("Slice", 1, X, starts=[1, -3], ends=[99, -1], axes=[1, 2], expected=X[:, 1:, -3:-1]),
    case("Slice", 1, X, starts=[0, 1], ends=[1, 2], expected=X[0:1, 1:2]),
    *(case("Squeeze", v, X[:1], axes=[0], expected=X[0]) for v in (1, 11)),
    case("Squeeze", 1, X[:1], expected=X[0]),
    *(case("Unsqueeze", v, X, axes=[0, 2], expected=X[None, :, None]) for v in (1, 11)),
    case("TopK", 1, X, k=2, outputs=2, expected=(X[..., :1:-1], np.broadcast_to(ints(3, 2), (2, 3, 2)))),
    *(
        case(f"Reduce{kind}", v, X, axes=[1], keepdims=0, expected=getattr(X, kind.lower())(1))
        for kind in ("Max", "Min", "Mean", "Prod")
        for v in (1, 11, 13)
    ),
    *(case("ReduceSum", v, X, axes=[1], keepdims=0, expected=X.sum(1)) for v in (1, 11)),
    *(case("ReduceSum", v, X, expected=X.sum(keepdims=True)) for v in (1, 11)),
    case("Cast", 1, X, to="INT32", expected=X.astype(np.int32)),
    case("Cast", 1, X, to="BOOL", expected=X.astype(bool)),
    case(
        *("DFT", 17, np.stack([X, 0 * X], -1)),
        axis=2,
        expected=np.stack([np.fft.fft(X).real, np.fft.fft(X).imag], -1).astype(np.float32),
        rtol=1e-4,
        atol=1e-4,
    ),
    # What is behind `axis` is one row.
    *(
        case("Softmax", v, X, **options, expected=softmax(rows).reshape(X.shape))
        for v in (1, 11)
        for options, rows in (({}, X.reshape(2, 12)), ({"axis": 0}, X.reshape(1, 24)), ({"axis": 2}, X))
    ),
    *(case("LogSoftmax", v, X, expected=np.log(softmax(X.reshape(2, 12))).reshape(X.shape)) for v in (1, 11)),
    *(case("Hardmax", v, X, expected=(X.max((1, 2), keepdims=True) == X).astype(np.float32)) for v in (1, 11)),
    # Batch normalisation with is_test, statistics by position, and its own statistics as outputs.
    *(
        case("BatchNormalization", v, IMAGE, *(COLUMN,) * 4, **options, expected=NORMAL, rtol=1e-4, atol=1e-4)
        for v, options in ((1, TESTED), (6, {"is_test": 1}), (7, {}), (9, {}))
    ),
    *(
        case(
            *("BatchNormalization", v, X, X[0], 2 * X[0], 0 * X[0], 1 + 0 * X[0]),
            **options,
            spatial=0,
            expected=X[0] * X / np.sqrt(np.float32(1 + 1e-5)) + 2 * X[0],
        )
        for v, options in ((1, TESTED), (6, {"is_test": 1}), (7, {}))
    ),
    *(
        case(
            *("BatchNormalization", v, IMAGE, np.array([1, 2, 3], np.float32), COLUMN, COLUMN, COLUMN),
            momentum=0.75,
            outputs=5,
            **options,
            expected=(
                normalized(IMAGE, (0, 2, 3)) * np.array([1, 2, 3], np.float32)[:, None, None] + COLUMN[:, None, None],
                COLUMN * 0.75 + IMAGE.mean((0, 2, 3)) * np.float32(0.25),
                COLUMN * 0.75 + IMAGE.var((0, 2, 3)) * np.float32(0.25),
                IMAGE.mean((0, 2, 3)),
                IMAGE.var((0, 2, 3)),
            ),
            rtol=1e-4,
            atol=1e-4,
        )
        for v, options in ((1, {"consumed_inputs": [0, 0, 0, 1, 1]}), (6, {}), (7, {}), (9, {}))
    ),
    case(
        *("InstanceNormalization", 1, IMAGE, COLUMN, COLUMN),
        consumed_inputs=[0, 0, 0],
        expected=normalized(IMAGE, (2, 3)) * COLUMN[:, None, None] + COLUMN[:, None, None],
        rtol=1e-4,
        atol=1e-4,
    ),
    # Dropout in its test mode, whose mask was of the data's type.
    *(
        case("Dropout", v, X, ratio=0.4, outputs=2, **options, expected=(X, np.ones_like(X)), note="mask")
        for v, options in ((1, {"is_test": 1, "consumed_inputs": [0]}), (6, {"is_test": 1}), (7, {}))
    ),
    case("Dropout", 10, X, ratio=0.4, outputs=2, expected=(X, np.ones(X.shape, bool))),
    # Windows: the exponent was a float, and there were no dilations.
    case("LpPool", 1, X, kernel_shape=[2], p=1.0, expected=X[..., 1:] + X[..., :-1]),
    case("GlobalLpPool", 1, X, p=1.0, expected=X.sum(2, keepdims=True)),
    case("GlobalLpPool", 1, X, expected=np.sqrt((X * X).sum(2, keepdims=True))),
    case("MaxPool", 1, X, kernel_shape=[2], pads=[1, 0], expected=X),
    case(
        *("AveragePool", 1, X),
        kernel_shape=[2],
        pads=[1, 0],
        expected=np.concatenate([X[..., :1], (X[..., 1:] + X[..., :-1]) / 2], 2),
    ),
    # Enlarging.
    *(
        case("Upsample", v, IMAGE, mode="nearest", **scales, expected=IMAGE.repeat(2, 2).repeat(3, 3))
        for v, scales in ((1, {"height_scale": 2.0, "width_scale": 3.0}), (7, {"scales": [1.0, 1.0, 2.0, 3.0]}))
    ),
    case(
        "Upsample",
        9,
        IMAGE,
        np.array([1, 1, 2, 3], np.float32),
        constants=(1,),
        expected=IMAGE.repeat(2, 2).repeat(3, 3),
    ),
    case("Upsample", 7, LINE, mode="linear", scales=[1.0, 1.0, 1.0, 2.0], expected=WIDER),
    case("Resize", 10, LINE, np.array([1, 1, 1, 2], np.float32), mode="linear", constants=(1,), expected=WIDER),
    case(
        *("Resize", 10, np.array([[[[1, 2, 3, 4], [5, 6, 7, 8]]]], np.float32), np.array([1, 1, 0.6, 0.6], np.float32)),
        constants=(1,),
        expected=LINE,
        note="as ONNX's own test of that version",
    ),
    # Indices: below 0 they are no class before version 11.
    case(
        *("OneHot", 9, ints(0, 3, -1, 2), np.int64(3), np.array([0, 1], np.float32)),
        constants=(1,),
        expected=np.array([[1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 1]], np.float32),
    ),
    case(
        *("Scatter", 9, PAIR, np.array([[1, 0]], np.int64), np.array([[-1, -2]], np.float32)),
        axis=1,
        expected=np.array([[-2, -1, 3], [4, 5, 6]], np.float32),
    ),
    case("GatherND", 11, X, np.array([[0, 2], [1, 0]], np.int64), expected=np.stack([X[0, 2], X[1, 0]])),
    case(
        *("DepthToSpace", 1, np.arange(8, dtype=np.float32).reshape(1, 8, 1, 1)),
        blocksize=2,
        expected=np.array([[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]], np.float32),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_old_version(case: Case) -> None:
    check(case)


WEIGHTS = {"LSTM": 4, "GRU": 3, "RNN": 1}


def recurrent(operator: str, version: int, **options: Any) -> Case:
    gates = WEIGHTS[operator]
    arrays = (normal(3, 2, 4), normal(1, gates * 2, 4), normal(1, gates * 2, 2))
    return case(operator, version, *arrays, hidden_size=2, outputs=2, rtol=1e-4, atol=1e-5, **options)


@pytest.mark.parametrize("operator", WEIGHTS)
def test_recurrent_layers_of_version_1_are_those_of_version_7(operator: str) -> None:
    """output_sequence said whether Y is wanted; GRU's default direction was misspelled in the schema."""
    from jitonnx.engine.interpreter import evaluate

    old = recurrent(operator, 1, output_sequence=1)
    new = recurrent(operator, 7)
    feeds = {f"x{i}": x for i, x in enumerate(old.inputs)}
    for result, expected in zip(
        evaluate(load(build(old)).graph, feeds), evaluate(load(build(new)).graph, feeds), strict=True
    ):
        np.testing.assert_array_equal(result, expected)


ELSEWHERE = {
    **{("", "Constant", version): "test_a_constant_of_a_version_that_knows_tensors_only" for version in (1, 9)},
    ("", "Scan", 8): "tests/session/test_control_flow.py",
}
"""Versions whose cases are not in tables: constants, which the loader makes, and a graph."""


@pytest.mark.parametrize("opset", [1, 9])
def test_a_constant_of_a_version_that_knows_tensors_only(opset: int) -> None:
    graph = load(build(case("Constant", opset, value=X))).graph
    np.testing.assert_array_equal(graph.outputs[0].constant, X)


def versions_that_differ() -> list[tuple[str, str, int]]:
    """Domain, name and version of what has other attributes, defaults or inputs than the newest version."""
    found = []
    for (domain, name), versions in sorted(schemas().items()):
        known = sorted(version for version, schema in versions.items() if not schema.deprecated)
        found += [(domain, name, old) for old in known[:-1] if any(differences(versions[old], versions[known[-1]]))]
    return found


@cache
def cases_by_version() -> dict[tuple[str, str, int], list[Case]]:
    found: dict[tuple[str, str, int], list[Case]] = defaultdict(list)
    for one in all_cases():
        versions = versions_of(registry.find(one.domain, one.operator))  # type: ignore[arg-type]
        found[one.domain, one.operator, max(v for v in versions if v <= one.opset)].append(one)
    return found


@pytest.mark.parametrize(("domain", "name", "version"), sorted(set(versions_that_differ()) - ELSEWHERE.keys()))
def test_each_version_that_differs_is_judged_by_its_own_text(domain: str, name: str, version: int) -> None:
    """A case of it has the value that ONNX's text of that version gives, or onnxruntime runs that version: onnx's
    reference alone would not do, as it has the newest meaning of some operators for all versions."""

    def judged(one: Case) -> bool:
        feeds = {f"x{at}": x for at, x in enumerate(one.inputs) if x is not None and at not in one.constants}
        return one.expected is not None or (not one.by_reference and run_onnxruntime(build(one), feeds) is not None)

    assert any(map(judged, cases_by_version()[domain, name, version]))

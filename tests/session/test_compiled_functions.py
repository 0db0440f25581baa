"""Scalar functions that Numba compiles, in users' operators: fused, for each type, against what Numba gives itself."""

from __future__ import annotations

import math
import sys
from typing import Any, ClassVar

import numpy as np
import pytest
from onnx import TensorProto, helper

import jitonnx
from jitonnx import custom
from jitonnx.custom import e
from tests.session.test_custom_operators import DOMAIN, model, node, options

F32 = np.float32
GREATEST = 20


@custom.compiled(signature="float32(float32)")
def escape(x: Any) -> Any:
    """How often x can be squared until it is above 4, and what is left: a loop whose length the data tell."""
    count = F32(0)
    while abs(x) < 4 and count < GREATEST:
        x = x * x - F32(1.25)
        count += F32(1)
    return count + math.tanh(x)


@custom.compiled
def blend(x: Any, y: Any) -> Any:
    """It takes any types."""
    return x if x > y else y - x


@custom.compiled
def inside(x: Any) -> Any:
    return x > 0 and x < 1


class Escape(custom.Elementwise):
    """escape(X)."""

    domain, inputs, outputs = DOMAIN, ("X",), ("Y",)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return escape(x.astype(np.float32)).astype(x.dtype)

    def scalar(self, x: e.Expr) -> e.Expr:
        return escape(x)


class Blend(custom.Elementwise):
    """blend(X, Y)."""

    domain, inputs, outputs = DOMAIN, ("X: T", "Y: T"), ("Z: T",)
    types: ClassVar[Any] = {"T": custom.NUMBERS}

    def evaluate(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return blend(x, y).astype(x.dtype)

    def scalar(self, x: e.Expr, y: e.Expr) -> e.Expr:
        return e.cast(blend(x, y), x.dtype)


class Inside(custom.Elementwise):
    """Whether X is between 0 and 1."""

    domain, inputs, outputs = DOMAIN, ("X",), ("Y",)
    result = custom.DType.BOOL

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return inside(x)

    def scalar(self, x: e.Expr) -> e.Expr:
        return inside(x)


def named(name: str, inputs: list[str], outputs: list[str]) -> Any:
    return helper.make_node(name, inputs, outputs, domain=DOMAIN, name=f"make_{outputs[0]}")


@pytest.mark.parametrize("count", [0, 1, 7, 16, 1001])
def test_it_fuses_and_gives_what_numba_gives(count: int) -> None:
    nodes = [node("Mul", ["x", "x"], ["a"]), named("Escape", ["a"], ["b"]), node("Add", ["b", "x"], ["y"])]
    session = jitonnx.InferenceSession(model(nodes, sizes=["n"]), options(Escape))
    x = np.random.default_rng(count).normal(size=count).astype(np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], escape(x * x) + x)
    assert len(session.engine.compiled.plan.calls) == 1


def test_half_precision_is_computed_in_single() -> None:
    x = np.linspace(-3, 3, 50).astype(np.float16)
    data = model([named("Escape", ["x"], ["y"])], sizes=["n"], elem=TensorProto.FLOAT16)
    (y,) = jitonnx.InferenceSession(data, options(Escape)).run(None, {"x": x})
    np.testing.assert_array_equal(y, escape(x.astype(np.float32)).astype(np.float16))


@pytest.mark.parametrize("elem", ["FLOAT", "DOUBLE", "INT64", "INT32", "UINT8", "INT8"])
def test_each_type_has_its_own_code(elem: str) -> None:
    kind = TensorProto.DataType.Value(elem)
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    nodes = [node("Identity", ["x"], ["a"]), node("Mul", ["x", "x"], ["b"]), named("Blend", ["a", "b"], ["y"])]
    session = jitonnx.InferenceSession(model(nodes, sizes=["n"], elem=kind), options(Blend))
    x = np.random.default_rng(1).integers(-9 if np.dtype(dtype).kind != "u" else 0, 9, 33).astype(dtype)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], blend(x, x * x).astype(dtype))


def test_truth_values() -> None:
    data = model([named("Inside", ["x"], ["y"])], sizes=["n"])
    x = np.linspace(-2, 2, 19).astype(np.float32)
    (y,) = jitonnx.InferenceSession(data, options(Inside)).run(None, {"x": x})
    np.testing.assert_array_equal(y, (x > 0) & (x < 1))


def test_functions_of_one_name_are_told_apart() -> None:
    """Kernels are kept under what they compute, and not under what functions are called."""
    x = np.ones(5, np.float32)
    for factor in (2.0, 3.0):

        class Scaled(Escape):
            """factor * X."""

            function: ClassVar[Any] = staticmethod(_scaling(factor))

            def scalar(self, x: e.Expr) -> e.Expr:
                return self.function(x)

        data = model([named("Scaled", ["x"], ["y"])], sizes=["n"])
        np.testing.assert_array_equal(
            jitonnx.InferenceSession(data, options(Scaled)).run(None, {"x": x})[0], x * F32(factor)
        )


def _scaling(factor: float) -> Any:
    def scaled(x: Any) -> Any:
        return x * factor

    return custom.compiled(scaled, signature="float32(float32)")


def throws(x: Any) -> Any:
    if x > 1:
        raise ValueError("too large")
    return x


def texts(x: Any) -> Any:
    return str(x)


def unknown(x: Any) -> Any:
    return open(x)


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (throws, "throws needs .*raises no exceptions"),
        (texts, "texts takes or gives .*; numbers and truth values are possible"),
        (unknown, "unknown"),
    ],
)
def test_what_cannot_be_compiled_is_refused(function: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        custom.compiled(function)(e.operand(0, custom.DType.DOUBLE))


def test_without_numba_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ImportError, match=r"pip install jitonnx\[numba\]"):
        custom.compiled(throws)


def test_an_artifact_holds_it(tmp_path: Any) -> None:
    session = jitonnx.InferenceSession(model([named("Escape", ["x"], ["y"])], sizes=["n"]), options(Escape))
    session.save(tmp_path / "model.jitonnx", {"x": ((1, 64),)})
    x = np.linspace(-2, 2, 30).astype(np.float32)
    (y,) = jitonnx.InferenceSession(tmp_path / "model.jitonnx").run(None, {"x": x})
    np.testing.assert_array_equal(y, escape(x))

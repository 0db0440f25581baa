"""Scalar functions that Numba compiles, in users' operators: fused, for each type, against what Numba gives itself."""

from __future__ import annotations

import functools
import math
import sys
from typing import Any, ClassVar

import numba
import numpy as np
import pytest
from onnx import TensorProto, helper

import jitonnx
from jitonnx import custom
from jitonnx.custom import e
from jitonnx.ops.registry import registry
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


def branches(x: Any, y: Any) -> Any:
    """Conditions within conditions, some of which meet again, and several returns."""
    if x > 0.5 and y != 1.5:
        z = math.exp(-x) * 2
    elif x < -1:
        if y < 0:
            return y
        z = math.log1p(-x)
    else:
        z = x // F32(3) + y % F32(0.75)
    return z + max(x, min(y, F32(1)))


def mathematics(x: Any, y: Any) -> Any:
    whole = round(x) + math.floor(y) + math.ceil(x) + math.trunc(y)
    return whole + math.copysign(x, -y) + math.log10(abs(x) + 1) + abs(y) ** 0.5 + math.hypot(x, y) + math.atan2(y, x)


def comparisons(x: Any, y: Any) -> Any:
    """NaN is on neither side of anything."""
    bits = (x < y) + 2 * (x <= y) + 4 * (x == y) + 8 * (x != y) + 16 * (not x < y) + 32 * (not x >= y)
    return bits + 64 * math.isnan(x) + 128 * math.isinf(y) + 256 * ((x > 0) ^ (y > 0))


EDGES = np.array([0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.5, 3, -7, 1e-42, 1e30, np.inf, -np.inf, np.nan])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", [branches, mathematics, comparisons])
def test_functions_without_loops_are_expressions(function: Any, dtype: str) -> None:
    """They become vectors with everything around them, and nothing is called once an element but what has no kernel."""
    made = custom.compiled(function)
    kind = custom.DType.FLOAT if dtype == "float32" else custom.DType.DOUBLE
    expression = made(e.operand(0, kind), e.operand(1, kind))
    called = {node.value.name for node in e.children_first(expression) if node.op == "call"}
    assert called <= {"hypot", "atan2", "log10"}
    rng = np.random.default_rng(0)
    drawn = [np.round(rng.normal(size=300) * 4, 1) for _ in range(2)]
    edges = np.meshgrid(EDGES, EDGES)
    x, y = (np.concatenate([edges[i].ravel(), drawn[i]]).astype(dtype) for i in range(2))
    elem = TensorProto.FLOAT if dtype == "float32" else TensorProto.DOUBLE
    declared = custom.elementwise(made, domain=DOMAIN, name="Made")
    data = two_inputs("Made", elem)
    (z,) = jitonnx.InferenceSession(data, options(declared)).run(None, {"x": x, "y": y})
    with np.errstate(all="ignore"):
        expected = made(x, y).astype(dtype)
    np.testing.assert_allclose(z, expected, rtol=2e-6 if dtype == "float32" else 1e-14)


def integers(x: Any, y: Any) -> Any:
    if y == 3:
        return x
    z = (x // y if y != 0 else x) ^ (y % 7)
    return (z << 2) | (x & 3) if x > y else z >> 1


@pytest.mark.parametrize("elem", ["INT8", "UINT8", "INT16", "INT32", "UINT32", "INT64"])
def test_integers_wrap_and_divide_as_pythons(elem: str) -> None:
    kind = TensorProto.DataType.Value(elem)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(kind))
    made = custom.compiled(integers)
    declared = custom.elementwise(made, domain=DOMAIN, name="Made")
    x, y = np.random.default_rng(3).integers(-90 if dtype.kind == "i" else 0, 91, (2, 500)).astype(dtype)
    y[::7] = 0
    (z,) = jitonnx.InferenceSession(two_inputs("Made", kind), options(declared)).run(None, {"x": x, "y": y})
    np.testing.assert_array_equal(z, made(x, y).astype(dtype))


def two_inputs(name: str, elem: int) -> bytes:
    values = [helper.make_tensor_value_info(each, elem, ["n"]) for each in "xyz"]
    graph = helper.make_graph([named(name, ["x", "y"], ["z"])], "g", values[:2], values[2:])
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=imports).SerializeToString()


def test_a_function_is_registered_as_an_operator() -> None:
    """Its parameters with a default are attributes; what numba.njit has made will do as well."""
    given, domain = numba.njit(tempered), f"{DOMAIN}.registered"
    assert jitonnx.register(domain=domain, types=custom.FLOATS)(given) is given
    with pytest.raises(ValueError, match="has an operator tempered already"):
        jitonnx.register(tempered, domain=domain)
    assert registry.find(domain, "tempered") is not None
    declared = custom.elementwise(given, domain=DOMAIN, types=custom.FLOATS)
    for dtype in (np.float32, np.float64, np.float16):
        elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        call = helper.make_node("tempered", ["x"], ["a"], domain=DOMAIN, rate=0.25, inverse=1)
        session = jitonnx.InferenceSession(
            model([call, node("Add", ["a", "x"], ["y"])], sizes=["n"], elem=elem), options(declared)
        )
        x = np.linspace(-3, 3, 50).astype(dtype)
        wide = x.astype(np.float64)
        expected = np.where(wide > 0, wide, 0.25 * np.expm1(wide)) * 0.5 + wide
        tolerance = {2: 3e-3, 4: 1e-6, 8: 1e-14}[x.itemsize]
        np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=tolerance, atol=tolerance)
        assert len(session.engine.compiled.plan.calls) == 1


def tempered(x: Any, rate: Any = 1.0, count: Any = 2, inverse: Any = False) -> Any:
    y = x if x > 0 else rate * math.expm1(x)
    return y / F32(count) if inverse else y * F32(count)


def several(*x: Any) -> Any:
    return x[0]


def large(x: Any, rate: Any = 10**30) -> Any:
    return x * rate


def test_what_functions_cannot_say_is_an_error() -> None:
    with pytest.raises(TypeError, match="needs a domain"):
        jitonnx.register(tempered)
    with pytest.raises(TypeError, match="Escape is a class, which says domain itself"):
        jitonnx.register(Escape, domain=DOMAIN)
    with pytest.raises(TypeError, match=r"mode='a' of .*: an attribute is an int, a float or a bool"):
        custom.elementwise(lambda x, mode="a": x, domain=DOMAIN, name="Op")
    with pytest.raises(TypeError, match="a lambda has no name"):
        jitonnx.register(lambda x: x, domain=DOMAIN)
    for given in (math.sin, np.sin, functools.partial(tempered, rate=1.0), numba.vectorize(tempered)):
        with pytest.raises(TypeError, match="is no function written in Python"):
            jitonnx.register(given, domain=DOMAIN)
    with pytest.raises(TypeError, match=r"x.* of several: an operator.s inputs and attributes each need a name"):
        jitonnx.register(several, domain=DOMAIN)
    with pytest.raises(TypeError, match=r"rate=1000.* of large: .* of 64 bits"):
        jitonnx.register(large, domain=DOMAIN)
    with pytest.raises(TypeError, match="has no inputs"):
        custom.elementwise(lambda x=1.0: x, domain=DOMAIN, name="Op")


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
        (texts, "texts takes or gives .*; real numbers and truth values are possible"),
        (unknown, "unknown"),
    ],
)
def test_what_cannot_be_compiled_is_refused(function: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        custom.compiled(function)(e.operand(0, custom.DType.DOUBLE))


@pytest.mark.parametrize(
    ("signature", "text"),
    [
        ("float32(float32", "is none of Numba's .*SyntaxError"),
        ("nonsense(float32)", "is none of Numba's .*NameError"),
        ("float32(float32, float32)", "has 2 arguments; 1 are given"),
        ("float16(float16)", "Numba does not compile identity for"),
        ("complex64(float32)", "takes or gives complex64; real numbers"),
    ],
)
def test_signatures_that_do_not_fit(signature: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model with such an operator is refused, and the node is named: these are no defects of ours."""

    def identity(x: Any) -> Any:
        return x

    monkeypatch.delenv("JITONNX_STRICT")
    declared = custom.elementwise(custom.compiled(identity, signature=signature), domain=DOMAIN, name="Made")
    graph = model([named("Made", ["x"], ["y"])], sizes=["n"])
    with pytest.raises(TypeError, match=f"^Made node.*{text}"):
        jitonnx.InferenceSession(graph, options(declared))


def test_where_numba_cannot_be_imported_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(ImportError, match=r"needs Numba, .*pip install --upgrade numba"):
        custom.compiled(throws)


def test_an_artifact_holds_it(tmp_path: Any) -> None:
    session = jitonnx.InferenceSession(model([named("Escape", ["x"], ["y"])], sizes=["n"]), options(Escape))
    session.save(tmp_path / "model.jitonnx", {"x": ((1, 64),)})
    x = np.linspace(-2, 2, 30).astype(np.float32)
    (y,) = jitonnx.load(tmp_path / "model.jitonnx").run(None, {"x": x})
    np.testing.assert_array_equal(y, escape(x))

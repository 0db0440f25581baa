"""Regions as Numba kernels: what their sources mean under plain Python and compiled, against LLVM's and NumPy."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitonnx.codegen.numba.sources import write
from jitonnx.codegen.numba.writing import Uncovered
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.linked import LinkedFunction
from jitonnx.ir.dims import variable
from jitonnx.ir.dtypes import COMPILED, HALVES, DType
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.region import region_call
from jitonnx.plan.tensor import Buffer, StridedTensor
from tests.codegen.numba_kernels import WAYS, results, tensor

X, Y = e.operand(0, DType.FLOAT), e.operand(1, DType.FLOAT)
NUMBERS = np.array(
    [*(0.0, -0.0, 1.0, -1.0, 0.5, 1.5, -2.5, 3.0, 7.75, -9.25, 0.1, -0.3), *(100.5, -1000.0, 70000.0, 1e-6, 3e9, -3e9)]
)
EDGES = np.array([np.inf, -np.inf, np.nan, 1e300, -1e300, 1e-7, 6e-8])
INTEGERS = np.array([0, 1, 2, 3, 5, 7, 100, 127, 128, 255, -1, -2, -3, -7, -100, -128, 1 << 31, -(1 << 31), 1 << 63])


def call_of(
    exprs: Sequence[e.Expr], inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], **more: bool
) -> KernelCall:
    given = [tensor(array, f"in{number}") for number, array in enumerate(inputs)]
    made = [tensor(array, f"out{number}") for number, array in enumerate(outputs)]
    return region_call(exprs, given, made, label="region", origin=("node",), reason="", **more)


def check(exprs: Sequence[e.Expr], inputs: Sequence[np.ndarray], rtol: float = 0.0, atol: float = 0.0) -> None:
    """Python, Numba and LLVM agree with what the expressions mean on NumPy, NaN with NaN."""
    shape = np.broadcast_shapes(*(array.shape for array in inputs))
    outputs = [np.zeros(shape, expr.dtype.numpy) for expr in exprs]
    with np.errstate(all="ignore"):
        expected = [np.broadcast_to(e.evaluate(expr, inputs, shape), shape) for expr in exprs]
    for way, found in results(call_of(exprs, inputs, outputs), inputs, outputs).items():
        for expr, got, wanted in zip(exprs, found, expected, strict=True):
            kind = np.float64 if expr.dtype.is_float else got.dtype
            with np.errstate(all="ignore"):
                np.testing.assert_allclose(
                    got.astype(kind), wanted.astype(kind), rtol, atol, err_msg=f"{way}: {e.text(expr)}"
                )


def pairs(numbers: np.ndarray, dtype: DType) -> list[np.ndarray]:
    with np.errstate(all="ignore"):
        typed = numbers.astype(dtype.numpy)
    return [array.reshape(-1).copy() for array in np.meshgrid(typed, typed)]


def of_integers(dtype: DType) -> np.ndarray:
    low, high = (0, 1) if dtype is DType.BOOL else (np.iinfo(dtype.numpy).min, np.iinfo(dtype.numpy).max)
    return np.array([int(n) for n in [*INTEGERS.astype(object), low, high, high - 1] if low <= n <= high], dtype.numpy)


EXACT = ("neg", "abs", "sign", "sqrt", "reciprocal", "floor", "ceil", "trunc", "round", "isnan", "isinf")
SMOOTH = ("log", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh")
CURVES = ("exp", "expm1", "erf", "tanh", "sigmoid", "silu", "gelu", "gelu_tanh", "softplus", "mish")
ARITHMETIC = ("add", "sub", "mul", "div", "maximum", "minimum", "eq", "ne", "lt", "le", "gt", "ge")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.DOUBLE, *HALVES], ids=lambda dtype: dtype.text)
def test_arithmetic_of_floats(dtype: DType) -> None:
    a, b = e.operand(0, dtype), e.operand(1, dtype)
    exprs = [e.unary(op, a) for op in EXACT] + [e.binary(op, a, b) for op in ARITHMETIC]
    exprs += [e.where(a < b, a, b), e.where(e.isnan(a), 1.0, a), e.within(a, -2.0, 3.0), e.maximum(a, 0.0)]
    exprs += [e.minimum(2.0, a), a * b + a, (a + b) * (a + b)]
    with np.errstate(all="ignore"):
        check(
            exprs,
            pairs(np.concatenate([NUMBERS, EDGES]), dtype),
            {DType.FLOAT: 3e-7, DType.DOUBLE: 5e-16}.get(dtype, 0),
        )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", [DType.FLOAT, DType.DOUBLE, *HALVES], ids=lambda dtype: dtype.text)
def test_functions_of_floats(dtype: DType) -> None:
    a, b = e.operand(0, dtype), e.operand(1, dtype)
    exprs = [e.unary(op, a) for op in (*SMOOTH, *CURVES)] + [e.power(a, b), e.fmod(a, b), e.mod(a, b), e.elu(a, 0.5)]
    numbers = np.concatenate([NUMBERS[np.abs(NUMBERS) < 100], [np.nan, 20.0, -20.0, 2.0]])
    rtol = {DType.FLOAT: 3e-6, DType.DOUBLE: 1e-14, DType.FLOAT16: 2e-3, DType.BFLOAT16: 1e-2}[dtype]
    check(exprs, pairs(numbers, dtype), rtol, rtol / 4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("dtype", sorted(dtype for dtype in COMPILED if dtype.is_integer), ids=lambda dtype: dtype.text)
def test_integers(dtype: DType) -> None:
    """They wrap around; division never traps."""
    a, b = e.operand(0, dtype), e.operand(1, dtype)
    exprs = [e.binary(op, a, b) for op in (*ARITHMETIC, "bitwise_and", "bitwise_or", "bitwise_xor") if op != "div"]
    exprs += [e.unary(op, a) for op in ("neg", "abs", "bitwise_not")]
    exprs += [a * a + b, e.where(a > b, a, b), e.maximum(a, 3)]
    exprs += [e.binary(op, a, e.binary("bitwise_and", b, 3)) for op in ("shift_left", "shift_right")]
    x, y = pairs(of_integers(dtype), dtype)
    check(exprs, [x, y])
    lowest = np.iinfo(dtype.numpy).min
    fits = (y != 0) & ~((x == lowest) & (y == np.array(-1).astype(dtype.numpy)) & (lowest < 0))
    check([e.binary(op, a, b) for op in ("div", "mod", "fmod")], [x[fits], y[fits]])
    outputs = [np.full_like(x, 77) for _ in range(3)]
    call = call_of([e.binary(op, a, b) for op in ("div", "mod", "fmod")], [x, y], outputs)
    found = results(call, [x, y], outputs)
    for way in ("numba", "python"):  # no trap where there is no quotient, and the same there
        for got, wanted in zip(found[way], found["llvm"], strict=True):
            np.testing.assert_array_equal(got, wanted, err_msg=way)


def test_truth_values() -> None:
    a, b = e.operand(0, DType.BOOL), e.operand(1, DType.BOOL)
    exprs = [e.binary(op, a, b) for op in ("logical_and", "logical_or", "logical_xor", "eq", "ne")]
    exprs += [e.logical_not(a), e.where(a, b, e.logical_not(b)), e.constant(True, DType.BOOL)]
    exprs += [e.cast(a, DType.FLOAT) * 2.0, e.cast(b, DType.INT8), e.cast(a, DType.FLOAT16)]
    check(exprs, pairs(np.array([0, 1]), DType.BOOL))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("old", sorted(COMPILED), ids=lambda dtype: dtype.text)
def test_casts(old: DType) -> None:
    """Floats are cut off and saturate, NaN gives 0; integers wrap around; 16 bits are rounded once."""
    x = np.concatenate([NUMBERS, EDGES, [65519.9, 65520.0, 1.00048828125, 1.0004882812501, 2.0**63, -200.7, 300.2]])
    with np.errstate(all="ignore"):
        x = x.astype(old.numpy) if old.is_float else of_integers(old)
    exprs = [e.cast(e.operand(0, old), new) for new in sorted(COMPILED) if new is not old]
    outputs = [np.zeros(x.shape, expr.dtype.numpy) for expr in exprs]
    found = results(call_of(exprs, [x], outputs), [x], outputs)
    for expr, llvm, numba, python in zip(exprs, *(found[way] for way in WAYS), strict=True):
        kind = np.float32 if expr.dtype in HALVES else expr.dtype.numpy
        for way, got in (("numba", numba), ("python", python)):
            np.testing.assert_array_equal(got.astype(kind), llvm.astype(kind), err_msg=f"{way}: {expr.dtype.text}")


def test_rounding_to_integers_of_quantised_models() -> None:
    x = np.concatenate([np.arange(-300, 300, dtype=np.float32) / 2, [2.0**21, 1e9, np.nan, -0.0]]).astype(np.float32)
    inside = e.within(X, -(2.0**21), 2.0**21)
    zero = e.cast(e.operand(1, DType.UINT8), DType.INT32)
    exprs = [e.nearest(inside), e.cast(e.minimum(e.maximum(e.nearest(inside) + zero, 0), 255), DType.UINT8)]
    check(
        [
            *exprs,
            e.quotient(X, e.constant(3.0, DType.FLOAT), e.constant(1 / 3, DType.FLOAT)),
            e.fma(X, e.constant(1 / 3, DType.FLOAT), e.constant(0.7, DType.FLOAT)),
        ],
        [x, np.full(1, 7, np.uint8)],
    )


@pytest.mark.parametrize(
    "shapes",
    [((3, 5, 37), (37,)), ((3, 5, 37), (5, 1)), ((4, 1), (4, 33)), ((), ()), ((0, 3), (3,)), ((2, 3, 40, 7), (3, 1, 1)),
     ((20001,), (1,)), ((3, 17000), (3, 1)), ((130, 2, 70), (1, 2, 1))],
    ids=str,
)  # fmt: skip
def test_broadcasting_and_tasks(shapes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    check([e.maximum(X * Y + 0.5, 0.0)], arrays, 1e-6, 1e-6)


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=4), st.data())
def test_any_strides(shape: list[int], data: st.DataObject) -> None:
    rng = np.random.default_rng(sum(shape))
    permutation = data.draw(st.permutations(range(len(shape))))
    dense = rng.standard_normal([shape[axis] for axis in permutation]).astype(np.float32)
    source = dense.transpose(np.argsort(permutation))[..., :: data.draw(st.sampled_from([1, -1]))]
    output = np.zeros([2 * dim for dim in shape], np.float32)[tuple(slice(None, None, 2) for _ in shape)]
    for found in results(call_of([X + 1.0], [source], [output]), [source], [output]).values():
        np.testing.assert_array_equal(found[0], source + 1)


def test_coordinates_and_several_outputs() -> None:
    x = np.random.default_rng(0).standard_normal((3, 1, 50)).astype(np.float32)
    check([e.where(e.index(2) >= e.index(0), X, -1.0), e.index(0) * 100 + e.index(2) - e.index(1), X * 2.0], [x])


@pytest.mark.parametrize("rows", [1, 3, 700])
def test_open_sizes_are_arguments(rows: int) -> None:
    """One source serves all sizes that it leaves open."""
    batch, columns = variable("batch"), 33
    x = np.random.default_rng(0).standard_normal((rows, columns)).astype(np.float32)[:, ::-1]
    bias, output = np.arange(rows, dtype=np.float32)[:, None], np.zeros((rows, columns), np.float32)
    given = [
        StridedTensor(Buffer("x", "arena", batch * columns, DType.FLOAT), 0, (batch, columns), (columns, -1)),
        StridedTensor(Buffer("bias", "arena", batch, DType.FLOAT), 0, (batch, 1), (1, 1)),
    ]
    made = StridedTensor(Buffer("y", "arena", batch * columns, DType.FLOAT), 0, (batch, columns), (columns, 1))
    call = region_call([X * 2.0 + Y], given, [made], label="", origin=("node",), reason="")
    text = write(call).text
    assert "batch" in text.split("\n")[0] and "range(33)" in text and "pieces" not in text
    sizes = [rows if not isinstance(size, int) else size for size in call.sizes]
    for found in results(call, [x, bias], [output], sizes).values():
        np.testing.assert_array_equal(found[0], x * 2 + bias)


def test_a_source_reads_well() -> None:
    x, bias, y = np.zeros((2, 3, 4), np.float32), np.zeros(4, np.float32), np.zeros((2, 3, 4), np.float32)
    given = [tensor(x, "image"), tensor(bias, "layer.1/bias")]
    exprs = [e.maximum(X + Y, 0.0)]
    call = region_call(exprs, given, [tensor(y, "relu")], label="", origin=("add1", "relu1"), reason="")
    assert write(call, operators={"add1": "Add", "relu1": "Relu"}).text == (
        "def region_relu1(image_data, layer_1_bias_data, relu_data):\n"
        "    \"\"\"Add 'add1', Relu 'relu1': add, maximum.\n"
        "\n"
        "    image_data: float[2, 3, 4], strides [12, 4, 1]\n"
        "    layer_1_bias_data: float[2, 3, 4], strides [0, 0, 1]\n"
        "    relu_data: written, float[2, 3, 4], strides [12, 4, 1]\n"
        '    """\n'
        "    for i in range(6):\n"
        "        at_0 = i * 4\n"
        "        for j in range(4):\n"
        "            image = image_data[at_0 + j]\n"
        "            layer_1_bias = layer_1_bias_data[j]\n"
        "            relu = maximum(image + layer_1_bias, np.float32(0.0))\n"
        "            relu_data[at_0 + j] = relu\n"
    )


def test_equal_computations_have_equal_sources_to_compile() -> None:
    x = np.zeros((2, 3), np.float32)
    calls = [
        region_call([e.exp(X)], [tensor(x, name)], [tensor(x, name + "_out")], label="", origin=(name,), reason="")
        for name in ("first", "second")
    ]
    assert write(calls[0], named=False) == write(calls[1], named=False)
    assert write(calls[0]) != write(calls[1])


def test_what_has_no_source_is_named() -> None:
    linked = LinkedFunction("damped", (DType.FLOAT,), DType.FLOAT, "")
    x = np.zeros(3, np.float32)
    with pytest.raises(Uncovered, match="compiled function damped"):
        write(call_of([e.call(linked, X)], [x], [x]))

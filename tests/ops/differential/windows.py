"""Products, convolutions and pools."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.ops.differential.drawing import FLOATS, Draw, node
from tests.ops.harness import Case

LOOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-4}
JUDGED = dict.fromkeys(("AveragePool", "LpPool"), (FLOATS[0], *FLOATS[2:]))
"""Types of which onnxruntime has an operator whose reference fails."""
ROWS = (1, 2, 3, 6, 7, 8, 16, 17, 33)
EQUATIONS = (
    "ij,jk->ik",
    "bij,bjk->bik",
    "i,j->ij",
    "ii->i",
    "ij->j",
    "bhqd,bhkd->bhqk",
    "ij,ij",
    "...ij->...ji",
    "ijk,k->ij",
)


def matmul(d: Draw) -> Case:
    rows, inner, columns = (d.pick(ROWS) for _ in range(3))
    batch_a, batch_b = d.broadcast(2, 2)
    if np.prod((*batch_a, 1)) * np.prod((*batch_b, 1)) > 40:
        batch_a, batch_b = batch_a[:0], batch_b[:0]
    a = (inner,) if d.integer(0, 5) == 5 else (*batch_a, rows, inner)
    b = (inner,) if d.integer(0, 5) == 5 else (*batch_b, inner, columns)
    dtype = d.dtype("MatMul")
    return node("MatMul", d.array(a, dtype), d.array(b, dtype), constants=d.known(1), **LOOSE)


def gemm(d: Draw) -> Case:
    rows, inner, columns = (d.pick(ROWS) for _ in range(3))
    dtype, (at, bt) = d.dtype("Gemm"), (d.integer(0, 1), d.integer(0, 1))
    a = d.array((inner, rows) if at else (rows, inner), dtype)
    b = d.array((columns, inner) if bt else (inner, columns), dtype)
    added = d.pick(((), (columns,), (rows, 1), (1, columns), (rows, columns), None))
    c = None if added is None else d.array(added, dtype)
    whole = dtype not in FLOATS
    factors = {} if whole else {"alpha": d.pick((1.0, 0.5)), "beta": d.pick((1.0, 2.0))}
    # Rewritten into a product and a sum, each of which is rounded to half precision.
    tolerance = {"rtol": 1e-2, "atol": 0.1} if dtype.itemsize == 2 else LOOSE
    return node("Gemm", a, b, c, transA=at, transB=bt, **factors, constants=d.known(1), **tolerance)


def einsum(d: Draw) -> Case:
    equation, dtype = d.pick(EQUATIONS), d.dtype("Einsum", of=FLOATS)
    sizes = {letter: d.pick((1, 2, 3, 8, 17)) for letter in "bdhijkq"}
    terms = equation.split("->")[0].split(",")
    shapes = [(*((2, 3) if "..." in term else ()), *(sizes[c] for c in term if c.isalpha())) for term in terms]
    return node("Einsum", *(d.array(shape, dtype) for shape in shapes), equation=equation, **LOOSE)


def _windows(d: Draw, rank: int, transposed: bool = False) -> dict[str, Any]:
    """Kernel, strides, dilations and pads for that many spatial axes."""
    kernel = [d.pick((1, 2, 3, 5)) for _ in range(rank)]
    found: dict[str, Any] = {"kernel_shape": kernel, "strides": [d.integer(1, 3) for _ in range(rank)]}
    if d.flag():
        found["dilations"] = [d.integer(1, 2) for _ in range(rank)]
    way = d.integer(0, 3)
    if way == 1 and not transposed and "dilations" not in found:
        found["auto_pad"] = d.pick(("SAME_UPPER", "SAME_LOWER", "VALID"))
    elif way > 1:
        found["pads"] = [d.integer(0, (size - 1) // 2) for _ in range(2) for size in kernel]
    return found


def _sizes(d: Draw, windows: dict[str, Any]) -> list[int]:
    """Sizes of images in which there is a window."""
    dilations = windows.get("dilations", [1] * len(windows["kernel_shape"]))
    return [(k - 1) * step + 1 + d.integer(0, 7) for k, step in zip(windows["kernel_shape"], dilations, strict=True)]


def conv(d: Draw) -> Case:
    rank = d.pick((2, 1, 3))
    windows, groups = _windows(d, rank), d.pick((1, 1, 2, 4))
    of_group, outputs = d.pick((1, 2, 3, 8)), groups * d.pick((1, 2, 3, 8, 17))
    dtype = d.dtype("Conv")
    x = d.array((d.integer(1, 2), groups * of_group, *_sizes(d, windows)), dtype)
    w = d.array((outputs, of_group, *windows["kernel_shape"]), dtype)
    bias = d.array((outputs,), dtype) if d.flag() else None
    return node("Conv", x, w, bias, group=groups, **windows, constants=(1,), by_reference=False, **LOOSE)


def conv_transpose(d: Draw) -> Case:
    rank = d.pick((2, 1, 3))
    windows, groups = _windows(d, rank, transposed=True), d.pick((1, 1, 2))
    of_group, outputs = d.pick((1, 2, 3)), d.pick((1, 2, 5, 8))
    # Groups of doubles have no judge: onnxruntime lacks the type, onnx's reference takes all weights for each group.
    dtype = d.dtype("ConvTranspose") if groups == 1 else np.dtype(np.float32)
    x = d.array((d.integer(1, 2), groups * of_group, *(d.integer(2, 6) for _ in range(rank))), dtype)
    w = d.array((groups * of_group, outputs, *windows["kernel_shape"]), dtype)
    if d.flag():
        windows["output_padding"] = [d.integer(0, stride - 1) for stride in windows["strides"]]
    bias = d.array((groups * outputs,), dtype) if d.flag() else None
    return node("ConvTranspose", x, w, bias, group=groups, **windows, constants=(1,), by_reference=False, **LOOSE)


def pool(operator: str) -> Callable[[Draw], Case]:
    def drawn(d: Draw) -> Case:
        windows = _windows(d, d.pick((2, 1, 3)))
        x = d.array(
            (d.integer(1, 2), d.pick((1, 3, 16, 17)), *_sizes(d, windows)),
            d.dtype(operator, of=JUDGED.get(operator, FLOATS)),
        )
        if windows.get("auto_pad", "").startswith("SAME"):  # longer strides may take less than no padding: none, for us
            windows["strides"] = [min(pair) for pair in zip(windows["strides"], windows["kernel_shape"], strict=True)]
        if "auto_pad" not in windows:
            windows["ceil_mode"] = d.integer(0, 1)
        if operator == "AveragePool":
            windows["count_include_pad"] = d.integer(0, 1)
        if operator == "LpPool":
            windows["p"] = d.integer(1, 3)
        outputs = d.integer(1, 2) if operator == "MaxPool" else 1
        return node(operator, x, **windows, outputs=outputs, by_reference=False, **LOOSE)

    return drawn


def whole_pool(operator: str) -> Callable[[Draw], Case]:
    """Judged by NumPy: onnx's reference has one of the three right, and onnxruntime float32 alone."""

    def drawn(d: Draw) -> Case:
        sizes = [d.pick((1, 2, 3, 8)) for _ in range(d.integer(1, 3))]
        x = d.array((d.integer(1, 2), d.pick((1, 3, 16, 17)), *sizes), d.dtype(operator))
        wide, axes = x.astype(np.float64), tuple(range(2, x.ndim))
        options = {"p": d.integer(1, 3)} if operator == "GlobalLpPool" else {}
        if operator == "GlobalMaxPool":
            expected = wide.max(axes, keepdims=True)
        elif operator == "GlobalAveragePool":
            expected = wide.mean(axes, keepdims=True)
        else:
            expected = (abs(wide) ** options["p"]).sum(axes, keepdims=True) ** (1 / options["p"])
        return node(operator, x, **options, expected=expected.astype(x.dtype), **LOOSE)

    return drawn


def matmul_integer(d: Draw) -> Case:
    rows, inner, columns = (d.pick(ROWS) for _ in range(3))
    a = d.array((rows, inner), d.dtype("MatMulInteger"), edges=True, low=-128, high=255)
    b = d.array((inner, columns), d.dtype("MatMulInteger", 1), edges=True, low=-128, high=255)
    zeros = [d.array((), x.dtype, low=-9, high=9) if d.flag() else None for x in (a, b)]
    return node("MatMulInteger", a, b, *zeros, constants=d.known(1))


def conv_integer(d: Draw) -> Case:
    windows, groups = _windows(d, 2), d.pick((1, 2))
    x = d.array((1, groups * 3, *_sizes(d, windows)), np.uint8, edges=True, low=0, high=255)
    w = d.array((groups * d.pick((1, 5, 16)), 3, *windows["kernel_shape"]), np.uint8, low=0, high=255)
    zeros = [d.array((), np.uint8, low=0, high=255) if d.flag() else None for _ in range(2)]
    windows.pop("auto_pad", None)
    return node("ConvInteger", x, w, *zeros, group=groups, **windows, constants=(1,), by_reference=False)


def quantize(d: Draw) -> Case:
    x = d.array(d.shape(1, 3, empty=False), d.dtype("QuantizeLinear", of=(np.dtype(np.float32),))) * np.float32(20)
    wanted, axis = d.pick((np.uint8, np.int8, np.uint16, np.int16)), d.axis(x.ndim)
    shape = (x.shape[axis],) if d.flag() and x.shape[axis] > 1 else ()
    scale = (2.0 ** d.random.integers(-3, 3, shape)).astype(np.float32)
    zero = d.array(shape, wanted, low=-20, high=20) if d.flag() or wanted != np.uint8 else None
    return node("QuantizeLinear", x, np.asarray(scale), zero, axis=axis)


def dequantize(d: Draw) -> Case:
    x = d.array(d.shape(1, 3), d.pick((np.uint8, np.int8, np.uint16, np.int16, np.int32)), low=-128, high=127)
    axis = d.axis(x.ndim)
    shape = (x.shape[axis],) if d.flag() and x.shape[axis] > 1 else ()
    zero = d.array(shape, x.dtype, low=-20, high=20) if d.flag() and x.dtype != np.int32 else None
    return node("DequantizeLinear", x, abs(d.array(shape)) + np.float32(0.01), zero, axis=axis)


def dynamic_quantize(d: Draw) -> Case:
    return node("DynamicQuantizeLinear", d.array(d.shape(1, 3, empty=False)), outputs=3)


STRATEGIES: dict[tuple[str, str], Callable[[Draw], Case]] = {
    **{("", name): pool(name) for name in ("AveragePool", "LpPool", "MaxPool")},
    **{("", name): whole_pool(name) for name in ("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool")},
    ("", "Conv"): conv,
    ("", "ConvInteger"): conv_integer,
    ("", "ConvTranspose"): conv_transpose,
    ("", "DequantizeLinear"): dequantize,
    ("", "DynamicQuantizeLinear"): dynamic_quantize,
    ("", "Einsum"): einsum,
    ("", "Gemm"): gemm,
    ("", "MatMul"): matmul,
    ("", "MatMulInteger"): matmul_integer,
    ("", "QuantizeLinear"): quantize,
}

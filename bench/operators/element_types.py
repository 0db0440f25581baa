"""Cases of `bench.operators` of other element types than float32: what models of double, halves and integers do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bench.operators.elements import cast
from bench.operators.net import Build, Net, Shape, before_22

IMAGE, ROWS, TOKENS = (1, 128, 28, 28), (128, 1024), (1, 128, 768)


def _of(operator: str, dtype: str, *shapes: Shape, lists: Sequence[Sequence[int]] = (), **attributes: Any) -> Build:
    """An operator over inputs of this type, with constant int64 vectors behind them."""

    def build(net: Net) -> str:
        low, high = (0 if operator == "Sqrt" else -2, 2) if dtype.startswith("float") else (1, 100)
        inputs = [*(net.feed(shape, low, high, dtype) for shape in shapes), *(net.integers(*some) for some in lists)]
        return net.node(operator, *inputs, **attributes)

    return before_22(build)


def _normalized(dtype: str) -> Build:
    def build(net: Net) -> str:
        parameters = (net.constant(np.ones(768), dtype) for _ in range(2))
        return net.node("LayerNormalization", net.feed(TOKENS, -2, 2, dtype), *parameters, axis=-1)

    return build


def _gathered(operator: str, dtype: str, data: Shape, indices: Shape, axis: int = 0) -> Build:
    def build(net: Net) -> str:
        table = net.picked = net.feed(data, 0, 9, dtype)
        return net.node(operator, table, net.feed(indices, 0, data[axis], "int64"), axis=axis)

    return build


def _chosen(dtype: str) -> Build:
    return lambda net: net.node("Where", net.feed(IMAGE, 0, 2, "bool"), *(net.feed(IMAGE, 0, 9, dtype) for _ in "ab"))


def _compressed(dtype: str) -> Build:
    return lambda net: net.node("Compress", net.feed((1024, 256), 0, 9, dtype), net.feed((1024,), 0, 2, "bool"), axis=0)


def _doubled(dtype: str) -> Build:
    def build(net: Net) -> str:
        scales = net.constant([1, 1, 2, 2], "float32")
        where = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        return net.node("Resize", net.feed((1, 64, 28, 28), 0, 9, dtype), "", scales, mode="nearest", **where)

    return before_22(build)


def _largest(dtype: str) -> Build:
    def build(net: Net) -> list[str]:
        values = np.random.default_rng(1).permutation(8400)[None].astype(dtype)
        return net.nodes_outputs("TopK", 2, net.feed_array(values), net.integers(100))

    return build


TYPED: dict[str, Build] = {
    **{f"{name} float64": _of(name, "float64", IMAGE) for name in ("Sigmoid", "Exp", "Sqrt", "Floor")},
    **{f"{name} float16": _of(name, "float16", IMAGE) for name in ("Sigmoid", "Relu", "Gelu")},
    **{f"Add {dtype}": _of("Add", dtype, IMAGE, IMAGE) for dtype in ("float16", "int8")},
    "Div float64": _of("Div", "float64", IMAGE, IMAGE),
    "Min int64": _of("Min", "int64", IMAGE, IMAGE),
    "Less float64": _of("Less", "float64", IMAGE, IMAGE),
    "Where int64": _chosen("int64"),
    "Where uint8": _chosen("uint8"),
    **{f"Cast float64 to {to}": cast("float64", to, IMAGE) for to in ("float32", "int64", "int32", "uint8")},
    **{f"Cast {dtype} to float32": cast(dtype, "float32", IMAGE) for dtype in ("float64", "uint8", "int32")},
    "Cast int64 to int32": cast("int64", "int32", IMAGE),
    "Softmax float64": _of("Softmax", "float64", (1536, 128), axis=-1),
    "Softmax float16": _of("Softmax", "float16", (1536, 128), axis=-1),
    "LayerNormalization float64": _normalized("float64"),
    "LayerNormalization float16": _normalized("float16"),
    "ReduceSum int64, last axis": _of("ReduceSum", "int64", ROWS, lists=[[1]]),
    "ReduceMean float64, first axis": _of("ReduceMean", "float64", ROWS, lists=[[0]]),
    "ReduceMax uint8, last axis": _of("ReduceMax", "uint8", ROWS, lists=[[1]]),
    "ReduceMax int8, last axis": _of("ReduceMax", "int8", ROWS, lists=[[1]]),
    "ArgMax uint8": _of("ArgMax", "uint8", ROWS, axis=1),
    "CumSum int64": _of("CumSum", "int64", ROWS, lists=[[1]]),
    "Top 100 of 8400 int64": _largest("int64"),
    "Top 100 of 8400 float64": _largest("float64"),
    "MatMul int32 128x256x128": _of("MatMul", "int32", (128, 256), (256, 128)),
    "Gather float16, embedding": _gathered("Gather", "float16", (30522, 768), (1, 128)),
    "Gather uint8, short rows": _gathered("Gather", "uint8", (1000, 16), (4096,)),
    "GatherElements float16": _gathered("GatherElements", "float16", (256, 1024), (256, 1024), 1),
    "GatherElements int64": _gathered("GatherElements", "int64", (256, 1024), (256, 1024), 1),
    "Compress int64, rows": _compressed("int64"),
    "Compress uint8, rows": _compressed("uint8"),
    "Resize nearest uint8": _doubled("uint8"),
    "Resize nearest float16": _doubled("float16"),
    "Resize nearest int32": _doubled("int32"),
    "MaxPool uint8": _of("MaxPool", "uint8", (1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2]),
    "MaxPool float16": _of("MaxPool", "float16", (1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2]),
    "Transpose uint8, image to planes": _of("Transpose", "uint8", (1, 224, 224, 3), perm=[0, 3, 1, 2]),
    "Transpose float16 to heads": _of("Transpose", "float16", (1, 128, 12, 64), perm=[0, 2, 1, 3]),
    "Concat int64 of columns": _of("Concat", "int64", (128, 64), (128, 64), axis=1),
    "Pad uint8": _of("Pad", "uint8", (1, 64, 56, 56), lists=[[0, 0, 1, 1, 0, 0, 1, 1]]),
    "Tile int64": _of("Tile", "int64", (64, 256), lists=[[4, 2]]),
}
"""The family "types"."""

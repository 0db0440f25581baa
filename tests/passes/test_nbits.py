"""Products with weights dequantised by blocks, which become MatMulNBits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jitonnx.ops.onnx.matmul import Gemm, MatMul
from jitonnx.ops.onnx.quantization import DequantizeLinear
from jitonnx.ops.onnx.shape import Transpose
from tests.passes.graphs import Build, Value, normal, operators, rewritten

TYPES = {
    "uint4": (ml_dtypes.uint4, 0, 16),
    "int4": (ml_dtypes.int4, -8, 8),
    "uint8": (np.uint8, 0, 256),
    "int8": (np.int8, -128, 128),
    "uint2": (ml_dtypes.uint2, 0, 4),
    "int2": (ml_dtypes.int2, -2, 2),
}
K, N, BLOCK = 80, 12, 32


def weights(b: Build, kind: str, *, turned: bool = False, zeros: bool = False, **attributes: Any) -> Value:
    """[K, N], or [N, K] if `turned`."""
    dtype, low, high = TYPES[kind]
    random = np.random.default_rng(0)
    q = random.integers(low, high, (K, N)).astype(dtype)
    scales = random.uniform(0.01, 0.1, (-(-K // BLOCK), N)).astype(np.float32)
    given: list[np.ndarray] = [q, scales]
    if zeros:
        given.append(random.integers(low, high, scales.shape).astype(dtype))
    if turned:
        given = [np.ascontiguousarray(x.T) for x in given]
    return b.op(DequantizeLinear(**{"axis": int(turned), "block_size": BLOCK, **attributes}), *given)


@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("kind", TYPES)
def test_product(kind: str, zeros: bool) -> None:
    graph, _ = rewritten(lambda b: b.op(MatMul(), b.input(normal(3, K)), weights(b, kind, zeros=zeros)), rtol=1e-4)
    assert operators(graph) == {"MatMulNBits": 1}


def test_turned() -> None:
    def author(b: Build) -> Value:
        return b.op(MatMul(), b.input(normal(2, 3, K)), b.op(Transpose(perm=(1, 0)), weights(b, "int4", turned=True)))

    graph, _ = rewritten(author, rtol=1e-4)
    assert operators(graph) == {"MatMulNBits": 1}


@pytest.mark.parametrize("turned", [False, True])
def test_gemm(turned: bool) -> None:
    def author(b: Build) -> Value:
        return b.op(Gemm(transB=turned), b.input(normal(3, K)), weights(b, "uint4", turned=turned), normal(N))

    graph, _ = rewritten(author, rtol=1e-4)
    assert operators(graph) == {"MatMulNBits": 1, "Add": 1}


def test_not() -> None:
    """Blocks across the columns, and weights that a run gives."""

    def across(b: Build) -> Value:
        q = np.random.default_rng(0).integers(0, 16, (K, 64)).astype(ml_dtypes.uint4)
        scales = np.ones((K, 2), np.float32)
        return b.op(MatMul(), b.input(normal(3, K)), b.op(DequantizeLinear(axis=1, block_size=BLOCK), q, scales))

    def given(b: Build) -> Value:
        q = b.input(np.random.default_rng(0).integers(0, 256, (K, N)).astype(np.uint8))
        scales = np.ones((-(-K // BLOCK), N), np.float32)
        return b.op(MatMul(), b.input(normal(3, K)), b.op(DequantizeLinear(axis=0, block_size=BLOCK), q, scales))

    for author in (across, given):
        assert "MatMulNBits" not in operators(rewritten(author, rtol=1e-4)[0])

"""Products with weights whose elements lie at odd addresses, as in files."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx.ops.onnx import matmul
from jitonnx.ops.onnx.matmul import Gemm, MatMul, multiply


def unaligned(array: np.ndarray) -> np.ndarray:
    """A copy, in the same order in memory, one byte off."""
    turned = array.flags.f_contiguous and not array.flags.c_contiguous
    source = array.T if turned else array
    memory = np.empty(source.nbytes + 1, np.uint8)
    made = memory[1:].view(source.dtype).reshape(source.shape)
    made[...] = source
    assert not made.flags.aligned
    return made.T if turned else made


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("shape", [(1,), (3, 130), (2, 5, 130), (130,)])
def test_products_in_pieces(dtype: str, turned: bool, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "PIECE_BYTES", 1)  # pieces of 64 columns
    rng = np.random.default_rng(0)
    a = rng.integers(-8, 8, shape).astype(dtype)
    b = rng.integers(-8, 8, (150, shape[-1]) if turned else (shape[-1], 150)).astype(dtype)
    b = b.T if turned else b
    y = multiply(unaligned(a), unaligned(b))
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, a @ b)
    np.testing.assert_array_equal(MatMul().evaluate(a, unaligned(b)), a @ b)
    if a.ndim == 2:
        np.testing.assert_array_equal(Gemm(transB=True).evaluate(a, unaligned(b.T)), a @ b)


@pytest.mark.parametrize("shapes", [((3, 0), (0, 4)), ((3, 2), (2, 0)), ((0, 2), (2, 4)), ((2, 3, 4), (2, 4, 5))])
def test_products_that_need_no_pieces(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    a, b = (np.ones(shape, np.float32) for shape in shapes)
    np.testing.assert_array_equal(multiply(a, unaligned(b) if b.size else b), a @ b)

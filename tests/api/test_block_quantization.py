"""Weights in few bits: the bytes are onnxruntime's, padding and all."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
import pytest
from onnxruntime.capi import _pybind_state as theirs

from jitonnx import errors
from jitonnx.capi import _pybind_state as ours

SHAPES = [(32, 8), (33, 3), (100, 7), (7, 5), (64, 130)]
LEFT = 0xA5
"""What the arrays hold before: some bits are not written."""


def weights(rows: int, columns: int, kind: str, dtype: Any) -> np.ndarray:
    made = np.random.default_rng(rows).standard_normal((rows, columns)).astype(dtype)
    if kind == "zeros":
        made[:, ::3] = 0
    elif kind == "ties":
        made = np.round(made * 2)
    elif kind == "not finite":
        made[0, 0], made[-1, -1] = np.nan, np.inf
    elif kind == "small":
        made = (-np.abs(made) * 1e-6).astype(dtype)
    return made


KINDS = ["random", "zeros", "ties", "not finite", "small"]


def assert_alike(call: Any) -> None:
    for them, us in zip(call(theirs), call(ours), strict=True):
        np.testing.assert_array_equal(us, them)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_blocks_of_columns(bits: int, symmetric: bool, dtype: Any) -> None:
    for rows, columns in SHAPES:
        for kind in KINDS:
            for block in (16, 32):

                def call(
                    package: ModuleType, rows: int = rows, columns: int = columns, kind: str = kind, block: int = block
                ) -> list[Any]:
                    blocks = -(-rows // block)
                    packed = np.full((columns, blocks, block * bits // 8), LEFT, np.uint8)
                    scales = np.zeros((columns, blocks), dtype)
                    zeros = np.full((columns, -(-blocks * bits // 8)), LEFT, np.uint8)
                    function = getattr(package, f"quantize_matmul_{bits}bits")
                    given = weights(rows, columns, kind, dtype)
                    function(packed, given, scales, zeros, block, columns, rows, symmetric)
                    return [packed, scales, zeros]

                assert_alike(call)


@pytest.mark.parametrize("name", ["quantize_qdq_matmul_4bits", "quantize_qdq_matmul_2bits"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("symmetric", [False, True])
def test_rows(name: str, symmetric: bool, dtype: Any) -> None:
    for rows, columns in SHAPES:
        if "2bits" in name and columns % 2:  # onnxruntime 1.31 mixes elements of 2 and 4 bits
            continue
        for kind in KINDS:

            def call(package: ModuleType, rows: int = rows, columns: int = columns, kind: str = kind) -> list[Any]:
                blocks = -(-rows // 16)
                packed = np.full(-(-rows * columns // 2), LEFT, np.uint8)
                scales = np.zeros((blocks, columns), dtype)
                zeros = np.full(-(-blocks * columns // 2), LEFT, np.uint8)
                given = weights(rows, columns, kind, dtype)
                signed = getattr(package, name)(packed, given, scales, zeros, 16, columns, rows, symmetric)
                return [packed, scales, zeros, signed]

            assert_alike(call)


@pytest.mark.parametrize("quant_type", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_bnb4(quant_type: int, dtype: Any) -> None:
    for rows, columns in SHAPES:
        for kind in KINDS:

            def call(package: ModuleType, rows: int = rows, columns: int = columns, kind: str = kind) -> list[Any]:
                packed = np.full(-(-rows * columns // 2), LEFT, np.uint8)
                largest = np.zeros(-(-rows * columns // 64), dtype)
                given = weights(rows, columns, kind, dtype)
                package.quantize_matmul_bnb4(packed, given, largest, 64, quant_type, columns, rows)
                return [packed, largest]

            assert_alike(call)


def test_wide_weights_are_rounded_first() -> None:
    def call(package: ModuleType) -> list[Any]:
        packed, scales, zeros = np.zeros((8, 1, 16), np.uint8), np.zeros((8, 1), np.float32), np.zeros((8, 1), np.uint8)
        package.quantize_matmul_4bits(packed, weights(32, 8, "random", np.float64), scales, zeros, 32, 8, 32, False)
        return [packed, scales, zeros]

    assert_alike(call)


@pytest.mark.parametrize("package", [theirs, ours])
def test_unknown_blocks(package: ModuleType) -> None:
    arrays = np.zeros(99, np.uint8), np.ones((32, 4), np.float32), np.zeros(9, np.float32)
    with pytest.raises(RuntimeError, match="16, 32, 64, 128, 256 are supported"):
        package.quantize_matmul_4bits(*arrays, np.zeros(9, np.uint8), 17, 4, 32, False)
    with pytest.raises(RuntimeError, match="16, 32, 64, 128, 256 are supported"):
        package.quantize_matmul_bnb4(*arrays, 17, 1, 4, 32)


def test_arrays_that_would_not_do() -> None:
    """onnxruntime writes past their ends, or to copies."""
    source, scales = np.ones((32, 4), np.float32), np.zeros(4, np.float32)
    packed, zeros = np.zeros((4, 1, 16), np.uint8), np.zeros(4, np.uint8)
    for arrays in (
        (packed[:3], source, scales, zeros),
        (packed, source[:31], scales, zeros),
        (packed, source, scales[:3], zeros),
        (packed, source, scales, zeros[:3]),
        (packed.astype(np.int8), source, scales, zeros),
        (packed, source, scales.astype(np.float16), zeros),
    ):
        with pytest.raises(errors.InvalidArgument):
            ours.quantize_matmul_4bits(*arrays, 32, 4, 32, False)


def test_rows_behind_the_last() -> None:
    """onnxruntime's quantizer fills up the last block with rows of zeros, which are not counted."""

    def call(package: ModuleType) -> list[Any]:
        packed, scales, zeros = np.zeros((4, 2, 16), np.uint8), np.zeros((4, 2), np.float32), np.zeros((4, 1), np.uint8)
        given = np.pad(weights(52, 4, "random", np.float32), ((0, 12), (0, 0)))
        package.quantize_matmul_4bits(packed, given, scales, zeros, 32, 4, 52, False)
        return [packed, scales, zeros]

    assert_alike(call)

"""Weights of products in few bits, a scale a block: the functions that `onnxruntime.quantization` calls.

Each writes into arrays that the caller has made, the bits that onnxruntime's function of this name writes. A matrix of
weights has K rows and N columns, and `block` of a column's elements share a scale. "Symmetric": no zero points are
written, and the middle of the range stands for zero.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.errors import InvalidArgument

_BLOCKS = (16, 32, 64, 128, 256)
_FP4_ORDER = np.array([0, 1, 6, 7, 4, 5, 2, 3], np.uint8)
"""The codes of FP4's magnitudes, the least first."""
_FP4_BORDERS = np.array([0.00260417, 0.0859375, 0.20833333, 0.29166667, 0.4166667, 0.583333, 0.8333333], np.float32)
_NF4_BORDERS = np.array(
    [-0.8480964004993439, -0.6106329262256622, -0.4599952697753906, -0.33967943489551544, -0.23460740596055984,
     -0.13791173323988914, -0.045525018125772476, 0.03979014977812767, 0.1202552504837513, 0.2035212516784668,
     0.2920137718319893, 0.3893125355243683, 0.5016634166240692, 0.6427869200706482, 0.8614784181118011],
    np.float32,
)  # fmt: skip
_FP4, _NF4 = 0, 1
_INT32_LEAST = -(2**31)


def quantize_matmul_2bits(  # noqa: PLR0913  (onnxruntime's signature)
    dst: Any, src: Any, scales: Any, zero_points: Any, block: int, columns: int, rows: int, symmetric: bool
) -> None:
    """Weights [K, N] of float32 or float16 as the operator MatMulNBits reads them with bits=2.

    dst: uint8 [N, blocks, block * 2 / 8]; scales: of src's type, N * blocks of them; zero_points: uint8, four a byte, a
    column's in bytes of their own; not written if symmetric. InvalidArgument for other types, sizes and blocks.
    """
    _quantize(2, dst, src, scales, zero_points, block, columns, rows, symmetric)


def quantize_matmul_4bits(  # noqa: PLR0913  (onnxruntime's signature)
    dst: Any, src: Any, scales: Any, zero_points: Any, block: int, columns: int, rows: int, symmetric: bool
) -> None:
    """`quantize_matmul_2bits` for bits=4: two elements a byte."""
    _quantize(4, dst, src, scales, zero_points, block, columns, rows, symmetric)


def quantize_matmul_8bits(  # noqa: PLR0913  (onnxruntime's signature)
    dst: Any, src: Any, scales: Any, zero_points: Any, block: int, columns: int, rows: int, symmetric: bool
) -> None:
    """`quantize_matmul_2bits` for bits=8: an element a byte."""
    _quantize(8, dst, src, scales, zero_points, block, columns, rows, symmetric)


def quantize_qdq_matmul_4bits(  # noqa: PLR0913  (onnxruntime's signature)
    dst: Any, src: Any, scales: Any, zero_points: Any, block: int, columns: int, rows: int, symmetric: bool
) -> bool:
    """Weights [K, N] of float32 or float16 as DequantizeLinear of ONNX reads them along axis 0, in 4 bits.

    dst: uint8, two elements a byte, row after row without gaps; scales [blocks, N] of src's type; zero_points: likewise
    as dst. Whether the integers are signed is returned: those of symmetric ones are. InvalidArgument for other types
    and sizes.
    """
    if block < 1:
        raise InvalidArgument(f"a block of {block} elements is given; at least 1 is needed")
    weights = _source(src, scales, rows * columns).reshape(rows, columns)
    blocks = -(-rows // block)
    written = _target(dst, "dst", np.uint8, -(-rows * columns // 2))
    kept = _target(scales, "scales", weights.dtype, blocks * columns)
    padded = np.full((blocks * block, columns), np.nan, np.float32)  # which no minimum or maximum minds
    padded[:rows] = weights
    grouped = padded.reshape(blocks, block, columns)
    least, most = _extremes(grouped, axis=1)
    if symmetric:
        low, zeros = -8, np.zeros((blocks, columns), np.float32)
        found = _symmetric_scale(least, most, weights.dtype, 8)
    else:
        low = 0
        found, zeros = _scale_and_zero(least, most, weights.dtype, 15)
        packed = _target(zero_points, "zero_points", np.uint8, -(-blocks * columns // 2))
        _pack_into(packed, zeros.astype(np.uint8).ravel(), 4)
    kept[:] = found.ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        exact = _rounded(grouped * _reciprocal(found)[:, None, :])
        whole = np.where(np.abs(exact) < 2.0**31, exact, _INT32_LEAST).astype(np.int64)
    codes = np.clip(whole + zeros[:, None, :].astype(np.int64), low, low + 15).astype(np.int8)
    _pack_into(written, codes.reshape(-1, columns)[:rows].ravel().astype(np.uint8) & 15, 4)
    return bool(symmetric)


quantize_qdq_matmul_2bits = quantize_qdq_matmul_4bits
"""onnxruntime 1.31 writes 4 bits an element under this name too (and mixes both for odd columns), past the end of what
would do for 2; here arrays that are too small for that are refused."""


def quantize_matmul_bnb4(
    dst: Any, src: Any, largest: Any, block: int, quant_type: int, columns: int, rows: int
) -> None:
    """Weights of float32 or float16, in the order in which they lie, as the operator MatMulBnb4 reads them.

    dst: uint8, two elements a byte, the first in the high bits; largest: of src's type, each block's largest magnitude;
    quant_type: 0 for FP4, 1 for NF4. InvalidArgument for other types, sizes and blocks.
    """
    count, block = columns * rows, _checked_block(block)
    if quant_type not in (_FP4, _NF4):
        raise InvalidArgument(f"quant_type is {quant_type}; 0 (FP4) and 1 (NF4) there are")
    blocks = -(-count // block)
    weights = _source(src, largest, count)
    written = _target(dst, "dst", np.uint8, -(-count // 2))
    kept = _target(largest, "absmax", weights.dtype, blocks)
    padded = np.zeros(blocks * block, np.float32)
    padded[:count] = weights
    grouped = padded.reshape(blocks, block)
    magnitude = np.fmax.reduce(np.abs(grouped), axis=1, initial=np.float32(0))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        factor = np.where(magnitude != 0, np.float32(1) / magnitude, np.float32(0))
        scaled = grouped * factor[:, None]
        kept[:] = magnitude.astype(weights.dtype)
    if quant_type == _NF4:
        codes = np.searchsorted(_NF4_BORDERS, scaled.ravel(), side="left").astype(np.uint8)
        codes[np.isnan(scaled.ravel())] = 0
    else:
        size = np.abs(scaled.ravel())
        place = np.searchsorted(_FP4_BORDERS, size, side="left")
        codes = _FP4_ORDER[np.where(np.isnan(size), 0, place)] + np.where(scaled.ravel() < 0, 8, 0).astype(np.uint8)
    pairs = codes.reshape(-1, 2)
    written[:] = (pairs[:, 0] << 4 | pairs[:, 1])[: written.size]


def pack_fp4_weights_for_cuda_moe_gemm(q_weights: Any, N: int, K: int) -> np.ndarray:
    """uint8 [N, K / 2] of two 4-bit elements a byte as the transposed [K, N / 2], flat.

    InvalidArgument for sizes that are odd or not those of the weights.
    """
    if N % 2 or K % 2 or np.size(q_weights) != N * K // 2:
        raise InvalidArgument(f"N={N} and K={K} must be even, and q_weights have N * K / 2 bytes")
    elements = _unpacked(np.ascontiguousarray(q_weights, np.uint8).reshape(N, K // 2), 4)
    return _packed(np.ascontiguousarray(elements.T).ravel(), 4)


def _quantize(  # noqa: PLR0913  (onnxruntime's signature)
    bits: int, dst: Any, src: Any, scales: Any, zero_points: Any, block: int, columns: int, rows: int, symmetric: bool
) -> None:
    """Columns one after the other, each in bytes of its own."""
    block, in_byte = _checked_block(block), 8 // bits
    blocks = -(-rows // block)
    weights = _source(src, scales, rows * columns).reshape(rows, columns)
    stride = blocks * block // in_byte
    written = _target(dst, "dst", np.uint8, columns * stride)
    kept = _target(scales, "scales", weights.dtype, columns * blocks)
    padded = np.full((columns, blocks * block), np.nan, np.float32)  # which no minimum or maximum minds
    padded[:, :rows] = weights.T
    grouped = padded.reshape(columns, blocks, block)
    least, most = _extremes(grouped, axis=2)
    if symmetric:
        found = _symmetric_scale(least, most, weights.dtype, 1 << bits - 1)
        zeros = np.full((columns, blocks), 1 << bits - 1, np.float32)
    else:
        found, zeros = _scale_and_zero(least, most, weights.dtype, (1 << bits) - 1)
        row = -(-blocks // in_byte)
        codes = np.zeros((columns, row * in_byte), np.uint8)
        codes[:, blocks:] = 1 << bits - 1  # as onnxruntime fills a last byte
        codes[:, :blocks] = zeros
        _target(zero_points, "zero_points", np.uint8, columns * row)[:] = _packed(codes.ravel(), bits)
    kept[:] = found.ravel()
    with np.errstate(over="ignore", invalid="ignore"):
        exact = _rounded(grouped * _reciprocal(found)[:, :, None] + zeros[:, :, None])
    codes = np.nan_to_num(np.clip(exact, 0, (1 << bits) - 1)).astype(np.uint8).reshape(columns, -1)
    used = -(-rows // in_byte)
    _fill_last_byte(codes, rows, in_byte, in_byte * block)
    target = written.reshape(columns, stride)
    target[:, :used] = _packed(codes[:, : used * in_byte].ravel(), bits).reshape(columns, used)


def _fill_last_byte(codes: np.ndarray, rows: int, in_byte: int, together: int) -> None:
    """Gives the bits behind rows that end inside a byte those of the byte before, if the same thread wrote that."""
    for place in range(rows, -(-rows // in_byte) * in_byte):
        codes[:, place] = codes[:, place - in_byte] if place % together >= in_byte else 0


def _checked_block(block: int) -> int:
    if block not in _BLOCKS:
        raise InvalidArgument(f"only block sizes {', '.join(map(str, _BLOCKS))} are supported; {block} is given")
    return block


def _source(src: Any, scales: Any, count: int) -> np.ndarray:
    """The first `count` weights, flat: of float16 where the scales are, too, else as float32. There may be more, as
    onnxruntime's quantizer fills up the last block with rows of zeros. InvalidArgument for fewer."""
    given = np.asarray(src)
    if given.size < count:
        raise InvalidArgument(f"src has {given.size} elements, and K * N are {count}")
    half = given.dtype == np.float16 and getattr(scales, "dtype", None) == np.float16
    return np.ascontiguousarray(given, np.float16 if half else np.float32).ravel()[:count]


def _target(given: Any, name: str, dtype: Any, least: int) -> np.ndarray:
    """The first `least` elements of an array to write to, flat. InvalidArgument for what cannot be written so."""
    if not isinstance(given, np.ndarray) or given.dtype != dtype:
        raise InvalidArgument(f"{name} must be an array of {np.dtype(dtype)}, not {_told(given)}")
    if given.size < least or not given.flags.c_contiguous or not given.flags.writeable:
        raise InvalidArgument(
            f"{name} must be C-contiguous, writeable and have {least} elements; its shape is {given.shape}"
        )
    return given.reshape(-1)[:least]


def _told(given: Any) -> str:
    return f"of {given.dtype}" if isinstance(given, np.ndarray) else type(given).__name__


def _extremes(grouped: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """The least and the largest of each block. NaN counts for nothing."""
    largest = np.finfo(np.float32).max
    least = np.fmin.reduce(grouped, axis=axis, initial=largest)
    return least, np.fmax.reduce(grouped, axis=axis, initial=-largest)


def _symmetric_scale(least: np.ndarray, most: np.ndarray, dtype: Any, half: int) -> np.ndarray:
    """The larger half of the range goes to the negative integers, of which there is one more."""
    with np.errstate(over="ignore"):
        return (-np.where(np.abs(most) > np.abs(least), most, least) / np.float32(half)).astype(dtype)


def _scale_and_zero(least: np.ndarray, most: np.ndarray, dtype: Any, high: int) -> tuple[np.ndarray, np.ndarray]:
    least, most = np.minimum(least, np.float32(0)), np.maximum(most, np.float32(0))
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = (most - least) / np.float32(high)
        zero = np.where(scale != 0, -(least / scale), least)
        return scale.astype(dtype), _rounded(np.clip(zero, 0, high))


def _reciprocal(scale: np.ndarray) -> np.ndarray:
    wide = scale.astype(np.float32)
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(wide != 0, np.float32(1) / wide, np.float32(0))


def _rounded(values: np.ndarray) -> np.ndarray:
    """The nearest whole numbers, halves away from zero."""
    whole: np.ndarray = np.trunc(values)
    away = np.abs(values - whole) >= 0.5
    whole[away] += np.copysign(np.float32(1), values[away])
    return whole


def _packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Elements in bytes, the first in the lowest bits; as many as fill them."""
    in_byte = 8 // bits
    grouped = codes.reshape(-1, in_byte)
    shifts = np.arange(in_byte, dtype=np.uint8) * np.uint8(bits)
    packed: np.ndarray = np.bitwise_or.reduce(grouped << shifts, axis=1)
    return packed.astype(np.uint8)


def _unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """The elements along the last axis."""
    shifts = np.arange(8 // bits, dtype=np.uint8) * np.uint8(bits)
    wide: np.ndarray = packed[..., None] >> shifts & np.uint8((1 << bits) - 1)
    return wide.reshape(*packed.shape[:-1], -1)


def _pack_into(target: np.ndarray, codes: np.ndarray, bits: int) -> None:
    """Elements in bytes; the bits of the last byte that none fills stay."""
    in_byte = 8 // bits
    whole, rest = divmod(codes.size, in_byte)
    target[:whole] = _packed(codes[: whole * in_byte], bits)
    if rest:
        kept = int(target[whole]) >> rest * bits << rest * bits
        target[whole] = kept | int(_packed(np.append(codes[-rest:], np.zeros(in_byte - rest, np.uint8)), bits)[0])

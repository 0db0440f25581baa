"""MurmurHash3 of each element, as feature hashers of scikit-learn have it."""

from __future__ import annotations

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import Operator
from jitonnx.ir.types import TensorType
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed
from jitonnx.ops.onnx.arithmetic import Add, BitShift, Mul
from jitonnx.ops.onnx.cast import BitCast
from jitonnx.ops.onnx.logic import BitwiseOr, BitwiseXor
from jitonnx.ops.parts import as_type, scalar

FIRST, SECOND, SUMMAND = 0xCC9E2D51, 0x1B873593, 0xE6546B64
LAST = ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, None))
"""The shifts and factors of a hash at its end, in order: bits, and a factor or None."""


class MurmurHash3(Contributed):
    """MurmurHash3_x86_32 of each element's bytes, of strings their UTF-8: uint32, or int32 unless `positive`."""

    positive: bool = True
    seed: int = 0

    def compose(self, parts: Parts, x: Value) -> Value:
        seed = self.seed & 0xFFFFFFFF
        hashed = parts.add(_OfStrings(seed=seed), x) if x.dtype is DType.STRING else self._of_numbers(parts, x, seed)
        return hashed if self.positive else parts.add(BitCast(to=int(DType.INT32)), hashed)

    def _of_numbers(self, parts: Parts, x: Value, seed: int) -> Value:
        size = x.dtype.itemsize
        assert size is not None
        bits = DType.UINT64 if size == 8 else DType.UINT32
        whole = x if x.dtype is bits else parts.add(BitCast(to=int(bits)), x)
        blocks = [whole] if size == 4 else [whole, self._shifted(parts, whole, "RIGHT", 32)]
        hashed: Value | None = None
        for block in blocks:
            word = parts.add(Mul(), as_type(parts, block, DType.UINT32), parts.constant(np.uint32(FIRST)))
            word = parts.add(Mul(), self._rotated(parts, word, 15), parts.constant(np.uint32(SECOND)))
            before = parts.constant(np.uint32(seed)) if hashed is None else hashed
            turned = self._rotated(parts, parts.add(BitwiseXor(), before, word), 13)
            product = parts.add(Mul(), turned, scalar(parts, 5, turned))
            hashed = parts.add(Add(), product, parts.constant(np.uint32(SUMMAND)))
        assert hashed is not None
        hashed = parts.add(BitwiseXor(), hashed, scalar(parts, size, hashed))
        for bits_down, factor in LAST:
            hashed = parts.add(BitwiseXor(), hashed, self._shifted(parts, hashed, "RIGHT", bits_down))
            if factor is not None:
                hashed = parts.add(Mul(), hashed, parts.constant(np.uint32(factor)))
        return hashed

    def _shifted(self, parts: Parts, x: Value, direction: str, by: int) -> Value:
        return parts.add(BitShift(direction=direction), x, scalar(parts, by, x))

    def _rotated(self, parts: Parts, x: Value, by: int) -> Value:
        return parts.add(BitwiseOr(), self._shifted(parts, x, "LEFT", by), self._shifted(parts, x, "RIGHT", 32 - by))


class _OfStrings(Operator):
    """The hashes of strings, uint32."""

    domain = "jitonnx"

    seed: int

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        return TensorType(DType.UINT32, x.shape)

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        hashes = [hash_of(text.encode(), self.seed) for text in x.ravel().tolist()]
        return np.array(hashes, np.uint32).reshape(x.shape)


def hash_of(data: bytes, seed: int) -> int:
    """MurmurHash3_x86_32 (Austin Appleby's) of bytes."""
    hashed, whole = seed, len(data) & ~3
    for at in range(0, len(data), 4):
        word = int.from_bytes(data[at : at + 4], "little") * FIRST & 0xFFFFFFFF
        hashed ^= _rotated(word, 15) * SECOND & 0xFFFFFFFF
        if at < whole:
            hashed = _rotated(hashed, 13) * 5 + SUMMAND & 0xFFFFFFFF
    hashed ^= len(data)
    for bits, factor in LAST:
        hashed ^= hashed >> bits
        hashed = hashed if factor is None else hashed * factor & 0xFFFFFFFF
    return hashed


def _rotated(word: int, by: int) -> int:
    return (word << by | word >> 32 - by) & 0xFFFFFFFF

"""Rows of a table whose elements lie in blocks of bytes, as ggml's formats have them (files of GGUF)."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.operator import InferenceError
from jitonnx.ops.composite import Parts
from jitonnx.ops.microsoft.base import Contributed
from jitonnx.ops.onnx.arithmetic import Add, BitShift, Mul, Sub
from jitonnx.ops.onnx.cast import BitCast
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.logic import And, BitwiseAnd, GreaterOrEqual, Less, Where
from jitonnx.ops.onnx.shape import Reshape, Shape
from jitonnx.ops.parts import as_type, numbers
from jitonnx.support.records import NamedTuple


class _Field(NamedTuple):
    """Bits of a block that are a part of a number for each element: ((byte >> shift) & mask) * weight. Arrays of
    integers, one for each element, or one for all."""

    byte: Any
    shift: Any = 0
    mask: Any = 255
    weight: int = 1


class _Blocks(NamedTuple):
    """A format: an element is d * scale * (number - zero) - dmin * least, or that of its number in a codebook.

    elements, bytes: of a block. d, dmin: where these numbers of float16 begin. number, scale, least: fields whose sum
    it is; without, a scale is 1.
    """

    elements: int
    bytes: int
    number: tuple[_Field, ...]
    zero: int = 0
    d: int = 0
    scale: tuple[_Field, ...] = ()
    scale_zero: int = 0
    dmin: int | None = None
    least: tuple[_Field, ...] = ()
    codebook: tuple[int, ...] = ()


def _signed(byte: Any) -> tuple[_Field, ...]:
    """An int8."""
    return _Field(byte, 0, 127), _Field(byte, 7, 1, -128)


def _of_5_bits() -> _Blocks:
    """Q5_K: blocks of 8 times 32, whose 8 scales and 8 least values have 6 bits, the first 4 whole, of the others the
    highest bits beside these."""
    e, b = np.arange(256), np.arange(256) // 32
    first, rest = b < 4, np.maximum(b - 4, 0)
    return _Blocks(
        elements=256,
        bytes=176,
        dmin=2,
        number=(_Field(48 + 32 * (e // 64) + e % 32, 4 * (e % 64 // 32), 15), _Field(16 + e % 32, b, 1, 16)),
        scale=(
            _Field(np.where(first, 4 + b, 12 + rest), 0, np.where(first, 63, 15)),
            _Field(4 + rest, 6, np.where(first, 0, 3), 16),
        ),
        least=(
            _Field(np.where(first, 8 + b, 12 + rest), np.where(first, 0, 4), np.where(first, 63, 15)),
            _Field(8 + rest, 6, np.where(first, 0, 3), 16),
        ),
    )


def _formats() -> dict[int, _Blocks]:
    """The formats by ggml's numbers of types."""
    e = np.arange(256)
    half = e[:32]  # of a block of 32: 16 bytes, the low halves of all before the high ones
    nibble = _Field(2 + half % 16, 4 * (half // 16), 15)
    codebook = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
    b = e // 32
    return {
        2: _Blocks(32, 18, (nibble,), zero=8),  # Q4_0
        6: _Blocks(  # Q5_0
            32, 22, (_Field(6 + half % 16, 4 * (half // 16), 15), _Field(2 + half // 8, half % 8, 1, 16)), zero=16
        ),
        8: _Blocks(32, 34, _signed(2 + half)),  # Q8_0
        13: _of_5_bits(),
        14: _Blocks(  # Q6_K
            elements=256,
            bytes=210,
            zero=32,
            d=208,
            scale=_signed(192 + e // 16),
            number=(
                _Field(64 * (e // 128) + e % 64, 4 * (e % 128 // 64), 15),
                _Field(128 + 32 * (e // 128) + e % 32, 2 * (e % 128 // 32), 3, 16),
            ),
        ),
        20: _Blocks(32, 18, (nibble,), codebook=codebook),  # IQ4_NL
        23: _Blocks(  # IQ4_XS
            elements=256,
            bytes=136,
            codebook=codebook,
            scale_zero=32,
            number=(_Field(8 + 16 * b + e % 16, 4 * (e % 32 // 16), 15),),
            scale=(_Field(4 + b // 2, 4 * (b % 2), 15), _Field(2 + b // 4, 2 * (b % 4), 3, 16)),
        ),
        42: _Blocks(64, 18, (_Field(2 + e[:64] // 4, 2 * (e[:64] % 4), 3),), zero=1),  # Q2_0
    }


PLAIN = {0: DType.FLOAT, 1: DType.FLOAT16, 30: DType.BFLOAT16}
"""The formats whose elements are numbers as they are."""
CODEBOOKS = {16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 22: "IQ2_S"}
"""Formats whose elements ggml's own tables of up to 1,024 groups tell."""


class GatherPacked(Contributed):
    """Rows of data [rows, bytes] at indices of any rank, decoded: [..., K]; row 0 where there is no such row.

    packed_type: ggml's number of the format. output_dtype: the element type that comes out, by ONNX's number.
    """

    K: int
    output_dtype: int = int(DType.BFLOAT16)
    packed_type: int

    def compose(self, parts: Parts, data: Value, indices: Value) -> Value:
        if self.packed_type in CODEBOOKS:
            raise InferenceError(
                f"packed_type is {self.packed_type}, {CODEBOOKS[self.packed_type]}: formats with ggml's tables of "
                "groups are not supported; export the table in another, as Q4_0 (2) or Q6_K (14)"
            )
        formats = _formats()
        if self.packed_type not in (*PLAIN, *formats):
            known = ", ".join(map(str, sorted((*PLAIN, *formats))))
            raise InferenceError(f"packed_type is {self.packed_type}; one of {known} is needed")
        if self.output_dtype not in map(int, PLAIN.values()):
            raise InferenceError(f"output_dtype is {self.output_dtype}: float, float16 and bfloat16 are supported")
        elements, size = 1, 0
        if self.packed_type in PLAIN:
            size = PLAIN[self.packed_type].numpy.itemsize
        else:
            elements, size = formats[self.packed_type][:2]
        if self.K < 1 or self.K % elements:
            raise InferenceError(f"K is {self.K}; a positive multiple of {elements}, the format's block, is needed")
        width = self.K // elements * size
        if len(data.shape) != 2 or not parts.context.demand_equal(data.shape[1], width):
            raise InferenceError(f"data is {data.type}; [rows, {width}] is needed for {self.K} elements a row")
        rows = parts.add(Gather(), data, self._there(parts, data, indices))
        apart = parts.add(Concat(axis=0), parts.add(Shape(), indices), numbers(parts, self.K // elements, size))
        blocks = parts.add(Reshape(), rows, apart)
        if self.packed_type in PLAIN:
            y = _joined(parts, blocks, 0, PLAIN[self.packed_type])
        else:
            y = _decoded(parts, blocks, formats[self.packed_type])
        shape = parts.add(Concat(axis=0), parts.add(Shape(), indices), numbers(parts, self.K))
        return as_type(parts, parts.add(Reshape(), y, shape), DType(self.output_dtype))

    def _there(self, parts: Parts, data: Value, indices: Value) -> Value:
        places = as_type(parts, indices, DType.INT64)
        zero = parts.constant(np.int64(0))
        inside = parts.add(
            And(), parts.add(GreaterOrEqual(), places, zero), parts.add(Less(), places, parts.add(Shape(end=1), data))
        )
        return parts.add(Where(), inside, places, zero)


def _joined(parts: Parts, blocks: Value, first: int, dtype: DType) -> Value:
    """The number [...] that the bytes from `first` on of blocks [..., bytes] are, the lowest first."""
    size = dtype.numpy.itemsize
    whole = DType.UINT16 if size == 2 else DType.UINT32
    total = None
    for place in range(size):
        byte = as_type(parts, parts.add(Gather(axis=-1), blocks, parts.constant(np.int64(first + place))), whole)
        part = parts.add(Mul(), byte, parts.constant(whole.numpy.type(1 << (8 * place))))
        total = part if total is None else parts.add(Add(), total, part)
    assert total is not None
    return parts.add(BitCast(to=int(dtype)), total)


def _number(parts: Parts, blocks: Value, fields: tuple[_Field, ...], elements: int) -> Value:
    """What fields make for each element, int32 [..., elements]."""
    total = None
    for field in fields:
        byte, shift, mask = (np.broadcast_to(np.asarray(each), (elements,)) for each in field[:3])
        bits = parts.add(Gather(axis=-1), blocks, parts.constant(byte.astype(np.int64)))
        bits = parts.add(BitShift(direction="RIGHT"), bits, parts.constant(shift.astype(np.uint8)))
        bits = as_type(parts, parts.add(BitwiseAnd(), bits, parts.constant(mask.astype(np.uint8))), DType.INT32)
        part = bits if field.weight == 1 else parts.add(Mul(), bits, parts.constant(np.int32(field.weight)))
        total = part if total is None else parts.add(Add(), total, part)
    assert total is not None
    return total


def _decoded(parts: Parts, blocks: Value, form: _Blocks) -> Value:
    """The elements of blocks [..., bytes], float32 [..., elements]."""

    def single(first: int) -> Value:
        number = as_type(parts, _joined(parts, blocks, first, DType.FLOAT16), DType.FLOAT)
        return parts.add(
            Reshape(), number, parts.add(Concat(axis=0), parts.add(Shape(end=-1), blocks), numbers(parts, 1))
        )

    def plain(fields: tuple[_Field, ...], zero: int) -> Value:
        number = _number(parts, blocks, fields, form.elements)
        moved = number if zero == 0 else parts.add(Sub(), number, parts.constant(np.int32(zero)))
        return as_type(parts, moved, DType.FLOAT)

    number: Value
    if form.codebook:
        places = _number(parts, blocks, form.number, form.elements)
        number = parts.add(Gather(), parts.constant(np.array(form.codebook, np.float32)), places)
    else:
        number = plain(form.number, form.zero)
    factor = single(form.d)
    if form.scale:
        factor = parts.add(Mul(), factor, plain(form.scale, form.scale_zero))
    y = parts.add(Mul(), factor, number)
    if form.dmin is None:
        return y
    return parts.add(Sub(), y, parts.add(Mul(), single(form.dmin), plain(form.least, 0)))

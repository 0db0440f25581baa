"""The kernels of NonZero and Compress."""

from __future__ import annotations

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, smaller
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.compaction.spec import (
    CompressBuffers,
    CompressSizes,
    CompressSpec,
    NonZeroBuffers,
    NonZeroSizes,
    NonZeroSpec,
)
from jitonnx.kernels.parts.indices import WORDS
from jitonnx.kernels.parts.masks import each_mask, ones, places_of
from jitonnx.kernels.parts.memory import copy_bytes


def build(spec: NonZeroSpec | CompressSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of 4 * lanes bytes."""
    if isinstance(spec, CompressSpec):
        return lambda code, begin, end: _compress(code, spec, 4 * lanes)
    return lambda code, begin, end: _non_zero(code, spec, 4 * lanes // spec.itemsize)


def _non_zero(code: KernelBuilder, spec: NonZeroSpec, lanes: int) -> None:
    word = WORDS[spec.itemsize]
    x, out, result = code.buffers(NonZeroBuffers, types.int64, x=word)
    extents = code.sizes(NonZeroSizes).extents[: spec.rank]
    elements = extents[0]
    for extent in extents[1:]:
        elements = elements * extent
    value = (1 << (8 * spec.itemsize)) - 1 >> spec.floating

    def chosen(at: SSAValue, lanes: int | None) -> SSAValue:
        return (x.load(at, lanes) & value).differs(0)

    count = code.variable(code.integer(0))
    each_mask(code, elements, lanes, chosen, lambda first, mask: count.set(count.get() + ones(mask)))
    total = count.get()
    result.store(0, total)
    with code.if_then(total > 0):
        places = out.at(total * (spec.rank - 1))
        places_of(code, elements, lanes, chosen, places)
        with code.loop(total if spec.rank > 1 else 0) as number:
            rest = places.load(number)
            for axis in range(spec.rank - 1, 0, -1):
                outer = rest / extents[axis]
                out.store(total * axis + number, rest - outer * extents[axis])
                rest = outer
            out.store(number, rest)


def _compress(code: KernelBuilder, spec: CompressSpec, vector_bytes: int) -> None:
    outer, length, run, conditions = code.sizes(CompressSizes)
    word = WORDS[spec.piece or 1]
    x, condition, out, result = code.buffers(CompressBuffers, word, condition=types.uint8, count=types.int64)
    places = code.scratch(types.int64)
    considered = smaller(length, conditions)

    def chosen(at: SSAValue, lanes: int | None) -> SSAValue:
        return condition.load(at, lanes).differs(0)

    total = places_of(code, considered, vector_bytes, chosen, places)
    result.store(0, total)
    with code.loop(outer) as o, code.loop(total) as k:
        source, target = o * length + places.load(k), o * total + k
        if spec.piece:
            out.store(target, x.load(source))
        else:
            copy_bytes(code, out.at(target * run), x.at(source * run), run, vector_bytes)

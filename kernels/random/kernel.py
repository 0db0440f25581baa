"""The kernels of random numbers."""

from __future__ import annotations

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, smaller
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue, at_most, bits, from_bits, select, sqrt, to_float
from jitonnx.kernels.random.spec import (
    NextBuffers,
    NextSpec,
    RandomBuffers,
    RandomSizes,
    RandomSpec,
    SearchBuffers,
    SearchSizes,
    SearchSpec,
)
from jitonnx.support import philox


def build(spec: NextSpec | RandomSpec | SearchSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    if isinstance(spec, NextSpec):
        return _next
    if isinstance(spec, SearchSpec):
        return lambda code, begin, end: _search(code, spec, begin, end)
    width = min(lanes, philox.LANES)
    return lambda code, begin, end: _draw(code, spec, width, begin, end)


def _next(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
    state, drawn = code.buffers(NextBuffers, types.int64)
    number = code.builder.atomic_rmw("add", state.at(1).value, code.integer(1).value, "monotonic")
    drawn.store(0, state.load(0))
    drawn.store(1, code.integer(number))


def _draw(code: KernelBuilder, spec: RandomSpec, width: int, begin: SSAValue, end: SSAValue) -> None:
    element = getattr(types, spec.element)
    wide = element is types.float64
    each = philox.WORDS // 2 if wide else philox.WORDS
    distribution = philox.normal if spec.kind == "normal" else philox.uniform
    drawn, limits, y = code.buffers(RandomBuffers, element, drawn=types.int64)
    count = code.sizes(RandomSizes).count

    def halves(word: SSAValue) -> list[SSAValue]:
        return [convert(part, types.uint64).splat(width) for part in (word, word >> 32)]

    key, number = halves(drawn.load(0)), halves(drawn.load(1))
    factor, term, most = (limits.load(at).splat(width) for at in range(3))
    last = smaller(end * spec.task_elements, count)
    with code.loop(last, begin * spec.task_elements, each) as first:
        counter = first / each * philox.LANES
        low, high = halves(counter)
        for part in range(0, philox.LANES, width):
            place = low + convert(code.iota(width), types.uint64) + part
            four = philox.words(_ON_VECTORS, key, (place, high, *number))
            for at, numbers in enumerate(distribution(_ON_VECTORS, four, wide=wide)):
                begun = first + (at * philox.LANES + part)
                y.store(begun, at_most(numbers * factor + term, most), last - begun)


def _search(code: KernelBuilder, spec: SearchSpec, begin: SSAValue, end: SSAValue) -> None:
    """Halves: of the sums from `first` on, `left` are not told yet from what is searched."""
    sums, x, y = code.buffers(SearchBuffers, types.float64, y=getattr(types, spec.index))
    rows, length, columns, piece = code.sizes(SearchSizes)
    with code.loop(smaller(end * piece, rows * columns), begin * piece) as at:
        row, wanted = sums.at(at / columns * length), x.load(at)
        first, left = code.variable(code.integer(0)), code.variable(length)
        with code.loop_while(lambda: left.get() > 0):
            half = left.get() >> 1
            below = row.load(first.get() + half) <= wanted
            left.set(select(below, left.get() - half - 1, half))
            first.set(select(below, first.get() + half + 1, first.get()))
        y.store(at, convert(first.get(), y.element))


class _OnVectors:
    """The arithmetic of vectors in code. Until they are done, words lie in 64 bits, of which the upper half is any:
    a product of 32 bits by 32, for which CPUs have an instruction, is all of it then."""

    @staticmethod
    def product(word: SSAValue, factor: int) -> tuple[SSAValue, SSAValue]:
        whole = (word & 0xFFFFFFFF) * factor
        return whole >> 32, whole

    @staticmethod
    def word(word: SSAValue) -> SSAValue:
        return convert(word, types.uint32)

    @staticmethod
    def single(word: SSAValue) -> SSAValue:
        return convert(word, types.float32)

    @staticmethod
    def signed(word: SSAValue, *, wide: bool) -> SSAValue:
        return convert(convert(word, types.int32), types.float64 if wide else types.float32)

    bits = staticmethod(bits)
    from_bits = staticmethod(from_bits)
    to_float = staticmethod(to_float)
    sqrt = staticmethod(sqrt)
    choose = staticmethod(select)

    @staticmethod
    def equals(a: SSAValue, b: int) -> SSAValue:
        return a.equals(b)


_ON_VECTORS = _OnVectors()

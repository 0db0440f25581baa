"""The transposing copy: two inner axes by runs, by square tiles in registers or by elements, in blocks a task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.ir as ir
from numba import types

from jitonnx.kernels.code import Code, Pointer, emitted, remainder, smaller
from jitonnx.kernels.memory import copy_bytes
from jitonnx.kernels.trace import Traced
from jitonnx.kernels.transpose.spec import COPY, TILES, TransposeSpec

_WORDS = {1: types.uint8, 2: types.uint16, 4: types.uint32, 8: types.uint64}
_LINE, _LANE = 64, 16  # bytes of a cache line, and of the lanes in which vectors are shuffled most cheaply


def build(spec: TransposeSpec, lanes: int, epilogue: Any = None) -> Callable[..., None]:
    """The kernel of `spec` for vectors of 4 * lanes bytes. There is no epilogue."""
    if epilogue is not None:
        raise ValueError(f"{spec} takes no epilogue")
    return emitted(lambda code, begin, end: _Kernel(code, spec, 4 * lanes).emit(begin, end))


class _Kernel:
    """Emits the code of one spec."""

    def __init__(self, code: Code, spec: TransposeSpec, vector_bytes: int) -> None:
        self.code, self.itemsize, self.vector_bytes = code, spec.itemsize, vector_bytes
        self.size = {name: code.size(index) for index, name in enumerate(spec.SIZES)}
        self.outer = spec.SIZES.index("outer_0_extent")
        word = _WORDS[spec.itemsize]
        self.source, self.target = code.buffer(0, word), code.buffer(1, word)

    def emit(self, begin: Traced, end: Traced) -> None:
        """The tasks: blocks of a fastest, then blocks of b, then the other axes."""
        code, size = self.code, self.size
        a_blocks, b_blocks = ((size[f"{x}_extent"] + size[f"{x}_block"] - 1) / size[f"{x}_block"] for x in "ab")
        with code.loop(end, begin) as task:
            a_start = remainder(task, a_blocks) * size["a_block"]
            b_start = remainder(task / a_blocks, b_blocks) * size["b_block"]
            source, target = self._place(task / (a_blocks * b_blocks))
            bounds = [
                *(a_start, smaller(a_start + size["a_block"], size["a_extent"])),
                *(b_start, smaller(b_start + size["b_block"], size["b_extent"])),
            ]
            with code.when(size["mode"].equals(COPY)):
                self._runs(source, target, *bounds)
            with code.when(size["mode"].equals(TILES)):
                self._tiles(source, target, *bounds)
            with code.when(size["mode"] > TILES):
                self._elements(source, target, *bounds)

    def _place(self, number: Traced) -> tuple[Pointer, Pointer]:
        """Where the inner axes start, at place `number` of the others."""
        code = self.code
        rest, source, target = (code.variable(x) for x in (number, code.integer(0), code.integer(0)))
        with code.loop(self.size["outer_rank"]) as done:
            axis = (self.size["outer_rank"] - 1 - done) * 3 + self.outer
            extent, index = code.size(axis), code.variable(rest.get())
            rest.set(index.get() / extent)
            coordinate = remainder(index.get(), extent)
            source.set(source.get() + coordinate * code.size(axis + 1))
            target.set(target.get() + coordinate * code.size(axis + 2))
        return self.source.at(source.get()), self.target.at(target.get())

    # ------------------------------------------------------------ the three ways

    def _runs(self, source: Pointer, target: Pointer, a: Traced, a_stop: Traced, b: Traced, b_stop: Traced) -> None:
        """Both are contiguous along a."""
        code, size = self.code, self.size
        count = (a_stop - a) * self.itemsize
        with code.loop(b_stop, b) as row:
            from_, to = source.at(row * size["b_source"] + a), target.at(row * size["b_target"] + a)
            copy_bytes(code, to.as_bytes(), from_.as_bytes(), count, self.vector_bytes)

    def _elements(self, source: Pointer, target: Pointer, a: Traced, a_stop: Traced, b: Traced, b_stop: Traced) -> None:
        """One by one: neither has a contiguous axis, or one is too short for tiles."""
        code, size = self.code, self.size
        with code.loop(b_stop, b) as row, code.loop(a_stop, a) as column:
            value = source.load(row * size["b_source"] + column * size["a_source"])
            target.store(row * size["b_target"] + column * size["a_target"], value)

    def _tiles(self, source: Pointer, target: Pointer, a: Traced, a_stop: Traced, b: Traced, b_stop: Traced) -> None:
        """source is contiguous along b, target along a. Tiles: a vector of target wide, a cache line of source high."""
        code, size = self.code, self.size
        wide, high, group = (count // self.itemsize for count in (self.vector_bytes, _LINE, _LANE))
        with code.loop(b_stop, b, high) as row, code.loop(a_stop, a, wide) as column:
            from_ = source.at(column * size["a_source"] + row)
            to = target.at(row * size["b_target"] + column)
            live_a, live_b = a_stop - column, b_stop - row
            with code.either((live_a >= wide) & (live_b >= high)) as (whole, part):
                with whole, code.loop(high, step=group) as start:
                    self._group(from_.at(start), to.at(start * size["b_target"]))
                with part:
                    self._part_of_tile(from_, to, smaller(live_a, wide), smaller(live_b, high))

    def _group(self, source: Pointer, target: Pointer) -> None:
        """16 bytes along b of as many elements along a as a vector holds.

        128-bit lane l of vector m gets what lies at a = l * group + m; so the vectors' transposition lane by lane,
        which unpack instructions do, leaves whole vectors along a.
        """
        group, lanes = _LANE // self.itemsize, self.vector_bytes // _LANE
        vectors = []
        for m in range(group):
            pieces = [source.load(self.size["a_source"] * (lane * group + m), group) for lane in range(lanes)]
            vectors.append(_joined(pieces))
        for row, vector in enumerate(_transposed_in_lanes(vectors)):
            target.store(self.size["b_target"] * row, vector)

    def _part_of_tile(self, source: Pointer, target: Pointer, live_a: Traced, live_b: Traced) -> None:
        """A tile at the edge, element by element."""
        code, size = self.code, self.size
        with code.loop(live_b) as row, code.loop(live_a) as column:
            target.store(row * size["b_target"] + column, source.load(column * size["a_source"] + row))


def _joined(pieces: list[Traced]) -> Traced:
    """Vectors one behind the other as one; a power of two of them."""
    while len(pieces) > 1:
        count = 2 * pieces[0].value.type.count
        order = ir.Constant(ir.VectorType(ir.IntType(32), count), list(range(count)))
        pieces = [
            low.like(low.builder.shuffle_vector(low.value, high.value, order))
            for low, high in zip(pieces[::2], pieces[1::2], strict=True)
        ]
    return pieces[0]


def _transposed_in_lanes(vectors: list[Traced]) -> list[Traced]:
    """Each 128-bit lane of n vectors of n elements a lane, seen as the rows of a square matrix, transposed.

    Each round interleaves a row with the one half the matrix further on (unpack instructions); log2(n) rounds do it.
    """
    group, builder, width = len(vectors), vectors[0].builder, vectors[0].value.type.count
    halves = [
        ir.Constant(
            ir.VectorType(ir.IntType(32), width),
            [lane + start + i // 2 + (i % 2) * width for lane in range(0, width, group) for i in range(group)],
        )
        for start in (0, group // 2)
    ]
    for _ in range(group.bit_length() - 1):
        pairs = zip(vectors[: group // 2], vectors[group // 2 :], strict=True)
        vectors = [
            low.like(builder.shuffle_vector(low.value, high.value, half)) for low, high in pairs for half in halves
        ]
    return vectors

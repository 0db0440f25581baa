"""Products with matrices of 2, 4 or 8 bits, and what prepares their rows.

few rows:   for each panel of columns                                read once, from memory
                for each block                                       Σ q A in registers, per digit of A
                    y += (Σ q A - z Σ A) * factor * s
of int8:    for each panel of columns                                read once, from memory
                for some rows, for each strip of blocks              first-level cache; the next one is asked for
                    for each tile of rows and columns, each block    Σ q A - z Σ A in registers
                        sums += ... * factor * s                     first-level cache between strips
                y = sums
many rows:  for each panel of columns
                scratch = (q - z) s                                  float32 or bfloat16, second-level cache
                for each tile of rows                                y = a @ scratch
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, Variable, gathered, remainder, shuffled, smaller
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.half import narrow_for_products, widen
from jitonnx.emit.instructions import add_dot_products
from jitonnx.emit.simd import convert, maximum, reduce_add, reduce_max
from jitonnx.emit.ssa import SSAValue, absolute, bits, fma, from_bits, nearest_integer, rint, select
from jitonnx.kernels.bfloat16.spec import STEP
from jitonnx.kernels.integer.products import add_products, byte_pairs
from jitonnx.kernels.nbits.spec import (
    CHUNK,
    GROUP_ROWS,
    LEAST_MAGNITUDE,
    TILE_VECTORS,
    VECTORS,
    NBitsBuffers,
    NBitsSizes,
    NBitsSpec,
    RowsBuffers,
    RowsSizes,
    RowsSpec,
)
from jitonnx.kernels.parts.amx import clear, configured, multiply, store
from jitonnx.kernels.parts.amx_products import SUMS_BYTES
from jitonnx.kernels.parts.layouts import LINE, TILE
from jitonnx.kernels.parts.microkernel import (
    Panel,
    Rows,
    TileResult,
    emit_accumulate,
    emit_finish,
    emit_prefetch,
    emit_prefetch_result,
    row_offsets,
)
from jitonnx.support.records import NamedTuple
from jitonnx.target import tuning

_I64 = llvm_ir.IntType(64)
_HELD = 64
"""Elements of a block of a row that stay in registers from finding the largest of them until they are quantised."""
_UNROLLED = 32
"""Numbers of a column that are written out; longer blocks are loops over as many."""
_FEW_TOGETHER = 4
"""So many rows are multiplied at a time, if there are few."""
_SUMS = 8
"""Fewer sums at a time would wait for themselves."""
_SUMS_OF_BYTES = 16
"""Sums at a time where each is of one digit, beside the columns that they are made of."""
_STRIP = 256
"""Numbers of a column that all rows of int8 are multiplied with before the next ones: of a panel of 4 bits they are 8
KB, and its scales 2."""
_TOGETHER = 4
"""Rows of a block of sums in memory that go through the epilogue at a time."""


def build(spec: NBitsSpec | RowsSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    if isinstance(spec, RowsSpec):
        if epilogue is not None:
            raise ValueError(f"{spec} takes no epilogue")
        return lambda code, begin, end: _Rows(code, spec).emit(begin, end)
    if spec.width != VECTORS * lanes:
        raise ValueError(f"Bug: panels {spec.width} wide are not {VECTORS} vectors of {lanes}")
    return lambda code, begin, end: _NBits(code, spec, lanes, Epilogue(code, epilogue, types.float32, lanes)).emit(
        begin, end
    )


class _Rows:
    """Emits the kernel that prepares rows."""

    def __init__(self, code: KernelBuilder, spec: RowsSpec) -> None:
        self.code, self.spec = code, spec
        self.size = code.sizes(RowsSizes)
        left = types.int8 if spec.digits else types.float32
        self.a, self.left, self.factors = code.buffers(RowsBuffers, types.float32, left=left)

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        code, size, block = self.code, self.size, self.spec.block
        blocks = (size.k + (block - 1)) / block
        with code.loop(end, begin) as row, code.loop(blocks) as number:
            a = self.a.at(row * size.a_row + number * block)
            factors = self.factors.at((row * blocks + number) * 2)
            at = (row * blocks + number) * block
            active = size.k - number * block
            if self.spec.rounded:
                with code.if_else(size.m <= tuning.NBITS_FEW_ROWS) as (few, many):
                    with few:
                        self._prepare(a, active, at, factors)
                    with many:
                        self._round(a, active, self.left.to(types.uint16).at(at))
            else:
                self._prepare(a, active, at, factors)

    def _prepare(self, a: Pointer, active: SSAValue, at: SSAValue, factors: Pointer) -> None:
        """A block of a row that is one of few."""
        if self.spec.digits:
            self._quantise(a, active, self.left.at(at * self.spec.digits), factors)
        else:
            self._copy(a, active, self.left.at(at), factors)

    def _round(self, a: Pointer, active: SSAValue, left: Pointer) -> None:
        with self.code.loop(self.spec.block, step=2 * CHUNK) as at:
            pair = (a.load(at + start, CHUNK, active - (at + start)) for start in (0, CHUNK))
            left.store(at, narrow_for_products(*pair))

    def _copy(self, a: Pointer, active: SSAValue, left: Pointer, factors: Pointer) -> None:
        code = self.code
        total = code.variable(code.number(types.float32, 0.0, CHUNK))
        with code.loop(self.spec.block, step=CHUNK) as at:
            x = a.load(at, CHUNK, active - at)
            left.store(at, x)
            total.set(total.get() + x)
        factors.store(0, code.number(types.float32, 1.0))
        factors.store(1, reduce_add(total.get()))

    def _quantise(self, a: Pointer, active: SSAValue, left: Pointer, factors: Pointer) -> None:
        code, block = self.code, self.spec.block
        if block > _HELD:
            self._quantise_chunks(lambda at: a.load(at, CHUNK, active - at), left, factors)
            return
        with code.if_else(active >= block) as (whole, part):
            for branch, is_whole in ((whole, True), (part, False)):
                with branch:
                    chunks = [a.load(at, CHUNK, None if is_whole else active - at) for at in range(0, block, CHUNK)]
                    self._quantise_chunks(chunks, left, factors)

    def _quantise_chunks(
        self, chunks: Sequence[SSAValue] | Callable[[SSAValue], SSAValue], left: Pointer, factors: Pointer
    ) -> None:
        """Quantise a block, whose elements are in registers or are loaded, CHUNK of them from a place on."""
        code = self.code
        # Bits of magnitudes are in the order of these, and NaN's above all.
        top = code.variable(bits(code.number(types.float32, 0.0, CHUNK)))
        total = code.variable(code.number(types.int32, 0, CHUNK))

        def each(body: Callable[[SSAValue | int, SSAValue], None]) -> None:
            if callable(chunks):
                with code.loop(self.spec.block, step=CHUNK) as at:
                    body(at, chunks(at))
            else:
                for number, x in enumerate(chunks):
                    body(number * CHUNK, x)

        def quantise(at: SSAValue | int, x: SSAValue) -> None:
            scaled = x * inverse
            if self.spec.digits == 1:  # NaN is what infinity times 0 gives, too
                number = select(scaled.equals(scaled), nearest_integer(scaled), 0)
            else:
                number = convert(rint(scaled), types.int32)
            total.set(total.get() + number)
            for number_of_part, part in enumerate(self._digits(number)):
                left.store(at * self.spec.digits + number_of_part * CHUNK, part)

        each(lambda _, x: top.set(maximum(top.get(), bits(absolute(x)))))
        magnitude = from_bits(reduce_max(top.get()))
        tiny = magnitude < LEAST_MAGNITUDE
        greatest = float(self.spec.greatest)
        factor = select(tiny, 0.0, magnitude / greatest)
        inverse = select(tiny, 0.0, code.number(types.float32, greatest) / magnitude).splat(CHUNK)
        each(quantise)
        factors.store(0, factor)
        whole = reduce_add(total.get())
        if self.spec.digits == 1:
            factors.to(types.int32).store(1, -whole)
        else:
            factors.store(1, convert(whole, types.float32))

    def _digits(self, number: SSAValue) -> list[SSAValue]:
        """The bytes of CHUNK quantised elements, as vectors of CHUNK."""
        digits: list[SSAValue] = []
        for _ in range(self.spec.digits):  # the lowest first
            digit = ((number + 128) & 255) - 128
            digits.insert(0, convert(digit, types.int8))
            number = (number - digit) >> 8
        places = 8 // self.spec.bits
        order = [
            digit * CHUNK + word * 4 * places + byte * places + place
            for word in range(CHUNK // (4 * places))
            for place in range(places)
            for digit in range(self.spec.digits)
            for byte in range(4)
        ]
        return [gathered(digits, order[start : start + CHUNK]) for start in range(0, len(order), CHUNK)]


class _InMemory(NamedTuple):
    """A vector that is changed in memory, as a `Variable` is."""

    place: Pointer
    lanes: int

    def get(self) -> SSAValue:
        return self.place.load(0, self.lanes)

    def set(self, value: SSAValue) -> None:
        self.place.store(0, value)


class _NBits:
    """Emits the kernel of products."""

    def __init__(self, code: KernelBuilder, spec: NBitsSpec, lanes: int, epilogue: Epilogue) -> None:
        self.code, self.spec, self.lanes, self.epilogue = code, spec, lanes, epilogue
        self.size = code.sizes(NBitsSizes)
        kinds = {"w": types.uint32, "zeros": types.uint8 if spec.zeros != "float32" else types.float32}
        self.digits, self.pairs = spec.digits, spec.multiply == "byte pairs"
        if self.digits:
            kinds["left"] = types.int32
        if spec.scales != "float32":
            kinds["scales"] = types.uint16
        self.a, self.left, self.factors, self.w, self.scales, self.zeros, self.y = code.buffers(
            NBitsBuffers, types.float32, **kinds
        )
        self.blocks = (self.size.k + (spec.block - 1)) / spec.block
        self.block_words = spec.block // spec.word

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        code, size, width = self.code, self.size, self.spec.width
        panels = (size.n + (width - 1)) / width
        with configured(code) if self.spec.rounded else nullcontext(), code.loop(end, begin) as task:
            panel, first_row = remainder(task, panels), task / panels * size.task_rows
            count = smaller(size.task_rows, size.m - first_row)
            if self.digits == 1:
                self._emit_groups(panel, first_row, count)
            else:
                with code.if_else(size.m <= tuning.NBITS_FEW_ROWS) as (few, many):
                    with few:
                        self._emit_rows(panel, code.integer(0), size.m, (_FEW_TOGETHER, 1))
                    with many:
                        self._emit_many(panel, first_row, count)

    def _place(self, panel: SSAValue) -> tuple[Pointer, SSAValue]:
        """The address of a panel's numbers, and the place of its scales and zero points."""
        words = panel * self.blocks * (self.block_words * self.spec.width)
        return self.w.at(words), panel * self.blocks * self.spec.width

    def _scale(self, place: SSAValue) -> SSAValue:
        """Scales of the columns from `place` on, as float32."""
        scale = self.scales.load(place, self.lanes)
        return scale if self.spec.scales == "float32" else widen(scale, self.spec.scales)

    def _zero(self, place: SSAValue) -> SSAValue | None:
        """Zero points of the columns from `place` on, as float32; None: 2 ** (bits - 1)."""
        if not self.spec.zeros:
            return None
        zero = self.zeros.load(place, self.lanes)
        return convert(zero, types.float32) if self.spec.zeros == "uint8" else zero

    def _zero_of_packed(self, place: SSAValue) -> SSAValue:
        """Zero points of numbers as they are packed."""
        zero, flipped = self._zero(place), float(self.spec.flipped)
        if zero is None:
            return self.code.number(types.float32, self._usual_zero - flipped, self.lanes)
        return zero - flipped if flipped else zero

    @property
    def _usual_zero(self) -> float:
        return float(1 << (self.spec.bits - 1))

    # ------------------------------------------------------------ rows of int8

    def _emit_groups(self, panel: SSAValue, first_row: SSAValue, count: SSAValue) -> None:
        """Rows of int8, some at a time; a row alone needs no sums in memory."""
        code = self.code
        with code.loop(count, 0, GROUP_ROWS) as start:
            row, rows = first_row + start, smaller(count - start, GROUP_ROWS)
            with code.if_else(rows <= 1) as (one, several):
                with one:
                    self._emit_rows(panel, row, rows, (1,))
                with several:
                    self._emit_group(panel, row, rows, start.equals(0))

    def _emit_group(self, panel: SSAValue, first_row: SSAValue, rows: SSAValue, is_first: SSAValue) -> None:
        """Several rows of int8 times a panel, strip by strip: what is read of it from memory serves them all.

        is_first: whether the panel is in memory yet, and not in a cache.
        """
        code, spec, lanes, width = self.code, self.spec, self.lanes, self.spec.width
        sums, zero = code.scratch(types.float32), code.number(types.float32, 0.0, lanes)
        tall, low, _ = spec.rows
        with code.loop((rows + (low - 1)) * width, 0, lanes) as i:
            sums.store(i, zero)
        with code.loop(rows) as row:
            y = self.y.at((first_row + row) * self.size.y_row + panel * width)
            emit_prefetch_result(code.builder, y.value, self.size.y_row.value, (1, width))
        in_tall = rows / tall * tall
        heights = [(tall, code.integer(0), in_tall), (low, in_tall, rows)]
        tiles = code.integer(0)
        for height, begin, end in heights:
            tiles = tiles + (end - begin + (height - 1)) / height * (VECTORS // self._vectors(height))
        w, place = self._place(panel)
        strip, block_words = max(1, _STRIP // spec.block), self.block_words * width
        # Each tile asks for a part of what is multiplied a strip later.
        in_line = LINE // 4, LINE // spec.scale_bytes
        lines = [
            (tiles + (count // each - 1)) / tiles for count, each in zip((block_words, width), in_line, strict=True)
        ]
        shares = [select(is_first, count, 0) for count in lines]
        with code.loop(self.blocks, 0, strip) as block:
            first_w, first_place = w.at(block * block_words), place + block * width
            ahead = first_w.at(strip * block_words), self.scales.at(first_place + strip * width)
            done = code.variable(code.integer(0))
            for height, begin, end in heights:
                vectors = self._vectors(height)
                with code.loop(end, begin, height) as row, code.loop(width, 0, vectors * lanes) as part:
                    asked = done.get() * strip
                    soon = [
                        start.at(asked * each * share)
                        for start, each, share in zip(ahead, in_line, shares, strict=True)
                    ]
                    arguments = [
                        *(first_w.at(part), first_place + part, first_row + row, smaller(rows - row, height)),
                        *(block, smaller(self.blocks - block, strip), sums.at(row * width + part), *soon, *shares),
                    ]
                    self._strip_tile(height, arguments)
                    done.set(done.get() + 1)
        with code.loop(rows) as row:
            found = [sums.at(row * width).load(v * lanes, lanes) for v in range(VECTORS)]
            self._finish(found, 1, first_row + row, panel * width)

    def _strip_tile(self, height: int, arguments: Sequence[SSAValue | Pointer]) -> None:
        def write(code: KernelBuilder, *given: Any) -> None:
            _NBits(code, self.spec, self.lanes, self.epilogue)._write_strip(height, *given)

        self.code.subroutine(f"strip.{height}", arguments, write, inline=False)

    def _write_strip(  # noqa: PLR0913  (what is passed on as a function's arguments)
        self,
        height: int,
        w: Pointer,
        place: SSAValue,
        first_row: SSAValue,
        rows: SSAValue,
        first_block: SSAValue,
        blocks: SSAValue,
        sums: Pointer,
        next_w: Pointer,
        next_scales: Pointer,
        w_lines: SSAValue,
        scale_lines: SSAValue,
    ) -> None:
        """Add the products of some blocks to sums in memory: a tile of `height` rows, of which `rows` are there. The
        last one is multiplied again in the place of one that is not. With each block so many lines are asked for of
        what comes next."""
        code, lanes, vectors = self.code, self.lanes, self._vectors(height)
        places = [r * self.spec.width + v * lanes for r in range(height) for v in range(vectors)]
        results = [_InMemory(sums.at(place), lanes) for place in places]
        prepared = self._prepared_rows([first_row + smaller(rows - 1, r) for r in range(height)], first_block)
        with code.loop(blocks) as block:
            for start, lines, itemsize in ((next_w, w_lines, 4), (next_scales, scale_lines, self.spec.scale_bytes)):
                with code.loop(lines) as line:
                    emit_prefetch(code.builder, start.at((block * lines + line) * (LINE // itemsize)).value, level=1)
            self._add_block(w, place, prepared, block, results, vectors)

    def _vectors(self, height: int) -> int:
        """Vectors of columns of a tile of so many rows, whose sums stay in registers."""
        together, most = _SUMS if self.digits != 1 else _SUMS_OF_BYTES, VECTORS
        if self.digits and self.code.target.vector_registers < 32:
            together //= 4 if self.pairs else 2
            most = VECTORS if height == 1 and not self.pairs else 2
        return max(1, min(most, together // (height * max(1, self.digits))))

    # ------------------------------------------------------------ rows as they are prepared

    def _emit_rows(self, panel: SSAValue, first_row: SSAValue, count: SSAValue, heights: Sequence[int]) -> None:
        """Rows by `heights`, decreasing, the last 1: so many at a time, some vectors of columns after the others."""
        code, lanes = self.code, self.lanes
        w, place = self._place(panel)
        column, done = panel * self.spec.width, code.integer(0)
        for height in heights:
            vectors = self._vectors(height)
            end = done + (count - done) / height * height
            with code.loop(end, done, height) as row, code.loop(self.spec.width, step=vectors * lanes) as part:
                self._rows_tile(height, vectors, [w.at(part), place + part, first_row + row, column + part])
            done = end

    def _rows_tile(self, height: int, vectors: int, arguments: Sequence[SSAValue | Pointer]) -> None:
        def write(code: KernelBuilder, w: Pointer, place: SSAValue, row: SSAValue, column: SSAValue) -> None:
            _NBits(code, self.spec, self.lanes, self.epilogue)._write_rows(height, vectors, w, place, row, column)

        self.code.subroutine(f"rows.{height}", arguments, write, inline=False)

    def _write_rows(
        self, height: int, vectors: int, w: Pointer, place: SSAValue, row: SSAValue, column: SSAValue
    ) -> None:
        code, lanes = self.code, self.lanes
        results = [code.variable(code.number(types.float32, 0.0, lanes)) for _ in range(height * vectors)]
        rows = self._prepared_rows([row + r for r in range(height)], code.integer(0))
        with code.loop(self.blocks) as block:
            self._add_block(w, place, rows, block, results, vectors)
        self._finish([result.get() for result in results], height, row, column)

    def _finish(self, sums: Sequence[SSAValue], height: int, row: SSAValue, column: SSAValue) -> None:
        """Put the sums of a tile through the epilogue."""
        emit_finish(
            self.code,
            self.epilogue,
            shape=(height, len(sums) // height),
            sums=[value.value for value in sums],
            result=TileResult(
                self.y.at(row * self.size.y_row + column).value,
                self.size.y_row.value,
                (self.code.integer(0), row, column),
            ),
            active=(self.size.n - column).value,
        )

    def _prepared_rows(self, rows: Sequence[SSAValue], block: SSAValue) -> list[tuple[Pointer, Pointer]]:
        """The addresses of the elements and of the factors of each row, from a block on."""
        elements = self.spec.block // 4 * self.digits if self.digits else self.spec.block
        places = [row * self.blocks + block for row in rows]
        return [(self.left.at(place * elements), self.factors.at(place * 2)) for place in places]

    def _add_block(
        self,
        w: Pointer,
        place: SSAValue,
        rows: Sequence[tuple[Pointer, Pointer]],
        block: SSAValue,
        results: Sequence[Variable] | Sequence[_InMemory],
        vectors: int,
    ) -> None:
        """Add the products of a block, counted from where w, place and rows begin, to the results."""
        code, spec, lanes = self.code, self.spec, self.lanes
        left, factors = [row for row, _ in rows], [factor.at(block * 2) for _, factor in rows]
        words = min(self.block_words, _UNROLLED // spec.word)
        sums = self._block_sums(factors, vectors)
        is_one = self.digits == 1 and words == self.block_words
        with nullcontext(code.integer(0)) if is_one else code.loop(self.block_words, step=words) as start:
            first = block * self.block_words + start
            added = self._pair_sums(len(results)) if self.pairs else sums
            for word in range(words):
                self._add_word(w, left, first + word, added, vectors)
            if self.pairs:
                self._add_pairs(sums[0], added[0])
        at = place + block * spec.width
        if self._asks(len(rows), vectors):
            later = at + max(1, tuning.NBITS_AHEAD_BYTES // (4 * self.block_words * spec.width)) * spec.width
            self._ask(self.scales.at(later), spec.scale_bytes)
            if spec.zeros:
                self._ask(self.zeros.at(later), 1 if spec.zeros == "uint8" else 4)
        scales = [self._scale(at + v * lanes) for v in range(vectors)]
        zeros = [] if self._begins_with_zeros else [self._zero_of_packed(at + v * lanes) for v in range(vectors)]
        totals = self._totals(sums)
        for r, factor in enumerate(factors):
            total = self._negative_sum(factor).splat(lanes) if zeros else None
            for v, scale in enumerate(scales):
                result, value = results[r * vectors + v], totals[r * vectors + v]
                if total is not None:
                    value = fma(zeros[v], total, value)
                if self.digits:
                    scale = scale * factor.load(0).splat(lanes)
                result.set(fma(value, scale, result.get()))

    def _asks(self, rows: int, vectors: int) -> bool:
        """Whether a tile asks for what is multiplied later: columns that are read one vector at a time are near
        already, and groups of rows ask for their strips."""
        return vectors == VECTORS and (self.digits != 1 or rows == 1)

    def _ask(self, start: Pointer, itemsize: int) -> None:
        """Ask for as many elements as a panel has columns."""
        for element in range(0, self.spec.width, LINE // itemsize):
            level = 2 if self.code.target.waits_for_l3 else 1
            emit_prefetch(self.code.builder, start.at(element).value, level=level)

    @property
    def _begins_with_zeros(self) -> bool:
        """Whether sums of a block begin with -z Σ A, which is a whole number."""
        return self.digits == 1 and not self.spec.zeros

    def _negative_sum(self, factor: Pointer) -> SSAValue:
        """-Σ A of a block, float32."""
        if self.digits == 1:
            return convert(factor.to(types.int32).load(1), types.float32)
        return -factor.load(1)

    def _block_sums(self, factors: Sequence[Pointer], vectors: int) -> list[list[Variable]]:
        """Sums of a block by digit, of a row and vector after the other, as they begin."""
        element, count = (types.int32, self.digits) if self.digits else (types.float32, 1)
        first = [self.code.number(element, 0, self.lanes)] * len(factors)
        if self._begins_with_zeros and (zero := int(self._usual_zero) - self.spec.flipped):
            sums = [factor.to(types.int32).load(1).splat(self.lanes) for factor in factors]
            first = [value << (zero.bit_length() - 1) for value in sums]
        return [[self.code.variable(value) for value in first for _ in range(vectors)] for _ in range(count)]

    def _pair_sums(self, count: int) -> list[list[Variable]]:
        """Sums of pairs of products, in 16 bits, at first 0: _UNROLLED products of 4 bits and of a byte fill them."""
        zero = self.code.number(types.int16, 0, 2 * self.lanes)
        return [[self.code.variable(zero) for _ in range(count)]]

    def _add_pairs(self, sums: Sequence[Variable], pairs: Sequence[Variable]) -> None:
        """Pairs of 16 bits summed in 32 bits."""
        ones = self.code.number(types.int16, 1, 2 * self.lanes).value
        for total, pair in zip(sums, pairs, strict=True):
            total.set(add_products(self.code, "pairs", total.get(), ones, pair.get().value, self.lanes))

    def _totals(self, sums: Sequence[Sequence[Variable]]) -> list[SSAValue]:
        """Sums of a block as float32."""
        if not self.digits:
            return [value.get() for value in sums[0]]
        totals = []
        for values in zip(*sums, strict=True):
            *higher, total = (convert(value.get(), types.float32) for value in values)
            for power, digit in enumerate(reversed(higher), 1):
                total = fma(digit, digit.constant(256.0**power), total)
            totals.append(total)
        return totals

    def _add_word(
        self, w: Pointer, left: Sequence[Pointer], word: SSAValue, sums: list[list[Variable]], vectors: int
    ) -> None:
        """A word of each column times the rows' elements."""
        code, spec, lanes = self.code, self.spec, self.lanes
        w = w.at(word * spec.width)
        if self._asks(len(left), vectors):
            self._ask(w.at(tuning.NBITS_AHEAD_BYTES // 4), 4)
        if self.digits:
            if self.digits == 1:  # LLVM would load what comes later, too, and put it on the stack
                w = w.behind(sums[0][-1].get())
            loaded = [w.load(v * lanes, lanes) for v in range(vectors)]
            places = 8 // spec.bits
            mask = {8: 0, 4: 0x0F0F0F0F, 2: 0x03030303}[spec.bits]
            for place in range(places):
                columns = [_at_place(x, spec.bits * place, mask, last=place == places - 1) for x in loaded]
                for r, row in enumerate(left):
                    if self.digits == 1 and (not r or code.target.vector_registers < 32):
                        row = row.behind(*(sums[0][(r - 1) * vectors + v].get() for v in range(vectors)))
                    for digit, values in enumerate(sums):
                        four = row.load((word * places + place) * self.digits + digit).splat(lanes)
                        for v, column in enumerate(columns):
                            value = values[r * vectors + v]
                            if self.pairs:
                                both = byte_pairs(code.builder, column.value, four.value, lanes)
                                value.set(value.get() + value.get().like(both))
                            else:
                                value.set(add_dot_products(value.get(), four, column, spec.multiply))
            return
        # LLVM would load and widen what comes later, too, and put it on the stack.
        latest = sums[0][-1].get()
        w, left = w.behind(latest), [row.at(word * spec.word).behind(latest) for row in left]
        loaded = [w.load(v * lanes, lanes) for v in range(vectors)]
        together = vectors if code.target.vector_registers >= 32 else 2
        for start in range(0, vectors, together):
            words = loaded[start : start + together]
            for number in range(spec.word):
                if number:
                    words = [x.behind(sums[0][v].get()) for v, x in enumerate(words, start)]
                columns = [self._float(x, number) for x in words]
                for r, row in enumerate(left):
                    factor = row.load(number).splat(lanes)
                    for v, column in enumerate(columns, start):
                        value = sums[0][r * vectors + v]
                        value.set(fma(column, factor, value.get()))

    def _float(self, words: SSAValue, number: int) -> SSAValue:
        """Number `number` of each word, as float32."""
        spec = self.spec
        last = number == spec.word - 1
        shifted = words >> (spec.bits * number) if number else words
        part = shifted if last else shifted & ((1 << spec.bits) - 1)
        return convert(SSAValue(part.builder, types.int32, part.value), types.float32)

    # ------------------------------------------------------------ many rows

    def _emit_many(self, panel: SSAValue, first_row: SSAValue, count: SSAValue) -> None:
        code, size, lanes = self.code, self.size, self.lanes
        w, place = self._place(panel)
        tile = TILE_VECTORS * lanes
        with code.loop(smaller(size.n - panel * self.spec.width, self.spec.width), step=tile) as part:
            code.subroutine("widen", [w.at(part), place + part], self._write_widened, inline=False)
            column, done = panel * self.spec.width + part, code.integer(0)
            if self.spec.rounded:
                self._emit_blocks(first_row, count, column)
            else:
                for height in self.spec.rows:
                    end = done + (count - done) / height * height
                    with code.loop(end, done, height) as row:
                        self._many_tile(height, first_row + row, column)
                    done = end

    def _emit_blocks(self, first_row: SSAValue, count: SSAValue, column: SSAValue) -> None:
        """Rows times a panel in scratch memory: blocks of two tiles, then of one where that does."""
        code = self.code
        with code.loop(count - TILE, 0, 2 * TILE) as row:
            self._block(2, first_row + row, count - row, column)
        rest = remainder(count, code.integer(2 * TILE))
        with code.if_then((rest > 0) & (rest <= TILE)):
            self._block(1, first_row + (count - rest), rest, column)

    def _write_widened(self, code: KernelBuilder, w: Pointer, place: SSAValue) -> None:
        """A tile's columns into scratch memory: [k in whole blocks][column]."""
        inner = _NBits(code, self.spec, self.lanes, self.epilogue)
        if self.spec.rounded:
            inner._round(w, place)
        else:
            inner._widen(w, place)

    def _round(self, w: Pointer, place: SSAValue) -> None:
        """The same as tiles read it: [step][tile of columns][pair of k][column][2], of bfloat16."""
        code, spec, lanes = self.code, self.spec, self.lanes
        scratch = self._panel().to(types.uint16)
        words, pairs = STEP // spec.word, spec.word // 2
        interleaved = [half * lanes + lane for lane in range(lanes) for half in range(2)]
        with code.loop(self.blocks) as block:
            at = place + block * spec.width
            scales = [self._scale(at + v * lanes) for v in range(TILE_VECTORS)]
            zeros = [self._zero(at + v * lanes) for v in range(TILE_VECTORS)]
            offsets = [
                -(scale * (self._usual_zero if zero is None else zero))
                for scale, zero in zip(scales, zeros, strict=True)
            ]
            with code.loop(spec.block // STEP) as part:
                step = block * (spec.block // STEP) + part
                for word in range(words):
                    for v in range(TILE_VECTORS):
                        loaded = w.load((step * words + word) * spec.width + v * lanes, lanes)
                        values = [
                            fma(self._float(loaded, number), scales[v], offsets[v]) for number in range(spec.word)
                        ]
                        target = scratch.at((step * TILE_VECTORS + v) * (TILE * STEP) + word * pairs * STEP)
                        for pair in range(pairs):
                            bits = narrow_for_products(values[2 * pair], values[2 * pair + 1])
                            target.store(pair * STEP, shuffled(bits, bits, interleaved))

    def _panel(self) -> Pointer:
        """The panel in scratch memory that tiles are multiplied with; the sums of a block are in front of it."""
        return self.code.scratch(types.uint8).at(SUMS_BYTES)

    def _block(self, tiles: int, row: SSAValue, active: SSAValue, column: SSAValue) -> None:
        def write(code: KernelBuilder, row: SSAValue, active: SSAValue, column: SSAValue) -> None:
            _NBits(code, self.spec, self.lanes, self.epilogue)._write_block(tiles, row, active, column)

        self.code.subroutine(f"block.{tiles}", [row, active, column], write, inline=False)

    def _write_block(self, tiles: int, row: SSAValue, active: SSAValue, column: SSAValue) -> None:
        """`tiles` tiles of rows, of which `active` are there, times the panel, and through the epilogue."""
        code, lanes = self.code, self.lanes
        row_bytes = self.blocks * (2 * self.spec.block)
        x = [self.left.as_bytes().at((row + i * TILE) * row_bytes) for i in range(tiles)]
        w, sums = self._panel(), code.scratch(types.uint8)
        clear(code, tiles, TILE_VECTORS)
        with code.loop(self.blocks * (self.spec.block // STEP)) as step:
            places = [(place.at(step * LINE), row_bytes) for place in x]
            multiply(code, "tdpbf16ps", places, w.at(step * (TILE_VECTORS * TILE * LINE)), TILE_VECTORS, streams_w=True)
        store(code, tiles, TILE_VECTORS, sums)
        found = sums.to(types.float32)
        with code.loop(smaller(active, tiles * TILE), 0, _TOGETHER) as i:
            places_of = [((i + j) * TILE_VECTORS + v) * lanes for j in range(_TOGETHER) for v in range(TILE_VECTORS)]
            emit_finish(
                code,
                self.epilogue,
                shape=(_TOGETHER, TILE_VECTORS),
                sums=[found.load(place, lanes).value for place in places_of],
                result=TileResult(
                    self.y.at((row + i) * self.size.y_row + column).value,
                    self.size.y_row.value,
                    (code.integer(0), row + i, column),
                ),
                active=(self.size.n - column).value,
                rows_live=(active - i).value,
            )

    def _widen(self, w: Pointer, place: SSAValue) -> None:
        code, spec, lanes = self.code, self.spec, self.lanes
        scratch, tile = code.scratch(types.float32), TILE_VECTORS * self.lanes
        with code.loop(self.blocks) as block:
            at = place + block * spec.width
            scales = [self._scale(at + v * lanes) for v in range(TILE_VECTORS)]
            zeros = [self._zero(at + v * lanes) for v in range(TILE_VECTORS)]
            with code.loop(self.block_words) as start:
                word = block * self.block_words + start
                for v in range(TILE_VECTORS):
                    words = w.load(word * spec.width + v * lanes, lanes)
                    if spec.flipped:
                        words = words ^ 0x80808080
                    for number in range(spec.word):
                        zero = zeros[v]
                        value = self._float(words, number) - (self._usual_zero if zero is None else zero)
                        scratch.store((word * spec.word + number) * tile + v * lanes, value * scales[v])

    def _many_tile(self, height: int, row: SSAValue, column: SSAValue) -> None:
        def write(code: KernelBuilder, row: SSAValue, column: SSAValue) -> None:
            _NBits(code, self.spec, self.lanes, self.epilogue)._write_many(height, row, column)

        self.code.subroutine(f"many.{height}", [row, column], write, inline=False)

    def _write_many(self, height: int, row: SSAValue, column: SSAValue) -> None:
        code, size, builder = self.code, self.size, self.code.builder
        tile = TILE_VECTORS * self.lanes
        zero = code.number(types.float32, 0.0, self.lanes).value
        sums = emit_accumulate(
            builder,
            types.float32,
            sums=[zero] * (height * TILE_VECTORS),
            rows=Rows(self.a.at(row * size.a_row).value, row_offsets(size.a_row, height)),
            panel=Panel(code.scratch(types.float32).value, _I64(tile)),
            k=size.k.value,
        )
        emit_finish(
            code,
            self.epilogue,
            shape=(height, TILE_VECTORS),
            sums=sums,
            result=TileResult(
                self.y.at(row * size.y_row + column).value, size.y_row.value, (code.integer(0), row, column)
            ),
            active=(size.n - column).value,
        )


def _at_place(words: SSAValue, shift: int, mask: int, *, last: bool) -> SSAValue:
    """The numbers that lie `shift` bits up in each byte, as bytes."""
    if not mask:
        return words
    return (words >> shift if shift else words) & mask

"""The attention kernel. A task does some query rows of a head, and of these a block at a time:

    once a head: k and v are copied to panels, k turned               scratch, second-level cache
    for each block of up to 24 query rows
        for each panel of keys, for each tile of rows                 scores = q @ k
        for each row                                                  weights = exp(scale * scores + mask - largest)
        for each panel of v's columns, for each tile of rows          y = weights @ v / sum of weights

Few query rows read k and v where they lie instead (`in_place`), and one row reads them once for all heads that share
them, and by spans, which are tasks, where there are few heads (`one_row`).
Else all scores of a row are held at once, so the softmax is the exact one, in two passes over a row that stays in the
cache.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, larger, remainder, smaller
from jitonnx.emit.epilogue import Stage
from jitonnx.emit.mathematics import vecmath
from jitonnx.emit.ssa import SSAValue, fma, select
from jitonnx.kernels.attention.in_place import Matrix, emit_results, emit_scores
from jitonnx.kernels.attention.spec import (
    BLOCK_TILES,
    PADDING,
    AttentionBuffers,
    AttentionSizes,
    AttentionSpec,
    JoinSpec,
)
from jitonnx.kernels.gemm.copy import emit_copy
from jitonnx.kernels.parts.amx import configured
from jitonnx.kernels.parts.microkernel import Panel, Rows, emit_accumulate, in_chains, row_offsets
from jitonnx.kernels.parts.rows import Vectors, float_from_bits, larger_lanes
from jitonnx.support.records import NamedTuple
from jitonnx.target import tuning

_I64 = llvm_ir.IntType(64)
LOG2_E = 1.4426950408889634
LOWEST = float("-inf")
_STORED: dict[str, tuple[types.ElementType, ...]] = {
    "float32": (types.float32,),
    **{kind: (stored,) for kind, stored in types.stored_halves.items()},
    "int8": (types.stored_int8,),
    "int4": (types.stored_low, types.stored_high),
}
"""What the parts of k's and v's columns are loaded as."""


def build(spec: AttentionSpec | JoinSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for float32 vectors of `lanes`."""
    if isinstance(spec, JoinSpec):
        if epilogue is not None:
            raise ValueError(f"{spec} takes no epilogue")
        return functools.partial(_build_join, spec, lanes)
    if spec.most_spans > 1 and epilogue is not None:
        raise ValueError(f"Bug: {spec} has spans, to which no epilogue is applied")
    if any(width % lanes for width in spec.widths):
        raise ValueError(f"Bug: tiles {spec.widths} wide are not made of vectors of {lanes}")

    def each_head(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        if spec.rounded:
            from jitonnx.kernels.attention.rounded import Rounded

            with configured(code) if spec.rounded == "tiles" else nullcontext():
                Rounded(code, spec, lanes, epilogue).emit(begin, end)
        else:
            Attention(code, spec, lanes, epilogue).emit(begin, end)

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        from jitonnx.kernels.attention.one_row import OneRow

        if spec.rows == (1,):
            OneRow(code, spec, lanes, epilogue).emit(begin, end)
            return
        with code.if_else(code.sizes(AttentionSizes).queries <= 1) as (one, several):
            with one:
                OneRow(code, spec, lanes, epilogue).emit(begin, end)
            with several:
                each_head(code, begin, end)

    return body if spec.alone else each_head


def _build_join(spec: JoinSpec, lanes: int, code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
    from jitonnx.kernels.attention.one_row import emit_join

    emit_join(code, spec, lanes, begin, end)


class Head(NamedTuple):
    """A task's operands, and its query rows [first, stop)."""

    number: SSAValue
    q: Pointer
    k: Pointer
    v: Pointer
    mask: Pointer
    y: Pointer
    first: SSAValue
    stop: SSAValue


class Attention:
    """Emits one kernel."""

    def __init__(self, code: KernelBuilder, spec: AttentionSpec, lanes: int, epilogue: Any) -> None:
        self.code, self.spec, self.lanes, self._epilogue = code, spec, lanes, epilogue
        self.vectors = Vectors(code, types.float32, lanes, None, epilogue)
        self.size = code.sizes(AttentionSizes)
        mask = types.int8 if spec.mask == "bool" else types.float32
        self._stored = _STORED[spec.stored]
        stored = self._stored[0]
        self.q, self.k, self.v, self.mask, self.y, self.spans = code.buffers(
            AttentionBuffers, types.float32, k=stored, v=stored, mask=mask
        )
        self.scale = float_from_bits(self.size.scale_bits, types.float32)
        self.fill = float_from_bits(self.size.fill_bits, types.float32)
        self._lay_out_scratch()

    def _lay_out_scratch(self) -> None:
        """Scratch memory is laid out in the order of AttentionSpec.scratch_bytes."""
        spec, size, height = self.spec, self.size, self.spec.rows[0]
        key_columns, value_columns = self._packed(size.keys), self._packed(self._of_part(size.value_depth)) * spec.parts
        self.scores = self.k_panels = self.v_panels = self.code.scratch(types.float32)
        if not spec.never_copies:
            slack = PADDING * spec.widths[0]
            self.v_panels = self.k_panels.at((size.depth + PADDING) * key_columns + slack)
            self.scores = self.v_panels.at((size.keys + PADDING) * value_columns + slack)
        self.score_row = key_columns + PADDING
        self.results = self.scores.at(self.score_row * (BLOCK_TILES * height))
        self.factors = self.results.at(height * spec.widths[0])

    def _function(self, name: str, arguments: Sequence[SSAValue | Pointer], method: Callable[..., None]) -> None:
        """Call method(attention, *arguments) as a function of its own in this kernel.

        LLVM would else search all the loops around it for what it can move out of them, which takes it longer than
        anything else about this kernel.
        """

        def write(code: KernelBuilder, *parameters: Any) -> None:
            method(type(self)(code, self.spec, self.lanes, self._epilogue), *parameters)

        self.code.subroutine(name, arguments, write, inline=False)

    def _of_part(self, columns: SSAValue) -> SSAValue:
        """How many of k's or v's columns a part has."""
        return columns if self.spec.parts == 1 else columns / self.spec.parts

    def _parts(self, matrix: Pointer) -> list[Pointer]:
        """The parts of k or v, which begin at the same place."""
        return [matrix.to(stored) for stored in self._stored]

    def _packed(self, columns: SSAValue) -> SSAValue:
        """AttentionSpec.packed_columns."""
        rest = remainder(columns, self.code.integer(self.spec.widths[0]))
        width = self.code.integer(self.spec.widths[0])
        for narrower in self.spec.widths[1:]:
            width = select(rest <= narrower, narrower, width)
        return columns - rest + select(rest.equals(0), 0, width)

    def panels(self, columns: SSAValue, body: Callable[[SSAValue, int], None], stop: SSAValue | None = None) -> None:
        """body(column, width) for every panel of `columns` columns that begins before `stop`."""
        code, widths = self.code, self.spec.widths
        whole = columns - remainder(columns, code.integer(widths[0]))
        stop = columns if stop is None else stop
        with code.loop(smaller(whole, stop), 0, widths[0]) as column:
            body(column, widths[0])
        rest = select(whole < stop, columns - whole, 0)
        for width, below in zip(widths, (*widths[1:], 0), strict=True):
            with code.if_then((rest <= width) & (rest > below)):
                body(whole, width)

    # ------------------------------------------------------------ tasks

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        code, size, spec = self.code, self.size, self.spec
        pairs = size.batch * size.heads
        tiles = size.queries / spec.rows[0]
        wanted = (pairs + (tuning.TASKS - 1)) / larger(pairs, 1)
        blocks = larger(smaller(wanted, tiles / spec.task_tiles), 1)
        ready = code.variable(code.integer(-1))
        with code.loop(end, begin) as task:
            number, block = task / blocks, remainder(task, blocks)
            batch, head = number / size.heads, remainder(number, size.heads)
            kv_head = head * size.kv_heads / size.heads
            kv = batch * size.kv_heads + kv_head
            k = self.k.at(batch * size.k_batch + kv_head * size.k_head)
            v = self.v.at(batch * size.v_batch + kv_head * size.v_head)
            if not spec.never_copies:
                needed = ~ready.get().equals(kv)
                if spec.in_place:
                    needed = needed & (size.queries >= spec.rows[0])
                with code.if_then(needed):
                    self._function("make_ready", [k, v], type(self)._make_ready)
                    ready.set(kv)
            last = (block + 1).equals(blocks)
            first = block * tiles / blocks * spec.rows[0]
            stop = select(last, size.queries, (block + 1) * tiles / blocks * spec.rows[0])
            q = self.q.at(batch * size.q_batch + head * size.q_head)
            y = self.y.at(batch * size.y_batch + head * size.y_head)
            mask = self.mask.at(batch * size.mask_batch + head * size.mask_head)
            self._emit_rows(Head(number, q, k, v, mask, y, first, stop))

    def _make_ready(self, k: Pointer, v: Pointer) -> None:
        """Copy k, turned, and v to panels: [depth][width] and [keys][width], those of v part by part."""
        code, size = self.code, self.size

        def copy(
            source: Pointer,
            target: Pointer,
            rows: SSAValue,
            columns: SSAValue,
            steps: tuple[SSAValue, SSAValue],
            width: int,
        ) -> None:
            emit_copy(code, source, steps, (rows, columns), target, code.integer(width), self.lanes)

        depth, columns = self._of_part(size.depth), self._of_part(size.value_depth)

        def key_panel(column: SSAValue, width: int) -> None:
            for number, part in enumerate(self._parts(k)):
                target = self.k_panels.at(column * size.depth + depth * (number * width))
                steps, count = (size.k_column, size.k_row), smaller(size.keys - column, width)
                copy(part.at(column * size.k_row), target, depth, count, steps, width)

        self.panels(size.keys, key_panel)
        for panels, part in zip(self._value_panels(), self._parts(v), strict=True):

            def value_panel(column: SSAValue, width: int, panels: Pointer = panels, part: Pointer = part) -> None:
                steps, count = (size.v_row, size.v_column), smaller(columns - column, width)
                target = panels.at(column * size.keys)
                copy(part.at(column * size.v_column), target, size.keys, count, steps, width)

            self.panels(columns, value_panel)

    def _value_panels(self) -> list[Pointer]:
        """The first panel of each part of v."""
        if self.spec.parts == 1:
            return [self.v_panels]
        elements = self._packed(self._of_part(self.size.value_depth)) * self.size.keys
        return [self.v_panels.at(elements * number) for number in range(self.spec.parts)]

    def _emit_rows(self, head: Head) -> None:
        """All query rows of a task, by the highest tile that fits."""
        *higher, lowest = self.spec.rows
        if not higher:
            self._emit_blocks(head, lowest)
            return
        with self.code.if_else(head.stop - head.first >= higher[0]) as (high, low):
            with high:
                self._emit_blocks(head, higher[0])
            with low:
                self._emit_blocks(head, lowest)

    # ------------------------------------------------------------ a block of rows

    def _emit_blocks(self, head: Head, height: int) -> None:
        code, size = self.code, self.size
        with code.loop(head.stop, head.first, BLOCK_TILES * height) as start:
            tiles = (smaller(head.stop - start, BLOCK_TILES * height) + (height - 1)) / height
            seen = size.keys
            if self.spec.causal:
                end_row = smaller(start + BLOCK_TILES * height, head.stop)
                seen = larger(smaller(seen, end_row + size.causal_offset), 0)

            def row_of(tile: SSAValue, start: SSAValue = start) -> SSAValue:
                """The first query row of a tile; the last one is moved up to be full, and does some rows again."""
                return smaller(start + tile * height, head.stop - height)

            self._emit_scores(head, height, tiles, row_of, seen)
            with code.loop(tiles) as tile:
                self._emit_softmax(head, height, tile, row_of(tile), seen)
            self._emit_results(head, height, tiles, row_of, seen)

    def _emit_scores(
        self, head: Head, height: int, tiles: SSAValue, row_of: Callable[[SSAValue], SSAValue], seen: SSAValue
    ) -> None:
        size = self.size
        if self._in_place(height):
            self._emit_scores_in_place(head, height, tiles, row_of, seen)
            return

        def panel(column: SSAValue, width: int) -> None:
            with self.code.loop(tiles) as tile:
                a = head.q.at(row_of(tile) * size.q_row)
                b, c = self.k_panels.at(column * size.depth), self.scores.at(tile * height * self.score_row + column)
                self._tile(height, width, a, size.q_row, b, size.depth, c, self.score_row)

        self.panels(size.keys, panel, seen)

    def _in_place(self, height: int) -> bool:
        """Whether tiles of this height read k and v where they lie."""
        return self.spec.in_place and height == self.spec.rows[-1]

    def _emit_scores_in_place(
        self, head: Head, height: int, tiles: SSAValue, row_of: Callable[[SSAValue], SSAValue], seen: SSAValue
    ) -> None:
        def write(attention: Attention, q: Pointer, k: Pointer, scores: Pointer, seen: SSAValue) -> None:
            code, size, depth = attention.code, attention.size, attention._of_part(attention.size.depth)
            parts = [
                (
                    Matrix(q.at(depth * n), size.q_row, code.integer(height), depth),
                    Matrix(part, size.k_row, seen, depth),
                )
                for n, part in enumerate(attention._parts(k))
            ]
            emit_scores(code, parts, height, scores, attention.score_row, attention.lanes)

        with self.code.loop(tiles) as tile:
            q = head.q.at(row_of(tile) * self.size.q_row)
            scores = self.scores.at(tile * height * self.score_row)
            self._function(f"scores_in_place.{height}", [q, head.k, scores, seen], write)

    def _result_in_place(
        self, height: int, width: int, weights: Pointer, v: Pointer, seen: SSAValue, columns: SSAValue
    ) -> None:
        """The part of v that begins at `v` has `columns` columns."""

        def write(attention: Attention, weights: Pointer, v: Pointer, seen: SSAValue, columns: SSAValue) -> None:
            rows = Matrix(v, attention.size.v_row, seen, columns)
            results = Matrix(attention.results, attention.code.integer(width), rows.rows, columns)
            emit_results(attention.code, weights, attention.score_row, height, rows, results, width, attention.lanes)

        name = f"results_in_place.{height}.{width}.{v.element.name.replace(' ', '_')}"
        self._function(name, [weights, v, seen, columns], write)

    def _emit_results(
        self, head: Head, height: int, tiles: SSAValue, row_of: Callable[[SSAValue], SSAValue], seen: SSAValue
    ) -> None:
        code, size = self.code, self.size
        columns = self._of_part(size.value_depth)

        def panel(column: SSAValue, width: int, number: int, v: Pointer, panels: Pointer) -> None:
            def write(attention: Attention, *place: Any) -> None:
                attention._write_results(height, width, *place)

            with code.loop(tiles) as tile:
                weights = self.scores.at(tile * height * self.score_row)
                if self._in_place(height):
                    self._result_in_place(height, width, weights, v.at(column), seen, columns - column)
                else:
                    b = panels.at(column * size.keys)
                    self._tile(height, width, weights, self.score_row, b, seen, self.results, code.integer(width))
                row = row_of(tile)
                place: list[SSAValue | Pointer] = [
                    head.y.at(row * size.y_row),
                    head.number,
                    tile * height,
                    row,
                    columns * number + column if number else column,
                    columns - column,
                ]
                self._function(f"write.{height}.{width}", place, write)

        for number, (v, panels) in enumerate(zip(self._parts(head.v), self._value_panels(), strict=True)):
            self.panels(columns, functools.partial(panel, number=number, v=v, panels=panels))

    def _write_results(  # noqa: PLR0913  (what is passed on as a function's arguments)
        self,
        height: int,
        width: int,
        y: Pointer,
        number: SSAValue,
        local: SSAValue,
        row: SSAValue,
        column: SSAValue,
        columns: SSAValue,
    ) -> None:
        """A tile of results, of which `columns` count from `column` on, times the factors of their rows, goes to y."""
        code, lanes = self.code, self.lanes
        with code.loop(code.integer(height)) as r:
            factor = code.splat(self.factors.load(local + r), lanes)
            with code.loop(smaller(columns, width), 0, lanes) as i:
                active = columns - i
                value = self.results.load(r * width + i, lanes) * factor
                value = self.vectors.epilogue(value, number, row + r, column + i, active)
                y.store(r * self.size.y_row + column + i, value, active)

    def _tile(  # noqa: PLR0913  (what is passed on as a function's arguments)
        self, height: int, width: int, a: Pointer, a_row: SSAValue, b: Pointer, k: SSAValue, c: Pointer, c_row: SSAValue
    ) -> None:
        """c[height][width] = a[height][k] @ b[k][width], a function for both products."""

        def write(
            code: KernelBuilder, a: Pointer, a_row: SSAValue, b: Pointer, k: SSAValue, c: Pointer, c_row: SSAValue
        ) -> None:
            zero, vectors = code.number(types.float32, 0.0, self.lanes), width // self.lanes
            sums = [code.variable(zero) for _ in range(height * vectors)]
            kept = [c.at(c_row * r + v * self.lanes) for r in range(height) for v in range(vectors)]
            to_the_end = (code.integer(0), code.integer(1))  # what is kept behind the last chain is the product
            with in_chains(code, sums, kept, (larger(k, 1), 0, tuning.SUM_STEPS), to_the_end) as (first, end):
                added = emit_accumulate(
                    code.builder,
                    types.float32,
                    sums=[variable.get().value for variable in sums],
                    rows=Rows(a.at(first).value, row_offsets(a_row, height)),
                    panel=Panel(b.at(first * width).value, _I64(width)),
                    k=(smaller(end, k) - first).value,
                )
                for variable, value in zip(sums, added, strict=True):
                    variable.set(zero.like(value))

        self.code.subroutine(f"tile.{height}.{width}", [a, a_row, b, k, c, c_row], write, inline=False)

    # ------------------------------------------------------------ softmax

    def _emit_softmax(self, head: Head, height: int, tile: SSAValue, row: SSAValue, seen: SSAValue) -> None:
        """The rows of a tile of scores become weights."""
        mask = head.mask.at(row * self.size.mask_row)

        def write(attention: Attention, mask: Pointer, local: SSAValue, row: SSAValue, seen: SSAValue) -> None:
            rows = attention.code.integer(height)
            # Row after row for each pass: the next row need not wait for what goes across this one's lanes.
            with attention.code.loop(rows) as r:
                attention._write_largest(mask.at(r * attention.size.mask_row), local + r, row + r, seen)
            with attention.code.loop(rows) as r:
                attention._write_weights(local + r, row + r, seen)

        self._function(f"softmax.{height}", [mask, tile * height, row, seen], write)

    def _columns(self, row: SSAValue, seen: SSAValue) -> SSAValue:
        """How many keys a query row sees."""
        if not self.spec.causal:
            return seen
        return larger(smaller(seen, row + self.size.causal_offset + 1), 0)

    def _scale(self) -> SSAValue:
        """What scores are multiplied by: with log2(e), but for a mask, which is added in between."""
        return self.code.splat(self.scale if self.spec.natural else self.scale * LOG2_E, self.lanes)

    def _write_largest(self, mask_row: Pointer, local: SSAValue, row: SSAValue, seen: SSAValue) -> None:
        """Apply the mask to a row of scores and keep the largest in the place of its factor."""
        largest = self._largest(mask_row, self.scores.at(local * self.score_row), self._columns(row, seen))
        if self.spec.empty_rows_zero:
            largest = select(largest.equals(LOWEST), 0.0, largest)
        self.factors.store(local, largest)

    def _largest(self, mask_row: Pointer, scores: Pointer, columns: SSAValue) -> SSAValue:
        """Apply the mask to some scores; the largest, to the base that the spec says."""
        code, lanes, vectors, spec, scale = self.code, self.lanes, self.vectors, self.spec, self._scale()

        def score(column: SSAValue, active: SSAValue | None) -> SSAValue:
            value = scores.load(column, lanes)
            if not spec.mask:
                return value * scale
            mask = mask_row.load(column, lanes, active)
            if spec.mask == "float":
                value = fma(value, scale, mask)
            else:
                value = select(mask.equals(0), code.splat(self.fill, lanes), value * scale)
            scores.store(column, value)
            return value

        # A NaN need not come through here: its exponential spoils the sum.
        return vectors.largest(vectors.fold(columns, LOWEST, larger_lanes, score))

    def _write_weights(self, local: SSAValue, row: SSAValue, seen: SSAValue) -> None:
        """A row of scores becomes one of weights; the factor that makes their sum 1 is kept for the results."""
        code, spec = self.code, self.spec
        scores, columns = self.scores.at(local * self.score_row), self._columns(row, seen)
        total = self._weigh(scores, columns, self.factors.load(local))
        factor = 1.0 / total
        if spec.empty_rows_zero:
            factor = select(total.equals(0.0), 0.0, factor)
        self.factors.store(local, factor)
        if spec.causal:
            with code.loop(seen, columns) as column:
                scores.store(column, code.number(types.float32, 0.0))

    def _weigh(self, scores: Pointer, columns: SSAValue, largest: SSAValue) -> SSAValue:
        """Some scores become weights, 2**(score - largest) with scores times log2(e); their sum."""
        code, lanes, vectors, spec, scale = self.code, self.lanes, self.vectors, self.spec, self._scale()
        largest = code.splat(largest, lanes)

        def weight(column: SSAValue, active: SSAValue | None) -> SSAValue:
            value = scores.load(column, lanes)
            # Masked scores may be the lowest float, which times log2(e) would be infinite: subtract first.
            exponent = (value - largest) * LOG2_E if spec.natural else fma(value, scale, -largest)
            power = vecmath.exp2_flush(exponent)
            scores.store(column, power)
            return power

        return vectors.sum(vectors.fold(columns, 0.0, lambda a, b: a + b, weight))

"""Attention with products of bfloat16, in AMX's tile registers or by dot products of pairs: q, k, v and weights are
rounded, sums and softmax are float32.

once a head: k and v to panels of bfloat16                        scratch, second-level cache
for each block of up to 32 query rows
    q to bfloat16; for each panel of 32 keys                      scores = q @ k
    for each row                                                  weights = exp(scale * scores + mask - largest)
    weights to bfloat16; for each panel of 32 columns of v        y = weights @ v / sum of weights
"""

from __future__ import annotations

from typing import Any

from jitonnx.emit import types
from jitonnx.emit.builder import KernelBuilder, Pointer, remainder, smaller
from jitonnx.emit.ssa import SSAValue, one_if
from jitonnx.kernels.attention.kernel import Attention, Head
from jitonnx.kernels.attention.spec import BLOCK_ROWS, PADDING, STEP
from jitonnx.kernels.bfloat16.dots import row_sums
from jitonnx.kernels.parts.amx import clear, multiply, store
from jitonnx.kernels.parts.amx_packing import rounded_step, tile_of_columns, tile_of_rows
from jitonnx.kernels.parts.layouts import LINE, TILE
from jitonnx.support.records import NamedTuple

_PANEL_STEP = 2 * TILE * LINE
"""Bytes of a step of a panel of 32 columns: two tiles."""
_TOGETHER = 8
"""Rows whose dot products are summed at a time: 16 sums, of 12 that a core adds to meanwhile."""


class _Product(NamedTuple):
    """Rounded rows times a panel of 32 columns, in whole steps."""

    x: Pointer
    pitch: SSAValue
    """Bytes from row to row of x."""
    panel: Pointer
    steps: SSAValue
    sums: Pointer
    sums_pitch: SSAValue
    """Bytes from row to row of the sums."""


class Rounded(Attention):
    """Emits one kernel."""

    def _lay_out_scratch(self) -> None:
        """Scratch memory is laid out in the order of AttentionSpec.rounded_bytes."""
        code, size = self.code, self.size
        deep, long, wide = ((extent + (STEP - 1)) / STEP * STEP for extent in (size.depth, size.keys, size.value_depth))
        self.score_row = long + PADDING
        self.q_pitch, self.weight_pitch = deep * 2 + LINE, long * 2 + LINE
        self.k_tiles = code.scratch(types.uint8)
        self.v_tiles = self.k_tiles.at(long * deep * 2)
        self.q_rows = self.v_tiles.at(long * wide * 2)
        rows = self.q_rows.at(self.q_pitch * BLOCK_ROWS)
        self.scores = self.k_panels = self.v_panels = rows.to(types.float32)
        self.weights = rows.at(self.score_row * (BLOCK_ROWS * 4))
        self.results = self.weights.at(self.weight_pitch * BLOCK_ROWS).to(types.float32)
        self.factors = self.results.at(BLOCK_ROWS * BLOCK_ROWS)

    def _make_ready(self, k: Pointer, v: Pointer) -> None:
        """k and v as tiles: what is multiplied with 16 keys, or columns of v, by pairs along the sums. For dot
        products, a pair of all 32 columns of a panel lies together."""
        code, size = self.code, self.size
        pitch, beside = (2 * LINE, LINE) if self.spec.rounded == "dots" else (LINE, TILE * LINE)
        depth_steps = (size.depth + (STEP - 1)) / STEP
        with code.loop(size.keys, 0, TILE) as first, code.loop(depth_steps) as step:
            panel = self.k_tiles.at((first / STEP * depth_steps + step) * _PANEL_STEP)
            tile = panel.at(remainder(first / TILE, code.integer(2)) * beside)
            active = size.depth - step * STEP

            def column_of(n: int, first: SSAValue = first, step: SSAValue = step) -> Pointer:
                return k.at(smaller(first + n, size.keys - 1) * size.k_row + step * STEP)

            tile_of_columns(tile, column_of, active, pitch)
        key_steps = (size.keys + (STEP - 1)) / STEP
        with code.loop(size.value_depth, 0, TILE) as column, code.loop(key_steps) as step:
            panel = self.v_tiles.at((column / STEP * key_steps + step) * _PANEL_STEP)
            tile = panel.at(remainder(column / TILE, code.integer(2)) * beside)

            def row_of(n: int, column: SSAValue = column, step: SSAValue = step) -> tuple[Pointer, SSAValue]:
                key = step * STEP + n
                active = (size.value_depth - column) * one_if(key < size.keys)
                return v.at(smaller(key, size.keys - 1) * size.v_row + column), active

            tile_of_rows(tile, row_of, pitch)

    def _emit_rows(self, head: Head) -> None:
        code, spec = self.code, self.spec
        if not spec.in_place:
            self._emit_rounded(head)
            return
        with code.if_else(self.size.queries >= spec.rows[0]) as (many, few):
            with many:
                self._emit_rounded(head)
            with few:
                self._emit_blocks(head, spec.rows[-1])

    def _emit_rounded(self, head: Head) -> None:
        code, size = self.code, self.size
        with code.loop(head.stop, head.first, BLOCK_ROWS) as start:
            active = smaller(head.stop - start, BLOCK_ROWS)
            seen = self._columns(start + active - 1, size.keys)
            place: list[SSAValue | Pointer] = [head.q.at(start * size.q_row), head.mask.at(start * size.mask_row)]
            place += [head.y.at(start * size.y_row), head.number, start, active, seen]
            self._function("block", place, Rounded._write_block)

    def _write_block(
        self, q: Pointer, mask: Pointer, y: Pointer, number: SSAValue, start: SSAValue, active: SSAValue, seen: SSAValue
    ) -> None:
        """Query rows `start`, …, start + live - 1, which see `seen` keys at most."""
        code, size = self.code, self.size
        depth_steps, key_steps = ((extent + (STEP - 1)) / STEP for extent in (size.depth, size.keys))
        with code.loop(active) as r, code.loop(depth_steps) as step:
            row = self.q_rows.at(r * self.q_pitch).to(types.uint16)
            row.store(step * STEP, rounded_step(q.at(r * size.q_row + step * STEP), 0, size.depth - step * STEP))
        with code.loop(seen, 0, STEP) as key:
            panel = self.k_tiles.at(key * (depth_steps * (_PANEL_STEP // STEP)))
            scores = self.scores.at(key).as_bytes()
            product = _Product(self.q_rows, self.q_pitch, panel, depth_steps, scores, self.score_row * 4)
            self._product(product, active)
        with code.loop(active) as r:
            self._write_largest(mask.at(r * size.mask_row), r, start + r, seen)
        with code.loop(active) as r:
            self._write_weights(r, start + r, seen)
            columns = self._columns(start + r, seen)
            row, weights = self.scores.at(r * self.score_row), self.weights.at(r * self.weight_pitch).to(types.uint16)
            with code.loop(seen, 0, STEP) as key:
                weights.store(key, rounded_step(row, key, columns - key))
        seen_steps = (seen + (STEP - 1)) / STEP
        with code.loop(size.value_depth, 0, STEP) as column:
            panel = self.v_tiles.at(column * (key_steps * (_PANEL_STEP // STEP)))
            results = self.results.as_bytes()
            pitch = code.integer(BLOCK_ROWS * 4)
            self._product(_Product(self.weights, self.weight_pitch, panel, seen_steps, results, pitch), active)
            with code.loop(active) as r:
                factor = code.splat(self.factors.load(r), self.lanes)
                with code.loop(smaller(size.value_depth - column, STEP), 0, self.lanes) as i:
                    value = self.results.load(r * BLOCK_ROWS + i, self.lanes) * factor
                    left = size.value_depth - column - i
                    value = self.vectors.epilogue(value, number, start + r, column + i, left)
                    y.store(r * size.y_row + column + i, value, left)

    def _product(self, product: _Product, active: SSAValue) -> None:
        """32 columns of the sums of a block's rows, of which `active` count."""
        if self.spec.rounded == "dots":
            x, pitch, panel, steps, sums, sums_pitch = product
            with self.code.loop(active, 0, _TOGETHER) as r:
                rows_of_it = _Product(x.at(pitch * r), pitch, panel, steps, sums.at(sums_pitch * r), sums_pitch)
                self.code.subroutine("product", rows_of_it, _write_dots, inline=False)
            return

        def write(code: KernelBuilder, *of_product: Any) -> None:
            x, pitch, panel, steps, sums, sums_pitch = _Product(*of_product)
            clear(code, rows, 2)
            with code.loop(steps) as step:
                tiles = [(x.at(pitch * (i * TILE) + step * LINE), pitch) for i in range(rows)]
                multiply(code, "tdpbf16ps", tiles, panel.at(step * _PANEL_STEP), 2, streams_w=False)
            store(code, rows, 2, sums, sums_pitch)

        with self.code.if_else(active > TILE) as (two, one):
            for branch, rows in ((two, 2), (one, 1)):
                with branch:
                    self.code.subroutine(f"product.{rows}", product, write, inline=False)


def _write_dots(code: KernelBuilder, *of_product: Any) -> None:
    """32 columns of the sums of _TOGETHER rows, all steps of which there are."""
    x, pitch, panel, steps, sums, sums_pitch = _Product(*of_product)
    found = row_sums(code, (_TOGETHER, 2 * TILE), x, pitch, panel, steps * TILE)
    for number, total in enumerate(found):
        place = sums.at(sums_pitch * (number // 2) + number % 2 * LINE).to(types.float32)
        place.store(0, SSAValue(code.builder, types.float32, total))

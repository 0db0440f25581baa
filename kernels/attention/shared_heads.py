"""Attention of one query row whose heads share keys and values: these are read once for all heads of a group.

for each group of heads
    for each four keys, for some heads together               scores = q @ k
    for each head                                             weights = exp(scale * scores + mask - largest)
    for each block of keys, first-level cache
        for each panel of v's columns, for some heads         results += weights @ v
    y = results / sum of weights
"""

from __future__ import annotations

from jitonnx.emit import types
from jitonnx.emit.builder import Pointer, remainder, smaller
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.attention.in_place import Matrix, emit_results, emit_scores
from jitonnx.kernels.attention.kernel import Attention
from jitonnx.kernels.attention.spec import PADDING
from jitonnx.kernels.parts.layouts import LINE
from jitonnx.kernels.parts.microkernel import emit_prefetch

_KEYS = 32
"""Keys whose values are multiplied for all heads before the next ones: 16 KB of 128 columns of float32."""
_TOGETHER = 4
"""Heads whose results are summed at a time."""


class SharedHeads(Attention):
    """Emits the tasks of such a kernel: `AttentionSpec.shared` heads each."""

    def _lay_out_scratch(self) -> None:
        """Scratch memory is laid out in the order of AttentionSpec.shared_elements."""
        size, shared = self.size, self.spec.shared
        self.part_row = self._packed(self._of_part(size.value_depth))
        self.score_row, self.result_row = self._packed(size.keys) + PADDING, self.part_row * self.spec.parts
        self.scores = self.code.scratch(types.float32)
        self.results = self.scores.at(self.score_row * shared)
        self.factors = self.results.at(self.result_row * shared)

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        code, size, shared = self.code, self.size, self.spec.shared
        with code.loop(end, begin) as task:
            groups = size.heads / shared
            batch, head = task / groups, remainder(task, groups) * shared
            kv_head = head * size.kv_heads / size.heads
            q = self.q.at(batch * size.q_batch + head * size.q_head)
            k = self.k.at(batch * size.k_batch + kv_head * size.k_head)
            v = self.v.at(batch * size.v_batch + kv_head * size.v_head)
            mask = self.mask.at(batch * size.mask_batch + head * size.mask_head)
            y = self.y.at(batch * size.y_batch + head * size.y_head)
            self._function("shared.scores", [q, k], type(self)._write_scores)
            self._function("shared.softmax", [mask], type(self)._write_softmax)
            self._function("shared.results", [v], type(self)._write_sums)
            self._function("shared.write", [y, batch * size.heads + head], type(self)._write)

    def _write_scores(self, q: Pointer, k: Pointer) -> None:
        code, size, depth = self.code, self.size, self._of_part(self.size.depth)
        parts = [
            (
                Matrix(q.at(depth * n), size.q_head, code.integer(self.spec.shared), depth),
                Matrix(part, size.k_row, size.keys, depth),
            )
            for n, part in enumerate(self._parts(k))
        ]
        emit_scores(code, parts, self.spec.shared, self.scores, self.score_row, self.lanes)

    def _write_softmax(self, mask: Pointer) -> None:
        code, size, row = self.code, self.size, self.code.integer(0)
        with code.loop(code.integer(self.spec.shared)) as head:
            self._write_largest(mask.at(head * size.mask_head), head, row, size.keys)
        with code.loop(code.integer(self.spec.shared)) as head:
            self._write_weights(head, row, size.keys)

    def _write_sums(self, v: Pointer) -> None:
        code, size, shared = self.code, self.size, self.spec.shared
        zero, columns = code.number(types.float32, 0.0, self.lanes), self._of_part(size.value_depth)
        with code.loop(self.result_row * shared, 0, self.lanes) as i:
            self.results.store(i, zero)
        whole = shared // _TOGETHER * _TOGETHER
        groups = [
            (height, begin, end)
            for height, begin, end in ((_TOGETHER, 0, whole), (shared - whole, whole, shared))
            if begin < end
        ]
        with code.loop(size.keys, 0, _KEYS) as key:
            keys = smaller(size.keys - key, _KEYS)
            soon = self._parts(v)[0].at(size.v_row * (key + _KEYS))  # all parts lie in the same bytes
            with code.loop(keys) as row, code.loop(columns, 0, 8 * LINE // soon.element.bitwidth) as column:
                emit_prefetch(code.builder, soon.at(size.v_row * row + column).value, level=1)
            for number, part in enumerate(self._parts(v)):

                def panel(column: SSAValue, width: int, number: int = number, part: Pointer = part) -> None:
                    for height, begin, end in groups:
                        with code.loop(code.integer(end), begin, height) as head:
                            place: list[SSAValue | Pointer] = [
                                *(self.scores.at(head * self.score_row + key), part.at(size.v_row * key + column)),
                                self.results.at(head * self.result_row + self.part_row * number + column),
                                *(keys, columns - column),
                            ]
                            self._add(height, width, place)

                self.panels(columns, panel)

    def _add(self, height: int, width: int, place: list[SSAValue | Pointer]) -> None:
        """Add what some keys give to the results of `height` heads."""

        def write(
            attention: SharedHeads, weights: Pointer, v: Pointer, results: Pointer, keys: SSAValue, columns: SSAValue
        ) -> None:
            rows = Matrix(v, attention.size.v_row, keys, columns)
            target = Matrix(results, attention.result_row, keys, columns)
            emit_results(
                attention.code, weights, attention.score_row, height, rows, target, width, attention.lanes, adds=True
            )

        element = place[1].element.name.replace(" ", "_")
        self._function(f"shared.add.{height}.{width}.{element}", place, write)

    def _write(self, y: Pointer, number: SSAValue) -> None:
        """The results of all heads, times their factors, go to y. number: the epilogue's batch of the first head."""
        code, lanes, columns = self.code, self.lanes, self._of_part(self.size.value_depth)
        with code.loop(code.integer(self.spec.shared)) as head:
            factor = code.splat(self.factors.load(head), lanes)
            for part in range(self.spec.parts):
                with code.loop(columns, 0, lanes) as i:
                    value = self.results.load(head * self.result_row + self.part_row * part + i, lanes) * factor
                    active, column = columns - i, columns * part + i
                    value = self.vectors.epilogue(value, number + head, code.integer(0), column, active)
                    y.store(head * self.size.y_head + column, value, active)

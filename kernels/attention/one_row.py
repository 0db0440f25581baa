"""Attention of one query row: keys and values are read once for all heads that share them, and by spans that are tasks.

for each group of heads, for each span of keys                    tasks
    for each block of keys
        for each four keys, for some heads together               scores = q @ k
        for each head                                             weights = exp(scale * scores + mask - largest so far)
        for some keys, first-level cache
            for each panel of v's columns, for some heads         results += weights @ v
    y = results / sum of weights, or they are kept with their sum and largest score
for each head                                                     y = spans, weighted by what was largest in them

When a block has a larger score than those before, the results so far are multiplied with what that makes of their
weights. The result does not depend on which thread does what. A block that no head sees, as sequences beside a longer
one have, is not read. Rows are asked for ahead in the order in which they are read: behind a block's keys its values,
then the next block's keys, then, of short sequences, that one's values; behind the last block the next task's.
"""

from __future__ import annotations

from collections.abc import Callable

from jitonnx.emit import types
from jitonnx.emit.builder import KernelBuilder, Pointer, Variable, remainder, smaller
from jitonnx.emit.mathematics import vecmath
from jitonnx.emit.ssa import SSAValue, fma, select
from jitonnx.kernels.attention.in_place import Asked, Matrix, emit_results, emit_scores, rows_ahead, rows_within
from jitonnx.kernels.attention.kernel import LOG2_E, LOWEST, Attention
from jitonnx.kernels.attention.spec import BLOCK_KEYS, PADDING, JoinBuffers, JoinSizes, JoinSpec
from jitonnx.kernels.parts.rows import larger_lanes
from jitonnx.support.records import NamedTuple

_KEYS = 32
"""Keys whose values are multiplied for all heads before the next ones: 16 KB of 128 columns of float32."""
_TOGETHER = 4
"""Heads whose results are summed at a time."""


class _Keys(NamedTuple):
    """Where some keys and their values lie."""

    k: Pointer
    v: Pointer
    rows: SSAValue


class OneRow(Attention):
    """Emits the tasks of such a kernel: a span of `AttentionSpec.shared` heads each."""

    def _lay_out_scratch(self) -> None:
        """Scratch memory is laid out in the order of AttentionSpec.shared_elements."""
        size, shared = self.size, self.spec.shared
        self.part_row = self._packed(self._of_part(size.value_depth))
        self.score_row, self.result_row = self.code.integer(BLOCK_KEYS + PADDING), self.part_row * self.spec.parts
        self.scores = self.code.scratch(types.float32)
        self.results = self.scores.at(self.score_row * shared)
        self.largest = self.results.at(self.result_row * shared)
        self.totals = self.largest.at(shared)

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        code, size = self.code, self.size
        with code.loop(end, begin) as task:
            batch, head, span = self._place(task)
            first = span * size.span_keys
            q = self.q.at(batch * size.q_batch + head * size.q_head)
            mask = self.mask.at(batch * size.mask_batch + head * size.mask_head + first)
            these, later = self._keys(task), self._keys(smaller(task + 1, end - 1))
            self._function("row.span", [q, mask, *these, *later], type(self)._span)
            number = batch * size.heads + head
            with code.if_else(size.span_count > 1) as (several, one):
                with several:
                    self._function("row.keep", [number * size.span_count + span], type(self)._keep)
                with one:
                    y = self.y.at(batch * size.y_batch + head * size.y_head)
                    self._function("row.write", [y, number], type(self)._write)

    def _place(self, task: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
        """A task's batch, first head, and span."""
        size, shared = self.size, self.spec.shared
        group, span = task / size.span_count, remainder(task, size.span_count)
        groups = size.heads / shared
        return group / groups, remainder(group, groups) * shared, span

    def _keys(self, task: SSAValue) -> _Keys:
        """The keys of a task."""
        size = self.size
        batch, head, span = self._place(task)
        kv_head, first = head * size.kv_heads / size.heads, span * size.span_keys
        return _Keys(
            self.k.at(batch * size.k_batch + kv_head * size.k_head + first * size.k_row),
            self.v.at(batch * size.v_batch + kv_head * size.v_head + first * size.v_row),
            smaller(size.keys - first, size.span_keys),
        )

    def _span(  # noqa: PLR0913  (what is passed on as a function's arguments)
        self,
        q: Pointer,
        mask: Pointer,
        k: Pointer,
        v: Pointer,
        keys: SSAValue,
        later_k: Pointer,
        later_v: Pointer,
        later_keys: SSAValue,
    ) -> None:
        """Results of some keys, with their largest scores and sums of weights. later: the next task's keys."""
        code, size, shared = self.code, self.size, self.spec.shared
        zero = code.number(types.float32, 0.0, self.lanes)
        with code.loop(self.result_row * shared, 0, self.lanes) as i:
            self.results.store(i, zero)
        with code.loop(code.integer(shared)) as head:
            self.largest.store(head, code.number(types.float32, LOWEST))
            self.totals.store(head, code.number(types.float32, 0.0))
        with code.loop(keys, 0, BLOCK_KEYS) as key:
            behind = keys - (key + BLOCK_KEYS)
            count, seen, is_last = smaller(keys - key, BLOCK_KEYS), mask.at(key), behind <= 0
            these = _Keys(k.at(size.k_row * key), v.at(size.v_row * key), count)
            later = _Keys(
                k.at(size.k_row * (key + BLOCK_KEYS)).unless(is_last, later_k),
                v.at(size.v_row * (key + BLOCK_KEYS)).unless(is_last, later_v),
                smaller(select(is_last, later_keys, behind), BLOCK_KEYS),
            )

            def block(these: _Keys = these, later: _Keys = later, seen: Pointer = seen) -> None:
                self._function("row.scores", [q, *these, *later], type(self)._write_scores)
                self._function("row.softmax", [seen, these.rows], type(self)._write_softmax)
                self._function("row.results", [these.v, these.rows, *later], type(self)._write_sums)

            if self.spec.mask == "bool":
                with code.if_then(self._is_seen(seen, count)):
                    block()
            else:
                block()

    def _matrices(self, keys: _Keys) -> tuple[Matrix, Matrix]:
        """Keys and values as they lie: all parts do so in the same bytes."""
        size = self.size
        return (
            Matrix(self._parts(keys.k)[0], size.k_row, keys.rows, self._of_part(size.depth)),
            Matrix(self._parts(keys.v)[0], size.v_row, keys.rows, self._of_part(size.value_depth)),
        )

    def _is_seen(self, mask: Pointer, keys: SSAValue) -> SSAValue:
        """Whether some head sees some of these keys, or sees them all alike, as what masks them is finite."""
        code, size = self.code, self.size
        seen = code.variable(select(self.fill.equals(LOWEST), code.number(types.float32, 0.0), 1.0))

        def one(column: SSAValue, active: SSAValue | None, row: Pointer) -> SSAValue:
            unseen = row.load(column, self.lanes, active).equals(0)
            return select(unseen, code.number(types.float32, 0.0, self.lanes), 1.0)

        with code.loop(select(size.mask_head.equals(0), 1, code.integer(self.spec.shared))) as head:
            row = mask.at(head * size.mask_head)
            some = self.vectors.fold(keys, 0.0, larger_lanes, lambda column, active: one(column, active, row))
            seen.set(larger_lanes(seen.get(), self.vectors.largest(some)))
        return seen.get() > 0.0

    def _write_scores(
        self,
        q: Pointer,
        k: Pointer,
        v: Pointer,
        keys: SSAValue,
        later_k: Pointer,
        later_v: Pointer,
        later_keys: SSAValue,
    ) -> None:
        code, size, depth = self.code, self.size, self._of_part(self.size.depth)
        parts = [
            (
                Matrix(q.at(depth * n), size.q_head, code.integer(self.spec.shared), depth),
                Matrix(part, size.k_row, keys, depth),
            )
            for n, part in enumerate(self._parts(k))
        ]
        _, values = self._matrices(_Keys(k, v, keys))
        later = [values, *self._matrices(_Keys(later_k, later_v, later_keys))]
        emit_scores(code, parts, self.spec.shared, self.scores, self.score_row, self.lanes, later)

    def _write_softmax(self, mask: Pointer, keys: SSAValue) -> None:
        code, size = self.code, self.size
        with code.loop(code.integer(self.spec.shared)) as head:
            scores, before = self.scores.at(head * self.score_row), self.largest.load(head)
            largest = larger_lanes(self._largest(mask.at(head * size.mask_head), scores, keys), before)
            self.largest.store(head, largest)
            subtracted = _finite(largest)
            total = self._weigh(scores, keys, subtracted)
            change = _power(before - subtracted, natural=self.spec.natural)
            self.totals.store(head, fma(self.totals.load(head), change, total))
            with code.if_then(before < largest), code.loop(self.result_row, 0, self.lanes) as i:
                at = head * self.result_row + i
                self.results.store(at, self.results.load(at, self.lanes) * code.splat(change, self.lanes))

    def _write_sums(self, v: Pointer, keys: SSAValue, later_k: Pointer, later_v: Pointer, later_keys: SSAValue) -> None:
        code, size, shared = self.code, self.size, self.spec.shared
        columns = self._of_part(size.value_depth)
        # Of few heads a long row of v is read at once, whose halves would come a block of keys apart (29 GB/s of 128
        # columns for 4 heads are 32 on a Zen 5 core); of more, that would read it once more for two heads each.
        wide = 2 * self.spec.widths[0] if shared <= _TOGETHER and code.target.vector_registers >= 32 else 0
        in_wide = columns / wide * wide if wide else code.integer(0)
        values = Matrix(self._parts(v)[0], size.v_row, keys, columns)
        # Keys of a single head are not asked for (`in_place`), and its values no further ahead than they are used.
        read = [values, *self._matrices(_Keys(later_k, later_v, later_keys))] if shared > 1 else [values]
        ahead = rows_within(code, values) if shared > 1 else code.integer(_KEYS)
        with code.loop(keys, 0, _KEYS) as key:
            some = smaller(keys - key, _KEYS)
            within = rows_ahead(code, key + ahead, read)
            behind = rows_ahead(code, key + ahead + within.rows, read)
            for number, part in enumerate(self._parts(v)):

                def panel(column: SSAValue, width: int, number: int = number, part: Pointer = part) -> None:
                    together = _TOGETHER // 2 if width == wide else _TOGETHER
                    whole = shared // together * together
                    for height, begin, end in ((together, 0, whole), (shared - whole, whole, shared)):
                        if begin == end:
                            continue
                        with code.loop(code.integer(end), begin, height) as head:
                            place: list[SSAValue | Pointer] = [
                                *(self.scores.at(head * self.score_row + key), part.at(size.v_row * key + column)),
                                self.results.at(head * self.result_row + self.part_row * number + column),
                                *(some, columns - column),
                                *(within.start.at(column), behind.row(-within.rows).at(column)),
                                *(within.step, within.rows, behind.step),
                            ]
                            self._add(height, width, place)

                def rest(column: SSAValue, width: int, panel: Callable[[SSAValue, int], None] = panel) -> None:
                    panel(in_wide + column, width)

                if wide:
                    with code.loop(in_wide, 0, wide) as column:
                        panel(column, wide)
                self.panels(columns - in_wide, rest)

    def _add(self, height: int, width: int, place: list[SSAValue | Pointer]) -> None:
        """Add what some keys give to the results of `height` heads."""

        def write(  # noqa: PLR0913  (what is passed on as a function's arguments)
            attention: OneRow,
            weights: Pointer,
            v: Pointer,
            results: Pointer,
            keys: SSAValue,
            columns: SSAValue,
            within: Pointer,
            behind: Pointer,
            step: SSAValue,
            asked: SSAValue,
            step_behind: SSAValue,
        ) -> None:
            code = attention.code
            rows = Matrix(v, attention.size.v_row, keys, columns)
            target = Matrix(results, attention.result_row, keys, columns)
            emit_results(
                *(code, weights, attention.score_row, height, rows, target, width, attention.lanes),
                adds=True,
                asked=(Asked(within, step, asked), Asked(behind, step_behind, keys)),
            )

        element = place[1].element.name.replace(" ", "_")
        self._function(f"row.add.{height}.{width}.{element}", place, write)

    def _keep(self, span: SSAValue) -> None:
        """What joining takes of all heads. span: the place of the first head's span."""
        code, size, columns = self.code, self.size, self._of_part(self.size.value_depth)
        row = size.value_depth + 2
        with code.loop(code.integer(self.spec.shared)) as head:
            kept = self.spans.at((span + head * size.span_count) * row)
            for part in range(self.spec.parts):
                with code.loop(columns, 0, self.lanes) as i:
                    value = self.results.load(head * self.result_row + self.part_row * part + i, self.lanes)
                    kept.store(columns * part + i, value, columns - i)
            kept.store(size.value_depth, self.largest.load(head))
            kept.store(size.value_depth + 1, self.totals.load(head))

    def _write(self, y: Pointer, number: SSAValue) -> None:
        """The results of all heads, over their sums of weights, go to y. number: the epilogue's batch of the first."""
        code, lanes, columns = self.code, self.lanes, self._of_part(self.size.value_depth)
        with code.loop(code.integer(self.spec.shared)) as head:
            factor = code.splat(_inverse(self.totals.load(head), empty_is_zero=self.spec.empty_rows_zero), lanes)
            for part in range(self.spec.parts):
                with code.loop(columns, 0, lanes) as i:
                    value = self.results.load(head * self.result_row + self.part_row * part + i, lanes) * factor
                    active, column = columns - i, columns * part + i
                    value = self.vectors.epilogue(value, number + head, code.integer(0), column, active)
                    y.store(head * self.size.y_head + column, value, active)


def emit_join(code: KernelBuilder, spec: JoinSpec, lanes: int, begin: SSAValue, end: SSAValue) -> None:
    """The kernel of `spec` for float32 vectors of `lanes`."""
    size = code.sizes(JoinSizes)
    all_spans, all_y = code.buffers(JoinBuffers, types.float32)
    row = size.value_depth + 2
    with code.loop(end, begin) as task:
        spans = all_spans.at(task * size.span_count * row)
        y = all_y.at(task / size.heads * size.y_batch + remainder(task, size.heads) * size.y_head)
        largest, total = (code.variable(code.number(types.float32, start)) for start in (LOWEST, 0.0))
        with code.loop(size.span_count) as span:
            largest.set(larger_lanes(spans.load(span * row + size.value_depth), largest.get()))
        subtracted = _finite(largest.get())

        def weight(span: SSAValue, row: SSAValue = row, spans: Pointer = spans) -> SSAValue:
            return _power(spans.load(span * row + size.value_depth) - subtracted, natural=spec.natural)

        with code.loop(size.span_count) as span:
            total.set(fma(spans.load(span * row + (size.value_depth + 1)), weight(span), total.get()))
        factor = code.splat(_inverse(total.get(), empty_is_zero=spec.empty_rows_zero), lanes)
        with code.loop(size.value_depth, 0, lanes) as column:
            active = size.value_depth - column
            value = code.variable(code.number(types.float32, 0.0, lanes))
            with code.loop(size.span_count) as span:
                _add_weighted(value, spans.load(span * row + column, lanes, active), code.splat(weight(span), lanes))
            y.store(column, value.get() * factor, active)


def _add_weighted(value: Variable, x: SSAValue, weight: SSAValue) -> None:
    value.set(fma(x, weight, value.get()))


def _finite(largest: SSAValue) -> SSAValue:
    """What is subtracted from scores of which this is the largest: 0 where all are -inf, whose powers are 0 then."""
    return select(largest.equals(LOWEST), 0.0, largest)


def _power(difference: SSAValue, *, natural: bool) -> SSAValue:
    """The factor that a difference of scores stands for."""
    return vecmath.exp2_flush(difference * LOG2_E if natural else difference)


def _inverse(total: SSAValue, *, empty_is_zero: bool) -> SSAValue:
    """What makes the sum of weights 1; of no weights infinity, which makes results of 0 NaN, or 0."""
    return select(total.equals(0.0), 0.0, 1.0 / total) if empty_is_zero else 1.0 / total

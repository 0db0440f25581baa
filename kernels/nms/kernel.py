"""The kernels of NonMaxSuppression: a heap of candidates, and vectors of chosen boxes to compare them with."""

from __future__ import annotations

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, larger, remainder, smaller
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue, bits, isnan, select
from jitonnx.kernels.nms.spec import (
    CORNERS,
    PADDING,
    NmsBuffers,
    NmsSizes,
    NmsSpec,
    SelectedBuffers,
    SelectedSizes,
    SelectedSpec,
)
from jitonnx.kernels.parts.masks import each_bit, each_mask, mask_of

_KEY_BITS = 32
_LEAST = -(1 << 63)
"""The least record: no box has it."""


def build(spec: NmsSpec | SelectedSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    if isinstance(spec, SelectedSpec):
        return lambda code, begin, end: _selected(code)
    return lambda code, begin, end: _Suppression(spec, code, lanes).rows(begin, end)


def _selected(code: KernelBuilder) -> None:
    chosen, counts, out, total = code.buffers(SelectedBuffers, types.int64)
    batches, classes, most = code.sizes(SelectedSizes)
    written = code.variable(code.integer(0))
    with code.loop(batches) as batch, code.loop(classes) as kind:
        row = batch * classes + kind
        with code.loop(counts.load(row)) as number:
            place = out.at(written.get() * 3)
            for column, value in enumerate((batch, kind, chosen.load(row * most + number))):
                place.store(column, value)
            written.set(written.get() + 1)
    total.store(0, written.get())


class _Suppression:
    """Emits what is done with the rows of scores."""

    def __init__(self, spec: NmsSpec, code: KernelBuilder, lanes: int) -> None:
        self.spec, self.code, self.lanes = spec, code, lanes
        _, self.classes, self.count, self.most = code.sizes(NmsSizes)
        self.heap = code.scratch(types.int64)
        """A least one stands behind its last record: so each record has two children, or none."""
        kept = self.heap.at(self.count + PADDING).to(types.float32)
        self.kept = [kept.at((self.most + PADDING) * number) for number in range(CORNERS)]

    def rows(self, begin: SSAValue, end: SSAValue) -> None:
        """The chosen boxes of the rows [begin, end)."""
        code = self.code
        floats = dict.fromkeys(("boxes", "scores", "overlap", "least"), types.float32)
        buffers = code.buffers(NmsBuffers, types.int64, **floats)
        boxes, scores, limit, overlap, least, chosen, counts, error = buffers
        limit, self.overlap, self.least = limit.load(0), overlap.load(0), least.load(0)
        wrong = ~((self.overlap >= 0.0) & (self.overlap <= 1.0))
        with code.if_then(wrong):
            error.store(0, code.integer(1))
        limit = select(wrong, 0, smaller(larger(limit, 0), self.most))
        with code.loop(end, begin) as row:
            corners = boxes.at(row / self.classes * self.count * 4)
            taken = self._row(corners, scores.at(row * self.count), chosen.at(row * self.most), limit)
            counts.store(row, taken)

    def _row(self, boxes: Pointer, scores: Pointer, chosen: Pointer, limit: SSAValue) -> SSAValue:
        """Write the chosen boxes of a row; how many there are."""
        code = self.code
        taken = code.variable(code.integer(0))
        with code.if_then(limit > 0):
            left = code.variable(self._candidates(scores))
            self._order(left.get())
            with code.loop_while(lambda: (left.get() > 0) & (taken.get() < limit)):
                number = ~self.heap.load(0) & ((1 << _KEY_BITS) - 1)
                left.set(left.get() - 1)
                last = self.heap.load(left.get())
                self.heap.store(left.get(), code.integer(_LEAST))
                self._sift(last, code.integer(0), left.get())
                box = self._corners(boxes.at(number * 4))
                with code.if_then(~self._is_overlapped(box, taken.get())):
                    for kept, value in zip(self.kept, box, strict=True):
                        kept.store(taken.get(), value)
                    chosen.store(taken.get(), number)
                    taken.set(taken.get() + 1)
        return taken.get()

    # ------------------------------------------------------------ candidates

    def _candidates(self, scores: Pointer) -> SSAValue:
        """The records of the boxes whose score is high enough, in order of their numbers; how many there are."""
        code, heap, lanes = self.code, self.heap, self.lanes
        if not self.spec.thresholded:
            whole = self.count - remainder(self.count, code.integer(lanes))
            with code.loop(whole, step=lanes) as first:
                numbers = code.splat(first, lanes) + code.iota(lanes)
                heap.store(first, _record(scores.load(first, lanes), numbers))
            with code.loop(self.count, whole) as number:
                heap.store(number, _record(scores.load(number), number))
            return self.count
        found = code.variable(code.integer(0))

        def chosen(first: SSAValue, lanes: int | None) -> SSAValue:
            least = self.least if lanes is None else code.splat(self.least, lanes)
            return scores.load(first, lanes) > least

        def add(number: SSAValue) -> None:
            heap.store(found.get(), _record(scores.load(number), number))
            found.set(found.get() + 1)

        each_mask(
            code, self.count, lanes, chosen, lambda first, mask: each_bit(code, mask, lambda bit: add(first + bit))
        )
        return found.get()

    def _order(self, count: SSAValue) -> None:
        """Make a heap of the records: each is larger than its children."""
        code, half = self.code, count / self.code.integer(2)
        self.heap.store(count, code.integer(_LEAST))
        with code.loop(half) as done:
            at = half - 1 - done
            self._sift(self.heap.load(at), at, count)

    def _sift(self, record: SSAValue, at: SSAValue, count: SSAValue) -> None:
        """Put a record in its place at or below `at`, where nothing stands."""
        code, heap = self.code, self.heap
        hole, going = code.variable(at), code.variable(code.integer(1))
        with code.loop_while(lambda: (going.get() > 0) & (hole.get() * 2 + 1 < count)):
            child = hole.get() * 2 + 1
            left, right = heap.load(child), heap.load(child + 1)
            largest, place = larger(left, right), select(left > right, child, child + 1)
            with code.if_else(largest > record) as (below, here):
                with below:
                    heap.store(hole.get(), largest)
                    hole.set(place)
                with here:
                    going.set(code.integer(0))
        heap.store(hole.get(), record)

    # ------------------------------------------------------------ boxes

    def _corners(self, box: Pointer) -> list[SSAValue]:
        """The lowest and highest coordinates on both axes, and the area."""
        a, b, c, d = (box.load(number) for number in range(4))
        if self.spec.centers:
            low_x, high_x, low_y, high_y = a - c / 2.0, a + c / 2.0, b - d / 2.0, b + d / 2.0
        else:
            low_x, high_x = select(b < d, b, d), select(b < d, d, b)
            low_y, high_y = select(a < c, a, c), select(a < c, c, a)
        return [low_x, low_y, high_x, high_y, (high_x - low_x) * (high_y - low_y)]

    def _is_overlapped(self, box: list[SSAValue], taken: SSAValue) -> SSAValue:
        """Whether one of the boxes chosen so far overlaps a box too much."""
        code, lanes = self.code, self.lanes
        low_x, low_y, high_x, high_y, area = (code.splat(value, lanes) for value in box)
        overlap = code.splat(self.overlap, lanes)
        found, first = code.variable(code.integer(0)), code.variable(code.integer(0))
        with code.loop_while(lambda: (first.get() < taken) & found.get().equals(0)):
            at = first.get()
            left, top, right, bottom, other = (kept.load(at, lanes) for kept in self.kept)
            left, top = select(left > low_x, left, low_x), select(top > low_y, top, low_y)
            right, bottom = select(right < high_x, right, high_x), select(bottom < high_y, bottom, high_y)
            shared = (right - left) * (bottom - top)
            union = other + area - shared
            meets = (right > left) & (bottom > top) & (shared > 0.0) & (other > 0.0) & (area > 0.0) & (union > 0.0)
            active = SSAValue(code.builder, types.boolean, code.active(taken - at, lanes).value)
            found.set(mask_of(code, active & meets & (shared / union > overlap)))
            first.set(at + lanes)
        return found.get().differs(0)


def _record(score: SSAValue, number: SSAValue) -> SSAValue:
    """Key of a score and complemented number of its box: of equal scores the lower number is larger."""
    key = bits(score + 0.0)  # -0 becomes 0
    key = key ^ ((key >> (_KEY_BITS - 1)) & ((1 << (_KEY_BITS - 1)) - 1))
    key = select(isnan(score), -(1 << (_KEY_BITS - 1)), key)
    low = SSAValue(number.builder, types.uint64, (~number).value) & ((1 << _KEY_BITS) - 1)
    return (convert(key, types.int64) << _KEY_BITS) | convert(low, types.int64)

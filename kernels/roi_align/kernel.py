"""The kernels that bring regions of images to one size."""

from __future__ import annotations

import functools

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Mask, Pointer, Variable, each_vector, larger, remainder, smaller
from jitonnx.emit.simd import ceil, convert, floor, maximum, trunc
from jitonnx.emit.ssa import SSAValue, at_least, at_most, copysign, fma, from_bits, narrow, select
from jitonnx.kernels.roi_align.spec import LANES, MAX_SAMPLES, RoiAlignBuffers, RoiAlignSizes, RoiAlignSpec
from jitonnx.support.records import NamedTuple


def build(spec: RoiAlignSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    kind = _Pixels if spec.pixels else _Planes
    return lambda code, begin, end: kind(code, spec, lanes).emit(begin, end)


class _Samples(NamedTuple):
    """The places of the samples of a region's bins along an axis."""

    start: SSAValue
    """It is that of the region, in elements."""
    bin: SSAValue
    """The size of a bin."""
    each: SSAValue
    """How many a bin has."""
    length: SSAValue
    """It is that of the axis."""


class _Sample(NamedTuple):
    """One sample along an axis, or a vector of them."""

    low: SSAValue
    high: SSAValue
    low_weight: SSAValue
    high_weight: SSAValue
    inside: SSAValue
    """Whether it counts at all."""


class _Windows(NamedTuple):
    """Has for each bin along an axis the elements that it is made of, and their weights."""

    first: Pointer
    """int64: the first of them."""
    sizes: Pointer
    """int64: how many."""
    weights: Pointer
    bin: SSAValue
    """How far the weights of a bin are from those of the next."""
    step: SSAValue
    """How far the weight of an element is from that of the next."""
    longest: SSAValue
    """The largest count."""


class _RoiAlign:
    """What both layouts share: regions, and windows of their bins."""

    def __init__(self, code: KernelBuilder, spec: RoiAlignSpec, lanes: int) -> None:
        self.code, self.spec = code, spec
        self.element = getattr(types, spec.element)
        self.lanes = lanes * 4 // (self.element.bitwidth // 8)
        self.size = code.sizes(RoiAlignSizes)
        self.x, self.rois, self.batch_indices, self.y, self.error = code.buffers(
            RoiAlignBuffers, self.element, batch_indices=types.int64, error=types.int64
        )
        scale = from_bits(self.size.scale)
        self.scale = convert(scale, self.element)

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        """The tasks."""
        code, size = self.code, self.size
        whole = size.out_height if self.spec.pixels else size.channels
        with code.loop(end, begin) as task:
            roi, first = task / size.pieces, remainder(task, size.pieces) * size.piece
            image = self.batch_indices.load(roi)
            with code.if_else((image >= 0) & (image < size.images)) as (right, wrong):
                with right:
                    x, y = self.x.at(image * size.x_image), self.y.at(roi * size.y_roi)
                    self.region(x, y, self._axes(roi), first, smaller(whole, first + size.piece))
                with wrong:
                    self.error.store(0, code.integer(1))

    def region(self, x: Pointer, y: Pointer, axes: tuple[_Samples, _Samples], first: SSAValue, stop: SSAValue) -> None:
        """The rows of bins, or channels, first … stop - 1 of a region, whose samples lie by `axes`."""
        fill = self._largest_bins if self.spec.mode == "max" else self._average_bins
        fill(x, y, axes, first, stop)

    def _largest_bins(
        self, x: Pointer, y: Pointer, axes: tuple[_Samples, _Samples], first: SSAValue, stop: SSAValue
    ) -> None:
        """Write what `region` does, each bin the largest of its samples."""
        raise NotImplementedError

    def _average_bins(
        self, x: Pointer, y: Pointer, axes: tuple[_Samples, _Samples], first: SSAValue, stop: SSAValue
    ) -> None:
        """Write what `region` does, each bin the weighted sum of its window."""
        raise NotImplementedError

    def _axes(self, roi: SSAValue) -> tuple[_Samples, _Samples]:
        """Rows and columns."""
        corners = [self.rois.load(roi * 4 + number) * self.scale for number in range(4)]
        if self.spec.mode == "pool":
            corners = [_half_away(corner) for corner in corners]
        elif self.spec.half_pixel:
            corners = [corner - 0.5 for corner in corners]
        return self._samples(corners[1], corners[3], "height"), self._samples(corners[0], corners[2], "width")

    def _samples(self, start: SSAValue, end: SSAValue, axis: str) -> _Samples:
        extent = end - start
        if self.spec.mode == "pool":
            extent = extent + 1.0
        if self.spec.mode == "pool" or not self.spec.half_pixel:
            extent = at_least(extent, 1.0)
        bin = extent / convert(getattr(self.size, f"out_{axis}"), self.element)
        if self.spec.sampling:
            count = self.code.integer(self.spec.sampling)
        else:
            count = smaller(larger(convert(ceil(bin), types.int64), 0), MAX_SAMPLES)
        return _Samples(start, bin, count, getattr(self.size, axis))

    def _coordinate(self, samples: _Samples, bin: SSAValue, number: SSAValue) -> SSAValue:
        """The coordinate of sample `number` of a bin, or of a vector of bins."""
        lanes = bin.lanes
        start, size, count = samples.start, samples.bin, convert(samples.each, self.element)
        within = (convert(number, self.element) + 0.5) * size / count
        if lanes:
            start, size, within = (value.splat(lanes) for value in (start, size, within))
        return start + convert(bin, self.element) * size + within

    def _sample(self, samples: _Samples, bin: SSAValue, number: SSAValue) -> _Sample:
        x = self._coordinate(samples, bin, number)
        length, last = convert(samples.length, self.element), samples.length - 1
        if bin.lanes:
            length, last = length.splat(bin.lanes), last.splat(bin.lanes)
        inside = (x >= -1.0) & (x <= length)
        x = at_least(x, 0.0)
        low = convert(at_most(x, length), types.int64)
        behind = low >= last
        low, high = select(behind, last, low), select(behind, last, low + 1)
        rest = select(behind, 0.0, x - convert(low, self.element))
        return _Sample(low, high, 1.0 - rest, rest, inside)

    def _pooled(self, place: Pointer, bins: str, samples: _Samples) -> _Windows:
        """The pixels of all bins along an axis, at `place`, which have no weights."""
        code, size = self.code, self.size
        firsts = place.to(types.int64)
        counts = firsts.at(getattr(size, bins) + LANES)
        longest = code.variable(code.integer(0))
        start = convert(samples.start, types.int64)
        with code.loop(getattr(size, bins)) as bin:
            edges = (round(convert(bin + more, self.element) * samples.bin) for more, round in ((0, floor), (1, ceil)))
            first, end = (smaller(larger(convert(edge, types.int64) + start, 0), samples.length) for edge in edges)
            firsts.store(bin, first)
            counts.store(bin, larger(end - first, 0))
            longest.set(larger(longest.get(), end - first))
        nothing = code.integer(0)
        return _Windows(firsts, counts, counts.to(self.element), nothing, nothing, longest.get())

    def _rows_and_columns(self, axes: tuple[_Samples, _Samples]) -> tuple[_Windows, _Windows]:
        """The windows of both axes, in scratch memory."""
        scratch = self.code.scratch(types.uint8)
        behind = scratch.at(self._behind("out_height", "height"))
        if self.spec.mode == "pool":
            return self._pooled(scratch, "out_height", axes[0]), self._pooled(behind, "out_width", axes[1])
        rows = self._windows(scratch, "out_height", "height", axes[0], together=False)
        return rows, self._windows(behind, "out_width", "width", axes[1], together=not self.spec.pixels)

    def _begin(self, width: int) -> SSAValue:
        """What the sum, or largest, of a window begins with."""
        return self.code.number(self.element, float("-inf") if self.spec.mode == "pool" else 0.0, width)

    def _with(self, total: Variable, value: SSAValue, weights: Pointer, at: SSAValue) -> None:
        """Add an element of a window times its weight, which is the same for all lanes; or keep the larger one."""
        if self.spec.mode == "pool":
            total.set(maximum(total.get(), value))
        else:
            total.set(fma(value, weights.load(at).splat(value.lanes), total.get()))

    def _or_nothing(self, value: SSAValue, some: SSAValue) -> SSAValue:
        """The value of windows; 0 where there is nothing in them."""
        if self.spec.mode != "pool":
            return value  # an empty sum
        return select(some if some.lanes else some.splat(value.lanes), value, value.constant(0.0))

    def _windows(self, place: Pointer, bins: str, axis: str, samples: _Samples, *, together: bool) -> _Windows:
        """The windows of all bins along an axis, at `place`. together: the weights of all bins lie side by side."""
        code, size = self.code, self.size
        room = getattr(size, bins) + LANES
        first = place.to(types.int64)
        weights = first.at(room * 2).to(self.element)
        pitch, step = (code.integer(1), room) if together else (getattr(size, axis) + 0, code.integer(1))
        counts = first.at(room)
        longest = code.variable(code.integer(0))
        last = samples.length - 1
        with code.loop(getattr(size, bins)) as bin:
            ends = [self._coordinate(samples, bin, number) for number in (code.integer(0), samples.each - 1)]
            one, other = (smaller(larger(convert(end, types.int64), 0), last) for end in ends)
            low, high = smaller(one, other), smaller(larger(one, other) + 1, last)
            some = samples.each > 0
            count = select(some, high - low + 1, 0)
            first.store(bin, select(some, low, 0))
            counts.store(bin, count)
            longest.set(larger(longest.get(), count))
        nothing = code.number(self.element, 0.0)
        share = nothing.constant(1.0) / convert(larger(samples.each, 1), self.element)
        with code.loop(getattr(size, bins)) as bin, code.loop(longest.get()) as number:
            weights.store(bin * pitch + number * step, nothing)
        with code.loop(getattr(size, bins)) as bin:
            start = weights.at(bin * pitch - first.load(bin) * step)
            with code.loop(samples.each) as number:
                sample = self._sample(samples, bin, number)
                with code.if_then(sample.inside):
                    for element, weight in ((sample.low, sample.low_weight), (sample.high, sample.high_weight)):
                        start.store(element * step, fma(weight, share, start.load(element * step)))
        return _Windows(first, counts, weights, pitch, step, longest.get())

    def _corners(
        self, axes: tuple[_Samples, _Samples], row: SSAValue, column: SSAValue, down: SSAValue, across: SSAValue
    ) -> tuple[list[tuple[SSAValue, SSAValue, SSAValue]], SSAValue]:
        """The pixels of a sample, of one bin or of a vector of columns, by row and column with their weights; and
        whether it counts."""
        y, at = self._sample(axes[0], row, down), self._sample(axes[1], column, across)
        inside, weights = y.inside, [y.low_weight, y.high_weight]
        if column.lanes:
            inside, *weights = (value.splat(column.lanes) for value in (inside, *weights))
        corners = [
            (line, place, line_weight * weight)
            for line, line_weight in zip((y.low, y.high), weights, strict=True)
            for place, weight in ((at.low, at.low_weight), (at.high, at.high_weight))
        ]
        return corners, inside & at.inside

    def _lowest(self, axes: tuple[_Samples, _Samples]) -> SSAValue:
        """What the largest of a bin's samples begins with: 0 where there are none."""
        some = (axes[0].each > 0) & (axes[1].each > 0)
        nothing = self.code.number(self.element, 0.0)
        return select(some, nothing.constant(float("-inf")), nothing)

    def _keep_largest(self, y: Pointer, values: list[SSAValue], counts: SSAValue, mask: Mask | None) -> None:
        """Keep the larger of what is at y and the products of a sample, which are 0 where it does not count."""
        largest = functools.reduce(maximum, values)
        largest = select(counts, largest, largest.constant(0.0))
        y.store(0, maximum(y.load(0, largest.lanes, mask), largest), mask)

    def _behind(self, bins: str, axis: str) -> SSAValue:
        """Bytes of the windows of an axis whose weights do not lie together."""
        room = getattr(self.size, bins) + LANES
        return room * 16 + getattr(self.size, bins) * getattr(self.size, axis) * (self.element.bitwidth // 8)


class _Pixels(_RoiAlign):
    """Vectors along channels."""

    def _average_bins(
        self, x: Pointer, y: Pointer, axes: tuple[_Samples, _Samples], first: SSAValue, stop: SSAValue
    ) -> None:
        code, size = self.code, self.size
        rows, columns = self._rows_and_columns(axes)
        with code.loop(stop, first) as row, code.loop(size.out_width) as column:
            target = y.at(row * size.y_row + column * size.y_column)

            def piece(channel: SSAValue, width: int, mask: Mask | None, active: SSAValue) -> None:
                value = self._average(x.at(channel), rows, columns, row, column, width, mask)
                target.store(channel, value, mask)

            each_vector(code, size.channels, self.lanes, piece)

    def _average(
        self,
        x: Pointer,
        rows: _Windows,
        columns: _Windows,
        row: SSAValue,
        column: SSAValue,
        width: int,
        mask: Mask | None,
    ) -> SSAValue:
        code, size = self.code, self.size
        total = code.variable(self._begin(width))
        start = x.at(rows.first.load(row) * size.x_row + columns.first.load(column) * size.x_column)
        row_weights, column_weights = rows.weights.at(row * rows.bin), columns.weights.at(column * columns.bin)
        with code.loop(rows.sizes.load(row)) as number:
            line = start.at(number * size.x_row)
            part = code.variable(self._begin(width))
            with code.loop(columns.sizes.load(column)) as across:
                self._with(part, line.load(across * size.x_column, width, mask), column_weights, across)
            self._with(total, part.get(), row_weights, number)
        return self._or_nothing(total.get(), rows.sizes.load(row) * columns.sizes.load(column) > 0)

    def _largest_bins(
        self, x: Pointer, y: Pointer, axes: tuple[_Samples, _Samples], first: SSAValue, stop: SSAValue
    ) -> None:
        """The largest of all samples, which gather in y, so that each sample is found once for all channels."""
        code, size = self.code, self.size
        with code.loop(stop, first) as row, code.loop(size.out_width) as column:
            target = y.at(row * size.y_row + column * size.y_column)
            start = self._lowest(axes)

            def begin(channel: SSAValue, width: int, mask: Mask | None, active: SSAValue) -> None:
                target.store(channel, start.splat(width), mask)

            each_vector(code, size.channels, self.lanes, begin)
            with code.loop(axes[0].each) as down, code.loop(axes[1].each) as across:
                corners, counts = self._corners(axes, row, column, down, across)

                def piece(channel: SSAValue, width: int, mask: Mask | None, active: SSAValue) -> None:
                    values = []
                    for line, place, weight in corners:
                        pixel = x.at(line * size.x_row + place * size.x_column).load(channel, width, mask)
                        values.append(pixel * weight.splat(width))
                    self._keep_largest(target.at(channel), values, counts.splat(width), mask)

                each_vector(code, size.channels, self.lanes, piece)


class _Planes(_RoiAlign):
    """Vectors along columns."""

    def _average_bins(
        self, x: Pointer, y: Pointer, axes: tuple[_Samples, _Samples], first: SSAValue, stop: SSAValue
    ) -> None:
        code, size = self.code, self.size
        rows, columns = self._rows_and_columns(axes)
        line = columns.weights.at(size.width * (size.out_width + LANES))
        start, end = self._range(columns)
        with code.loop(stop, first) as channel:
            plane = x.at(channel * size.x_channel + start)
            with code.loop(size.out_height) as row:
                self._add_rows(plane, rows, row, line, end - start)
                target = y.at(channel * size.y_channel + row * size.y_row)
                with code.loop(size.out_width, step=self.lanes) as column:
                    active = size.out_width - column
                    target.store(column, self._across(line, columns, column, start, active), active)

    def _range(self, columns: _Windows) -> tuple[SSAValue, SSAValue]:
        """The first column of all windows, and that behind the last."""
        code, size = self.code, self.size
        start, end = code.variable(size.width + 0), code.variable(code.integer(0))
        with code.loop(size.out_width) as bin:
            first, count = columns.first.load(bin), columns.sizes.load(bin)
            start.set(smaller(start.get(), first))
            end.set(larger(end.get(), first + count))
        return start.get(), end.get()

    def _add_rows(self, plane: Pointer, rows: _Windows, row: SSAValue, line: Pointer, count: SSAValue) -> None:
        """The rows of a bin's window times their weights, at `line`."""
        code, size = self.code, self.size
        source, weights = plane.at(rows.first.load(row) * size.x_row), rows.weights.at(row * rows.bin)

        def piece(first: SSAValue, width: int, mask: Mask | None, active: SSAValue) -> None:
            total = code.variable(self._begin(width))
            with code.loop(rows.sizes.load(row)) as number:
                self._with(total, source.load(number * size.x_row + first, width, mask), weights, number)
            line.store(first, self._or_nothing(total.get(), rows.sizes.load(row) > 0), mask)

        each_vector(code, count, self.lanes, piece, blocks=2)

    def _across(
        self, line: Pointer, columns: _Windows, column: SSAValue, start: SSAValue, active: SSAValue
    ) -> SSAValue:
        """A vector of bins: the elements of their windows in a row times their weights."""
        code, lanes = self.code, self.lanes
        mask = code.active(active, lanes)
        chosen = SSAValue(code.builder, types.boolean, mask.value)
        first = columns.first.load(column, lanes, mask) - start.splat(lanes)
        count = columns.sizes.load(column, lanes, mask)
        last, total = first + count - 1, code.variable(self._begin(lanes))
        with code.loop(columns.longest) as number:
            # The windows of some are shorter than those of others: these read their last element again, with weight 0.
            value = line.gather(narrow(at_most(first + number.splat(lanes), last)), chosen & (count > 0))
            if self.spec.mode == "pool":
                total.set(maximum(total.get(), value))
            else:
                total.set(fma(value, columns.weights.load(number * columns.step + column, lanes, mask), total.get()))
        return self._or_nothing(total.get(), count > 0)

    def _largest_bins(
        self, x: Pointer, y: Pointer, axes: tuple[_Samples, _Samples], first: SSAValue, stop: SSAValue
    ) -> None:
        """Do it as for pixels, for vectors of bins."""
        code, size, lanes = self.code, self.size, self.lanes
        with code.loop(size.out_height) as row, code.loop(size.out_width, step=lanes) as column:
            active = code.active(size.out_width - column, lanes)
            chosen = SSAValue(code.builder, types.boolean, active.value)
            start, target = self._lowest(axes).splat(lanes), y.at(row * size.y_row + column)
            with code.loop(stop, first) as channel:
                target.store(channel * size.y_channel, start, active)
            bins = column.splat(lanes) + code.iota(lanes)
            with code.loop(axes[0].each) as down, code.loop(axes[1].each) as across:
                corners, counts = self._corners(axes, row, bins, down, across)
                with code.loop(stop, first) as channel:
                    plane = x.at(channel * size.x_channel)
                    values = [
                        plane.at(line * size.x_row).gather(narrow(place), chosen) * weight
                        for line, place, weight in corners
                    ]
                    self._keep_largest(target.at(channel * size.y_channel), values, counts, active)


def _half_away(x: SSAValue) -> SSAValue:
    """The nearest whole number, of two the one further from 0."""
    return trunc(x + copysign(x.constant(0.5), x))

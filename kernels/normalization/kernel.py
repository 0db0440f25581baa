"""Normalization kernels over contiguous elements: rows, and channels-first groups. `channels_last` has the others."""

from __future__ import annotations

from collections.abc import Callable

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, larger, remainder, smaller
from jitonnx.emit.epilogue import Stage
from jitonnx.emit.ssa import SSAValue, fma, sqrt
from jitonnx.kernels.normalization import channels_last
from jitonnx.kernels.normalization.spec import (
    GroupApplySpec,
    GroupNormSizes,
    GroupNormSpec,
    GroupStatisticsSpec,
    LayerNormBuffers,
    LayerNormSizes,
    LayerNormSpec,
    NormalizationBuffers,
)
from jitonnx.kernels.parts.rows import Vectors, as_element, float_from_bits, in_all_lanes, unit_range
from jitonnx.kernels.spec import KernelSpec
from jitonnx.target import tuning


def build(spec: KernelSpec, lanes: int, epilogue: Stage | None = None, prologue: Stage | None = None) -> Kernel:
    """The kernel of any spec of this family, for vectors of `lanes` elements (of spec.element)."""
    if isinstance(spec, GroupStatisticsSpec | GroupApplySpec):
        return channels_last.build(spec, lanes, epilogue, prologue)
    if not isinstance(spec, LayerNormSpec | GroupNormSpec):
        raise TypeError(f"Bug: {spec} is no normalization")
    if isinstance(spec, LayerNormSpec) and spec.result and (epilogue is None or (prologue and not spec.keep)):
        raise ValueError(f"Bug: y is {spec.result}, and not what the prologue or the normalization gives")

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        result = getattr(types, spec.result) if isinstance(spec, LayerNormSpec) and spec.result else None
        vectors = Vectors(code, getattr(types, spec.element), lanes, prologue, epilogue, result)
        if isinstance(spec, LayerNormSpec):
            _emit_rows(spec, vectors, begin, end)
        else:
            _emit_groups(spec, vectors, begin, end)

    return body


def _add(a: SSAValue, b: SSAValue) -> SSAValue:
    return a + b


# ---------------------------------------------------------------- rows


def _emit_rows(spec: LayerNormSpec, vectors: Vectors, begin: SSAValue, end: SSAValue) -> None:
    code, element, lanes = vectors.code, vectors.element, vectors.lanes
    size = code.sizes(LayerNormSizes)
    rows, columns = size.rows, size.columns
    first, stop = unit_range(code, begin, end, rows, columns)
    together = min(spec.together, lanes)
    epsilon, count = (
        code.splat(x, together) for x in (float_from_bits(size.epsilon_bits, element), as_element(columns, element))
    )
    with code.loop(stop, first, together) as row:
        # Rows that are not there are done as the last one is, at the same time.
        numbers = [row, *(smaller(row + place, stop - 1) for place in range(1, together))]
        _emit_some_rows(spec, vectors, numbers, epsilon, count)


def _emit_some_rows(
    spec: LayerNormSpec, vectors: Vectors, rows: list[SSAValue], epsilon: SSAValue, count: SSAValue
) -> None:
    """The rows of these numbers; epsilon and count: in all lanes, as many as there are rows.

    Of each vector all rows are read before any is written: a row may be there twice.
    """
    code, lanes = vectors.code, vectors.lanes
    stored = getattr(types, spec.result or spec.element)
    _, scale, bias, y, _ = code.buffers(LayerNormBuffers, vectors.element, y=stored)
    size = code.sizes(LayerNormSizes)
    columns, y_row = size.columns, size.y_row
    values = _Values(spec, vectors, rows)
    means: list[SSAValue] | None = None

    def differences(
        column: SSAValue, active: SSAValue | None, change: Callable[[SSAValue], SSAValue]
    ) -> list[SSAValue]:
        """What `change` makes of each row's values less their mean."""
        assert means is not None
        return [change(x - mean) for x, mean in zip(values.again(column, active), means, strict=True)]

    if spec.kind == "rms":
        squares = vectors.folds(
            len(rows), columns, 0.0, _add, lambda column, active: [_square(x) for x in values.first(column, active)]
        )
    else:
        means = in_all_lanes(vectors.sums(vectors.folds(len(rows), columns, 0.0, _add, values.first)) / count, lanes)
        squares = vectors.folds(
            len(rows), columns, 0.0, _add, lambda column, active: differences(column, active, _square)
        )
    factors = in_all_lanes(1.0 / sqrt(vectors.sums(squares) / count + epsilon), lanes)
    targets = [y.at(row * y_row).pinned() for row in rows]

    def finish(slot: int, column: SSAValue, active: SSAValue | None) -> None:
        found = values.again(column, active) if means is None else differences(column, active, lambda x: x)
        scaled = [x * factor for x, factor in zip(found, factors, strict=True)]
        if spec.scale and spec.bias:
            scaled = [fma(x, scale.load(column, lanes, active), bias.load(column, lanes, active)) for x in scaled]
        elif spec.scale:
            scaled = [x * scale.load(column, lanes, active) for x in scaled]
        elif spec.bias:
            scaled = [x + bias.load(column, lanes, active) for x in scaled]
        stage = zip(scaled, rows, strict=True)
        results = [vectors.epilogue(x, code.integer(0), row, column, active) for x, row in stage]
        for target, result in zip(targets, results, strict=True):
            target.store(column, result, active)

    vectors.each(columns, finish, len(rows))


class _Values:
    """Rows' values: read, put through the prologue and maybe stored at first, then read where they are."""

    def __init__(self, spec: LayerNormSpec, vectors: Vectors, rows: list[SSAValue]) -> None:
        code, element = vectors.code, vectors.element
        self._vectors, self._rows = vectors, rows
        x, _, _, y, kept = code.buffers(LayerNormBuffers, element)
        size = code.sizes(LayerNormSizes)
        self._x = [x.at(row * size.x_row).pinned() for row in rows]
        self._kept: list[Pointer] | None = None
        if spec.keep:
            self._kept = [kept.at(row * size.kept_row).pinned() for row in rows]
        elif vectors.has_prologue:
            self._kept = [y.at(row * size.y_row).pinned() for row in rows]

    def first(self, column: SSAValue, active: SSAValue | None) -> list[SSAValue]:
        vectors = self._vectors
        values = [x.load(column, vectors.lanes, active) for x in self._x]
        stage = zip(values, self._rows, strict=True)
        values = [vectors.prologue(x, vectors.code.integer(0), row, column, active) for x, row in stage]
        for kept, value in zip(self._kept or (), values, strict=False):
            kept.store(column, value, active)
        return values

    def again(self, column: SSAValue, active: SSAValue | None) -> list[SSAValue]:
        return [place.load(column, self._vectors.lanes, active) for place in self._kept or self._x]


def _square(x: SSAValue) -> SSAValue:
    return x * x


# ---------------------------------------------------------------- groups of channels, channels first


def _statistics(
    vectors: Vectors,
    image: SSAValue,
    x: Pointer,
    x_channel: SSAValue,
    channels: tuple[SSAValue, SSAValue],
    positions: SSAValue,
) -> tuple[SSAValue, SSAValue]:
    """The mean of some channels, and the sum of (value - mean)**2.

    Those of blocks, of a part of a channel or of several channels, are merged (T. F. Chan, G. H. Golub, R. J. LeVeque,
    1979): what lies in the second-level cache or beyond is read once.
    """
    code, element, lanes = vectors.code, vectors.element, vectors.lanes
    elements = code.integer(tuning.NORMALIZATION_BLOCK_BYTES * 8 // element.bitwidth)
    done, mean, squares = (code.variable(code.number(element, 0.0)) for _ in range(3))
    with code.loop(channels[1], channels[0], larger(elements / positions, 1)) as first:
        stop = smaller(first + larger(elements / positions, 1), channels[1])
        with code.loop(positions, 0, elements) as start:
            width = smaller(positions - start, elements)

            def total(change: Callable[[SSAValue], SSAValue]) -> SSAValue:
                sums = code.variable(code.number(element, 0.0, lanes))
                with code.loop(stop, first) as channel:
                    row = x.at(channel * x_channel + start)

                    def value(column: SSAValue, active: SSAValue | None) -> SSAValue:
                        loaded = row.load(column, lanes, active)
                        return change(vectors.prologue(loaded, image, channel, start + column, active))

                    sums.set(sums.get() + vectors.fold(width, 0.0, _add, value))
                return vectors.sum(sums.get())

            count = as_element((stop - first) * width, element)
            block_mean = total(lambda x: x) / count
            spread = code.splat(block_mean, lanes)
            block_squares = total(lambda x: _square(x - spread))
            share = count / (done.get() + count)
            difference = block_mean - mean.get()
            # The weight is 0 for the first block, whose difference alone may be too large to be squared.
            squares.set(squares.get() + block_squares + difference * (difference * (done.get() * share)))
            mean.set(fma(difference, share, mean.get()))
            done.set(done.get() + count)
    return mean.get(), squares.get()


def _emit_groups(spec: GroupNormSpec, vectors: Vectors, begin: SSAValue, end: SSAValue) -> None:
    code, element, lanes = vectors.code, vectors.element, vectors.lanes
    x, scale, bias, y = code.buffers(NormalizationBuffers, element)
    _, channels, positions, groups, x_image, x_channel, y_image, y_channel, bits = code.sizes(GroupNormSizes)
    smallest, each = float_from_bits(bits, element), channels / groups
    count = as_element(each * positions, element)
    with code.loop(end, begin) as task:
        image, first = task / groups, remainder(task, groups) * each
        source, target = x.at(image * x_image), y.at(image * y_image)

        mean, squares = _statistics(vectors, image, source, x_channel, (first, first + each), positions)
        factor = channels_last.inverse_deviation(spec, squares / count, smallest)
        with code.loop(first + each, first) as channel:
            row, out = source.at(channel * x_channel), target.at(channel * y_channel)
            scaled = code.splat(factor * scale.load(channel) if spec.scale else factor, lanes)
            shift = code.splat(bias.load(channel), lanes) if spec.bias else code.number(element, 0.0, lanes)
            spread = code.splat(mean, lanes)

            def finish(slot: int, column: SSAValue, active: SSAValue | None) -> None:
                value = vectors.prologue(row.load(column, lanes, active), image, channel, column, active)
                value = fma(value - spread, scaled, shift)
                out.store(column, vectors.epilogue(value, image, channel, column, active), active)

            vectors.each(positions, finish)

"""Normalization kernels over contiguous elements: rows, and channels-first groups. `channels_last` has the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numba.core import types

from jitonnx.kernels.code import Code, Pointer, emitted, remainder
from jitonnx.kernels.normalization import channels_last
from jitonnx.kernels.normalization.spec import GroupApplySpec, GroupNormSpec, GroupStatisticsSpec, LayerNormSpec
from jitonnx.kernels.rows import Vectors, as_element, float_from_bits, unit_range
from jitonnx.kernels.spec import KernelSpec
from jitonnx.kernels.trace import Traced, fma, sqrt


def build(spec: KernelSpec, lanes: int, epilogue: Any = None, prologue: Any = None) -> Callable[..., None]:
    """The kernel of any spec of this family, for vectors of `lanes` elements (of spec.element)."""
    if isinstance(spec, GroupStatisticsSpec | GroupApplySpec):
        return channels_last.build(spec, lanes, epilogue, prologue)
    if not isinstance(spec, LayerNormSpec | GroupNormSpec):
        raise TypeError(f"Bug: {spec} is no normalization")

    def body(code: Code, begin: Traced, end: Traced) -> None:
        vectors = Vectors(code, getattr(types, spec.element), lanes, prologue, epilogue)
        if isinstance(spec, LayerNormSpec):
            _emit_rows(spec, vectors, begin, end)
        else:
            _emit_groups(spec, vectors, begin, end)

    return emitted(body)


def _add(a: Traced, b: Traced) -> Traced:
    return a + b


# ---------------------------------------------------------------- rows


def _emit_rows(spec: LayerNormSpec, vectors: Vectors, begin: Traced, end: Traced) -> None:
    code, element = vectors.code, vectors.element
    x, scale, bias, y, kept = (code.buffer(i, element) for i in range(len(spec.BUFFERS)))
    rows, columns, x_row, y_row, kept_row = (code.size(i) for i in range(5))
    smallest, count = float_from_bits(code, 5, element), as_element(columns, element)
    first, stop = unit_range(code, begin, end, rows, columns)
    with code.loop(stop, first) as row:
        target = y.at(row * y_row)
        values = _Values(vectors, x.at(row * x_row), row)
        if spec.keep:
            values.keep(kept.at(row * kept_row))
        elif vectors.has_prologue:
            values.keep(target)
        if spec.kind == "rms":
            squares = vectors.fold(columns, 0.0, _add, lambda column, live: _square(values.first(column, live)))
            mean, factor = None, 1.0 / sqrt(vectors.sum(squares) / count + smallest)
        else:
            mean = vectors.sum(vectors.fold(columns, 0.0, _add, values.first)) / count
            squares = _squared_differences(vectors, columns, mean, values.again)
            factor = 1.0 / sqrt(vectors.sum(squares) / count + smallest)
            mean = code.spread(mean, vectors.lanes)
        factor = code.spread(factor, vectors.lanes)

        def finish(slot: int, column: Traced, live: Traced | None) -> None:
            lanes = vectors.lanes
            value = values.again(column, live)
            value = (value if mean is None else value - mean) * factor
            if spec.scale and spec.bias:
                value = fma(value, scale.load(column, lanes, live), bias.load(column, lanes, live))
            elif spec.scale:
                value = value * scale.load(column, lanes, live)
            elif spec.bias:
                value = value + bias.load(column, lanes, live)
            target.store(column, vectors.epilogue(value, code.integer(0), row, column, live), live)

        vectors.each(columns, finish)


class _Values:
    """A row's values: read, put through the prologue and maybe stored at first, then read where they are."""

    def __init__(self, vectors: Vectors, x: Pointer, row: Traced) -> None:
        self._vectors, self._x, self._row = vectors, x, row
        self._kept: Pointer | None = None

    def keep(self, kept: Pointer) -> None:
        self._kept = kept

    def first(self, column: Traced, live: Traced | None) -> Traced:
        vectors = self._vectors
        value = self._x.load(column, vectors.lanes, live)
        value = vectors.prologue(value, vectors.code.integer(0), self._row, column, live)
        if self._kept is not None:
            self._kept.store(column, value, live)
        return value

    def again(self, column: Traced, live: Traced | None) -> Traced:
        return (self._kept or self._x).load(column, self._vectors.lanes, live)


def _square(x: Traced) -> Traced:
    return x * x


def _squared_differences(
    vectors: Vectors, columns: Traced, mean: Traced, value: Callable[[Traced, Traced | None], Traced]
) -> Traced:
    """The sums of (value - mean)**2, lane by lane."""
    spread = vectors.code.spread(mean, vectors.lanes)
    return vectors.fold(columns, 0.0, _add, lambda column, live: _square(value(column, live) - spread))


# ---------------------------------------------------------------- groups of channels, channels first


def _emit_groups(spec: GroupNormSpec, vectors: Vectors, begin: Traced, end: Traced) -> None:
    code, element, lanes = vectors.code, vectors.element, vectors.lanes
    x, scale, bias, y = (code.buffer(i, element) for i in range(len(spec.BUFFERS)))
    _, channels, positions, groups, x_image, x_channel, y_image, y_channel = (code.size(i) for i in range(8))
    smallest, each = float_from_bits(code, 8, element), channels / groups
    count = as_element(each * positions, element)
    with code.loop(end, begin) as task:
        image, first = task / groups, remainder(task, groups) * each
        source, target = x.at(image * x_image), y.at(image * y_image)

        def over_group(value: Callable[[Callable[..., Traced]], Traced]) -> Traced:
            """The sum over the group's channels of what `value` makes of a channel's loads."""
            total = code.variable(code.number(element, 0.0, lanes))
            with code.loop(first + each, first) as channel:
                row = source.at(channel * x_channel)

                def load(column: Traced, live: Traced | None) -> Traced:
                    return vectors.prologue(row.load(column, lanes, live), image, channel, column, live)

                total.set(total.get() + value(load))
            return vectors.sum(total.get())

        mean = over_group(lambda load: vectors.fold(positions, 0.0, _add, load)) / count
        squares = over_group(lambda load: _squared_differences(vectors, positions, mean, load))
        factor = 1.0 / sqrt(squares / count + smallest)
        with code.loop(first + each, first) as channel:
            row, out = source.at(channel * x_channel), target.at(channel * y_channel)
            scaled = code.spread(factor * scale.load(channel) if spec.scale else factor, lanes)
            shift = code.spread(bias.load(channel), lanes) if spec.bias else code.number(element, 0.0, lanes)
            spread = code.spread(mean, lanes)

            def finish(slot: int, column: Traced, live: Traced | None) -> None:
                value = vectors.prologue(row.load(column, lanes, live), image, channel, column, live)
                value = fma(value - spread, scaled, shift)
                out.store(column, vectors.epilogue(value, image, channel, column, live), live)

            vectors.each(positions, finish)

"""Reductions, softmax and normalisations as source: loops over slices, and scalars in which sums are kept.

A sum of many numbers is kept in several scalars, each of every eighth element, which are added at the end: as exact as
LLVM's way, and what vectors can be made of. Floats are summed in the type that they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np

from jitonnx.codegen.numba.expression import exponential
from jitonnx.codegen.numba.kernel import KernelWriter
from jitonnx.codegen.numba.writing import (
    Amount,
    Writer,
    brackets,
    least,
    most,
    plus,
    quotient_up,
    split,
    times,
)
from jitonnx.kernels.normalization.spec import BLOCKS
from jitonnx.kernels.reduction.spec import COLUMNS as REDUCED_COLUMNS
from jitonnx.kernels.softmax.spec import COLUMNS as SOFTMAX_COLUMNS
from jitonnx.plan.calls import Stage
from jitonnx.target import tuning

PARTS = 8
"""Scalars in which a sum is kept."""
_Value = Callable[[Amount], str]
"""Writes what reads an element of a slice; its text."""


def _divided(a: Amount, b: Amount) -> Amount:
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    return f"{brackets(str(a))} // {brackets(str(b))}"


@contextmanager
def _units(kernel: KernelWriter, count: Amount, elements: Amount, wish: str) -> Iterator[str]:
    """A loop over the units of work that tasks share out by their elements (`sharing.units_per_task`)."""
    code, name = kernel.code, kernel.code.fresh(wish)
    if kernel.tasks is not None and kernel.tasks <= 1:
        header = f"for {name} in range({count}):"
    else:
        each = most(1, _divided(tuning.TASK_ELEMENTS, most(1, elements)))
        each = each if isinstance(each, int) else code.named("units", each)
        header = f"for {name} in range({times('begin', each)}, {least(times('end', each), count)}):"
    with code.block(header):
        yield name


@contextmanager
def _columns(
    kernel: KernelWriter, outer: Amount, inner: Amount, length: Amount, block: int
) -> Iterator[tuple[str, str]]:
    """Loops over slices away from the last axis: the outer place, and the column, of blocks that are units of work."""
    code = kernel.code
    blocks = quotient_up(inner, block)
    with _units(kernel, times(outer, blocks), times(length, block), "unit") as unit:
        batch, number = split(code, unit, [("batch", 0), ("block", blocks)])
        first = times(number, block)
        column = code.fresh("column")
        stop = least(plus(first, block), inner)
        with code.block(f"for {column} in range({first}, {stop}):"):
            yield str(batch), column


class _Slice:
    """A slice of a type of elements, of a length, whose elements `value` reads."""

    def __init__(self, code: Writer, element: str, length: Amount, value: _Value) -> None:
        self.code, self.element, self.length, self.value = code, element, length, value

    def number(self, value: float) -> str:
        text = repr(value) if np.isfinite(value) else f"{'-' * (value < 0)}np.inf"
        return f"np.{self.element}({text})"

    @contextmanager
    def loop(self) -> Iterator[str]:
        name = self.code.fresh("k")
        with self.code.block(f"for {name} in range({self.length}):"):
            yield name

    def folded(self, name: str, initial: str, add: Callable[[str, str], str], value: _Value | None = None) -> str:
        """A scalar that every element's value is added to."""
        code = self.code
        total = code.fresh(name)
        code.line(f"{total} = {initial}")
        with self.loop() as k:
            code.line(f"{total} = {add(total, (value or self.value)(k))}")
        return total

    def summed(self, name: str, value: _Value) -> str:
        """The sum of floats, in parts."""
        code, length = self.code, self.length
        if isinstance(length, int) and length < 2 * PARTS:
            return self.folded(name, self.number(0.0), lambda total, x: f"{total} + {x}", value)
        parts = [code.fresh(f"{name}_{part}") for part in range(PARTS)]
        code.line(f"{' = '.join(parts)} = {self.number(0.0)}")
        first = code.fresh("k")
        whole = length - length % PARTS if isinstance(length, int) else f"{length} - {PARTS - 1}"
        with code.block(f"for {first} in range(0, {whole}, {PARTS}):"):
            for number, part in enumerate(parts):
                code.line(f"{part} += {value(plus(first, number))}")
        total = code.fresh(name)
        sums = " + ".join(f"({a} + {b})" for a, b in zip(parts[::2], parts[1::2], strict=True))
        code.line(f"{total} = {sums}")
        rest = code.fresh("k")
        start = whole if isinstance(length, int) else f"{length} - {length} % {PARTS}"
        if start != length:
            with code.block(f"for {rest} in range({start}, {length}):"):
                code.line(f"{total} += {value(rest)}")
        return total


# ---------------------------------------------------------------- reductions


def write_reduction(kernel: KernelWriter) -> str:
    """Write a Reduce… operator, ArgMax or ArgMin."""
    spec, size = kernel.spec, kernel.sizes
    each = quotient_up(size.length, spec.parts)
    slices = times(size.outer, spec.parts)
    if spec.last:
        with _units(kernel, slices, each, "row") as unit:
            _reduced_part(kernel, unit, each, None)
    else:
        with _columns(kernel, slices, size.inner, each, REDUCED_COLUMNS) as (unit, column):
            _reduced_part(kernel, unit, each, column)
    return f"{spec.kind} of {spec.element}" + (f", in {spec.parts} parts" if spec.parts > 1 else "")


def _reduced_part(kernel: KernelWriter, unit: str, each: Amount, column: str | None) -> None:
    """Reduce one slice, or one of its parts."""
    spec, size, code = kernel.spec, kernel.sizes, kernel.code
    outer: Amount = unit
    piece: Amount = 0
    first: Amount = 0
    length: Amount = size.length
    x_step = 1 if spec.last else size.x_step
    inner: Amount = 0 if column is None else column
    if spec.parts > 1:
        outer, piece = split(code, unit, [("slice", 0), ("piece", spec.parts)])
        first = code.named("first", str(least(times(piece, each), size.length)))
        length = code.named("length", str(least(each, plus(size.length, f"-{first}"))))
    base = plus(times(outer, size.x_outer), times(first, x_step), inner)
    base = _place(code, "at_x", base)
    element = spec.element

    def read(k: Amount) -> str:
        text = kernel.load(0, plus(base, times(k, x_step)))
        if spec.stored:
            text = f"np.{element}({text})"
        row, place = (k, inner) if column is not None else (outer, k)
        return kernel.stage(kernel.call.prologue, text, outer if column is not None else 0, row, place)

    part = _Slice(code, element, length, read)
    result = _index(part, spec) if spec.is_index else _reduced(part, spec, size.count)
    where = plus(times(outer, size.y_outer), times(piece, 1 if spec.last else size.inner), inner)
    if not spec.is_index:
        if spec.last:
            result = kernel.stage(kernel.call.epilogue, result, 0, 0, unit)
        else:
            result = kernel.stage(kernel.call.epilogue, result, outer, 0, inner)
    kernel.store(1, where, result)


def _reduced(part: _Slice, spec: Any, count: Amount) -> str:
    kind, element = spec.kind, part.element
    code, is_float = part.code, element.startswith("float")
    wrap = "" if is_float else f"np.{element}"

    def whole(text: str) -> str:
        return f"{wrap}({text})" if wrap else text

    if kind in ("max", "min"):
        info = None if is_float else np.iinfo(element)
        worst = (-np.inf if kind == "max" else np.inf) if info is None else (info.min if kind == "max" else info.max)
        name = "maximum" if kind == "max" else "minimum"
        initial = part.number(worst) if info is None else f"np.{element}({worst})"
        return part.folded("extreme", initial, lambda total, x: f"{name}({total}, {x})")
    if kind == "prod":
        one = part.number(1.0) if is_float else f"np.{element}(1)"
        return part.folded("product", one, lambda total, x: whole(f"{total} * {brackets(x)}"))
    shift = None
    if kind == "log_sum_exp":
        largest = part.folded("largest", part.number(-np.inf), lambda total, x: f"maximum({total}, {x})")
        shift = code.named("shift", f"{part.number(0.0)} if np.isinf({largest}) else {largest}")

    def changed(k: Amount) -> str:
        x = part.value(k)
        if kind == "l1":
            return f"abs({x})"
        if kind in ("l2", "sum_square"):
            x = x if x.isidentifier() else code.named("x", x)
            return f"{x} * {x}"
        return f"{exponential(f'np.{element}')}({x} - {shift})" if shift else brackets(x)

    if is_float:
        total = part.summed("total", changed)
    else:
        total = part.folded("total", f"np.{element}(0)", lambda total, x: whole(f"{total} + {x}"), changed)
    if kind == "mean":
        divisor = f"np.{element}({count})"
        return f"{total} / {divisor}" if is_float else whole(f"divide({total}, {divisor})")
    if kind == "l2":
        return f"np.sqrt({total})"
    if kind in ("log_sum", "log_sum_exp"):
        return f"np.log({total}) + {shift}" if shift else f"np.log({total})"
    return total


def _index(part: _Slice, spec: Any) -> str:
    """An expression of the extreme's place: of equal ones the first, or the last; a NaN is before all numbers."""
    code = part.code
    sign = ">" if spec.kind == "arg_max" else "<"
    last = spec.select_last_index
    best, where = code.fresh("best"), code.fresh("where")
    code.line(f"{best}, {where} = {part.value(0)}, 0")
    with part.loop() as k:
        x = code.fresh("x")
        code.line(f"{x} = {part.value(k)}")
        better = f"{x} {sign}{'=' * last} {best}"
        if part.element.startswith("float"):
            better = f"{better} or {x} != {x}" if last else f"({better} or {x} != {x}) and {best} == {best}"
        with code.block(f"if {better}:"):
            code.line(f"{best}, {where} = {x}, {k}")
    return f"np.int64({where})"


# ---------------------------------------------------------------- softmax


def write_softmax(kernel: KernelWriter) -> str:
    """Write Softmax or LogSoftmax."""
    spec, size = kernel.spec, kernel.sizes
    if spec.last:
        with _units(kernel, size.outer, size.length, "row") as row:
            _softmax(kernel, row, None)
    else:
        with _columns(kernel, size.outer, size.inner, size.length, SOFTMAX_COLUMNS) as (batch, column):
            _softmax(kernel, batch, column)
    return f"{spec.kind} of {spec.element}"


def _softmax(kernel: KernelWriter, outer: str, column: str | None) -> None:
    spec, size, code = kernel.spec, kernel.sizes, kernel.code
    x_step, y_step = (1, 1) if spec.last else (size.x_step, size.y_step)
    inner: Amount = 0 if column is None else column
    at_x = _place(code, "at_x", plus(times(outer, size.x_outer), inner))
    at_y = _place(code, "at_y", plus(times(outer, size.y_outer), inner))

    def staged(stage: Stage | None, text: str, k: Amount) -> str:
        place = (outer, k, inner) if column is not None else (0, outer, k)
        return kernel.stage(stage, text, *place)

    def read(k: Amount) -> str:
        return staged(kernel.call.prologue, kernel.load(0, plus(at_x, times(k, x_step))), k)

    exp = exponential(f"np.{spec.element}")
    part = _Slice(code, spec.element, size.length, read)
    largest = part.folded("largest", part.number(-np.inf), lambda total, x: f"maximum({total}, {x})")
    total = part.summed("total", lambda k: f"{exp}({brackets(read(k))} - {largest})")
    share = code.fresh("log_total" if spec.kind == "log_softmax" else "factor")
    code.line(f"{share} = np.log({total})" if spec.kind == "log_softmax" else f"{share} = {part.number(1.0)} / {total}")
    with part.loop() as k:
        x = f"{brackets(read(k))} - {largest}"
        result = f"{x} - {share}" if spec.kind == "log_softmax" else f"{exp}({x}) * {share}"
        kernel.store(1, plus(at_y, times(k, y_step)), staged(kernel.call.epilogue, result, k))


# ---------------------------------------------------------------- normalisations


def write_normalization(kernel: KernelWriter) -> str:
    """Write a normalisation of rows, or one of groups of channels."""
    name = type(kernel.spec).__name__
    if name == "LayerNormSpec":
        return _write_layer_norm(kernel)
    if name == "GroupNormSpec":
        return _write_group_norm(kernel)
    (_write_group_statistics if name == "GroupStatisticsSpec" else _write_group_apply)(kernel)
    return "group normalisation, channels last: " + (
        "the blocks' sums" if name == "GroupStatisticsSpec" else "the rest"
    )


def _epsilon(kernel: KernelWriter, element: str) -> str:
    bits = kernel.sizes.epsilon_bits
    if isinstance(bits, int):
        return f"np.{element}({np.array(bits, np.int64).view(np.float64).item()!r})"
    return f"np.{element}(np.int64({bits}).view(np.float64))"


def _write_layer_norm(kernel: KernelWriter) -> str:
    spec, size, code = kernel.spec, kernel.sizes, kernel.code
    with _units(kernel, size.rows, size.columns, "row") as row:
        places = zip(("at_x", "at_y", "at_kept"), (size.x_row, size.y_row, size.kept_row), strict=True)
        at_x, at_y, at_kept = (_place(code, name, times(row, stride)) for name, stride in places)

        def read(k: Amount) -> str:
            return kernel.stage(kernel.call.prologue, kernel.load(0, plus(at_x, k)), 0, row, k)

        part = _Slice(code, spec.element, size.columns, read)
        if spec.keep:
            with part.loop() as k:
                kernel.store(4, plus(at_kept, k), read(k))
            part.value = lambda k: kernel.load(4, plus(at_kept, k))
        mean, factor = _statistics(kernel, part, rms=spec.kind == "rms")
        with part.loop() as k:
            result = f"{_difference(part.value(k), mean)} * {factor}"
            result = _affine(kernel, result, k, spec)
            kernel.store(3, plus(at_y, k), kernel.stage(kernel.call.epilogue, result, 0, row, k))
    return f"{'root mean square' if spec.kind == 'rms' else 'layer'} normalisation of {spec.element}"


def _place(code: Writer, name: str, text: Amount) -> Amount:
    return code.named(name, text) if isinstance(text, str) and not text.isidentifier() else text


def _difference(x: str, mean: str | None) -> str:
    return brackets(x) if mean is None else f"({x} - {mean})"


def _affine(kernel: KernelWriter, result: str, place: Amount, spec: Any) -> str:
    if spec.scale:
        result = f"{result} * {brackets(kernel.load(1, place))}"
    if spec.bias:
        result = f"{result} + {brackets(kernel.load(2, place))}"
    return result


def _statistics(kernel: KernelWriter, part: _Slice, *, rms: bool) -> tuple[str | None, str]:
    """The mean, if one is taken off, and what differences from it are multiplied by."""
    code, count = part.code, f"np.{part.element}({part.length})"
    mean = None
    if not rms:
        total = part.summed("total", lambda k: brackets(part.value(k)))
        mean = code.named("mean", f"{total} / {count}")

    def square(k: Amount) -> str:
        name = code.fresh("d")
        code.line(f"{name} = {_difference(part.value(k), mean)}")
        return f"{name} * {name}"

    squares = part.summed("squares", square)
    deviation = _deviation(kernel, f"{squares} / {count}", part.element)
    return mean, code.named("factor", f"{part.number(1.0)} / {deviation}")


def _deviation(kernel: KernelWriter, variance: str, element: str) -> str:
    epsilon = _epsilon(kernel, element)
    if getattr(kernel.spec, "outside", False):
        return f"(np.sqrt({variance}) + {epsilon})"
    return f"np.sqrt({variance} + {epsilon})"


@contextmanager
def _pixel_blocks(kernel: KernelWriter) -> Iterator[tuple[str, Amount, Amount, Amount, Amount, Amount]]:
    """A loop over tasks, blocks of an image's pixels: the task, the image, the first pixel and the one behind the last;
    pixels of a block, and blocks of an image (`GroupStatisticsSpec.blocks`)."""
    size, code = kernel.sizes, kernel.code
    wanted = least(BLOCKS, most(1, _divided(times(size.pixels, size.channels), tuning.TASK_ELEMENTS)))
    each = _place(code, "block_pixels", quotient_up(size.pixels, _place(code, "wanted", wanted)))
    blocks = _place(code, "blocks", quotient_up(size.pixels, each))
    task = code.fresh("task")
    one = kernel.tasks is not None and kernel.tasks <= 1
    with code.block(f"for {task} in range(1):" if one else f"for {task} in range(begin, end):"):
        image, block = split(code, task, [("image", 0), ("block", blocks)])
        first = _place(code, "first_pixel", times(block, each))
        yield task, image, first, _place(code, "stop_pixel", least(plus(first, each), size.pixels)), each, blocks


def _write_group_statistics(kernel: KernelWriter) -> None:
    """Each channel's mean over a block of pixels, and the sum of squared differences from it."""
    spec, size, code = kernel.spec, kernel.sizes, kernel.code
    with _pixel_blocks(kernel) as (task, image, first, stop, _, _):
        at_mean = _place(code, "at_mean", times(times(task, 2), size.channels))
        at_squares = _place(code, "at_squares", plus(at_mean, size.channels))
        channel, pixel = code.fresh("channel"), code.fresh("pixel")
        over = f"for {channel} in range({size.channels}):"

        def added(where: Amount, mean: Amount | None) -> None:
            with code.block(over):
                kernel.store(1, plus(where, channel), f"np.{spec.element}(0.0)")
            with code.block(f"for {pixel} in range({first}, {stop}):"), code.block(over):
                at = plus(times(image, size.x_image), times(pixel, size.x_pixel), channel)
                x = kernel.stage(kernel.call.prologue, kernel.load(0, at), image, pixel, channel)
                if mean is not None:
                    d = code.fresh("d")
                    code.line(f"{d} = {brackets(x)} - {kernel.load(1, plus(mean, channel))}")
                    x = f"{d} * {d}"
                kernel.store(1, plus(where, channel), f"{kernel.load(1, plus(where, channel))} + {brackets(x)}")

        added(at_mean, None)
        with code.block(over):
            count = f"np.{spec.element}({plus(stop, f'-{first}') if isinstance(first, str) else plus(stop, -first)})"
            kernel.store(1, plus(at_mean, channel), f"{kernel.load(1, plus(at_mean, channel))} / {count}")
        added(at_squares, at_mean)


def _write_group_apply(kernel: KernelWriter) -> None:
    """Means and variances of groups from those of channels and blocks; then a block's pixels."""
    spec, size, code = kernel.spec, kernel.sizes, kernel.code
    channels, kind = _place(code, "channels_each", _divided(size.channels, size.groups)), f"np.{spec.element}"
    with _pixel_blocks(kernel) as (_, image, first, stop, each, blocks):
        group, block, channel, pixel = (code.fresh(name) for name in ("group", "part", "channel", "pixel"))
        with code.block(f"for {group} in range({size.groups}):"):
            low = _place(code, "first_channel", times(group, channels))
            high = _place(code, "stop_channel", plus(low, channels))
            count = f"{kind}({times(size.pixels, channels)})"
            total, squares = code.fresh("total"), code.fresh("squares")

            def over_blocks(line: Callable[[str, str, str], str]) -> None:
                with code.block(f"for {block} in range({blocks}):"):
                    pixels = least(each, plus(size.pixels, f"-{brackets(str(times(block, each)))}"))
                    held = code.named("held", f"{kind}({pixels})")
                    at = times(times(plus(times(image, blocks), block), 2), size.channels)
                    at = _place(code, "at_mean", at)
                    with code.block(f"for {channel} in range({low}, {high}):"):
                        mean = kernel.load(1, plus(at, channel))
                        code.line(line(held, mean, kernel.load(1, plus(at, size.channels, channel))))

            code.line(f"{total} = {kind}(0.0)")
            over_blocks(lambda held, mean, _: f"{total} += {held} * {mean}")
            middle = code.fresh("mean")
            code.line(f"{middle} = {total} / {count}")
            code.line(f"{squares} = {kind}(0.0)")
            over_blocks(
                lambda held, mean, own: f"{squares} += {own} + {held} * ({mean} - {middle}) * ({mean} - {middle})"
            )
            factor = code.fresh("factor")
            code.line(f"{factor} = {kind}(1.0) / {_deviation(kernel, f'{squares} / {count}', spec.element)}")
            over = code.block(f"for {channel} in range({low}, {high}):")
            with code.block(f"for {pixel} in range({first}, {stop}):"), over:
                at_x = plus(times(image, size.x_image), times(pixel, size.x_pixel), channel)
                at_y = plus(times(image, size.y_image), times(pixel, size.y_pixel), channel)
                x = kernel.stage(kernel.call.prologue, kernel.load(0, at_x), image, pixel, channel)
                scaled = f"{_difference(x, middle)} * {factor}"
                if spec.scale:
                    scaled += f" * {brackets(kernel.load(2, channel))}"
                if spec.bias:
                    scaled += f" + {brackets(kernel.load(3, channel))}"
                kernel.store(4, at_y, kernel.stage(kernel.call.epilogue, scaled, image, pixel, channel))


def _write_group_norm(kernel: KernelWriter) -> str:
    """A task is a group of an image."""
    spec, size, code = kernel.spec, kernel.sizes, kernel.code
    channels = _divided(size.channels, size.groups)
    count = times(channels, size.positions)
    with ExitStack() as stack:
        task = code.fresh("task")
        one = kernel.tasks is not None and kernel.tasks <= 1
        stack.enter_context(code.block(f"for {task} in range(1):" if one else f"for {task} in range(begin, end):"))
        image, group = split(code, task, [("image", 0), ("group", size.groups)])
        first = _place(code, "first_channel", times(group, channels))
        strides = (("at_x", size.x_image), ("at_y", size.y_image))
        at_x, at_y = (_place(code, name, times(image, stride)) for name, stride in strides)

        def places(k: Amount) -> Sequence[Amount]:
            if channels == 1:
                return first, k
            inside = split(code, str(k) if isinstance(k, str) else repr(k), [("c", 0), ("position", size.positions)])
            return plus(first, inside[0]), inside[1]

        def read(k: Amount) -> str:
            channel, position = places(k)
            x = kernel.load(0, plus(at_x, times(channel, size.x_channel), position))
            return kernel.stage(kernel.call.prologue, x, image, channel, position)

        part = _Slice(code, spec.element, count, read)
        mean, factor = _statistics(kernel, part, rms=False)
        with part.loop() as k:
            channel, position = places(k)
            result = _affine(kernel, f"{_difference(read(k), mean)} * {factor}", channel, spec)
            result = kernel.stage(kernel.call.epilogue, result, image, channel, position)
            kernel.store(3, plus(at_y, times(channel, size.y_channel), position), result)
    return f"group normalisation of {spec.element}"

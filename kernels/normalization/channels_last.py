"""Group normalization of channels-last tensors: statistics by blocks of pixels, then merging and applying them."""

from __future__ import annotations

import functools
from collections.abc import Callable

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Mask, larger, remainder, smaller
from jitonnx.emit.epilogue import Stage
from jitonnx.emit.ssa import SSAValue, fma, sqrt
from jitonnx.kernels.normalization.spec import (
    BLOCKS,
    GroupApplyBuffers,
    GroupApplySizes,
    GroupApplySpec,
    GroupNormSpec,
    GroupStatisticsSpec,
)
from jitonnx.kernels.parts.rows import Vectors, as_element, float_from_bits
from jitonnx.target import tuning


def build(
    spec: GroupStatisticsSpec | GroupApplySpec, lanes: int, epilogue: Stage | None = None, prologue: Stage | None = None
) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` elements (of spec.element); the first step takes no epilogue."""

    def body(code: KernelBuilder, begin: SSAValue, end: SSAValue) -> None:
        vectors = Vectors(code, getattr(types, spec.element), lanes, prologue, epilogue)
        step = _Statistics(spec, vectors) if isinstance(spec, GroupStatisticsSpec) else _Apply(spec, vectors)
        step.emit(begin, end)

    return body


def inverse_deviation(spec: GroupNormSpec | GroupApplySpec, variance: SSAValue, epsilon: SSAValue) -> SSAValue:
    """What a value's difference from the mean is multiplied by."""
    return 1.0 / (sqrt(variance) + epsilon if spec.outside else sqrt(variance + epsilon))


class _Step:
    """What both steps know: x and how the pixels of an image are cut into blocks."""

    def __init__(self, spec: GroupStatisticsSpec | GroupApplySpec, vectors: Vectors) -> None:
        self.vectors, self.code = vectors, vectors.code
        size = self.code.sizes(spec.SIZES)
        self.pixels, self.channels, self.x_image, self.x_pixel = size.pixels, size.channels, size.x_image, size.x_pixel
        wanted = larger(smaller(self.pixels * self.channels / tuning.TASK_ELEMENTS, BLOCKS), 1)
        self.block_pixels = (self.pixels + wanted - 1) / larger(wanted, 1)
        self.blocks = (self.pixels + self.block_pixels - 1) / self.block_pixels
        self.x, self.partial, *_ = self.code.buffers(spec.BUFFERS, vectors.element)

    def block(self, task: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
        """Image, first pixel, and the pixel behind the last of a task."""
        image, first = task / self.blocks, remainder(task, self.blocks) * self.block_pixels
        return image, first, smaller(first + self.block_pixels, self.pixels)

    def value(
        self, image: SSAValue, pixel: SSAValue, channel: SSAValue, active: SSAValue | None, mask: Mask | None
    ) -> SSAValue:
        """A vector of x, put through the prologue."""
        where = image * self.x_image + pixel * self.x_pixel + channel
        x = self.x.load(where, self.vectors.lanes, mask)
        return self.vectors.prologue(x, image, pixel, channel, active)

    def over_channels(self, body: Callable[[SSAValue, int, SSAValue | None], None]) -> None:
        """body(channel, vectors, live): several whole vectors of channels, then one at a time, partly live."""
        code, lanes, several = self.code, self.vectors.lanes, self.vectors.vectors
        whole = self.channels - remainder(self.channels, code.integer(several * lanes))
        with code.loop(whole, 0, several * lanes) as channel:
            body(channel, several, None)
        with code.loop(self.channels, whole, lanes) as channel:
            body(channel, 1, self.channels - channel)


class _Statistics(_Step):
    """Each channel's mean, then its sum of squared differences, over a block of pixels that stays in the cache."""

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        with self.code.loop(end, begin) as task:
            image, first, stop = self.block(task)
            count = as_element(stop - first, self.vectors.element)
            means = self.partial.at(task * 2 * self.channels)
            squares = means.at(self.channels)
            lanes = self.vectors.lanes

            def over_pixels(channel: SSAValue, several: int, active: SSAValue | None) -> None:
                mask = None if active is None else self.code.active(active, lanes)

                def total(change: Callable[[SSAValue, int], SSAValue]) -> list[SSAValue]:
                    zero = self.code.number(self.vectors.element, 0.0, lanes)
                    sums = [self.code.variable(zero) for _ in range(several)]
                    with self.code.loop(stop, first) as pixel:
                        for v in range(several):
                            x = self.value(image, pixel, channel + v * lanes, active, mask)
                            sums[v].set(sums[v].get() + change(x, v))
                    return [s.get() for s in sums]

                divisor = self.code.splat(count, lanes)
                mean = [s / divisor for s in total(lambda x, v: x)]
                spread = total(lambda x, v: (x - mean[v]) * (x - mean[v]))
                for v in range(several):
                    means.store(channel + v * lanes, mean[v], mask)
                    squares.store(channel + v * lanes, spread[v], mask)

            self.over_channels(over_pixels)


class _Apply(_Step):
    """Statistics of channels from those of blocks, of groups from those of channels; then a block is normalized."""

    def __init__(self, spec: GroupApplySpec, vectors: Vectors) -> None:
        super().__init__(spec, vectors)
        self.spec, code, element = spec, self.code, vectors.element
        size = code.sizes(GroupApplySizes)
        self.groups, self.y_image, self.y_pixel = size.groups, size.y_image, size.y_pixel
        _, _, self.scale, self.bias, self.y = code.buffers(GroupApplyBuffers, element)
        self.epsilon = float_from_bits(size.epsilon_bits, element)
        self.mean = code.scratch(element)
        self.factor = self.mean.at(self.channels)

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        done = self.code.variable(self.code.integer(-1))
        with self.code.loop(end, begin) as task:
            image, first, stop = self.block(task)
            with self.code.if_then(~done.get().equals(image)):
                self._merge_blocks(image)
                with self.code.loop(self.groups) as group:
                    self._merge_channels(group)
                done.set(image)
            with self.code.loop(stop, first) as pixel:
                self.over_channels(functools.partial(self._normalize, image, pixel))

    def _block_count(self, block: SSAValue) -> SSAValue:
        first = block * self.block_pixels
        pixels = smaller(first + self.block_pixels, self.pixels) - first
        return self.code.splat(as_element(pixels, self.vectors.element), self.vectors.lanes)

    def _merge_blocks(self, image: SSAValue) -> None:
        """Every channel's mean goes to `mean`, its sum of squared differences to `factor`."""
        code, lanes = self.code, self.vectors.lanes
        partial = self.partial.at(image * self.blocks * 2 * self.channels)
        all_pixels = code.splat(as_element(self.pixels, self.vectors.element), lanes)

        def merge(channel: SSAValue, several: int, active: SSAValue | None) -> None:
            mask = None if active is None else code.active(active, lanes)
            for v in range(several):
                at = channel + v * lanes
                total, squares = (code.variable(code.number(self.vectors.element, 0.0, lanes)) for _ in range(2))
                with code.loop(self.blocks) as block:
                    mean = partial.load(block * 2 * self.channels + at, lanes, mask)
                    total.set(fma(mean, self._block_count(block), total.get()))
                merged = total.get() / all_pixels
                with code.loop(self.blocks) as block:
                    mean = partial.load(block * 2 * self.channels + at, lanes, mask)
                    inner = partial.load((block * 2 + 1) * self.channels + at, lanes, mask)
                    difference = mean - merged
                    outer = fma(difference * difference, self._block_count(block), inner)
                    squares.set(squares.get() + outer)
                self.mean.store(at, merged, mask)
                self.factor.store(at, squares.get(), mask)

        self.over_channels(merge)

    def _merge_channels(self, group: SSAValue) -> None:
        """The group's mean goes to `mean` of its channels, scale / sqrt(variance + epsilon) to `factor`."""
        code, element = self.code, self.vectors.element
        each = self.channels / self.groups
        first, count = group * each, as_element(each, element)
        pixels = as_element(self.pixels, element)
        total, squares = (code.variable(code.number(element, 0.0)) for _ in range(2))
        with code.loop(first + each, first) as channel:
            total.set(total.get() + self.mean.load(channel))
        mean = total.get() / count
        with code.loop(first + each, first) as channel:
            difference = self.mean.load(channel) - mean
            squares.set(squares.get() + fma(difference * difference, pixels, self.factor.load(channel)))
        factor = inverse_deviation(self.spec, squares.get() / (count * pixels), self.epsilon)
        with code.loop(first + each, first) as channel:
            self.mean.store(channel, mean)
            self.factor.store(channel, factor * self.scale.load(channel) if self.spec.scale else factor)

    def _normalize(
        self, image: SSAValue, pixel: SSAValue, channel: SSAValue, several: int, active: SSAValue | None
    ) -> None:
        code, lanes = self.code, self.vectors.lanes
        mask = None if active is None else code.active(active, lanes)
        for v in range(several):
            at = channel + v * lanes
            value = self.value(image, pixel, at, active, mask) - self.mean.load(at, lanes, mask)
            factor = self.factor.load(at, lanes, mask)
            value = fma(value, factor, self.bias.load(at, lanes, mask)) if self.spec.bias else value * factor
            value = self.vectors.epilogue(value, image, pixel, at, active)
            self.y.store(image * self.y_image + pixel * self.y_pixel + at, value, mask)

"""The kernels that read images between their pixels."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Mask, Pointer, each_vector, remainder, smaller
from jitonnx.emit.simd import convert, floor
from jitonnx.emit.ssa import SSAValue, at_least, at_most, fma, select
from jitonnx.kernels.grid_sample.spec import (
    TAPS,
    VECTOR,
    SampleBuffers,
    SamplePixelsSpec,
    SamplePlanesSpec,
    SampleSizes,
)
from jitonnx.support.records import NamedTuple

_CUBIC = -0.75
"""The coefficient of Keys' cubic convolution."""


def build(spec: SamplePlanesSpec | SamplePixelsSpec, lanes: int) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    kind = _Planes if isinstance(spec, SamplePlanesSpec) else _Pixels
    return lambda code, begin, end: kind(code, spec, lanes).emit(begin, end)


class _Tap(NamedTuple):
    """One element along an axis that a vector of places reads."""

    offset: SSAValue
    """int32: where it lies."""
    inside: SSAValue | None
    """It says where it is one of the axis; None: everywhere."""
    weight: SSAValue | None
    """None: 1."""


class _Sampling:
    """What both kernels share: the loops over places, and their taps."""

    def __init__(self, code: KernelBuilder, spec: SamplePlanesSpec | SamplePixelsSpec, lanes: int) -> None:
        self.code, self.spec = code, spec
        self.element, self.coordinate = getattr(types, spec.element), getattr(types, spec.coordinate)
        self.lanes = min(VECTOR, lanes * 4 // (self.coordinate.bitwidth // 8))
        self.width = lanes * 4 // (self.element.bitwidth // 8)
        """Elements of a vector."""
        self.size = code.sizes(SampleSizes)
        self.x, self.coordinates, self.factors, self.y = code.buffers(
            SampleBuffers, self.element, coordinates=self.coordinate, factors=self.coordinate
        )

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        """The tasks."""
        code, size = self.code, self.size
        blocks = (size.places + size.task_places - 1) / size.task_places
        self.begin()
        with code.loop(end, begin) as task:
            image, first = task / blocks, remainder(task, blocks) * size.task_places
            stop = smaller(size.places, first + size.task_places)
            with code.loop(stop, first, self.lanes) as place:
                self.places(image, place, stop - place)

    def begin(self) -> None:
        """What is done once."""

    def places(self, image: SSAValue, place: SSAValue, active: SSAValue) -> None:
        """A vector of places, of which so many are live."""
        raise NotImplementedError

    def taps(self, image: SSAValue, place: SSAValue, active: Mask) -> list[list[_Tap]]:
        """Those of a vector of places, by axis. Of places that are not live they are those of coordinates 0."""
        size = self.size
        start = self.coordinates.at(image * size.c_image + place)
        return [self._axis(start.load(size.c_axis * axis, self.lanes, active), axis) for axis in range(self.spec.axes)]

    def _axis(self, x: SSAValue, axis: int) -> list[_Tap]:
        size, spec = self.size, self.spec
        extent = convert(size.extents[axis], types.int32)
        stride = convert(size.x_steps[axis], types.int32).splat(self.lanes)
        whole = x if spec.mode == "nearest" else floor(x)
        # Saturated, since integers have no infinities; as far away as no tap of an inner place is.
        far = convert(extent + 4, self.coordinate).splat(self.lanes)
        first = convert(at_most(at_least(whole, -4.0), far), types.int32)
        last = (extent - 1).splat(self.lanes)
        taps = []
        for offset, weight in self._weights(x, whole):
            position, inside = first + offset, None
            if spec.outside == "zeros":
                inside = ~((position < 0) | (position > last))
                position = select(inside, position, 0)
            else:
                if spec.outside == "reflection":
                    shift = 0 if spec.aligned else 1
                    for _ in range(2):
                        position = select(position < 0, -position - shift, position)
                        position = select(position > last, last + last + shift - position, position)
                position = at_most(at_least(position, 0), last)
            taps.append(_Tap(position * stride, inside, weight))
        return taps

    def _weights(self, x: SSAValue, whole: SSAValue) -> list[tuple[int, SSAValue | None]]:
        """Offsets from the element in front of x, and weights."""
        if self.spec.mode == "nearest":
            return [(0, None)]
        t = x - whole
        if self.spec.mode == "linear":
            return [(0, 1.0 - t), (1, t)]
        a, rest = _CUBIC, 1.0 - t

        def near(d: SSAValue) -> SSAValue:
            return fma((d * (a + 2) - (a + 3)) * d, d, d.constant(1.0))

        def far(d: SSAValue) -> SSAValue:
            return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a

        return [(-1, far(t + 1.0)), (0, near(t)), (1, near(rest)), (2, far(rest + 1.0))]

    def factor(self, image: SSAValue, place: SSAValue, active: Mask) -> SSAValue | None:
        """What a vector of places is multiplied by; None: nothing."""
        if not self.spec.weighted:
            return None
        return self.factors.at(image * self.size.f_image).load(place, self.lanes, active)


class _Planes(_Sampling):
    """Elements gathered, for one channel after the other."""

    def places(self, image: SSAValue, place: SSAValue, active: SSAValue) -> None:
        code, size, lanes = self.code, self.size, self.lanes
        mask = code.active(active, lanes)
        axes, factor = self.taps(image, place, mask), self.factor(image, place, mask)
        every = SSAValue(code.builder, types.boolean, mask.value)
        corners = {
            number: (_offset([axes[axis][tap] for axis, tap in enumerate(number)]), self._chosen(axes, number, every))
            for number in itertools.product(range(TAPS[self.spec.mode]), repeat=self.spec.axes)
        }
        x = self.x.at(image * size.x_image)
        y = self.y.at(image * size.y_image + place)
        with code.loop(size.channels) as channel:
            plane = x.at(channel * size.x_channel)
            total = self._sum(plane, axes, corners, ())
            y.store(channel * size.y_channel, total if factor is None else total * factor, mask)

    def _chosen(self, axes: list[list[_Tap]], number: Sequence[int], every: SSAValue) -> SSAValue:
        """The places of which a combination of taps is read."""
        inside = [axes[axis][tap].inside for axis, tap in enumerate(number)]
        return functools.reduce(lambda a, b: a if b is None else a & b, inside, every)

    def _sum(
        self,
        plane: Pointer,
        axes: list[list[_Tap]],
        corners: dict[tuple[int, ...], tuple[SSAValue, SSAValue]],
        outer: tuple[int, ...],
    ) -> SSAValue:
        """The sum over the taps of the axes behind those whose taps are chosen: axis by axis, the last first."""
        if len(outer) == self.spec.axes:
            return plane.gather(*corners[outer])
        parts = [self._sum(plane, axes, corners, (*outer, number)) for number in range(TAPS[self.spec.mode])]
        return _weighted(parts, [tap.weight for tap in axes[len(outer)]])


def _weighted(parts: Sequence[SSAValue], weights: Sequence[SSAValue | None]) -> SSAValue:
    """The sum of parts times their weights; of one part without a weight, that part."""
    total: SSAValue | None = None
    for part, weight in zip(parts, weights, strict=True):
        if weight is None:
            return part
        total = part * weight if total is None else fma(part, weight, total)
    assert total is not None
    return total


def _offset(taps: Sequence[_Tap]) -> SSAValue:
    return functools.reduce(lambda a, b: a + b, (tap.offset for tap in taps))


class _Pixels(_Sampling):
    """Pixels read as they lie, for one place after the other; their offsets and weights are found for a vector."""

    def begin(self) -> None:
        code, spec = self.code, self.spec
        taps = TAPS[spec.mode] ** spec.axes
        self.offsets = code.memory(types.int32, taps * self.lanes)
        self.weights = code.memory(self.coordinate, taps * self.lanes)
        if spec.outside == "zeros":
            self.zeros = code.scratch(self.element)
            nothing = code.number(self.element, 0, self.width)
            with code.loop(self.size.channels, step=self.width) as at:
                self.zeros.store(at, nothing, self.size.channels - at)

    def places(self, image: SSAValue, place: SSAValue, active: SSAValue) -> None:
        code, size, lanes = self.code, self.size, self.lanes
        mask = code.active(active, lanes)
        axes, factor = self.taps(image, place, mask), self.factor(image, place, mask)
        numbers = list(itertools.product(range(TAPS[self.spec.mode]), repeat=self.spec.axes))
        for row, number in enumerate(numbers):
            taps = [axes[axis][tap] for axis, tap in enumerate(number)]
            offset = _offset(taps)
            for tap in taps:
                if tap.inside is not None:
                    offset = select(tap.inside, offset, -1)
            self.offsets.store(row * lanes, offset)
            weights = [weight for weight in (factor, *(tap.weight for tap in taps)) if weight is not None]
            if weights:
                self.weights.store(row * lanes, functools.reduce(lambda a, b: a * b, weights))
        x, y = self.x.at(image * size.x_image), self.y.at(image * size.y_image + place * size.y_place)
        with code.loop(smaller(active, lanes)) as lane:
            pixels, factors = [], []
            for row in range(len(numbers)):
                offset = self.offsets.load(lane + row * lanes)
                pixel = x.at(convert(offset, types.int64))
                if self.spec.outside == "zeros":
                    pixel = pixel.unless(offset < 0, self.zeros)
                pixels.append(pixel)
                factors.append(self.weights.load(lane + row * lanes))
            self._pixel(pixels, factors, y.at(lane * size.y_place))

    def _pixel(self, pixels: list[Pointer], factors: list[SSAValue], y: Pointer) -> None:
        plain = self.spec.mode == "nearest" and not self.spec.weighted

        def piece(first: SSAValue, width: int, mask: Mask | None, active: SSAValue) -> None:
            values = [pixel.load(first, width, mask) for pixel in pixels]
            y.store(first, _weighted(values, [None if plain else factor.splat(width) for factor in factors]), mask)

        each_vector(self.code, self.size.channels, self.width, piece, blocks=2)

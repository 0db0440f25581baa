"""Local response normalisation: the squares of a pixel's channels in scratch, then sums of neighbours."""

from __future__ import annotations

from typing import Any

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Mask, Pointer, each_vector, remainder
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.mathematics import vecmath
from jitonnx.emit.ssa import SSAValue, fma, sqrt
from jitonnx.kernels.lrn.spec import LRNSpec
from jitonnx.kernels.parts.layouts import Pixels, UnaryBuffers


def build(spec: LRNSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes`."""
    return lambda code, begin, end: _Kernel(code, spec, lanes, epilogue).emit(begin, end)


class _Kernel:
    """Emits the code of one spec."""

    def __init__(self, code: KernelBuilder, spec: LRNSpec, lanes: int, epilogue: Any) -> None:
        self.code, self.spec, self.lanes = code, spec, lanes
        self.epilogue = Epilogue(code, epilogue, types.float32, lanes)
        self.size = code.sizes(Pixels)
        self.x, self.y = code.buffers(UnaryBuffers, types.float32)
        self.squares = code.scratch(types.float32)
        self.before = (spec.size - 1) // 2

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        """The tasks."""
        code, size = self.code, self.size
        zero = code.number(types.float32, 0.0, self.lanes)
        # Zeros before the first channel, which the squares then leave alone; those behind the last are stored with it.
        with code.loop(self.before, step=self.lanes) as at:
            self.squares.store(at, zero)
        with code.loop(end, begin) as task:
            image, row = task / size.height, remainder(task, size.height)
            with code.loop(size.width) as column:
                x = self.x.at(image * size.x_image + row * size.x_row + column * size.x_pixel)
                y = self.y.at(image * size.y_image + row * size.y_row + column * size.y_pixel)
                self._square(x)
                self._pixel(x, y, image, row * size.width + column)

    def _square(self, x: Pointer) -> None:
        code, lanes, channels = self.code, self.lanes, self.size.channels
        with code.loop(channels, step=lanes) as channel:
            value = x.load(channel, lanes, channels - channel)
            self.squares.store(channel + self.before, value * value)
        with code.loop(self.spec.size // 2, step=lanes) as at:
            self.squares.store(channels + self.before + at, code.number(types.float32, 0.0, lanes))

    def _pixel(self, x: Pointer, y: Pointer, image: SSAValue, number: SSAValue) -> None:
        code, lanes, spec = self.code, self.lanes, self.spec

        def piece(channel: SSAValue, width: int, mask: Mask | None, active: SSAValue) -> None:
            total = code.variable(code.number(types.float32, 0.0, width))
            with code.loop(spec.size) as neighbour:
                total.set(total.get() + self.squares.load(channel + neighbour, width))
            base = fma(total.get(), spec.alpha / spec.size, total.get().constant(spec.bias))
            value = x.load(channel, width, mask) / self._power(base)
            for first in range(0, width, lanes):
                part, rest = code.part(value, first, lanes), None if mask is None else active - first
                here = code.integer(lanes) if rest is None else rest
                y.store(channel + first, self.epilogue(code, part, image, number, channel + first, here), rest)

        each_vector(code, self.size.channels, lanes, piece)

    def _power(self, base: SSAValue) -> SSAValue:
        """base ** beta. 0.75, what networks use, takes two square roots."""
        beta = self.spec.beta
        if beta == 1.0:
            return base
        if beta in (0.5, 0.75):
            root = sqrt(base)
            return root if beta == 0.5 else root * sqrt(root)
        return vecmath.pow(base, base.constant(beta))

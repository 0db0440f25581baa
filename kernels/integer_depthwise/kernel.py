"""The kernel of depthwise convolutions of 8-bit integers: see `spec.DepthwiseIntegerSpec`.

the task's input rows with padding                        scratch, second-level cache
for each output row, each vector of channels
    for each tile of pixels                               Σ x w in registers, epilogue, y
"""

from __future__ import annotations

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, gathered, larger, remainder, smaller
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.simd import convert
from jitonnx.emit.ssa import SSAValue
from jitonnx.kernels.convolution.taps import readers
from jitonnx.kernels.integer.products import add_products
from jitonnx.kernels.integer.spec import IntegerBuffers
from jitonnx.kernels.integer_depthwise.spec import DepthwiseIntegerSizes, DepthwiseIntegerSpec
from jitonnx.kernels.parts.memory import copy_bytes
from jitonnx.kernels.parts.microkernel import TileResult, emit_finish

_FLIP = 0x80


def build(spec: DepthwiseIntegerSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` int32."""
    result = getattr(types, spec.result)
    return lambda code, begin, end: _Depthwise(
        code, spec, lanes, Epilogue(code, epilogue, types.int32, lanes, result)
    ).emit(begin, end)


class _Depthwise:
    """Emits one kernel."""

    def __init__(self, code: KernelBuilder, spec: DepthwiseIntegerSpec, lanes: int, epilogue: Epilogue) -> None:
        self.code, self.spec, self.lanes, self.epilogue = code, spec, lanes, epilogue
        self.size = code.sizes(DepthwiseIntegerSizes)
        self.x, zero, self.w, self.sums, self.y = code.buffers(
            IntegerBuffers, types.uint8, w=types.int32, sums=types.int32, y=getattr(types, spec.result)
        )
        held = zero.load(0) if spec.shifted else code.number(types.uint8, 0)
        self.zero = held ^ _FLIP if spec.signed else held
        """What 0 is in scratch memory: int8 has its sign bits flipped."""
        self.band_row = self.size.band_width * self.size.channels
        self.columns = readers(spec.pixels, spec.strides[1], spec.kernel[1], spec.dilations[1])

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        code, size, spec = self.code, self.size, self.spec
        blocks = (size.out_height + (size.task_rows - 1)) / size.task_rows
        with code.loop(end, begin) as task:
            image, start = task / blocks, remainder(task, blocks) * size.task_rows
            rows = smaller(size.task_rows, size.out_height - start)
            self._copy_band(image, start, rows)
            with code.loop(rows) as row:
                band = code.scratch(types.uint8).at(row * spec.strides[0] * self.band_row)
                pixel = (image * size.out_height + start + row) * size.out_width
                with code.loop(size.channels, step=self.lanes) as at:
                    channel = larger(smaller(at, size.channels - self.lanes), 0)
                    self._emit_row(band.at(channel), pixel, channel)

    # ------------------------------------------------------------ the input rows

    def _copy_band(self, image: SSAValue, start: SSAValue, rows: SSAValue) -> None:
        """The input rows of `rows` output rows from `start` on, with the padding around them."""
        code, size, spec = self.code, self.size, self.spec
        top = start * spec.strides[0] - size.pad_top
        count = (rows - 1) * spec.strides[0] + ((spec.kernel[0] - 1) * spec.dilations[0] + 1)
        begin = smaller(larger(size.pad_left, 0), size.band_width)
        end = larger(smaller(size.width + size.pad_left, size.band_width), begin)
        with code.loop(count) as r:
            row = top + r
            target = code.scratch(types.uint8).at(r * self.band_row)
            with code.if_else((row >= 0) & (row < size.height)) as (inside, outside):
                with inside:
                    self._fill(target, begin * size.channels)
                    source = self.x.at(image * size.x_image + row * size.x_row + (begin - size.pad_left) * size.x_pixel)
                    self._copy_pixels(target.at(begin * size.channels), source, end - begin)
                    self._fill(target.at(end * size.channels), (size.band_width - end) * size.channels)
                with outside:
                    self._fill(target, self.band_row)

    def _copy_pixels(self, target: Pointer, source: Pointer, count: SSAValue) -> None:
        size = self.size
        with self.code.if_else(size.x_pixel.equals(size.channels)) as (together, apart):
            with together:
                self._copy(target, source, count * size.channels)
            with apart, self.code.loop(count) as pixel:
                self._copy(target.at(pixel * size.channels), source.at(pixel * size.x_pixel), size.channels)

    def _copy(self, target: Pointer, source: Pointer, count: SSAValue) -> None:
        def write(code: KernelBuilder, target: Pointer, source: Pointer, count: SSAValue) -> None:
            width = code.target.vector_bytes
            if self.spec.signed:
                copy_bytes(code, target, source, count, width, change=lambda vector: vector ^ _FLIP)
            else:
                copy_bytes(code, target, source, count, width)

        self.code.subroutine("copy_elements", [target, source, count], write, inline=False)

    def _fill(self, target: Pointer, count: SSAValue) -> None:
        """`count` times the zero point; up to a vector more may be written, where what follows is not there yet."""
        width = 4 * self.lanes
        vector = self.zero.splat(width)
        with self.code.loop(count, step=width) as at:
            target.store(at, vector)

    # ------------------------------------------------------------ products

    def _emit_row(self, band: Pointer, pixel: SSAValue, channel: SSAValue) -> None:
        """A vector of channels of an output row whose pixels begin with number `pixel` of all; `band`: its first
        input."""
        code, size, spec, lanes = self.code, self.size, self.spec, self.lanes
        width, words = spec.kernel[1], spec.words
        active = size.channels - channel
        mask = code.active(active, lanes)
        weights = [
            [self.w.at(size.channels * (tap * words + word)).load(channel, lanes, mask) for word in range(words)]
            for tap in range(width)
        ]
        first = code.number(types.int32, 0, lanes)
        if spec.begun:
            first = self.sums.load(channel, lanes, mask)
        elif spec.shifted or spec.signed:
            first = self.sums.load(channel, lanes, mask) * (-convert(self.zero, types.int32)).splat(lanes)
        with code.loop(size.out_width, step=spec.pixels) as column:
            sums = [first for _ in range(spec.pixels)]
            tile = band.at(column * spec.strides[1] * size.channels)
            for at, users in sorted(self.columns.items()):
                for word in range(words):
                    joined = self._joined(tile.at(size.channels * at), word)
                    for output, tap in users:
                        value = add_products(code, spec.multiply, sums[output], joined, weights[tap][word].value, lanes)
                        sums[output] = value
            emit_finish(
                *(code, self.epilogue, (spec.pixels, 1), [value.value for value in sums]),
                TileResult(
                    *(self.y.at((pixel + column) * size.y_pixel + channel).value, size.y_pixel.value),
                    place=(code.integer(0), pixel + column, channel),
                ),
                *(active.value, (size.out_width - column).value),
            )

    def _joined(self, pixel: Pointer, word: int) -> llvm_ir.Value:
        """A vector of channels: `group` kernel rows in each lane's 32 bits, from row `word * group` on; 0 behind the
        last."""
        spec, lanes, builder = self.spec, self.lanes, self.code.builder
        rows = range(word * spec.group, min((word + 1) * spec.group, spec.kernel[0]))
        parts = [pixel.at(self.band_row * (row * spec.dilations[0])).load(0, lanes) for row in rows]
        if self.code.target.permutes_bytes and spec.group == 4:
            parts += [self.code.number(types.uint8, 0, lanes)] * (4 - len(parts))
            order = [part * lanes + lane for lane in range(lanes) for part in range(4)]
            low, high = (gathered(parts[n : n + 2], range(2 * lanes)) for n in (0, 2))
            return builder.bitcast(gathered([low, high], order).value, llvm_ir.VectorType(llvm_ir.IntType(32), lanes))
        total = convert(parts[0], types.int32)
        for number, part in enumerate(parts[1:], 1):
            total = total ^ (convert(part, types.int32) << (number * 32 // spec.group))
        return total.value

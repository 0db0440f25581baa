"""The depthwise convolution: see `spec.DepthwiseSpec`."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from math import prod

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Mask, Pointer, Variable, larger, remainder, smaller
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.ssa import SSAValue, fma, select
from jitonnx.kernels.convolution.problem import ConvolutionBuffers
from jitonnx.kernels.convolution.spec import DepthwiseSizes, DepthwiseSpec
from jitonnx.kernels.convolution.taps import readers
from jitonnx.kernels.parts.microkernel import TileResult, emit_finish, emit_prefetch, emit_prefetch_result
from jitonnx.target import tuning

_BLOCK_VECTORS = 8
"""Vectors of channels done tile by tile: pieces of 512 bytes of each pixel are read one after the other, which a CPU
foresees, and the block's weights stay in the first-level cache."""
_OTHER_REGISTERS = 4
"""So many hold inputs in flight, besides sums and weights."""


def build(spec: DepthwiseSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""

    result = types.uint16 if spec.result == "bfloat16" else types.float32
    return lambda code, begin, end: _Depthwise(
        code, spec, lanes, Epilogue(code, epilogue, types.float32, lanes, result), result
    ).emit(begin, end)


class _Depthwise:
    """Emits the kernel."""

    def __init__(
        self, code: KernelBuilder, spec: DepthwiseSpec, lanes: int, epilogue: Epilogue, result: types.ElementType
    ) -> None:
        """result: the elements of y."""
        self.code, self.spec, self.lanes, self.epilogue = code, spec, lanes, epilogue
        self.size = code.sizes(DepthwiseSizes)
        self.buffers = code.buffers(ConvolutionBuffers, types.float32, y=result)
        self.row_users, self.column_users = (
            readers(outputs, step * stride, taps, dilation)
            for outputs, step, stride, taps, dilation in zip(
                (spec.rows, spec.pixels), spec.steps, spec.strides, spec.kernel, spec.dilations, strict=True
            )
        )
        needed = spec.rows * spec.pixels + prod(spec.kernel) + _OTHER_REGISTERS
        self.holds_weights = needed <= code.target.vector_registers
        """Whether a tile loads each weight once. Else it does so for every input row that is multiplied with it, which
        takes up to a tenth longer at 3x3, where 18 loads of 42 are of weights."""

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        code, size, (step, _) = self.code, self.size, self.spec.steps
        blocks = (size.out_height + size.row_block - 1) / size.row_block
        with code.loop(end, begin) as task:
            above, start = task / blocks, remainder(task, blocks) * size.row_block
            image, part = above / size.parts, remainder(above, size.parts)
            stop = smaller(start + size.row_block, size.out_height)
            last = part + 1 >= size.parts
            channels = (
                part * tuning.DEPTHWISE_PART_CHANNELS,
                select(last, size.channels, (part + 1) * tuning.DEPTHWISE_PART_CHANNELS),
            )
            x, y = self.buffers.x.at(image * size.x_image), self.buffers.y.at(image * size.y_image)
            tiles = code.loop(stop, start, self.spec.rows * step)
            with tiles as first, code.loop(step) as phase, code.if_then(first + phase < stop):
                self._rows(x, y, image, (first + phase, stop), channels)

    def _rows(
        self,
        x: Pointer,
        y: Pointer,
        image: SSAValue,
        rows: tuple[SSAValue, SSAValue],
        channels: tuple[SSAValue, SSAValue],
    ) -> None:
        """The output rows of a tile, from rows[0] on, those below rows[1]: for each block of `channels` all tiles."""
        code, size, spec, (_, step) = self.code, self.size, self.spec, self.spec.steps
        weights = self.buffers.w
        block, width = _BLOCK_VECTORS * self.lanes, self.spec.pixels * step
        with code.loop(channels[1], channels[0], block) as first_channel:
            end = smaller(first_channel + block, channels[1])
            with code.loop(size.out_width, step=width) as start_column, code.loop(step) as phase:
                # Where neighbours make a tile, the last one stands back, over the one before, to be a whole one.
                column = start_column + phase
                if step == 1:
                    column = larger(smaller(start_column, size.out_width - spec.pixels), 0)
                with code.if_then(column < size.out_width), code.loop(end, first_channel, self.lanes) as start:
                    channel = larger(smaller(start, size.channels - self.lanes), 0)
                    self._tile((x.at(channel), weights.at(channel), y.at(channel)), image, rows, column, channel)

    def _tile(
        self,
        pointers: tuple[Pointer, Pointer, Pointer],
        image: SSAValue,
        rows: tuple[SSAValue, SSAValue],
        out_column: SSAValue,
        channel: SSAValue,
    ) -> None:
        code, size, spec, (row_step, step) = self.code, self.size, self.spec, self.spec.steps
        x, w, y = pointers
        active = size.channels - channel
        top = rows[0] * spec.strides[0] - size.pad_top
        column = out_column * spec.strides[1] - size.pad_left
        sums = [
            [code.variable(code.number(types.float32, 0, self.lanes)) for _ in range(spec.pixels)]
            for _ in range(spec.rows)
        ]
        y = y.at(rows[0] * size.y_row + out_column * size.y_pixel)
        pixel = size.y_pixel * step
        for row in range(spec.rows):
            emit_prefetch_result(
                code.builder, y.at(size.y_row * (row * row_step)).value, pixel.value, (spec.pixels, self.lanes)
            )
        x = x.at(top * size.x_row + column * size.x_pixel)
        self._prefetch_below(x)
        self._add(sums, x, w, top, column, active)
        count = (size.out_width - out_column + (step - 1)) / code.integer(step)
        for row in range(spec.rows):
            out_row = rows[0] + row * row_step
            with code.if_then(out_row < rows[1]):
                emit_finish(
                    *(code, self.epilogue, (spec.pixels, 1)),
                    [value.get().value for value in sums[row]],
                    TileResult(
                        *(y.at(size.y_row * (row * row_step)).value, pixel.value),
                        place=(image, out_row * size.out_width + out_column, channel),
                        row_step=code.integer(step).value,
                    ),
                    *(active.value, count.value),
                )

    def _prefetch_below(self, x: Pointer) -> None:
        """Ask for what the tile below will read and this one does not: `x` points to this one's first input.

        Measured at 3x3, strides of 2, 112 x 112 x 96, whose input comes from the third-level cache: half of the time.
        Where all is near it would cost 5 %.
        """
        size, spec = self.size, self.spec
        below = max(self.row_users) + 1
        with self.code.if_then(size.height * size.x_row > tuning.DEPTHWISE_NEAR_ELEMENTS):
            for row in range(below, below + spec.rows * spec.strides[0]):
                for column in range(spec.pixels * spec.strides[1]):
                    where = x.at(size.x_row * row + size.x_pixel * (column * spec.steps[1]))
                    emit_prefetch(self.code.builder, where.value)

    def _add(
        self, sums: list[list[Variable]], x: Pointer, w: Pointer, top: SSAValue, column: SSAValue, active: SSAValue
    ) -> None:
        """All products of a tile. Inputs beside the image are read as zeros, by masks, or left out, by branches, where
        they are many (dilation) or each stands for few products (single rows); tiles that have none do neither."""
        code, size = self.code, self.size
        inside = (column >= 0) & (column + max(self.column_users) < size.width) & (active >= self.lanes)
        with code.if_else(inside) as (whole, edge):
            with whole:
                self._add_rows(sums, x, w, top, None, dict.fromkeys(self.column_users))
            with edge:
                places = {at: column + at for at in self.column_users}
                within = {at: (place >= 0) & (place < size.width) for at, place in places.items()}
                self._add_rows(sums, x, w, top, code.active(active, self.lanes), within)

    def _add_rows(
        self,
        sums: list[list[Variable]],
        x: Pointer,
        w: Pointer,
        top: SSAValue,
        active: Mask | None,
        within: Mapping[int, SSAValue | None],
    ) -> None:
        """The products of the input rows in the image, in a loop over taps if a tile is a single row."""
        code, size, (height, width) = self.code, self.size, self.spec.kernel
        dilation = self.spec.dilations[0]

        def weights(tap: SSAValue | int) -> list[SSAValue]:
            row = w.at(size.channels * tap * width)
            return [row.load(size.channels * i, self.lanes, active) for i in range(width)]

        if self.spec.rows == 1:
            first = larger(dilation - 1 - top, 0) / dilation
            last = smaller(larger(size.height - top + (dilation - 1), 0) / dilation, height)
            with code.loop(last, first) as tap:
                self._add_row(sums[:1], x.at(size.x_row * tap * dilation), [weights(tap)], active, within)
            return
        held = [weights(tap) for tap in range(height)] if self.holds_weights else []
        for row, users in sorted(self.row_users.items()):
            with code.if_then((top + row >= 0) & (top + row < size.height)):
                outputs = [sums[out_row] for out_row, _ in users]
                taps = [held[tap] if held else weights(tap) for _, tap in users]
                self._add_row(outputs, x.at(size.x_row * row), taps, active, within)

    def _add_row(
        self,
        sums: list[list[Variable]],
        x: Pointer,
        weights: list[list[SSAValue]],
        active: Mask | None,
        within: Mapping[int, SSAValue | None],
    ) -> None:
        """The products of one input row: for the output rows that use it, their sums and their weights.

        Every input is loaded once, for all outputs and taps that use it.
        """
        code = self.code
        for column, condition in sorted(within.items()):
            mask: Mask | None = active
            skip: AbstractContextManager[None] = nullcontext()
            if condition is not None and (self.spec.dilations[1] > 1 or self.spec.rows == 1):
                skip = code.if_then(condition)
            elif condition is not None and active is not None:
                mask = Mask(code.builder.select(condition.value, active.value, active.value.type(None)))
            with skip:
                value = x.load(self.size.x_pixel * column, self.lanes, mask)
                for row_sums, row_weights in zip(sums, weights, strict=True):
                    for pixel, tap in self.column_users[column]:
                        row_sums[pixel].set(fma(value, row_weights[tap], row_sums[pixel].get()))

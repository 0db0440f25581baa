"""The convolution to few output channels: see `narrow_spec.NarrowSpec`."""

from __future__ import annotations

from typing import Any

from jitonnx.emit import types
from jitonnx.emit.builder import Kernel, KernelBuilder, Pointer, Variable, gathered, larger, remainder, smaller
from jitonnx.emit.epilogue import Epilogue, Stage
from jitonnx.emit.ssa import SSAValue, fma
from jitonnx.kernels.convolution.narrow_spec import NarrowSizes, NarrowSpec, RowPhase
from jitonnx.kernels.convolution.problem import ConvolutionBuffers
from jitonnx.kernels.convolution.sizes import Loaded
from jitonnx.kernels.parts.microkernel import TileResult, emit_finish, in_chains, room_for
from jitonnx.kernels.transpose.tiles import copy_transposed, evenly
from jitonnx.support.records import NamedTuple
from jitonnx.target import tuning


def build(spec: NarrowSpec, lanes: int, epilogue: Stage | None = None) -> Kernel:
    """The kernel of `spec` for vectors of `lanes` float32."""
    if spec.lanes != lanes:
        raise ValueError(f"Bug: {spec} has no kernel with {lanes} lanes")
    return lambda code, begin, end: _Narrow(code, spec, Epilogue(code, epilogue, types.float32, lanes)).emit(begin, end)


class _Sizes(Loaded):
    """What `NarrowSizes` names, and of one phase what `RowPhase` names."""

    def __init__(self, code: KernelBuilder, phase: SSAValue | int) -> None:
        super().__init__(code, (NarrowSizes, 0), (RowPhase, phase * RowPhase.WIDTH + NarrowSizes.place("phases")))


class _Place(NamedTuple):
    """The place of a tile, which is of one phase, and its operands."""

    source: Pointer
    """The inputs of its first row."""
    weights: Pointer
    y: Pointer
    """The first of its channels."""
    phase: SSAValue
    image: SSAValue
    channel: SSAValue
    row: SSAValue
    live_rows: SSAValue
    """Rows that count."""
    column: SSAValue


class _Narrow:
    """Emits the loop over tasks."""

    def __init__(self, code: KernelBuilder, spec: NarrowSpec, epilogue: Epilogue) -> None:
        self.code, self.spec, self.epilogue = code, spec, epilogue
        self.x, self.w, self.y = code.buffers(ConvolutionBuffers, types.float32)
        self.scratch = code.scratch(types.float32)

    def emit(self, begin: SSAValue, end: SSAValue) -> None:
        code, spec, sizes = self.code, self.spec, _Sizes(self.code, 0)
        with code.loop(end, begin) as task:
            number, outer = remainder(task, sizes.column_blocks), task / sizes.column_blocks
            left = number * sizes.column_block
            right = smaller(left + sizes.column_block, sizes.columns)
            number, outer = remainder(outer, sizes.row_blocks), outer / sizes.row_blocks
            start = number * sizes.row_block
            stop = smaller(start + sizes.row_block, sizes.rows)
            group, image = remainder(outer, sizes.groups), outer / sizes.groups
            x = self.x.at(image * sizes.x_image + group * sizes.channels * sizes.x_channel)
            first = sizes.rows_first + start * sizes.rows_step
            self._copy(sizes, x, first, stop - start, sizes.columns_first + left)
            blocks, y = group * sizes.output_blocks, self.y.at(image * sizes.y_image)
            with (
                code.loop(blocks + sizes.output_blocks, blocks) as block,
                code.loop(spec.row_phases) as phase,
            ):
                of_phase, channel = _Sizes(code, phase), block * spec.outputs
                panel = of_phase.row_taps * sizes.channels * (spec.columns[0] * spec.outputs)
                weights = self.w.at(of_phase.weights + block * panel)
                with (
                    code.loop(smaller(stop, of_phase.out_rows), start, spec.rows) as row,
                    code.loop(right, left, spec.tile) as column,
                ):
                    slot = of_phase.row_first + row * of_phase.row_stride - first
                    source = self.scratch.at(slot * sizes.row_pitch + (column - left))
                    live_rows = smaller(stop, of_phase.out_rows) - row
                    y_channel = y.at(channel * sizes.y_channel)
                    place = _Place(source, weights, y_channel, phase, image, channel, row, live_rows, column)
                    code.subroutine("tile", place, self._tile, inline=False)

    # ------------------------------------------------------------ the copy

    def _copy(self, sizes: _Sizes, x: Pointer, first: SSAValue, rows: SSAValue, column: SSAValue) -> None:
        """Copy the input rows from `first` on that so many rows of all phases read, from an input column on."""
        self.code.subroutine("copy_rows", [x, self.scratch, first, rows, column], self._emit_copy, inline=False)

    def _emit_copy(
        self, code: KernelBuilder, x: Pointer, scratch: Pointer, first: SSAValue, rows: SSAValue, column: SSAValue
    ) -> None:
        sizes, lanes = _Sizes(code, 0), self.spec.lanes
        begin = smaller(larger(column * -1, 0), sizes.pitch)
        end = smaller(larger(sizes.width - column, begin), sizes.pitch)
        slots = (rows - 1) * sizes.rows_step + sizes.rows_reach
        with code.loop(slots) as slot:
            row, target = first + slot, scratch.at(slot * sizes.row_pitch)
            with code.if_else((row >= 0) & (row < sizes.height)) as (inside, outside):
                with outside:
                    _fill(code, target, sizes.row_pitch, lanes)
                with inside:
                    source = x.at(row * sizes.x_row + (column + begin) * sizes.x_pixel)
                    if not self.spec.planes:
                        to, counts = evenly(target.at(begin), sizes.pitch), (end - begin, sizes.channels)
                        copy_transposed(code, source, sizes.x_pixel, to, counts, 4 * lanes)
                    with code.loop(sizes.channels) as channel:
                        of_channel = target.at(channel * sizes.pitch)
                        if self.spec.planes:
                            pixels = source.at(channel * sizes.x_channel)
                            _run(code, pixels, of_channel.at(begin), end - begin, lanes)
                        _fill(code, of_channel, begin, lanes)
                        _fill(code, of_channel.at(end), sizes.pitch - end, lanes)

    # ------------------------------------------------------------ a tile

    def _tile(self, code: KernelBuilder, *place: Any) -> None:
        source, weights, y, phase, image, channel, row, live_rows, column = _Place(*place)
        spec, sizes = self.spec, _Sizes(code, phase)
        outputs, phases = spec.outputs, spec.column_phases
        zero = code.number(types.float32, 0, spec.lanes)
        sums = [
            [[[code.variable(zero) for _ in range(outputs)] for _ in range(phases)] for _ in range(spec.vectors)]
            for _ in range(spec.rows)
        ]
        flat = [total for of_row in sums for of_vector in of_row for of_phase in of_vector for total in of_phase]
        kept, per_chain = room_for(code, flat), -(-tuning.SUM_STEPS // spec.columns[0])
        step, pitch = spec.columns[0] * outputs, sizes.pitch
        below = sizes.row_stride * sizes.row_pitch
        with code.loop(sizes.row_taps) as tap:
            of_tap = source.at(tap * sizes.row_dilation * sizes.row_pitch)
            factors_of_tap = weights.at(tap * sizes.channels * step)
            others = (tap, sizes.row_taps - 1 - tap)
            with (
                in_chains(code, flat, kept, (sizes.channels, 0, per_chain), others) as (first, end),
                code.loop(end, first) as i,
            ):
                here, factors = of_tap.at(i * pitch), factors_of_tap.at(i * step)
                self._add_products(code, sums, [here.at(below * r) for r in range(spec.rows)], factors)
        first = column * phases
        for number, of_row in enumerate(sums):
            with code.if_then(live_rows > number):
                out_row = sizes.out_row_first + (row + number) * sizes.out_row_step
                for output in range(outputs):
                    values = [
                        vector
                        for of_vector in of_row
                        for vector in _interleaved([of_phase[output].get() for of_phase in of_vector])
                    ]
                    place = (image, channel + output, out_row * sizes.out_width + first)
                    at = y.at(output * sizes.y_channel + out_row * sizes.y_row + first)
                    emit_finish(
                        *(code, self.epilogue, (1, len(values)), [value.value for value in values]),
                        TileResult(at.value, code.integer(0).value, place),
                        (sizes.out_width - first).value,
                    )

    def _add_products(
        self, code: KernelBuilder, sums: list[list[list[list[Variable]]]], rows: list[Pointer], weights: Pointer
    ) -> None:
        """The products of one channel and row tap."""
        lanes, outputs, number = self.spec.lanes, self.spec.outputs, 0
        for place, users in self.spec.reads:
            spread = [
                [code.splat(weights.load((number + n) * outputs + m), lanes) for m in range(outputs)]
                for n in range(len(users))
            ]
            number += len(users)
            for source, of_row in zip(rows, sums, strict=True):
                for v, of_vector in enumerate(of_row):
                    value = source.load(place + v * lanes, lanes)
                    for (phase, _), factors in zip(users, spread, strict=True):
                        for total, factor in zip(of_vector[phase], factors, strict=True):
                            total.set(fma(value, factor, total.get()))


def _interleaved(vectors: list[SSAValue]) -> list[SSAValue]:
    """The elements of several vectors in turns: the first of each, the second of each, …"""
    count, lanes = len(vectors), vectors[0].value.type.count
    if count == 1:
        return vectors
    order = [at % count * lanes + at // count for at in range(count * lanes)]
    return [gathered(vectors, order[first : first + lanes]) for first in range(0, count * lanes, lanes)]


def _fill(code: KernelBuilder, target: Pointer, count: SSAValue, lanes: int) -> None:
    """target[:count] = 0."""
    zero = code.number(types.float32, 0, lanes)
    with code.loop(count, step=lanes) as i:
        target.store(i, zero, count - i)


def _run(code: KernelBuilder, source: Pointer, target: Pointer, count: SSAValue, lanes: int) -> None:
    """target[:count] = source[:count]."""
    with code.loop(count, step=lanes) as i:
        target.store(i, source.load(i, lanes, count - i), count - i)

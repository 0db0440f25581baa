"""The copy of input rows that a direct convolution works from: padded with zeros, in the layout that its spec names.

A row of scratch memory is `row_pitch` elements: for every block of channels (`block_pitch` elements) the strands one after
another, each of `strand_columns` places, of which place 0 is number `strand_first`. See `spec.DirectSpec`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitonnx.kernels.convolution.spec import CHANNEL_BLOCK, Blocking, DirectSpec, Phase, Problem
from jitonnx.kernels.jit import device
from jitonnx.kernels.simd import advance, broadcast, load, load_part, store, store_part

P = Problem(*range(len(Problem._fields)))
B = Blocking(*range(len(P), len(P) + len(Blocking._fields)))
PHASES = len(P) + len(B)
H = Phase(*range(len(Phase._fields)))


def rows(spec: DirectSpec, lanes: int) -> Any:
    """A device function that copies the input rows [origin, end) that output rows [start, stop) of a phase read.

    copy(x, data, sizes, phase, origin, end, start, stop): `x` points at the first channel of an image's group. Row i goes to
    data + (i - origin) * row_pitch; rows outside the image become zeros if the spec's tiles span rows, else they are left.
    """
    copy_row = {"blocked": _blocked, "planar": _planar, "interleaved": _interleaved}[spec.layout](lanes)
    fill = _fill(lanes)
    spans_rows = spec.tile_rows > 1

    @device
    def copy(x, data, sizes, phase, origin, end, start, stop):
        for row in range(origin, end):
            target = advance(data, (row - origin) * phase[H.row_pitch])
            if row < 0 or row >= sizes[P.height]:
                if spans_rows:
                    fill(target, phase[H.row_pitch])
            elif _is_read(phase, row, start, stop):
                copy_row(advance(x, row * sizes[P.x_row]), target, sizes, phase)

    return copy


@device
def _is_read(phase, row, start, stop):
    """Whether an output row in [start, stop) has a tap on input row `row`."""
    for tap in range(phase[H.row_taps]):
        distance = row - phase[H.row_first] - tap * phase[H.row_dilation]
        if distance % phase[H.row_stride] == 0 and start <= distance // phase[H.row_stride] < stop:
            return True
    return False


@device
def _strand_is_read(phase, strand):
    """Whether a tap reads columns of this residue modulo the stride."""
    residue = phase[H.column_residue]
    for _ in range(phase[H.column_taps]):
        if residue == strand:
            return True
        residue = (residue + phase[H.column_step_residue]) % phase[H.strands]
    return False


def _fill(lanes: int) -> Any:
    @device
    def fill(p, count):
        """p[:count] = 0."""
        zero = broadcast(np.float32(0), lanes)
        whole = count - count % lanes
        for i in range(0, whole, lanes):
            store(p, i, zero)
        store_part(p, whole, zero, count - whole)

    return fill


def _run(lanes: int) -> Any:
    @device
    def run(source, p, count):
        """p[:count] = source[:count]."""
        whole = count - count % lanes
        for i in range(0, whole, lanes):
            store(p, i, load(source, i, lanes))
        store_part(p, whole, load_part(source, whole, count - whole, lanes), count - whole)

    return run


def _blocked(lanes: int) -> Any:
    """[block of channels][strand][place][CHANNEL_BLOCK]: whole cache lines."""
    fill = _fill(lanes)

    @device
    def copy_row(source, p, sizes, phase):
        channels, strands, first = sizes[B.channels], phase[H.strands], phase[H.strand_first]
        places, pitch = phase[H.strand_columns], strands * sizes[P.x_pixel]
        for strand in range(strands):
            if not _strand_is_read(phase, strand):
                continue
            begin = min(max(-first, 0), places)
            end = min(max((sizes[P.width] - strand + strands - 1) // strands - first, begin), places)
            for block in range(sizes[B.channel_blocks]):
                target = advance(p, block * phase[H.block_pitch] + strand * places * CHANNEL_BLOCK)
                channel = block * CHANNEL_BLOCK
                start = advance(source, first * pitch + strand * sizes[P.x_pixel] + channel)
                fill(target, begin * CHANNEL_BLOCK)
                if channels - channel >= CHANNEL_BLOCK:
                    for place in range(begin, end):
                        store(target, place * CHANNEL_BLOCK, load(start, place * pitch, CHANNEL_BLOCK))
                else:
                    for place in range(begin, end):
                        pixel = load_part(start, place * pitch, channels - channel, CHANNEL_BLOCK)
                        store(target, place * CHANNEL_BLOCK, pixel)
                fill(advance(target, end * CHANNEL_BLOCK), (places - end) * CHANNEL_BLOCK)

    return copy_row


def _planar(lanes: int) -> Any:
    """[channel][place]; any strides of x, fast where pixels lie side by side."""
    fill, run = _fill(lanes), _run(lanes)

    @device
    def copy_row(source, p, sizes, phase):
        first, places = phase[H.strand_first], phase[H.strand_columns]
        begin = min(max(-first, 0), places)
        end = min(max(sizes[P.width] - first, begin), places)
        for channel in range(sizes[B.channels]):
            target = advance(p, channel * phase[H.block_pitch])
            start = advance(source, channel * sizes[P.x_channel] + (first + begin) * sizes[P.x_pixel])
            fill(target, begin)
            if sizes[P.x_pixel] == 1:
                run(start, advance(target, begin), end - begin)
            else:
                for place in range(end - begin):
                    target[begin + place] = start[place * sizes[P.x_pixel]]
            fill(advance(target, end), places - end)

    return copy_row


def _interleaved(lanes: int) -> Any:
    """[place][channel]: a row as it is."""
    fill, run = _fill(lanes), _run(lanes)

    @device
    def copy_row(source, p, sizes, phase):
        channels, first, places = sizes[B.channels], phase[H.strand_first], phase[H.strand_columns]
        begin = min(max(-first, 0), places)
        end = min(max(sizes[P.width] - first, begin), places)
        start, target = advance(source, (first + begin) * sizes[P.x_pixel]), advance(p, begin * channels)
        fill(p, begin * channels)
        if sizes[P.x_pixel] == channels:
            run(start, target, (end - begin) * channels)
        else:
            for place in range(end - begin):
                for channel in range(channels):
                    target[place * channels + channel] = start[place * sizes[P.x_pixel] + channel]
        fill(advance(p, end * channels), (places - end) * channels)

    return copy_row

"""The direct and the transposed convolution: see `spec.DirectSpec` for how they go about it.

`build` also hands out the depthwise kernel, so that whoever has a spec of this family needs one name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import llvmlite.ir as ir
from numba.core import types
from numba.extending import intrinsic

from jitonnx.kernels import tile
from jitonnx.kernels.convolution import copy, depthwise
from jitonnx.kernels.convolution.spec import CHANNEL_BLOCK, PHASE, DepthwiseSpec, DirectSpec
from jitonnx.kernels.jit import device
from jitonnx.kernels.simd import advance, pointer, view
from jitonnx.kernels.spec import KernelSpec

_IMAGES, _HEIGHT, _WIDTH, _CHANNELS, _OUT_HEIGHT, _OUT_WIDTH = range(6)
_Y_IMAGE, _Y_ROW, _Y_PIXEL = (DirectSpec.SIZES.index(name) for name in ("y_image", "y_row", "y_pixel"))
_BASE = len(DirectSpec.SIZES)
_GROUPS, _GROUP_CHANNELS, _GROUP_OUTPUTS, _BLOCKS, _DEPTH, _OUTPUT_BLOCKS, _CHUNK, _CHUNKS = range(_BASE, _BASE + 8)
_PHASES = _BASE + len(DirectSpec.DERIVED)
(
    *(_FIRST_TASK, _WEIGHTS, _OUT_ROWS, _OUT_COLUMNS),
    *(_OUT_ROW_FIRST, _OUT_ROW_STEP, _OUT_COLUMN_FIRST, _OUT_COLUMN_STEP),
    *(_ROW_TAPS, _ROW_FIRST, _ROW_STRIDE, _ROW_DILATION),
    *(_COLUMN_TAPS, _COLUMN_FIRST, _COLUMN_RESIDUE, _COLUMN_STEP, _COLUMN_STEP_RESIDUE),
    *(_STRANDS, _STRAND_FIRST, _STRAND_COLUMNS, _STRAND_VALID, _BLOCK_PITCH, _ROW_PITCH, _ROW_BLOCK, _ROW_BLOCKS),
) = range(len(PHASE))


def build(spec: KernelSpec, lanes: int, epilogue: Callable[..., Any] | None = None) -> Callable[..., None]:
    """The kernel of a `DirectSpec`, `TransposedSpec` or `DepthwiseSpec` for vectors of `lanes` float32."""
    if isinstance(spec, DepthwiseSpec):
        return depthwise.build(spec, lanes, epilogue)
    assert isinstance(spec, DirectSpec) and spec.lanes == lanes
    return _build_direct(spec, lanes, epilogue)


def _build_direct(spec: DirectSpec, lanes: int, epilogue: Callable[..., Any] | None) -> Callable[..., None]:
    tile_rows, pixels, block, phases, record = spec.tile_rows, spec.pixels, spec.block, spec.phases, len(PHASE)
    copy_rows = copy.rows(spec, lanes)
    first_row, last_row = copy.first_row(spec), copy.last_row
    rows_of_tiles = _rows_of_tiles(spec, lanes, epilogue, tile_rows)
    single_rows = _rows_of_tiles(spec, lanes, epilogue, 1) if tile_rows > 1 else rows_of_tiles

    def kernel(buffers, sizes, begin, end, scratch):
        x, w = pointer(buffers, 0, types.float32), pointer(buffers, 1, types.float32)
        y, rows = pointer(buffers, 2, types.float32), view(scratch, types.float32)
        groups, chunk, chunks, output_blocks = sizes[_GROUPS], sizes[_CHUNK], sizes[_CHUNKS], sizes[_OUTPUT_BLOCKS]
        held, number = -1, 0
        for task in range(begin, end):
            while number + 1 < phases and task >= sizes[_PHASES + (number + 1) * record + _FIRST_TASK]:
                number += 1
            phase = advance(sizes, _PHASES + number * record)
            place = (task - phase[_FIRST_TASK]) // chunks
            strip = (task - phase[_FIRST_TASK]) % chunks
            row_blocks = phase[_ROW_BLOCKS]
            start = place % row_blocks * phase[_ROW_BLOCK]
            stop = min(start + phase[_ROW_BLOCK], phase[_OUT_ROWS])
            group = place // row_blocks % groups
            image = place // row_blocks // groups
            origin = first_row(phase, start)
            if held != task - strip:
                copy_rows(x, rows, sizes, phase, image, group, origin, last_row(phase, stop), start, stop)
                held = task - strip
            depth = phase[_ROW_TAPS] * phase[_COLUMN_TAPS] * ...
        return kernel

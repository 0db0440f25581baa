"""The copy of input rows that a direct convolution works from: padded with zeros, in the layout that its spec names.

A row of scratch memory is `row_pitch` elements: for every block of channels (`block_pitch` elements) the strands one after
another, each of `strand_columns` places, of which place 0 is number `strand_first`. See `spec.DirectSpec`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitonnx.kernels.convolution.spec import CHANNEL_BLOCK, DirectSpec, Phase
from jitonnx.kernels.jit import device
from jitonnx.kernels.simd import advance, broadcast, load, load_part, store, store_part

_WIDTH, _X_PIXEL, _X_CHANNEL = (DirectSpec.SIZES.index(name) for name in ("width", "x_pixel", "x_channel"))
_HEIGHT, _X_IMAGE, _X_ROW = (DirectSpec.SIZES.index(name) for name in ("height", "x_image", "x_row"))
_GROUP_CHANNELS, _BLOCKS = (DirectSpec.index(name) for name in ("group_channels", "blocks"))
_ROW_TAPS, _ROW_FIRST, _ROW_STRIDE, _ROW_DILATION = (
    Phase.index(name) for name in ("row_taps", "row_first", "row_stride", "row_dilation")
)
_STRANDS, _STRAND_FIRST, _STRAND_COLUMNS = (
    Phase.index(name) for name in ("strands", "strand_first", "strand_columns")
)
_COLUMN_TAPS, _COLUMN_RESIDUE, _COLUMN_STEP_RESIDUE = (
    Phase.index(name) for name in ("column_taps", "column_residue", "column_step_residue")
)
_BLOCK_PITCH, _ROW_PITCH = Phase.index("block_pitch"), Phase.index("row_pitch")

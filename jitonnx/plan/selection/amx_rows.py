"""How kernels of products in tile registers read their rows: see `way` of `jitonnx.kernels.parts.amx_products`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from jitonnx.ir.dims import DimLike, concrete, integers, known
from jitonnx.kernels.parts.amx_products import RowsWay, whole
from jitonnx.plan.tensor import StridedTensor
from jitonnx.target import tuning


def way_of_rows(x: StridedTensor, row: DimLike, step: int, *, as_taken: bool) -> RowsWay:
    """How rows that lie `row` elements apart are read: in place where tiles can, each of whose rows is a cache line, a
    step of elements; `as_taken`: x lies as products take it. Inputs and outputs of a run may begin anywhere: a row of a
    tile that lies in two lines takes six times as long."""
    lines = as_taken and x.buffer.space in ("arena", "constant") and known((x.shape[-1], row, x.offset))
    if lines and not any(size % step for size in integers((x.shape[-1], row, x.offset))):
        return "in place"
    return "copied"


def way_of_windows(
    channels: DimLike,
    width: DimLike,
    taps: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    step: int,
) -> RowsWay:
    """How windows are read. Rows of the image with their padding, where that does not make many more products: of
    channels that fill no whole step, and of places between the rows of output pixels."""
    if not known((channels,)):
        return "gathered"
    (own,) = integers((channels,))
    if own < step and tuple(taps) != (1, 1) and dilations[1] == 1:
        return "im2col"
    if tuple(strides) != (1, 1):
        return "gathered"
    out_width = concrete(width)
    between = 0.0 if out_width is None else (taps[1] - 1) * dilations[1] / max(out_width, 1)
    more = whole(own, step) / max(own, 1) * (1 + between)
    return "padded" if more <= tuning.AMX_MORE_PRODUCTS else "gathered"


def rows_together(pixels: Sequence[DimLike], way: RowsWay, taps: Sequence[int], dilations: Sequence[int]) -> int | None:
    """How many rows are multiplied with all weights at once; None where only a run tells. `pixels`: images, and rows of
    output pixels and these, or fewer sizes. In the "padded" way they are an image's, with what is between its rows."""
    sizes = pixels if way != "padded" else pixels[1:]
    if not known(sizes):
        return None
    *outer, width = integers(sizes)
    rows = math.prod(outer)
    return rows * width if way != "padded" else (rows - 1) * (width + (taps[1] - 1) * dilations[1]) + width

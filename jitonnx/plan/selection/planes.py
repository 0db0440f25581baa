"""How images lie whose pixels lie side by side, by the names that kernels have for it."""

from __future__ import annotations

from jitonnx.emit.arguments import by_name
from jitonnx.ir.dims import DimLike
from jitonnx.plan.tensor import StridedTensor, pair


def planes(x: StridedTensor) -> dict[str, DimLike]:
    """The arguments of `Planes`: x is [N, C, spatial...]; one axis is a height of 1."""
    return {
        **by_name("images channels", x.shape[:2]),
        **by_name("height width", pair(x.shape[2:])),
        **by_name("x_image x_channel x_row", (*x.strides[:2], pair(x.strides[2:], 0)[0])),
    }


def planes_to_planes(x: StridedTensor, y: StridedTensor) -> dict[str, DimLike]:
    """The arguments of `PlanesToPlanes`, for tensors as of `planes`."""
    return {
        **planes(x),
        **by_name("out_height out_width", pair(y.shape[2:])),
        **by_name("y_image y_channel y_row", (*y.strides[:2], pair(y.strides[2:], 0)[0])),
    }

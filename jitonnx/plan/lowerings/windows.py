"""Windows over images: pooling, convolution, resizing. Kernels read and write channels-last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jitonnx.ir import computation as c
from jitonnx.ir.dims import DimLike
from jitonnx.ir.lowering import Statement
from jitonnx.kernels.pooling.spec import choose as choose_pool
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.tensor import Tensor, channels_last_order

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def pool(planner: Planner, group: Group, statement: Statement) -> None:
    """MaxPool, AveragePool, LpPool over one to three spatial axes."""
    computation = statement.computation
    assert isinstance(computation, c.Pool) and statement.inputs[0] is not None
    x = planner.channels_last(statement.inputs[0])
    if x.rank > 5:
        planner.unplannable("pooling over more than three spatial axes")
    order = channels_last_order(x.rank)
    y, *indices = [planner.place(value, order, strict=True) for value in statement.outputs]
    spec = choose_pool(
        computation.kind, x.dtype.numpy.name, bool(indices), computation.count_include_pad, computation.p
    )
    sizes: list[DimLike] = [x.shape[0], *spatial(x.shape[2:], 1), x.shape[1], *spatial(y.shape[2:], 1)]
    sizes += [x.strides[0], *spatial(x.strides[2:], 0), y.strides[0], *spatial(y.strides[2:], 0)]
    for window in (computation.kernel, computation.strides, computation.dilations):
        sizes += spatial(window, 1)
    sizes += [*spatial(computation.pads_before, 0), *spatial(computation.pads_after, 0)]
    sizes += _index_strides(x, computation.storage_order)
    call = KernelCall(spec, [x, y, *(indices or [y])], sizes, 1 + len(indices), 1)
    call.label = f"{computation.kind} pool {'x'.join(map(str, computation.kernel))}"
    call.reason = "windows over channels-last pixels"
    planner.call(call)


def _index_strides(x: Tensor, storage_order: int) -> list[DimLike]:
    """What a step along image, channel and the spatial axes adds to an index into the flattened operand."""
    axes = spatial(x.shape[2:], 1)
    steps: list[DimLike] = []
    step: DimLike = 1
    for extent in axes if storage_order else reversed(axes):
        steps.append(step)
        step = step * extent
    return [step * x.shape[1], step, *(steps if storage_order else reversed(steps))]


def spatial(values: Sequence[DimLike], fill: DimLike) -> list[DimLike]:
    """One entry each for depth, height and width: axes that an image lacks get `fill` in front."""
    return [*[fill] * (3 - len(values)), *values]

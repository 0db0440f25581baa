"""Pooling: channels-last, or in planes where an image lies so already and is wanted so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import DimLike, integers, known, not_negative, usual
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.kernels.pooling.spec import (
    ELEMENTS,
    PLANE_STRIDES,
    PoolBuffers,
    PoolPlanesSizes,
    PoolSizes,
    choose,
    choose_planes,
)
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.planes import planes_to_planes
from jitonnx.plan.tensor import (
    StridedTensor,
    broadcast_to,
    channels_last_order,
    in_planes,
    is_channels_last,
    pair,
    pixel_strides,
    plane_strides,
)
from jitonnx.support.records import dataclass
from jitonnx.target import tuning

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def pool(planner: Planner, group: Group, computation: c.Pool, image: Value) -> None:
    """MaxPool, AveragePool, LpPool over one to three spatial axes."""
    if _is_for_planes(planner, group, computation, image):
        _pool_planes(planner, group, computation, planner.tensor(image))
    else:
        _pool_channels_last(planner, group, computation, planner.channels_last(image))


def _pool_channels_last(planner: Planner, group: Group, computation: c.Pool, x: StridedTensor) -> None:
    element = "bfloat16" if x.dtype is DType.BFLOAT16 else x.dtype.numpy.name
    if x.rank > 5 or element not in ELEMENTS[computation.kind]:
        # Windows over four axes and more, which no framework has layers for, and integers of 16 bits and more.
        planner.unplannable(f"{computation.kind} pooling of {x.dtype.text} with {x.rank} axes")
    order = channels_last_order(x.rank)
    y = planner.place(group.output, order, strict=True)
    indices = [planner.place(value, order, strict=True) for value in group.outputs[1:]]
    spec = choose(
        computation.kind,
        element,
        with_indices=bool(indices),
        count_include_pad=computation.count_include_pad,
        power=computation.p,
        by_columns=computation.by_columns,
    )
    rows = _pixels_as_columns if y.shape[1] == 1 else pixel_strides
    spec = replace(spec, long_pixels=_takes_long_pixels(planner, group))
    axes = ("depth", "height", "width")

    def by_axis(name: str, values: Sequence[DimLike], fill: DimLike) -> dict[str, DimLike]:
        return dict(zip((name.format(axis) for axis in axes), _spatial(values, fill), strict=True))

    sizes = PoolSizes(
        images=x.shape[0],
        channels=x.shape[1],
        **by_axis("{}", x.shape[2:], 1),
        **by_axis("out_{}", y.shape[2:], 1),
        **by_name("x_image x_plane x_row x_pixel", (x.strides[0], *_spatial(x.strides[2:], 0))),
        **by_name("y_image y_plane y_row y_pixel", (y.strides[0], *_spatial(y.strides[2:], 0))),
        **by_axis("kernel_{}", computation.kernel, 1),
        **by_axis("stride_{}", computation.strides, 1),
        **by_axis("dilation_{}", computation.dilations, 1),
        **by_axis("pad_{}", computation.pads_before, 0),
        **by_axis("pad_{}_after", computation.pads_after, 0),
        **by_name(
            "index_image index_channel index_plane index_row index_pixel",
            _index_strides(x, computation.storage_order),
        ),
    )
    call = KernelCall(spec, PoolBuffers(x=x, y=y, indices=indices[0] if indices else y), sizes)
    call.label = f"{computation.kind} pool {'x'.join(map(str, computation.kernel))}"
    call.reason = "; ".join(["windows over channels-last pixels", *group.reasons])
    planner.epilogue(group, call, rows)
    planner.call(call)


def _pixels_as_columns(tensor: StridedTensor) -> tuple[DimLike, DimLike, DimLike] | None:
    """The strides of an epilogue's operand of one channel, whose columns go on in the next pixels."""
    strides = pixel_strides(tensor)
    return None if strides is None else (strides[0], strides[1], strides[1])


def _takes_long_pixels(planner: Planner, group: Group) -> bool:
    """Whether each operand of the epilogue is the same for all pixels and channels, or lies as dense pixels do."""
    shape = group.output.shape
    strides = [pixel_strides(broadcast_to(planner.tensor(value), shape)) for value in group.operands]
    return shape[1] == 1 or all(of is not None and of[1:] in ((0, 0), (shape[1], 1)) for of in strides)


def _pool_planes(planner: Planner, group: Group, computation: c.Pool, x: StridedTensor) -> None:
    order = tuple(range(x.rank))
    bound = planner.destination(group.output) is not None
    y = planner.place(group.output) if bound else planner.temporary(group.output.shape, group.output.dtype)
    window, strides = pair(computation.kernel, 1), pair(computation.strides, 1)
    spec = choose_planes(
        computation.kind,
        window,
        strides,
        count_include_pad=computation.count_include_pad,
        power=computation.p,
        by_columns=computation.by_columns,
    )
    sizes = PoolPlanesSizes(
        **planes_to_planes(x, y),
        **by_name("kernel_height kernel_width", window),
        stride_height=strides[0],
        **by_name("pad_height pad_width", pair(computation.pads_before, 0)),
        **by_name("pad_height_after pad_width_after", pair(computation.pads_after, 0)),
    )
    call = KernelCall(spec, UnaryBuffers(x=x, y=y), sizes)
    call.label = f"{computation.kind} pool {'x'.join(map(str, computation.kernel))} in planes"
    call.reason = "; ".join(["less work than copies to channels-last", *group.reasons])
    planner.epilogue(group, call, plane_strides, order)
    planner.call(call)
    if not bound:
        planner.bind(group.output, planner.copy(y, channels_last_order(y.rank), "channels-last for what reads it"))


def _is_for_planes(planner: Planner, group: Group, computation: c.Pool, image: Value) -> bool:
    """Whether an image lies in planes of pixels, there is a kernel for such, and it is cheaper so."""
    x, target = planner.tensor(image), planner.destination(group.output)
    if len(group.outputs) > 1 or x.dtype is not DType.FLOAT or x.rank not in (3, 4):
        return False
    if not all(in_planes(image) and _steps_forwards(image) for image in (x, target) if image is not None):
        return False
    window = _Window.of(computation, x, group.output)
    if window is None:
        return False
    vectors = planner.target.lanes(4)
    planes, last = window.cost_of_planes(vectors), window.cost_of_channels_last(vectors)
    if not is_channels_last(x):
        last += tuning.COPY_COST * window.channels * window.inputs
    copied_output = tuning.COPY_COST * window.channels * window.outputs
    if target is None:
        planes += copied_output
    elif not is_channels_last(target):
        last += copied_output
    return planes < last


def _steps_forwards(image: StridedTensor) -> bool:
    """Whether all steps between pixels, rows and planes are known and forwards, as the kernel's windows need it."""
    steps = [stride for stride, dim in zip(image.strides, image.shape, strict=True) if dim != 1]
    return all(step != 0 and not_negative(step) for step in steps)


@dataclass(frozen=True)
class _Window:
    """The extents of one image's pooling, and what it costs in operations on vectors of so many `lanes`."""

    channels: int
    size: tuple[int, int]
    out: tuple[int, int]
    taps: int
    read: float
    """Taps that planes read for a vector of outputs, where rows that are made together share those of theirs."""
    padded: bool

    @classmethod
    def of(cls, computation: c.Pool, x: StridedTensor, y: Value) -> _Window | None:
        """None where the kernel for planes does not do it. Sizes that only a run tells are taken for usual ones."""
        strides, kernel = pair(computation.strides, 1), pair(computation.kernel, 1)
        pads = (computation.pads_before, computation.pads_after)
        if not known(pads[0]) or strides[1] not in PLANE_STRIDES or any(d != 1 for d in computation.dilations):
            return None
        if any(before < 0 for before in integers(pads[0])):  # the first window begins behind the first element
            return None
        if any(isinstance(a, int) and a >= k for after in pads for a, k in zip(after, computation.kernel, strict=True)):
            return None  # a window may have no tap within x
        sizes = [*x.shape[2:], *y.shape[2:]]
        size, out = (pair([usual(dim) for dim in shape], 1) for shape in (x.shape[2:], y.shape[2:]))
        axes = list(zip(size, out, kernel, strides, pair(integers(pads[0]), 0), strict=True))
        if known(sizes) and any((o - 1) * s - b >= n for n, o, _, s, b in axes):
            return None  # the last one has none
        padded = any(b > 0 or (o - 1) * s + k > n for n, o, k, s, b in axes)
        together = choose_planes(computation.kind, kernel, strides).rows
        read = (kernel[0] + together - 1) / together * kernel[1]
        return cls(usual(x.shape[1]), size, out, kernel[0] * kernel[1], read, padded)

    @property
    def inputs(self) -> int:
        return self.size[0] * self.size[1]

    @property
    def outputs(self) -> int:
        return self.out[0] * self.out[1]

    def cost_of_planes(self, lanes: int) -> float:
        rows = (
            self.out[0] * -(-self.out[1] // lanes) * (self.read * tuning.POOL_PLANE_TAP_COST + tuning.POOL_VECTOR_COST)
        )
        copied = tuning.POOL_PADDED_COST * self.size[0] * -(-self.size[1] // lanes) if self.padded else 0
        return self.channels * (rows + copied)

    def cost_of_channels_last(self, lanes: int) -> float:
        return self.outputs * -(-self.channels // lanes) * (self.taps + tuning.POOL_VECTOR_COST)


def _index_strides(x: StridedTensor, storage_order: int) -> list[DimLike]:
    """What a step along image, channel and the spatial axes adds to an index into the flattened operand."""
    axes = _spatial(x.shape[2:], 1)
    steps: list[DimLike] = []
    step: DimLike = 1
    for extent in axes if storage_order else reversed(axes):
        steps.append(step)
        step = step * extent
    return [step * x.shape[1], step, *(steps if storage_order else reversed(steps))]


def _spatial(values: Sequence[DimLike], fill: DimLike) -> list[DimLike]:
    """One entry each for depth, height and width: axes that an image lacks get `fill` in front."""
    return [*[fill] * (3 - len(values)), *values]

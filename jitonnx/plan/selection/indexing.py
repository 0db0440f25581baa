"""Elements taken and written by index: gathering, scattering, reversed sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import DimLike, known, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.gather.spec import (
    PIECES,
    GatherBuffers,
    GatherElementsSizes,
    GatherElementsSpec,
    GatherRowsSizes,
    GatherRowsSpec,
    ReverseSequenceBuffers,
    ReverseSequenceSizes,
    ReverseSequenceSpec,
)
from jitonnx.kernels.parts.axes import MAX_RANK
from jitonnx.kernels.scatter.spec import (
    ScatterBuffers,
    ScatterElementsSizes,
    ScatterElementsSpec,
    ScatterRowsSizes,
    ScatterRowsSpec,
    word,
)
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.tensor import StridedTensor

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def gather(planner: Planner, group: Group, computation: c.Gather, source: Value, places: Value) -> None:
    """Runs of elements copied by index, or single ones: Gather."""
    data, indices, out = _gather_operands(planner, group, source, places)
    axis, itemsize = computation.axis, data.dtype.itemsize
    run, count, extent = product(data.shape[axis + 1 :]), indices.elements, data.shape[axis]
    batch = product(data.shape[:axis])
    if run == 1:
        sizes = GatherElementsSizes(
            extents=(batch, count), data=(extent, 0), indices=(0, 1), out=(count, 1), axis_extent=extent, axis_stride=1
        )
        _gather_elements(planner, places, (data, indices, out), sizes)
        return
    run = run * itemsize
    rows = GatherRowsSizes(
        batch=batch,
        count=count,
        run_bytes=run,
        data_batch=extent * run,
        indices_batch=0,
        indices_row=1,
        out_batch=count * run,
        out_row=run,
        extents=[extent],
        data=[run],
    )
    _gather_rows(planner, places, (data, indices, out), rows, [extent])


def gather_nd(planner: Planner, group: Group, computation: c.GatherND, source: Value, places: Value) -> None:
    """Runs of elements copied by tuples of indices: GatherND."""
    data, indices, out = _gather_operands(planner, group, source, places)
    first, itemsize = computation.batch_dims, data.dtype.itemsize
    width = indices.shape[-1]
    if not isinstance(width, int) or not 0 < width <= MAX_RANK:
        # Tuples address at most as many axes as tensors of other kernels have; of an open width, not even the rank of
        # the result is known. Tuples of nothing address the whole.
        planner.unplannable(f"its index tuples have {width} elements")
    extents = data.shape[first : first + width]
    strides = [product(data.shape[first + i + 1 :]) * itemsize for i in range(width)]
    run = product(data.shape[first + width :]) * itemsize
    count = product(indices.shape[first:-1])
    sizes = GatherRowsSizes(
        batch=product(data.shape[:first]),
        count=count,
        run_bytes=run,
        data_batch=product(data.shape[first:]) * itemsize,
        indices_batch=count * width,
        indices_row=width,
        out_batch=count * run,
        out_row=run,
        extents=extents,
        data=strides,
    )
    _gather_rows(planner, places, (data, indices, out), sizes, extents)


def _gather_rows(
    planner: Planner,
    places: Value,
    tensors: tuple[StridedTensor, StridedTensor, StridedTensor],
    sizes: GatherRowsSizes,
    extents: Sequence[DimLike],
) -> None:
    """extents: as of `_error_word`."""
    data, indices, out = tensors
    run = sizes.run_bytes
    spec = GatherRowsSpec(indices.dtype.numpy.name, len(extents), run if isinstance(run, int) and run in PIECES else 0)
    error = _error_word(planner, places, extents)
    buffers = GatherBuffers(data=data, indices=indices, out=out, error=error)
    planner.call(KernelCall(spec, buffers, sizes, label="gather", reason="rows copied by index"))


def _error_word(planner: Planner, indices: Value, extents: Sequence[DimLike]) -> StridedTensor:
    """The word that a kernel sets where an index is outside its axis: a flag, unless all are known to fit.

    extents: of the axis that indices select from, or of those that the indices along their last axis do.
    """
    if indices.constant is not None and _fits(indices.constant, extents):
        return planner.temporary((1,), DType.INT64)
    given = planner.node.inputs[:2]  # as the model names them
    if len(given) == 2 and given[0] is not None and given[1] is not None and given[1].type == indices.type:
        return planner.flag(
            f"an index in {given[1].name!r} is outside the axis of {given[0].name!r} that it selects from"
        )
    return planner.flag("an index that its inputs give is outside of the tensor that it selects from")


def _fits(indices: np.ndarray, extents: Sequence[DimLike]) -> bool:
    """Whether known indices are in range for all sizes that can be fed."""
    if not known(extents):
        return False
    limits = np.array(extents, np.int64)
    return bool(np.all((indices >= -limits) & (indices < limits)))


def gather_elements(
    planner: Planner, group: Group, computation: c.GatherElements, source: Value, places: Value
) -> None:
    """Single elements copied by index: GatherElements."""
    data, indices, out = _gather_operands(planner, group, source, places)
    if data.rank > MAX_RANK:
        # Kernels have that many loops; exporters write up to 6 axes.
        planner.unplannable(f"it has more than {MAX_RANK} axes")
    axis = computation.axis
    others = tuple(0 if i == axis else stride for i, stride in enumerate(data.strides))
    sizes = GatherElementsSizes(
        extents=indices.shape,
        data=others,
        indices=indices.strides,
        out=out.strides,
        axis_extent=data.shape[axis],
        axis_stride=data.strides[axis],
    )
    _gather_elements(planner, places, (data, indices, out), sizes)


def _gather_elements(
    planner: Planner,
    places: Value,
    tensors: tuple[StridedTensor, StridedTensor, StridedTensor],
    sizes: GatherElementsSizes,
) -> None:
    data, indices, out = tensors
    spec = GatherElementsSpec(indices.dtype.numpy.name, data.dtype.itemsize)
    error = _error_word(planner, places, [sizes.axis_extent])
    buffers = GatherBuffers(data=data, indices=indices, out=out, error=error)
    planner.call(KernelCall(spec, buffers, sizes, label="gather elements", reason="elements copied by index"))


def _gather_operands(
    planner: Planner, group: Group, data: Value, indices: Value
) -> tuple[StridedTensor, StridedTensor, StridedTensor]:
    """Data and indices, dense, and a dense place for the result."""
    out = _dense_place(planner, group.output)
    return planner.dense(data), planner.dense(indices), out


def _dense_place(planner: Planner, value: Value) -> StridedTensor:
    """A place for a result that is written row-major, without gaps."""
    if value.dtype is DType.STRING:
        # Strings are Python's objects, which native code must not touch.
        planner.unplannable("strings are moved by NumPy")
    return planner.dense_place(value)


def scatter_elements(
    planner: Planner, group: Group, computation: c.ScatterElements, source: Value, places: Value, given: Value
) -> None:
    """A copy of the data with single elements written by index: ScatterElements."""
    indices, updates, out = _scatter_operands(planner, group, (source, places, given))
    if out.rank > MAX_RANK:
        # Kernels have that many loops; exporters write up to 6 axes.
        planner.unplannable(f"it has more than {MAX_RANK} axes")
    axis = computation.axis
    sizes = ScatterElementsSizes(
        extents=indices.shape,
        given=indices.strides,
        out=out.strides,
        axis=axis,
        axis_extent=out.shape[axis],
        axis_stride=out.strides[axis],
    )
    element = word(out.dtype.itemsize) if computation.reduction == "none" else out.dtype.numpy.name
    spec = ScatterElementsSpec(indices.dtype.numpy.name, element, computation.reduction)
    _scatter(planner, places, spec, (indices, updates, out), sizes, [out.shape[axis]])


def scatter_nd(
    planner: Planner, group: Group, computation: c.ScatterND, source: Value, places: Value, given: Value
) -> None:
    """A copy of the data with runs of elements written by tuples of indices: ScatterND."""
    indices, updates, out = _scatter_operands(planner, group, (source, places, given))
    width = indices.shape[-1]
    if not isinstance(width, int) or width > MAX_RANK:  # as for GatherND
        planner.unplannable(f"its index tuples have {width} elements")
    sizes = ScatterRowsSizes(
        count=product(indices.shape[:-1]),
        run=product(out.shape[width:]),
        width=width,
        extents=out.shape[:width],
        strides=out.strides[:width],
    )
    element = word(out.dtype.itemsize) if computation.reduction == "none" else out.dtype.numpy.name
    spec = ScatterRowsSpec(indices.dtype.numpy.name, element, computation.reduction)
    _scatter(planner, places, spec, (indices, updates, out), sizes, out.shape[:width])


def _scatter_operands(
    planner: Planner, group: Group, inputs: tuple[Value, Value, Value]
) -> tuple[StridedTensor, StridedTensor, StridedTensor]:
    """Indices and updates, dense, and a dense place for the result that holds the data.

    Data that nobody else reads was made there already (see `Placement`); other data is copied.
    """
    data, indices, updates = inputs
    out = _dense_place(planner, group.output)
    sources = planner.dense(indices), planner.dense(updates)
    source = planner.tensor(data)
    if source != out:
        planner.copy_into(source, out, "what is not written keeps its value")
    return *sources, out


def _scatter(
    planner: Planner,
    places: Value,
    spec: ScatterElementsSpec | ScatterRowsSpec,
    tensors: tuple[StridedTensor, StridedTensor, StridedTensor],
    sizes: ScatterElementsSizes | ScatterRowsSizes,
    extents: Sequence[DimLike],
) -> None:
    """The call that writes into a copy of the data. extents: as of `_error_word`."""
    error = _error_word(planner, places, extents)
    buffers = ScatterBuffers(**by_name("indices updates out", tensors), error=error)
    call = KernelCall(spec, buffers, sizes, label="scatter")
    call.reason = "written by index" if spec.reduction == "none" else f"combined by index: {spec.reduction}"
    planner.call(call)


def reverse_sequence(
    planner: Planner, group: Group, computation: c.ReverseSequence, source: Value, ends: Value
) -> None:
    """Runs of elements copied, some in reverse order: ReverseSequence."""
    data, lengths, out = _gather_operands(planner, group, source, ends)
    itemsize = data.dtype.itemsize
    run = product(data.shape[2:]) * itemsize
    names = [value.name for value in planner.node.inputs if value is not None]
    error = planner.flag("a length in {1!r} is negative, or longer than the time axis of {0!r}".format(*names))
    spec = ReverseSequenceSpec(computation.time_axis)
    sizes = ReverseSequenceSizes(
        **by_name("first second", data.shape[:2]),
        run_bytes=run,
        **by_name("data_first data_second", [stride * itemsize for stride in data.strides[:2]]),
        **by_name("out_first out_second", [stride * itemsize for stride in out.strides[:2]]),
    )
    call = KernelCall(spec, ReverseSequenceBuffers(data=data, lengths=lengths, out=out, error=error), sizes)
    call.label, call.reason = "reverse sequence", "rows copied in reverse order"
    planner.call(call)

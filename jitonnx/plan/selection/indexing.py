"""Elements taken and written by index: gathering, scattering, reversed sequences."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from jitonnx.computation import computations as c
from jitonnx.computation.lowering import Statement
from jitonnx.ir.dims import DimLike, known, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.gather.spec import PIECES, GatherElementsSpec, GatherRowsSpec, ReverseSequenceSpec
from jitonnx.kernels.parts.axes import MAX_RANK
from jitonnx.kernels.scatter.spec import ScatterElementsSpec, ScatterRowsSpec, word
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.tensor import Tensor

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def gather(planner: Planner, group: Group, statement: Statement) -> None:
    """Runs of elements copied by index, or single ones: Gather."""
    computation = statement.computation
    assert isinstance(computation, c.Gather)
    data, indices, out = _gather_operands(planner, statement)
    axis, itemsize = computation.axis, data.dtype.itemsize
    run, count, extent = product(data.shape[axis + 1 :]), indices.elements, data.shape[axis]
    batch = product(data.shape[:axis])
    if run == 1:
        rows = _Axes((batch, count), (extent, 0), (0, 1), (count, 1))
        _gather_elements(planner, statement, (data, indices, out), rows, (extent, 1))
        return
    run = run * itemsize
    sizes = [batch, count, run, extent * run, 0, 1, count * run, run]
    _gather_rows(planner, statement, [data, indices, out], sizes, [extent], [run])


def gather_nd(planner: Planner, group: Group, statement: Statement) -> None:
    """Runs of elements copied by tuples of indices: GatherND."""
    computation = statement.computation
    assert isinstance(computation, c.GatherND)
    data, indices, out = _gather_operands(planner, statement)
    first, itemsize = computation.batch_dims, data.dtype.itemsize
    width = indices.shape[-1]
    if not isinstance(width, int) or not 0 < width <= MAX_RANK:
        # Tuples address at most as many axes as tensors of other kernels have; of an open width, not even the rank of
        # the result is known. Tuples of nothing address the whole.
        planner.unplannable(f"its index tuples have {width} elements")
    extents = data.shape[first : first + width]
    strides = [product(data.shape[first + i + 1 :]) * itemsize for i in range(width)]
    run = product(data.shape[first + width :]) * itemsize
    batch, count = product(data.shape[:first]), product(indices.shape[first:-1])
    place = [product(data.shape[first:]) * itemsize, count * width, width, count * run, run]
    _gather_rows(planner, statement, [data, indices, out], [batch, count, run, *place], extents, strides)


def _gather_rows(
    planner: Planner,
    statement: Statement,
    tensors: Sequence[Tensor],
    head: Sequence[DimLike],
    extents: Sequence[DimLike],
    strides: Sequence[DimLike],
) -> None:
    data, indices, out = tensors
    padding = [0] * (MAX_RANK - len(extents))
    sizes = [*head, *extents, *padding, *strides, *padding]
    run = head[2]
    spec = GatherRowsSpec(indices.dtype.numpy.name, len(extents), run if isinstance(run, int) and run in PIECES else 0)
    error = _error_word(planner, statement, extents)
    call = KernelCall(spec, [data, indices, out, error], sizes, 2, 2, label="gather", reason="rows copied by index")
    planner.call(call)


def _error_word(planner: Planner, statement: Statement, extents: Sequence[DimLike]) -> Tensor:
    """The word that a kernel sets where an index of input 1 is outside its axis: a flag, unless all are known to fit.

    extents: of the axis that indices select from, or of those that the indices along their last axis do.
    """
    indices = statement.inputs[1]
    assert indices is not None
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


def gather_elements(planner: Planner, group: Group, statement: Statement) -> None:
    """Single elements copied by index: GatherElements."""
    computation = statement.computation
    assert isinstance(computation, c.GatherElements)
    data, indices, out = _gather_operands(planner, statement)
    if data.rank > MAX_RANK:
        # Kernels have that many loops; exporters write up to 6 axes.
        planner.unplannable(f"it has more than {MAX_RANK} axes")
    axis = computation.axis
    others = tuple(0 if i == axis else stride for i, stride in enumerate(data.strides))
    axes = _Axes(indices.shape, others, indices.strides, out.strides)
    _gather_elements(planner, statement, (data, indices, out), axes, (data.shape[axis], data.strides[axis]))


class _Axes(NamedTuple):
    """The extents of the axes of a result, and its operands' and its own strides along them."""

    shape: tuple[DimLike, ...]
    data: tuple[DimLike, ...]
    indices: tuple[DimLike, ...]
    out: tuple[DimLike, ...]


def _gather_elements(
    planner: Planner,
    statement: Statement,
    tensors: tuple[Tensor, Tensor, Tensor],
    axes: _Axes,
    gathered: tuple[DimLike, DimLike],
) -> None:
    """gathered: the extent of the axis that indices select from, and its stride in the data."""
    sizes: list[DimLike] = []
    for values, fill in zip(axes, (1, 0, 0, 0), strict=True):
        sizes += [*values, *[fill] * (MAX_RANK - len(values))]
    data, indices, out = tensors
    spec = GatherElementsSpec(indices.dtype.numpy.name, data.dtype.itemsize)
    error = _error_word(planner, statement, gathered[:1])
    call = KernelCall(spec, [data, indices, out, error], [*sizes, *gathered], 2, 2, label="gather elements")
    call.reason = "elements copied by index"
    planner.call(call)


def _gather_operands(planner: Planner, statement: Statement) -> tuple[Tensor, Tensor, Tensor]:
    """Data and indices, dense, and a dense place for the result."""
    data, indices = statement.inputs[:2]
    assert data is not None and indices is not None
    out = _dense_place(planner, statement.outputs[0])
    return planner.dense(data), planner.dense(indices), out


def _dense_place(planner: Planner, value: Value) -> Tensor:
    """Where a result is written row-major, without gaps."""
    if value.dtype is DType.STRING:
        # Strings are Python's objects, which native code must not touch.
        planner.unplannable("strings are moved by NumPy")
    out = planner.place(value)
    return out if out.contiguous else planner.move(value, tuple(range(out.rank)))


def scatter_elements(planner: Planner, group: Group, statement: Statement) -> None:
    """A copy of the data with single elements written by index: ScatterElements."""
    computation = statement.computation
    assert isinstance(computation, c.ScatterElements)
    indices, updates, out = _scatter_operands(planner, statement)
    if out.rank > MAX_RANK:
        # Kernels have that many loops; exporters write up to 6 axes.
        planner.unplannable(f"it has more than {MAX_RANK} axes")
    axis, padding = computation.axis, [0] * (MAX_RANK - out.rank)
    sizes = [*indices.shape, *(1 for _ in padding), *indices.strides, *padding, *out.strides, *padding]
    sizes += [axis, out.shape[axis], out.strides[axis]]
    element = word(out.dtype.itemsize) if computation.reduction == "none" else out.dtype.numpy.name
    spec = ScatterElementsSpec(indices.dtype.numpy.name, element, computation.reduction)
    _scatter(planner, statement, spec, [indices, updates, out], sizes, [out.shape[axis]])


def scatter_nd(planner: Planner, group: Group, statement: Statement) -> None:
    """A copy of the data with runs of elements written by tuples of indices: ScatterND."""
    computation = statement.computation
    assert isinstance(computation, c.ScatterND)
    indices, updates, out = _scatter_operands(planner, statement)
    width = indices.shape[-1]
    if not isinstance(width, int) or width > MAX_RANK:
        planner.unplannable(f"its index tuples have {width} elements")
    padding = [0] * (MAX_RANK - width)
    head = [product(indices.shape[:-1]), product(out.shape[width:]), width]
    sizes = [*head, *out.shape[:width], *padding, *out.strides[:width], *padding]
    element = word(out.dtype.itemsize) if computation.reduction == "none" else out.dtype.numpy.name
    spec = ScatterRowsSpec(indices.dtype.numpy.name, element, computation.reduction)
    _scatter(planner, statement, spec, [indices, updates, out], sizes, out.shape[:width])


def _scatter_operands(planner: Planner, statement: Statement) -> tuple[Tensor, Tensor, Tensor]:
    """Indices and updates, dense, and a dense place for the result that holds the data.

    Data that nobody else reads was made there already (see `Placement`); other data is copied.
    """
    data, indices, updates = statement.inputs
    assert data is not None and indices is not None and updates is not None
    out = _dense_place(planner, statement.outputs[0])
    sources = planner.dense(indices), planner.dense(updates)
    source = planner.tensor(data)
    if source != out:
        planner.copy_into(source, out, "what is not written keeps its value")
    return *sources, out


def _scatter(
    planner: Planner,
    statement: Statement,
    spec: ScatterElementsSpec | ScatterRowsSpec,
    tensors: Sequence[Tensor],
    sizes: list[DimLike],
    extents: Sequence[DimLike],
) -> None:
    """The call that writes into a copy of the data. extents: as of `_error_word`."""
    error = _error_word(planner, statement, extents)
    call = KernelCall(spec, [*tensors, error], sizes, 2, 2, label="scatter")
    call.reason = "written by index" if spec.reduction == "none" else f"combined by index: {spec.reduction}"
    planner.call(call)


def reverse_sequence(planner: Planner, group: Group, statement: Statement) -> None:
    """Runs of elements copied, some in reverse order: ReverseSequence."""
    computation = statement.computation
    assert isinstance(computation, c.ReverseSequence)
    data, lengths, out = _gather_operands(planner, statement)
    itemsize = data.dtype.itemsize
    run = product(data.shape[2:]) * itemsize
    strides = [stride * itemsize for tensor in (data, out) for stride in tensor.strides[:2]]
    names = [value.name for value in planner.node.inputs if value is not None]
    error = planner.flag("a length in {1!r} is negative, or longer than the time axis of {0!r}".format(*names))
    spec = ReverseSequenceSpec(computation.time_axis)
    call = KernelCall(spec, [data, lengths, out, error], [*data.shape[:2], run, *strides], 2, 2)
    call.label, call.reason = "reverse sequence", "rows copied in reverse order"
    planner.call(call)

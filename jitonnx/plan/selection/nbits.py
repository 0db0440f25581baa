"""Products with constant matrices of 2, 4 or 8 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import DimLike, minimum, product
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.nbits.spec import (
    DIGITS,
    NBitsBuffers,
    NBitsSizes,
    RowsBuffers,
    RowsSizes,
    RowsSpec,
    choose,
    stored_scales,
)
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.windows import evenly_spaced, place_rows, row_strides
from jitonnx.plan.tensor import StridedTensor

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def matmul(
    planner: Planner,
    group: Group,
    computation: c.NBitsMatMul,
    left: Value,
    numbers: Value,
    scales: Value,
    zeros: Value | None = None,
) -> None:
    """All leading axes of a are rows of one product. What its rows become is made once for all products that read
    them, as those of queries, keys and values do."""
    order = tuple(range(len(left.shape)))
    a, a_row = evenly_spaced(planner, planner.unit_inner(left))
    y, y_row = place_rows(planner, group.output, order, order[:-1])
    m, k, n = product(a.shape[:-1]), a.shape[-1], y.shape[-1]
    kind = "" if zeros is None else zeros.dtype.numpy.name
    rounded = computation.rounds or planner.choices.precision == "bfloat16"
    given_scales = planner.tensor(scales)
    assert given_scales.constant is not None, "Bug: scales are no constant"
    spec = choose(
        computation.bits,
        computation.block,
        kind,
        planner.target,
        rounded=rounded,
        quantised=computation.quantises,
        scales=stored_scales(given_scales.constant, planner.target),
    )
    rows = spec.rows_spec
    blocks = scales.shape[1]
    assert isinstance(blocks, int), "Bug: constant scales have a symbolic size"

    def prepare() -> tuple[StridedTensor, ...]:
        return _prepared(planner, rows, a, (m, k, a_row), blocks)

    prepared, factors = planner.prepared(a, prepare, rows)
    packed_scales = planner.packed(given_scales, spec.pack_scales, ("scales", spec))
    packed_zeros = None if zeros is None else planner.packed(planner.tensor(zeros), spec.pack_blocks, ("blocks", spec))
    buffers = NBitsBuffers(
        a=a,
        left=prepared,
        factors=factors,
        w=planner.packed(planner.tensor(numbers), spec.pack_numbers, spec),
        scales=packed_scales,
        zeros=packed_zeros or packed_scales,
        y=y,
    )
    call = KernelCall(spec, buffers, NBitsSizes(m=m, n=n, k=k, a_row=a_row, y_row=y_row))
    call.label = f"product of {computation.bits} bits {m}x{n}x{k}"
    others = ["many rows in bfloat16, by tile registers"] if spec.rounded else []
    if spec.scales != "float32":
        others.append(f"scales as {spec.scales}")
    call.reason = "; ".join([_HOW[spec.digits], *others, *group.reasons])
    planner.epilogue(group, call, row_strides(order[:-1]))
    planner.call(call)


_HOW = {
    0: "few rows by float32",
    1: "products of bytes",
    DIGITS: "few rows by dot products of bytes, three for each float",
}


_PREPARED = {
    0: "with the sum of each block",
    1: "quantised to int8, as accuracy_level 4 allows",
    DIGITS: "quantised to three bytes an element",
}


def _prepared(
    planner: Planner, spec: RowsSpec, a: StridedTensor, sizes: tuple[DimLike, DimLike, DimLike], blocks: int
) -> tuple[StridedTensor, ...]:
    """The rows of `a` as products read them, and their factors."""
    m, k, a_row = sizes
    few = m if spec.most_rows is None else minimum(m, spec.most_rows)
    left = planner.temporary((spec.left_bytes(m, few, blocks * spec.block),), DType.UINT8)
    factors = planner.temporary((few, blocks, 2), DType.FLOAT)
    call = KernelCall(spec, RowsBuffers(a=a, left=left, factors=factors), RowsSizes(m=m, k=k, a_row=a_row))
    call.label = f"rows of {k}, by blocks of {spec.block}"
    call.reason = _PREPARED[spec.digits]
    planner.call(call)
    return left, factors

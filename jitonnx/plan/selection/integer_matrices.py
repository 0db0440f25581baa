"""Products of matrices of 8-bit integers that are both computed: attention's scores, and what they weigh."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import concrete
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.integer_matrices.spec import MatricesBuffers, choose_matrices
from jitonnx.kernels.integer_matrices_amx.spec import IntegerPackingSpec, choose_tile_matrices
from jitonnx.kernels.parts.layouts import LINE
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.amx_matrices import ComputedProduct
from jitonnx.plan.selection.integer import is_shifted
from jitonnx.plan.selection.products import matrix_rows, product_sizes
from jitonnx.plan.tensor import StridedTensor
from jitonnx.target import tuning
from jitonnx.target.products import INTEGERS

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def product_of_matrices(
    planner: Planner,
    group: Group,
    computation: c.IntegerMatMul,
    left: Value,
    right: Value,
    a_zero: Value | None = None,
    b_zero: Value | None = None,
) -> None:
    """(a - a_zero) @ (b - b_zero), for matrices in at most two loops."""
    if _takes_tiles(planner, left):
        _product_of_tiles(planner, group, left, right, (a_zero, b_zero))
        return
    product = ComputedProduct.of(planner, group, left, right)
    a, b, shape, (m, n, k) = product.a, product.b, product.shape, product.extents
    spec = choose_matrices(
        *(concrete(m), concrete(n), planner.target),
        signed=(left.dtype is DType.INT8, right.dtype is DType.INT8),
        shifted=(is_shifted(a_zero), is_shifted(b_zero)),
        by_column=product.by_column,
        result=product.out.dtype.numpy.name,
    )
    sizes = product_sizes(shape, n, k, 1, b, shape.b_batch)
    zeros = [_zero(planner, zero, x) for zero, x in ((a_zero, a), (b_zero, b))]
    call = KernelCall(spec, MatricesBuffers(a=a, a_zero=zeros[0], b=b, b_zero=zeros[1], c=product.out), sizes)
    call.label = f"integer product {product.text}"
    call.reason = "; ".join([INTEGERS[spec.product.multiply].text, *group.reasons])
    call.notes.append("b packed as it is used")
    planner.epilogue(group, call, lambda tensor: matrix_rows(tensor, shape))
    planner.call(call)


def _takes_tiles(planner: Planner, left: Value) -> bool:
    """Whether the CPU has tile registers, and there are rows enough."""
    rows = concrete(left.shape[-2])
    return planner.target.has_integer_tiles and (rows is None or rows > tuning.INTEGER_FEW_ROWS)


def _product_of_tiles(
    planner: Planner, group: Group, left: Value, right: Value, zeros: tuple[Value | None, Value | None]
) -> None:
    """The same in tile registers, by the kernel of constant weights."""
    product = ComputedProduct.of(planner, group, left, right)
    a, b, by_column = product.a, product.b, product.by_column
    _, n, k = product.extents
    signed = left.dtype is DType.INT8, right.dtype is DType.INT8
    spec = choose_tile_matrices(
        product.way(LINE, as_taken=True),
        product.usual_extents(),
        concrete(n),
        packs=product.packs(1),
        signed=signed,
        shifted=(is_shifted(zeros[0]), is_shifted(zeros[1])),
        by_column=by_column,
        result=product.out.dtype.numpy.name,
    )
    w, w_batch = b, product.shape.b_batch
    if not spec.packs:
        packing = IntegerPackingSpec(spec.width, signed[1], by_column)
        w, w_batch = product.packed(planner, packing, spec.packed_bytes(k, n), ("bytes", spec.width))
    a_zero, b_zero = (_zero(planner, zero, x) for zero, x in zip(zeros, (a, b), strict=True))
    buffers = MatricesBuffers(a=a, a_zero=a_zero, b=w, b_zero=b_zero, c=product.out)
    call = KernelCall(spec, buffers, product.given(w_batch))
    call.label, call.reason = f"integer product {product.text}", INTEGERS["tiles"].text
    product.call(planner, group, call, packs=spec.packs)


def _zero(planner: Planner, zero: Value | None, x: StridedTensor) -> StridedTensor:
    return planner.tensor(zero) if zero is not None and is_shifted(zero) else x

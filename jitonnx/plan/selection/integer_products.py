"""Products of matrices of 8-bit integers that are both computed: attention's scores, and what they weigh."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.computation.lowering import Statement
from jitonnx.ir.dims import concrete
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.integer_matrices.spec import MatricesBuffers, choose_matrices
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.integers import HOW, is_shifted
from jitonnx.plan.selection.products import along_an_axis, matrix_rows, product_sizes, size_text, two_loops
from jitonnx.plan.tensor import Tensor, broadcast_to

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def product_of_matrices(planner: Planner, group: Group, statement: Statement) -> None:
    """(a - a_zero) @ (b - b_zero), for matrices in at most two loops."""
    left, right, a_zero, b_zero = (*statement.inputs, None, None)[:4]
    assert left is not None and right is not None and group.output is not None
    out = planner.place(group.output, tuple(range(len(group.output.shape))), strict=True)
    (*batch, m, n), k = out.shape, left.shape[-1]
    a, b = planner.unit_inner(left), planner.tensor(right)
    if not along_an_axis(b):
        b = planner.copy(b, tuple(range(b.rank)), "neither its rows nor its columns lie side by side")
    a, b, shape = two_loops(planner, broadcast_to(a, (*batch, m, k)), broadcast_to(b, (*batch, k, n)), out)
    signed = left.dtype is DType.INT8, right.dtype is DType.INT8
    by_column = b.strides[-1] != 1 and b.shape[-1] != 1
    spec = choose_matrices(
        *(concrete(shape.m), concrete(n), planner.target),
        signed=signed,
        shifted=(is_shifted(a_zero), is_shifted(b_zero)),
        by_column=by_column,
        result=out.dtype.numpy.name,
    )
    sizes = product_sizes(shape, n, k, 1, b, shape.b_batch)
    zeros = [_zero(planner, zero, x) for zero, x in ((a_zero, a), (b_zero, b))]
    call = KernelCall(spec, MatricesBuffers(a=a, a_zero=zeros[0], b=b, b_zero=zeros[1], c=out), sizes)
    call.label = f"integer product {size_text(shape.batch, shape.m, n, k)}"
    call.reason = "; ".join([HOW[spec.product.multiply], *group.reasons])
    call.notes.append("b packed as it is used")
    planner.epilogue(group, call, lambda tensor: matrix_rows(tensor, shape))
    planner.call(call)


def _zero(planner: Planner, zero: Value | None, x: Tensor) -> Tensor:
    return planner.tensor(zero) if zero is not None and is_shifted(zero) else x

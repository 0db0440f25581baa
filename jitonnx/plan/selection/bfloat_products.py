"""Products in bfloat16 of two computed matrices: the kernel of constant weights, with the right one packed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.computation.lowering import Statement
from jitonnx.ir.dims import DimLike, concrete, integers, known, usual
from jitonnx.ir.dtypes import DType
from jitonnx.kernels.arguments import by_name
from jitonnx.kernels.bfloat16.spec import STEP, BfloatBuffers
from jitonnx.kernels.bfloat16_matrices.spec import (
    ONE_TASK,
    PACKED_BYTES,
    MatricesGiven,
    MatricesSpec,
    PackingSizes,
    PackingSpec,
    choose_matrices,
    packed_bytes,
)
from jitonnx.kernels.parts.layouts import UnaryBuffers
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.products import Matrices, along_an_axis, matrix_rows, size_text, two_loops
from jitonnx.plan.selection.tiles import way_of_rows
from jitonnx.plan.selection.windows import rows_as_windows
from jitonnx.plan.tensor import Tensor, broadcast_to

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def product_of_matrices(planner: Planner, group: Group, statement: Statement) -> None:
    """a @ b, for matrices in at most two loops."""
    left, right = statement.inputs
    assert left is not None and right is not None and group.output is not None
    out = planner.place(group.output, tuple(range(len(group.output.shape))), strict=True)
    (*batch, m, n), k = out.shape, left.shape[-1]
    a, b = planner.unit_inner(left), planner.tensor(right)
    if not along_an_axis(b):
        b = planner.copy(b, tuple(range(b.rank)), "neither its rows nor its columns lie side by side")
    a, b, shape = two_loops(planner, broadcast_to(a, (*batch, m, k)), broadcast_to(b, (*batch, k, n)), out)
    by_column = b.strides[-1] != 1 and b.shape[-1] != 1
    once = all(stride == 0 for stride in shape.b_batch)
    size, products = concrete(n * k), concrete(shape.m * n * k)
    one_task = products is not None and products <= ONE_TASK
    spec = choose_matrices(
        _way(a, shape),
        (usual(shape.m), usual(n), usual(k)),
        concrete(n),
        packs=one_task if once else size is None or 2 * size <= PACKED_BYTES,
        x_type=_element(a),
        w_type=_element(b),
        by_column=by_column,
        result=_element(out),
    )
    step, batches = b.strides[-1 if by_column else -2], shape.b_batch
    w, w_batch = (b, batches) if spec.packs else _packed(planner, b, spec, shape, step)
    sizes = MatricesGiven(
        **rows_as_windows(shape.m, n, k, shape.a_row) | {"images": shape.outer * shape.inner},
        y_pixel=shape.c_row,
        inner=shape.inner,
        w_step=step,
        **by_name("x_outer x_inner", shape.a_batch),
        **by_name("w_outer w_inner", w_batch),
        **by_name("y_outer y_inner", shape.c_batch),
    )
    call = KernelCall(spec, BfloatBuffers(x=a, w=w, y=out), sizes)
    call.label = f"bfloat16 product {size_text(shape.batch, shape.m, n, k)}"
    call.reason = "; ".join(["operands rounded to bfloat16, sums in tile registers", *group.reasons])
    call.notes.append("b packed as it is used" if spec.packs else "b packed before")
    planner.epilogue(group, call, lambda tensor: matrix_rows(tensor, shape))
    planner.call(call)


def _way(a: Tensor, shape: Matrices) -> str:
    """How rows of a are read: all matrices begin where a cache line does, or none is read in place."""
    lines = known(shape.a_batch) and not any(stride % STEP for stride in integers(shape.a_batch))
    return way_of_rows(a, shape.a_row, STEP, a.dtype is DType.BFLOAT16) if lines else "copied"


def _packed(
    planner: Planner, b: Tensor, spec: MatricesSpec, shape: Matrices, step: DimLike
) -> tuple[Tensor, tuple[DimLike, DimLike]]:
    """The right matrices packed by a call of its own, each once, and the bytes between them along both loops."""
    k, n = b.shape[-2:]
    outer, inner = (
        dim if stride != 0 else 1 for dim, stride in zip((shape.outer, shape.inner), shape.b_batch, strict=True)
    )
    size = packed_bytes(k, n, spec.width)

    def pack() -> tuple[Tensor, ...]:
        target = planner.temporary((outer * inner * size,), DType.UINT8)
        packing = PackingSpec(spec.width, _element(b), spec.by_column)
        sizes = PackingSizes(
            outer=outer, inner=inner, k=k, n=n, x_step=step, **by_name("x_outer x_inner", shape.b_batch)
        )
        call = KernelCall(packing, UnaryBuffers(x=b, y=target), sizes)
        call.label = f"pack {size_text(concrete(outer * inner), k, n, 1).removesuffix('x1')}"
        call.reason = "a computed matrix, for products in tile registers"
        planner.call(call)
        return (target,)

    (target,) = planner.prepared(b, pack, ("tiles", spec.width, outer, inner))
    return target, (inner * size if outer != 1 else 0, size if inner != 1 else 0)


def _element(tensor: Tensor) -> str:
    return "bfloat16" if tensor.dtype is DType.BFLOAT16 else "float32"

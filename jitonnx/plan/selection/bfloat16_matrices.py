"""Products in bfloat16 of two computed matrices: the kernel of constant weights, with the right one packed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.ir.computation import computations as c
from jitonnx.ir.dims import concrete
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.kernels.bfloat16.spec import STEP, Bfloat16Buffers
from jitonnx.kernels.bfloat16_matrices.spec import Bfloat16PackingSpec, choose_matrices
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.selection.amx_matrices import ComputedProduct
from jitonnx.plan.tensor import StridedTensor
from jitonnx.target.products import BFLOAT16

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner


def product_of_matrices(
    planner: Planner, group: Group, computation: c.Bfloat16MatMul, left: Value, right: Value
) -> None:
    """a @ b, for matrices in at most two loops."""
    product = ComputedProduct.of(planner, group, left, right)
    a, b, by_column = product.a, product.b, product.by_column
    _, n, k = product.extents
    products = planner.target.bfloat16_products
    assert products, "Bug: bfloat16 on a CPU without products of it"
    spec = choose_matrices(
        products,
        product.way(STEP, as_taken=a.dtype is DType.BFLOAT16),
        product.usual_extents(),
        concrete(n),
        packs=product.packs(2),
        x_type=_element(a),
        w_type=_element(b),
        by_column=by_column,
        result=_element(product.out),
    )
    w, w_batch = b, product.shape.b_batch
    if not spec.packs:
        packing = Bfloat16PackingSpec(spec.width, _element(b), by_column, products)
        w, w_batch = product.packed(planner, packing, spec.packed_bytes(k, n), ("bfloat16", spec.width))
    call = KernelCall(spec, Bfloat16Buffers(x=a, w=w, y=product.out), product.given(w_batch))
    call.label = f"bfloat16 product {product.text}"
    call.reason = f"operands rounded to bfloat16, {BFLOAT16[products].text}"
    product.call(planner, group, call, packs=spec.packs)


def _element(tensor: StridedTensor) -> str:
    return "bfloat16" if tensor.dtype is DType.BFLOAT16 else "float32"

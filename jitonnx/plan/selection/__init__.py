"""Kernel selection: computations to kernel calls, by one function each, found by the computation's type.

This is the only place that knows which computation is done by which kernels. A function gets the planner, the group,
its anchor's computation and, one by one, the operands of that, and adds calls to the plan; UnplannableError where no
kernel fits.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Statement
from jitonnx.ir.graph import Value

SELECTORS: dict[type[c.Computation], str] = {
    c.BitCast: "movement.bit_cast",
    c.Concat: "movement.concat",
    c.Pad: "movement.pad",
    c.Gather: "indexing.gather",
    c.GatherElements: "indexing.gather_elements",
    c.GatherND: "indexing.gather_nd",
    c.ScatterElements: "indexing.scatter_elements",
    c.ScatterND: "indexing.scatter_nd",
    c.ReverseSequence: "indexing.reverse_sequence",
    c.MatMul: "products.matmul",
    c.Attention: "products.attention",
    c.LinearAttention: "linear_attention.linear_attention",
    c.CacheUpdate: "kv_cache.update",
    c.SlidingCacheUpdate: "kv_cache.slide",
    c.Pool: "pooling.pool",
    c.LocalResponseNormalize: "lrn.local_response_normalize",
    c.Draw: "drawing.draw",
    c.Search: "drawing.search",
    c.Determinant: "determinants.determinant",
    c.ReduceSegments: "segments.reduce_segments",
    c.Check: "checking.check",
    c.Fold: "col2im.fold",
    c.Resize: "resizing.resize",
    c.NonZero: "data_dependent.non_zero",
    c.Compress: "data_dependent.compress",
    c.Unique: "data_dependent.unique",
    c.NonMaxSuppression: "data_dependent.non_max_suppression",
    c.RoiAlign: "regions.roi_align",
    c.Sample: "sampling.sample",
    c.Softmax: "rows.softmax",
    c.Reduce: "rows.reduce",
    c.ArgReduce: "rows.arg_reduce",
    c.Cumulate: "scan.cumulate",
    c.DynamicQuantize: "dynamic_quantization.dynamic_quantize",
    c.Lookup: "lookup.lookup",
    c.TopK: "topk.top_k",
    c.Trees: "trees.trees",
    c.Normalize: "rows.normalize",
    c.GroupNormalize: "rows.group_normalize",
    c.Recurrent: "recurrent.recurrent",
    c.Convolution: "convolution.convolution",
    c.Bfloat16WeightMatMul: "bfloat16.matmul",
    c.Bfloat16Convolution: "bfloat16.convolution",
    c.Bfloat16MatMul: "bfloat16_matrices.product_of_matrices",
    c.IntegerWeightMatMul: "integer.matmul",
    c.IntegerConvolution: "integer.convolution",
    c.IntegerMatMul: "integer_matrices.product_of_matrices",
    c.NBitsMatMul: "nbits.matmul",
    c.TransposedConvolution: "transposed.transposed_convolution",
    c.UserKernel: "custom.user_kernel",
}
"""The module of this folder and the function in it; a start imports those that the model needs."""

_EPILOGUE = (
    *(c.MatMul, c.Convolution, c.TransposedConvolution, c.Pool, c.GroupNormalize, c.Normalize),
    *(c.IntegerWeightMatMul, c.IntegerConvolution, c.IntegerMatMul),
    *(c.Bfloat16WeightMatMul, c.Bfloat16Convolution, c.Bfloat16MatMul, c.NBitsMatMul),
)


def selector_of(computation: c.Computation) -> Callable[..., Any]:
    """The function that plans a computation."""
    module, function = SELECTORS[type(computation)].split(".")
    found: Callable[..., Any] = getattr(importlib.import_module(f"{__name__}.{module}"), function)
    return found


def takes_epilogue(statement: Statement) -> bool:
    """Whether elementwise statements behind this one can run in its kernel."""
    if isinstance(statement.computation, c.Resize):
        from jitonnx.plan.selection.resizing import resizes_images

        return resizes_images(statement)
    return isinstance(statement.computation, _EPILOGUE) and len(statement.outputs) == 1


def takes_scaling(statement: Statement, factors: Value) -> bool:
    """Whether this statement can multiply its weights instead of its first operand by `factors`, and better does."""
    if not isinstance(statement.computation, c.Convolution):
        return False
    from jitonnx.plan.selection.convolution import takes_scaling

    return takes_scaling(statement, factors)

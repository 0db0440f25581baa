"""Linear attention: one kernel that goes through the steps of each head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.graph import Value
from jitonnx.kernels.linear_attention.spec import LinearAttentionBuffers, LinearAttentionSizes, LinearAttentionSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.tensor import StridedTensor

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner

ORDER = (0, 1, 2, 3)


def linear_attention(
    planner: Planner, group: Group, computation: c.LinearAttention, q: Value, k: Value, v: Value, *given: Value | None
) -> None:
    """LinearAttention: y and the state behind the last step."""
    past, factor, beta = given
    queries, keys, values = (_rows(planner, value) for value in (q, k, v))
    y, present = (planner.place(value, ORDER) for value in group.outputs)
    if y.strides[3] != 1 and y.shape[3] != 1:
        y = planner.move(group.outputs[0], ORDER)
    if not present.contiguous:
        present = planner.move(group.outputs[1], ORDER)
    spec = LinearAttentionSpec(
        q.shape[2] // k.shape[2],  # type: ignore[arg-type]
        computation.scale,
        gated=factor is not None,
        delta=beta is not None,
        past=past is not None,
    )
    # What is not there is not read: another operand stands in its place.
    before = queries if past is None else planner.dense(past)
    fading = queries if factor is None else planner.tensor(factor)
    rate = queries if beta is None else planner.tensor(beta)
    batch, steps, heads, rows = k.shape
    sizes = LinearAttentionSizes(
        batch=batch,
        steps=steps,
        heads=heads,
        rows=rows,
        columns=v.shape[3],
        **by_name("q_batch q_step q_head", queries.strides[:3]),
        **by_name("k_batch k_step k_head", keys.strides[:3]),
        **by_name("v_batch v_step v_head", values.strides[:3]),
        **by_name("factor_batch factor_step factor_head factor_row", fading.strides),
        **by_name("beta_batch beta_step beta_head", rate.strides[:3]),
        **by_name("y_batch y_step y_head", y.strides[:3]),
    )
    buffers = LinearAttentionBuffers(
        q=queries, k=keys, v=values, past=before, factor=fading, beta=rate, y=y, present=present
    )
    planner.call(KernelCall(spec, buffers, sizes, label="linear attention", reason="step by step"))


def _rows(planner: Planner, value: Value) -> StridedTensor:
    """An operand whose last axis lies without gaps."""
    tensor = planner.tensor(value)
    return tensor if tensor.strides[3] == 1 or tensor.shape[3] == 1 else planner.copy(tensor, ORDER, "needed as rows")

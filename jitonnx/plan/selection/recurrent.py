"""Recurrent layers: one GEMM for the input products of all steps, then the time loop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from jitonnx.emit.arguments import by_name
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dims import Dim, known
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.types import TensorType
from jitonnx.kernels.parts.fixed24 import fit_24_bits
from jitonnx.kernels.recurrent.spec import GATES, RecurrentBuffers, RecurrentSizes, RecurrentSpec, joins
from jitonnx.kernels.recurrent.spec import choose as choose_recurrent
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.fusion import Group
from jitonnx.plan.region import region_call
from jitonnx.plan.selection import bfloat16
from jitonnx.plan.selection.products import GemmResult, as_rows, gemm
from jitonnx.plan.selection.recurrent_weights import biases, input_matrix, packed_recurrence, zeros
from jitonnx.plan.tensor import StridedTensor, row_major
from jitonnx.target import tuning
from jitonnx.target.choosing import cheapest

if TYPE_CHECKING:
    from jitonnx.plan.planner import Planner

_OTHER_FORM = 1.1
"""What recurrent weights cost, roughly, in the form that is not usual for their size."""
_REVERSE = {"forward": 0, "reverse": 1, "bidirectional": 2}
"""Which directions run backwards, by bits."""


def recurrent(
    planner: Planner,
    group: Group,
    computation: c.Recurrent,
    x: Value,
    w: Value | None,
    r: Value,
    *optional: Value | None,
) -> None:
    """LSTM, GRU or RNN in layout 0."""
    b, lengths, initial_h, initial_c, peepholes, rows = (*optional, *[None] * 6)[:6]
    directions, hidden = r.shape[0], computation.hidden
    if not isinstance(directions, int) or not known(r.shape):
        # Neither `hidden_size` nor a weight that is there says it.
        planner.unplannable("only a run tells how many units it has, and the time loop is made for them")
    each = len(computation.activations) // directions
    if any(
        computation.activations[d * each : (d + 1) * each] != computation.activations[:each] for d in range(directions)
    ):
        # The loop is one kernel for both directions, and no exporter writes such layers.
        planner.unplannable("its directions have different activations")
    input_bias, recurrent_bias = biases(planner, b, computation, directions, x)
    if w is not None:
        gates = _input_products(planner, group, x, input_matrix(planner, w), input_bias, rows)
    else:
        gates = _with_bias(planner, x, input_bias)
    read = [planner.is_read(value) for value in group.outputs]
    batch = x.shape[1]
    recurrence = planner.tensor(r).constant
    halves = _in_bfloat16(planner, recurrence, batch)
    spec = choose_recurrent(
        computation.kind,
        computation.activations[:each],
        lanes=planner.target.lanes(x.dtype.itemsize),
        registers=planner.target.vector_registers,
        batch=batch if isinstance(batch, int) else None,
        hidden=hidden,
        element=x.dtype.numpy.name,
        fixed=not halves and _in_fixed_point(planner, recurrence, batch),
        halves=halves,
        joined=halves and recurrence is not None and joins(recurrence),
        linear_before_reset=computation.linear_before_reset,
        input_forget=computation.input_forget,
        peepholes=peepholes is not None,
        clip=computation.clip,
        initial=initial_h is not None or initial_c is not None,
        lengths=lengths is not None,
        y=read[0],
        last=any(read[1:]),
    )
    constants = [packed_recurrence(planner, spec, r), recurrent_bias]
    given = (peepholes, lengths, initial_h, initial_c)
    _time_loop(planner, group, computation, spec, given, gates, constants)


def _in_fixed_point(planner: Planner, recurrence: np.ndarray | None, batch: Dim | int) -> bool:
    """Whether steps are bound by reading R from beyond the first-level cache, and 24 bits hold it well enough.

    For two rows and more, decoding costs more than it saves: 1.0 to 1.2 of the time. So it does for one where the
    second-level cache holds R and gives 64 bytes a cycle, on cores whose multipliers have to decode besides (Intel's
    servers: in float32 an LSTM of 256 units takes 0.86 of the time while R stays there and 0.97 in a whole model, of
    320 units as long, of 384 1.34 times as long; a GRU of 256 units 0.81 and 0.94; Zen 5: a whole model of such GRUs
    takes 0.83, and an LSTM of 256 units, which outgrows that share of its cache, 1.33 times as long).
    """
    target = planner.target
    outgrown = target.l2_bytes * tuning.RECURRENT_SHARE_OF_L2 if target.multiplies_fast else target.l1_bytes
    if recurrence is None or not planner.choices.fixed24 or not target.shifts_pairs or batch != 1:
        return False
    if recurrence.dtype != np.float32 or recurrence[0].nbytes <= target.l1_bytes or not fit_24_bits(recurrence):
        return False
    usual = bool(recurrence[0].nbytes > outgrown)
    return cheapest(
        "recurrent weights",
        lambda: "x".join(map(str, recurrence.shape)),
        {usual: 1.0, not usual: _OTHER_FORM},
        lambda fixed: "24-bit fixed-point numbers" if fixed else "float32",
    )


def _in_bfloat16(planner: Planner, recurrence: np.ndarray | None, batch: Dim | int) -> bool:
    """Whether R is to lie as bfloat16: where that was asked for and steps are bound by reading it."""
    return (
        recurrence is not None
        and planner.rounds_products
        and recurrence.dtype == np.float32
        and recurrence[0].nbytes > planner.target.l1_bytes
        and batch == 1
    )


def _input_products(
    planner: Planner, group: Group, x: Value, matrix: StridedTensor, bias: StridedTensor, rows: Value | None
) -> StridedTensor:
    """X · Wᵀ + bias for all steps: [steps, batch, directions * gates * hidden]; rows: how many of them are read."""
    steps, batch, _ = x.shape
    columns = matrix.shape[1]
    products = Value("gates", TensorType(x.dtype, (steps, batch, columns)))
    bias_value = Value("gates bias", TensorType(x.dtype, bias.shape))
    planner.bind(bias_value, bias)
    expr = e.operand(0, x.dtype) + e.operand(1, x.dtype)
    inner = Group(group.position, products, group.anchor, expr=expr, operands=[bias_value])
    gates, given = planner.temporary(products.shape, x.dtype), planner.unit_inner(x)
    if as_rows(given) is None:  # the steps of a sequence, one after the other: each step would read the weights anew
        given = planner.copy(given, (0, 1, 2), "its steps and sequences lie in another order than those of the gates")
    if planner.rounds_products and x.dtype is DType.FLOAT and matrix.constant is not None:
        bfloat16.product(planner, inner, given, matrix, gates)
    else:
        wanted = None if rows is None else planner.dense(rows)
        gemm(planner, inner, given, matrix, GemmResult(gates, wanted=wanted))
    return gates


def _with_bias(planner: Planner, x: Value, bias: StridedTensor) -> StridedTensor:
    """Products of all steps that are there, + bias: [steps, batch, directions * gates * hidden]."""
    given = planner.dense(x)
    if bias.constant is not None and not bias.constant.any():
        return given
    gates = planner.temporary(x.shape, x.dtype)
    expr = e.operand(0, x.dtype) + e.operand(1, x.dtype)
    flat = (x.shape[0] * x.shape[1], x.shape[2])
    columns = replace(bias, shape=flat, strides=(0, 1))
    rows = replace(given, shape=flat, strides=(x.shape[2], 1))
    place = replace(gates, shape=flat, strides=(x.shape[2], 1))
    planner.call(
        region_call([expr], [rows, columns], [place], label="bias of gates", origin=(), reason="a part of the layer")
    )
    return gates


def _time_loop(
    planner: Planner,
    group: Group,
    computation: c.Recurrent,
    spec: RecurrentSpec,
    inputs: tuple[Value | None, ...],
    gates: StridedTensor,
    constants: list[StridedTensor],
) -> None:
    """inputs: peepholes, lengths and initial states."""
    steps, batch, _ = gates.shape
    hidden = computation.hidden
    y, *states = map(planner.place, group.outputs)
    directions = y.shape[1]
    given: list[StridedTensor] = []
    for value, is_state in zip(inputs, (False, False, True, True), strict=True):
        if value is not None:
            given.append(planner.dense(value))
        elif spec.initial and is_state and (computation.kind == "LSTM" or not given[2:]):
            state = planner.temporary((directions, batch, hidden), gates.dtype)
            given.append(zeros(planner, state, "no initial state is given"))
        else:
            given.append(y)  # not touched
    last_h, last_c = [*states, y, y][:2] if len(states) < 2 else states
    per_direction = GATES[computation.kind] * hidden
    y_step, y_direction, y_row, _ = row_major((steps, directions, batch, hidden)) if y.contiguous else y.strides
    sizes = RecurrentSizes(
        steps=steps,
        batch=batch,
        directions=directions,
        hidden=hidden,
        reverse=_REVERSE[computation.direction],
        gates_step=batch * directions * per_direction,
        gates_row=directions * per_direction,
        gates_direction=per_direction,
        y_step=y_step,
        y_row=y_row,
        y_direction=y_direction,
        state_row=hidden,
        state_direction=batch * hidden,
    )
    shared = y  # not touched
    if spec.parts > 1:
        shared = planner.temporary((directions, spec.shared_elements(hidden)), gates.dtype)
        zeros(planner, shared, "what threads share, and count in")
    buffers = RecurrentBuffers(
        gates=gates,
        **by_name("recurrent_weights recurrent_bias", constants),
        **by_name("peepholes lengths initial_h initial_c", given),
        **by_name("y last_h last_c shared", (y, last_h, last_c, shared)),
    )
    call = KernelCall(spec, buffers, sizes)
    call.label, call.reason = f"{computation.kind} {computation.direction} {hidden}", "the whole time loop"
    if spec.fixed or spec.halves:
        call.reason += f", reading weights of {24 if spec.fixed else 16} bits"
    planner.call(call)

"""Padding done by what slides windows over the image, instead of by a Pad before it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from jitonnx.ir.graph import Node
from jitonnx.ops.onnx.convolution import Conv
from jitonnx.ops.onnx.padding import Pad
from jitonnx.ops.onnx.pooling import AveragePool, MaxPool
from jitonnx.passes.report import Reason
from jitonnx.passes.rewriting import Decline, Edit, Result, array, producer, ranked, rule


@rule("pad into windows", Conv, AveragePool, MaxPool, equation="Conv(Pad(x, p)) = Conv(x, pads + p)")
def pad_into_windows(node: Node, edit: Edit) -> Result:
    """Zeros around the image added to a convolution's or an average's own padding; -inf to a maximum's.

    before: Pad by 1 on each side -> Conv with pads 0
    after:  Conv with pads 1
    """
    pad = producer(node.inputs[0], Pad)
    if pad is None or not ranked(node) or not ranked(pad):
        return None
    operator, x = node.operator, pad.inputs[0]
    assert isinstance(operator, Conv | AveragePool | MaxPool) and isinstance(pad.operator, Pad) and x is not None
    added = _spatial_pads(pad, len(x.shape))
    edit.consume([pad])
    if operator.auto_pad not in ("NOTSET", "VALID"):
        raise Decline(Reason.ATTRIBUTE, f"auto_pad {operator.auto_pad}")
    own = operator.pads if operator.pads is not None and operator.auto_pad == "NOTSET" else (0,) * len(added)
    total = tuple(int(a) + int(b) for a, b in zip(own, added, strict=False))
    if isinstance(operator, MaxPool) and len(node.outputs) > 1:
        raise Decline(Reason.OTHER_USES, "indices count elements of the padded image")
    if not isinstance(operator, Conv) and operator.ceil_mode:
        raise Decline(Reason.ATTRIBUTE, "ceil_mode")
    if not isinstance(operator, AveragePool):
        return edit.add(replace(operator, pads=total, auto_pad="NOTSET"), x, *node.inputs[1:])
    if any(own) and not operator.count_include_pad:
        raise Decline(Reason.ATTRIBUTE, "count_include_pad")
    return edit.add(replace(operator, pads=total, auto_pad="NOTSET", count_include_pad=True), x)


def _spatial_pads(pad: Node, rank: int) -> tuple[int, ...]:
    """What a Pad adds before and after the spatial axes. Decline if it does anything else."""
    operator = pad.operator
    assert isinstance(operator, Pad)
    window = pad.output.users[0].operator
    given = [array(value) if value is not None else None for value in (*pad.inputs[1:], None, None)[:3]]
    pads, fill, axes = given
    if pads is None or any(a is None and v is not None for a, v in zip(given, pad.inputs[1:], strict=False)):
        raise Decline(Reason.NOT_CONSTANT, "pads")
    if operator.mode != "constant":
        raise Decline(Reason.ATTRIBUTE, f"mode {operator.mode}")
    value = 0.0 if fill is None or not fill.size else float(fill.reshape(-1)[0])
    if value != (-np.inf if isinstance(window, MaxPool) else 0):
        raise Decline(Reason.NOT_EXACT, f"padded with {value:g}")
    chosen = [int(axis) % rank for axis in axes.reshape(-1)] if axes is not None else list(range(rank))
    both = np.zeros((2, rank), np.int64)
    both[:, chosen] = pads.reshape(2, -1)
    if (both < 0).any() or both[:, :2].any():
        raise Decline(Reason.SHAPE, f"pads {pads.tolist()}")
    return tuple(both[:, 2:].reshape(-1).tolist())


RULES = (pad_into_windows,)

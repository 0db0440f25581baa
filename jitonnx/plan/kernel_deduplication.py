"""Products and convolutions that differ in little: one kernel for all of them, as compiling one takes some 40 ms.

Whether a tile asks for b into the first-level cache (`prefetch_distance`), and for the next panel at an even pace
(`paced_prefetch`), goes by the sizes of the product. Where a plan has products of both kinds, with the same tiles and
epilogue, those that need not ask ask as well, unless tuning settled what they do. Measured on 1 x 1 convolutions of 24
to 96 channels, they take -4 to 7 % more time by it, of which a model has few; resnet50 has 4 kernels fewer of 19.
So it is with sums that are long enough for chains (`chained`): short ones are done by the same kernel.

Where epilogues differ only in where they cut results off (not at all, ReLU, clip), the bounds are given as an operand:
two numbers, infinite ones where nothing is cut off. That costs two operations a vector where a tile ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import DType
from jitonnx.kernels.gemm.spec import GemmSpec
from jitonnx.kernels.spec import KernelSpec
from jitonnx.plan.calls import KernelCall, Stage
from jitonnx.plan.tensor import StridedTensor
from jitonnx.support.records import NamedTuple

_MULTIPLYING = ("gemm", "convolution")
"""The families of kernels whose epilogue takes little of their time."""


class _Cut(NamedTuple):
    """An epilogue as what it computes before it cuts off, and where it does that."""

    stage: Stage
    bounds: tuple[float, float]


def share_kernels(calls: Sequence[KernelCall], constant: Callable[[np.ndarray], StridedTensor]) -> None:
    """Let products and convolutions have one kernel where theirs differ in what they ask for, or cut off at, alone.

    constant: makes an array a constant of the plan.
    """
    _share_bounds(calls, constant)
    _share_requests(calls)


def _share_requests(calls: Sequence[KernelCall]) -> None:
    alike: dict[object, list[KernelCall]] = {}
    for call in calls:
        if isinstance(call.spec, GemmSpec) and all(choice.is_usual for choice in call.choices):
            key = _without_requests(call.spec), call.prologue, call.epilogue
            alike.setdefault(key, []).append(call)
    for group in alike.values():
        specs = [call.spec for call in group if isinstance(call.spec, GemmSpec)]
        distance = max(spec.prefetch_distance for spec in specs)
        paced, chained = any(spec.paced_prefetch for spec in specs), any(spec.chained for spec in specs)
        for call, spec in zip(group, specs, strict=True):
            call.spec = replace(spec, prefetch_distance=distance, paced_prefetch=paced, chained=chained)


def _without_requests(spec: KernelSpec) -> KernelSpec:
    if isinstance(spec, GemmSpec):
        return replace(spec, prefetch_distance=0, paced_prefetch=False, chained=False)
    return spec


def _share_bounds(calls: Sequence[KernelCall], constant: Callable[[np.ndarray], StridedTensor]) -> None:
    alike: dict[object, list[tuple[KernelCall, _Cut]]] = {}
    for call in calls:
        cut = _cut(call)
        if cut is not None:
            key = _without_requests(call.spec), call.prologue, cut.stage
            alike.setdefault(key, []).append((call, cut))
    tensors: dict[tuple[float, float], StridedTensor] = {}
    for group in alike.values():
        if len({cut.bounds for _, cut in group}) == 1:
            continue
        for call, (stage, bounds) in group:
            if bounds not in tensors:
                tensors[bounds] = constant(np.array(bounds, np.float32))
            call.stage_tensors.append(tensors[bounds])
            call.epilogue = replace(stage, bounded=True)


def _cut(call: KernelCall) -> _Cut | None:
    """A call's epilogue in two parts; None for kernels that do not multiply float32."""
    if call.spec.family not in _MULTIPLYING or call.written[0].dtype is not DType.FLOAT:
        return None
    stage = call.epilogue or Stage(e.operand(0, DType.FLOAT), (), (), (), len(call.tensors), call.spec.size_count)
    expr, cuts = stage.expr, {"maximum": -math.inf, "minimum": math.inf}
    while expr.op in cuts and math.isinf(cuts[expr.op]):
        numbers = [x.value for x in expr.arguments if x.op == "constant" and not math.isnan(x.value)]
        others = [x for x in expr.arguments if x.op != "constant"]
        if expr.dtype is not DType.FLOAT or len(numbers) != 1 or len(others) != 1:
            break
        cuts[expr.op], (expr,) = numbers[0], others
    least, largest = cuts["maximum"], cuts["minimum"]
    return _Cut(replace(stage, expr=expr), (least, largest)) if expr.dtype is DType.FLOAT and least <= largest else None

"""Reductions, and what is normalised or ranked along axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.ops.differential.drawing import FLOATS, Draw, integers, is_real, node
from tests.ops.harness import Case

LOOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5}
"""Tolerances of sums, whose order is not the reference's."""
LENGTHS = (1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 64, 100)
REDUCTIONS = (
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"),
    *("ReduceProd", "ReduceSum", "ReduceSumSquare"),
)


def reduction(operator: str) -> Callable[[Draw], Case]:
    def drawn(d: Draw) -> Case:
        # onnx's reference gives int64 of int32.
        dtype = d.dtype(operator, of=(*FLOATS, np.dtype(np.int64)) if operator == "ReduceSumSquare" else ())
        extreme = operator in ("ReduceMax", "ReduceMin")
        shape = d.shape(
            int(operator == "ReduceLogSumExp"), 4, empty=False, sizes=LENGTHS
        )  # whose reference needs an axis
        low = 0 if dtype.kind == "u" or operator == "ReduceLogSum" else -3
        x = d.array(shape, dtype, edges=extreme and dtype.kind != "f", low=low, high=3)
        if operator == "ReduceLogSum":
            x = abs(x) + dtype.type(1)
        if operator == "ReduceProd":
            x = np.sign(x.astype(np.float32)).astype(dtype) if not is_real(dtype) else 1 + x / dtype.type(64)
        if extreme and is_real(dtype) and d.flag() and x.size:
            x.reshape(-1)[: max(1, x.size // 20)] = d.pick((np.inf, -np.inf))
        axes = integers(*d.axes(len(shape))) if d.flag() else None
        flags = {"keepdims": d.integer(0, 1), "noop_with_empty_axes": d.integer(0, 1)}
        return node(operator, x.astype(dtype), axes, **flags, constants=(1,) if axes is not None else (), **LOOSE)

    return drawn


def arg(operator: str) -> Callable[[Draw], Case]:
    def drawn(d: Draw) -> Case:
        x = d.array(d.shape(1, 4, empty=False, sizes=LENGTHS), d.dtype(operator), edges=d.flag(), low=-3, high=3)
        if is_real(x.dtype):
            x = np.where(np.isnan(x), x.dtype.type(0), x)
        flags = {"keepdims": d.integer(0, 1), "select_last_index": d.integer(0, 1)}
        return node(operator, x, axis=d.axis(x.ndim), **flags)

    return drawn


def along(operator: str, least: int = 1, **attributes: Callable[[Draw], Any]) -> Callable[[Draw], Case]:
    """An operator of one input, along an axis."""

    def drawn(d: Draw) -> Case:
        x = d.array(d.shape(least, 4, sizes=LENGTHS, empty=False), d.dtype(operator))
        options = {name: draw(d) for name, draw in attributes.items()}
        # onnx's reference of LpNormalization forgets absolute values.
        judged = operator != "LpNormalization"
        return node(operator, x, axis=d.axis(x.ndim), **options, by_reference=judged, **LOOSE)

    return drawn


def layer_normalization(d: Draw) -> Case:
    x = d.array(d.shape(1, 4, empty=False, sizes=LENGTHS), d.dtype("LayerNormalization"))
    axis = d.axis(x.ndim)
    sizes = x.shape[axis % x.ndim :]
    bias = d.array(sizes, x.dtype) if d.flag() else None
    # stash_type is 1, in which the reference computes float64, too: that of double is asked of the width of its sums.
    tolerance = {"rtol": 2e-3, "atol": 2e-3}
    return node("LayerNormalization", x, d.array(sizes, x.dtype), bias, axis=axis, epsilon=d.pick((1e-5, 1e-2)),
                **tolerance)  # fmt: skip


def rms_normalization(d: Draw) -> Case:
    x = d.array(d.shape(1, 4, empty=False, sizes=LENGTHS), d.dtype("RMSNormalization"))
    axis = d.axis(x.ndim)
    scale = d.array(x.shape[axis % x.ndim :], x.dtype)
    return node("RMSNormalization", x, scale, axis=axis, epsilon=d.pick((1e-5, 1e-2)), rtol=1e-3, atol=1e-3)


def _image(d: Draw, operator: str, channels: int, least: int = 1, most: int = 3, of: Sequence[Any] = ()) -> np.ndarray:
    spatial = [d.pick((1, 2, 3, 5, 8)) for _ in range(d.integer(least, most))]
    return d.array((d.integer(1, 3), channels, *spatial), d.dtype(operator, of=of))


def batch_normalization(d: Draw) -> Case:
    channels = d.pick(LENGTHS[:8])
    x = _image(d, "BatchNormalization", channels)
    parts = [d.array((channels,), x.dtype) for _ in range(3)]
    variance = (abs(d.array((channels,), np.float32)) + np.float32(0.5)).astype(x.dtype)
    training = d.integer(0, 1)
    outputs = 3 if training else 1
    return node(
        "BatchNormalization", x, *parts, variance, training_mode=training, outputs=outputs, rtol=1e-3, atol=1e-3
    )


def group_normalization(d: Draw) -> Case:
    groups = d.pick((1, 2, 4))
    channels = groups * d.integer(1, 4)
    x = _image(d, "GroupNormalization", channels)
    scale, bias = (d.array((channels,), x.dtype) for _ in range(2))
    return node("GroupNormalization", x, scale, bias, num_groups=groups, epsilon=1e-2, rtol=1e-3, atol=1e-3)


def instance_normalization(d: Draw) -> Case:
    channels = d.pick(LENGTHS[:8])
    x = _image(d, "InstanceNormalization", channels)
    scale, bias = (d.array((channels,), x.dtype) for _ in range(2))
    return node("InstanceNormalization", x, scale, bias, epsilon=1e-2, rtol=1e-3, atol=1e-3)


def mean_variance(d: Draw) -> Case:
    # Two elements that are nearly the same have no variance to divide by. Of double onnx has no function.
    shape, dtype = (d.integer(1, 3), d.integer(5, 9), 3, d.integer(1, 5)), d.pick((FLOATS[0], *FLOATS[2:]))
    axes = d.pick(((0, 2, 3), (1,), (2, 1), (0, 1, 2, 3)))
    return node("MeanVarianceNormalization", d.array(shape, dtype), axes=list(axes), rtol=1e-2, atol=1e-2)


def lrn(d: Draw) -> Case:
    x = _image(
        d, "LRN", d.pick(LENGTHS[:8]), 2, 2, (FLOATS[0], *FLOATS[2:])
    )  # of one size onnx's reference takes the wrong channels
    options = {"size": d.pick((1, 3, 5)), "alpha": d.pick((1e-4, 0.1)), "beta": d.pick((0.75, 0.5))}
    return node("LRN", x, **options, bias=d.pick((1.0, 2.0)), by_reference=False, **LOOSE)


STRATEGIES: dict[tuple[str, str], Callable[[Draw], Case]] = {
    **{("", name): reduction(name) for name in REDUCTIONS},
    **{("", name): arg(name) for name in ("ArgMax", "ArgMin")},
    ("", "BatchNormalization"): batch_normalization,
    ("", "GroupNormalization"): group_normalization,
    ("", "Hardmax"): along("Hardmax"),
    ("", "InstanceNormalization"): instance_normalization,
    ("", "LRN"): lrn,
    ("", "LayerNormalization"): layer_normalization,
    ("", "LogSoftmax"): along("LogSoftmax"),
    ("", "LpNormalization"): along("LpNormalization", p=lambda d: d.integer(1, 2)),
    ("", "MeanVarianceNormalization"): mean_variance,
    ("", "RMSNormalization"): rms_normalization,
    ("", "Softmax"): along("Softmax"),
}

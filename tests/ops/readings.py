"""Computations that stand for one operator, read on NumPy with all that the lowering resolved: pads, sizes, scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.ir import dims
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation import resampling, sampling
from jitonnx.ops import fused
from jitonnx.ops.microsoft import sliding_caches
from jitonnx.ops.microsoft.nbits import unpacked
from jitonnx.ops.onnx import (
    convolution,
    linear_attention,
    normalization,
    pooling,
    quantization,
    recurrent,
    regions,
    softmax,
)
from jitonnx.ops.windows import Windows, extent

Arrays = list[Any]


def _windows(x: Any, kernel: Any, after: Any, output: Any, sizes: Any) -> Windows:
    before = tuple(dims.evaluate(dim, sizes) for dim in x.pads_before)
    return Windows(tuple(kernel), x.strides, x.dilations, before, tuple(after), tuple(output))


def _convolution(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> np.ndarray:
    data, weights, *bias = operands
    after = [dims.evaluate(dim, sizes) for dim in x.pads_after]
    windows = _windows(x, weights.shape[2:], after, shape[2:], sizes)
    for length, cover, step, a, b, out in zip(
        data.shape[2:], extent(windows.kernel, x.dilations), x.strides, windows.before, after, shape[2:], strict=True
    ):
        assert out == (length + a + b - cover) // step + 1, "pads and output size contradict each other"
    return convolution._add_bias(convolution.convolve(data, weights, windows, x.group), *(bias or [None]))


def _transposed(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> np.ndarray:
    data, weights, *bias = operands
    windows = _windows(x, weights.shape[2:], (), shape[2:], sizes)
    return convolution._add_bias(convolution.convolve_transposed(data, weights, windows, x.group), *(bias or [None]))


def _pool(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> Any:
    after = [dims.evaluate(dim, sizes) for dim in x.pads_after]
    windows = _windows(x, x.kernel, after, shape[2:], sizes)
    (data,) = operands
    if x.kind == "max":
        return pooling.max_pool(data, windows, storage_order=x.storage_order)
    if x.kind == "average":
        return pooling.average_pool(data, windows, count_include_pad=x.count_include_pad)
    return pooling.lp_pool(data, windows, p=x.p)


def _resize(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> np.ndarray:
    (y,) = operands
    for axis, (length, out) in enumerate(zip(y.shape, shape, strict=True)):
        scale = x.scales[axis]
        if scale is None:
            scale = _kept_ratio(x, sizes) if x.policy else out / length
        area = x.roi[axis] if x.roi else None
        if scale == 1 and length == out and area in (None, (0.0, 1.0)):
            continue
        table = resampling.axis_table(
            *(length, out, scale, area),
            mode=x.mode,
            coordinates=x.coordinates,
            nearest=x.nearest,
            cubic_coefficient=x.cubic_coefficient,
            exclude_outside=x.exclude_outside,
            antialias=x.antialias,
        )
        y = resampling.resample(y, axis, table, x.extrapolation)
    return y


def _kept_ratio(x: Any, sizes: Any) -> float:
    quotients = [dims.evaluate(wanted, sizes) / dims.evaluate(length, sizes) for wanted, length in x.aspect]
    return min(quotients) if x.policy == "not_larger" else max(quotients)


def _linear_attention(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> Any:
    q, k, v, state, factor, beta = operands
    decay = None if factor is None else np.log(factor).reshape(*factor.shape[:2], -1)
    rate = None if beta is None else np.ascontiguousarray(beta).reshape(*beta.shape[:2], -1)
    rule = "_".join(name for name, given in (("gated", factor), ("delta", beta)) if given is not None) or "linear"
    operator = linear_attention.LinearAttention(
        q_num_heads=q.shape[2], kv_num_heads=k.shape[2], scale=x.scale, update_rule=rule
    )
    packed = (part.reshape(*part.shape[:2], part.shape[2] * part.shape[3]) for part in (q, k, v))
    y, present = operator.evaluate(*packed, state, decay, rate)  # type: ignore[call-arg]  # as many as there are
    return y.reshape(shape), present


def _recurrent(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> Any:
    kind = {"GRU": recurrent.GRU, "LSTM": recurrent.LSTM, "RNN": recurrent.RNN}[x.kind]
    counts = [(name, recurrent.ACTIVATIONS[name].parameters, a, b) for name, a, b in x.activations]
    options: dict[str, Any] = {"LSTM": {"input_forget": x.input_forget}}.get(x.kind, {})
    if x.kind == "GRU":
        options = {"linear_before_reset": x.linear_before_reset}
    layer = kind(
        activations=tuple(name for name, *_ in counts),
        activation_alpha=tuple(alpha for _, count, alpha, _ in counts if count >= 1),
        activation_beta=tuple(beta for _, count, _, beta in counts if count >= 2),
        clip=x.clip,
        direction=x.direction,
        hidden_size=x.hidden,
        **options,
    )
    return layer.evaluate(*operands[: 8 if x.kind == "LSTM" else 6])  # what is behind says what need not be computed


def _normalize(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> Any:
    data, scale, bias = (*operands, None, None)[:3]
    scale = np.ones(data.shape[x.axis :], data.dtype) if scale is None else scale
    if x.kind == "rms":
        return normalization.RMSNormalization(axis=x.axis, epsilon=x.epsilon).evaluate(data, scale)
    return normalization.LayerNormalization(axis=x.axis, epsilon=x.epsilon).evaluate(data, scale, bias)


def _group_normalize(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> np.ndarray:
    groups = x.groups or operands[0].shape[1]
    if x.outside:
        split = operands[0].reshape(operands[0].shape[0], groups, -1)
        return normalization.MeanVarianceNormalization(axes=(2,)).evaluate(split).reshape(operands[0].shape)
    return normalization.GroupNormalization(num_groups=groups, epsilon=x.epsilon).evaluate(*operands)


def _attention(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> np.ndarray:
    options = {"scale": x.scale, "causal": x.causal, "masked_rows_zero": x.masked_rows_zero}
    q, k, v, *mask = operands
    if k.dtype == np.uint8:
        k, v = (np.concatenate([x & 15, x >> 4], 3).astype(np.float32) - 8 for x in (k, v))
    return fused.Attention(**options).evaluate(q, k.astype(q.dtype), v.astype(q.dtype), *mask)


def _fold(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> np.ndarray:
    (data,) = operands
    rank = len(x.kernel)
    result = np.zeros(shape, data.dtype)
    for tap in np.ndindex(*x.kernel):
        for block in np.ndindex(data.shape[2 + rank :]):
            place = np.array(block) * x.strides - x.before + np.array(tap) * x.dilations
            if (place >= 0).all() and (place < shape[2:]).all():
                every = slice(None)
                result[(every, every, *place)] += data[(every, every, *tap, *block)]
    return result


def _regions(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> np.ndarray:
    if x.mode == "pool":
        data, corners, images = operands
        rois = np.concatenate([images[:, None].astype(corners.dtype), corners], axis=1)
        return regions.MaxRoiPool(pooled_shape=(x.height, x.width), spatial_scale=x.scale).evaluate(data, rois)
    coordinates = "half_pixel" if x.half_pixel else "output_half_pixel"
    operator = regions.RoiAlign(
        mode=x.mode,
        output_height=x.height,
        output_width=x.width,
        sampling_ratio=x.sampling,
        spatial_scale=x.scale,
        coordinate_transformation_mode=coordinates,
    )
    return operator.evaluate(*operands)


def _sample(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> np.ndarray:
    data, coordinates, *factors = operands
    y = sampling.sample(data, coordinates, x.mode, x.outside, aligned=x.aligned)
    return y * factors[0][:, None] if factors else y


def _integer_convolution(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> np.ndarray:
    pads = tuple(dims.evaluate(pad, sizes) for pad in (*x.pads_before, *x.pads_after))
    image, weights, zero = (*operands, None)[:3]
    group = len(weights) if x.depthwise else 1
    layer = quantization.ConvInteger(strides=x.strides, dilations=x.dilations, pads=pads, group=group)
    return layer.evaluate(image, weights, zero)


def _n_bits(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> np.ndarray:
    a, numbers, scales, zeros = (*operands, None)[:4]
    (n, blocks), k = scales.shape, a.shape[-1]
    q = unpacked(numbers.reshape(n, -1), x.bits).reshape(n, blocks, x.block).astype(np.float32)
    w = (q - (2.0 ** (x.bits - 1) if zeros is None else zeros[:, :, None].astype(np.float32))) * scales[:, :, None]
    return (a.astype(np.float64) @ w.reshape(n, -1)[:, :k].T).astype(np.float32)


def _cache_update(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> np.ndarray:
    past, new, start = operands
    present = np.zeros(shape, new.dtype)
    if past is not None:
        present[:, :, : past.shape[2]] = past
    for row, first in enumerate(start):
        present[row, :, first : first + new.shape[2]] = new[row]
    return present


def _sliding_cache_update(x: Any, operands: Arrays, shape: tuple[int, ...], sizes: Any) -> tuple[np.ndarray, ...]:
    return sliding_caches.slid(*operands, x.window, shape[2])  # type: ignore[call-arg]  # as many as there are


READERS = {
    c.CacheUpdate: _cache_update,
    c.SlidingCacheUpdate: _sliding_cache_update,
    c.NBitsMatMul: _n_bits,
    c.IntegerConvolution: _integer_convolution,
    c.Lookup: lambda x, operands, shape, sizes: fused.Lookup().evaluate(*operands),
    c.IntegerWeightMatMul: lambda x, operands, shape, sizes: quantization.MatMulInteger().evaluate(*operands),
    c.IntegerMatMul: lambda x, operands, shape, sizes: quantization.MatMulInteger().evaluate(*operands),
    c.DynamicQuantize: lambda x, operands, shape, sizes: quantization.DynamicQuantizeLinear().evaluate(*operands),
    c.Attention: _attention,
    c.Convolution: _convolution,
    c.Determinant: lambda x, operands, shape, sizes: np.asarray(np.linalg.det(operands[0])),
    c.ReduceSegments: lambda x, operands, shape, sizes: fused.ReduceSegments(kind=x.kind).evaluate(*operands),
    c.Fold: _fold,
    c.GroupNormalize: _group_normalize,
    c.LocalResponseNormalize: lambda x, operands, shape, sizes: normalization.LRN(
        size=x.size, alpha=x.alpha, beta=x.beta, bias=x.bias
    ).evaluate(*operands),
    c.Normalize: _normalize,
    c.Pool: _pool,
    c.LinearAttention: _linear_attention,
    c.Recurrent: _recurrent,
    c.Resize: _resize,
    c.RoiAlign: _regions,
    c.Sample: _sample,
    c.Softmax: lambda x, operands, shape, sizes: (softmax.LogSoftmax if x.log else softmax.Softmax)(
        axis=x.axis
    ).evaluate(*operands),
    c.TransposedConvolution: _transposed,
}
"""Readers as `interpret` has them; one with several results returns a tuple, which may be longer than is asked for."""

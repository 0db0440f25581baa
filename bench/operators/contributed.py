"""Cases of `bench.operators` of domain com.microsoft, as onnxruntime's optimisers and quantisers write."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.operators.net import MICROSOFT, Build, Net, Shape

IMAGE, TOKENS = (1, 64, 56, 56), (1, 128, 768)
_SCALE, _ZERO = 0.02, 120


def contributed(operator: str, *shapes: Shape, outputs: int = 1, **attributes: Any) -> Build:
    """One operator over float32 inputs of these shapes."""

    def build(net: Net) -> list[str]:
        return net.nodes_outputs(operator, outputs, *map(net.feed, shapes), domain=MICROSOFT, **attributes)

    return build


def _bytes(net: Net, shape: Shape) -> list[str]:
    """An input of uint8 with its scale and zero point."""
    return [net.feed(shape, 0, 256, "uint8"), *_place(net)]


def _place(net: Net) -> list[str]:
    """A scale and zero point of uint8."""
    return [net.constant(_SCALE, "float32"), net.constant(_ZERO, "uint8")]


def _weights(net: Net, *shape: int) -> str:
    return net.constant(np.random.default_rng(1).integers(-127, 128, shape), "int8")


def quantized(operator: str, *shapes: Shape, **attributes: Any) -> Build:
    """An operator over uint8 inputs, each with a scale and a zero point, to uint8."""

    def build(net: Net) -> str:
        inputs = [name for shape in shapes for name in _bytes(net, shape)]
        return net.node(operator, *inputs, *_place(net), domain=MICROSOFT, **attributes)

    return build


def _quantized_concat(net: Net) -> str:
    parts = [name for _ in range(2) for name in _bytes(net, (1, 256, 28, 28))]
    return net.node("QLinearConcat", *_place(net), *parts, domain=MICROSOFT, axis=1)


def _quantized_where(net: Net) -> str:
    condition = net.feed(IMAGE, 0, 2, "bool")
    inputs = [*_bytes(net, IMAGE), *_bytes(net, IMAGE), *_place(net)]
    return net.node("QLinearWhere", condition, *inputs, domain=MICROSOFT)


def _quantized_gemm(net: Net) -> str:
    weights = _weights(net, 512, 1000), net.constant(0.01, "float32"), net.constant(0, "int8")
    bias = net.constant(np.arange(1000), "int32")
    return net.node("QGemm", *_bytes(net, (64, 512)), *weights, bias, *_place(net), domain=MICROSOFT)


def _quantized_conv(net: Net) -> str:
    weights = _weights(net, 64, 64, 3, 3)
    inputs = [*_bytes(net, (1, 56, 56, 64)), weights, net.constant(0.001, "float32"), net.constant(0, "int8")]
    return net.node("QLinearConv", *inputs, *_place(net), domain=MICROSOFT, channels_last=1, pads=[1] * 4)


def _dynamic_product(net: Net) -> str:
    x, weights = net.feed((128, 768)), _weights(net, 768, 768)
    inputs = x, weights, net.constant(0.001, "float32"), net.constant(0, "int8"), net.weight(768)
    return net.node("DynamicQuantizeMatMul", *inputs, domain=MICROSOFT)


def _product_to_float(net: Net) -> str:
    x, weights = net.feed((128, 768), 0, 256, "uint8"), _weights(net, 768, 768)
    scales = net.constant(_SCALE, "float32"), net.constant(0.001, "float32")
    zeros = net.constant(_ZERO, "uint8"), net.constant(0, "int8")
    return net.node("MatMulIntegerToFloat", x, weights, *scales, *zeros, net.weight(768), domain=MICROSOFT)


def blocked_product(rows: int, depth: int, columns: int, bits: int, block: int = 32) -> Build:
    """MatMulNBits: weights of so many bits by blocks."""

    def build(net: Net) -> str:
        random, blocks = np.random.default_rng(1), depth // block
        numbers = net.constant(random.integers(0, 256, (columns, blocks, block * bits // 8)), "uint8")
        scales = net.constant(random.uniform(0.001, 0.002, columns * blocks), "float32")
        sizes = {"K": depth, "N": columns, "bits": bits, "block_size": block}
        return net.node("MatMulNBits", net.feed((rows, depth)), numbers, scales, domain=MICROSOFT, **sizes)

    return build


def _four_bit_floats(net: Net) -> str:
    random = np.random.default_rng(1)
    numbers = net.constant(random.integers(0, 256, 768 * 768 // 2), "uint8")
    scales = net.constant(random.uniform(0.01, 0.02, 768 * 768 // 64), "float32")
    sizes = {"K": 768, "N": 768, "block_size": 64, "quant_type": 1}
    return net.node("MatMulBnb4", net.feed((16, 768)), numbers, scales, domain=MICROSOFT, **sizes)


def _gathered_blocks(net: Net) -> str:
    random = np.random.default_rng(1)
    net.picked = net.constant(random.integers(0, 256, (32000, 384)), "uint8")
    scales = net.constant(random.uniform(0.01, 0.02, (32000, 24)), "float32")
    indices = net.feed((1, 128), 0, 32000, "int64")
    options = {"bits": 4, "block_size": 32, "gather_axis": 0, "quantize_axis": 1}
    return net.node("GatherBlockQuantized", net.picked, indices, scales, domain=MICROSOFT, **options)


def _embeddings(net: Net) -> list[str]:
    words = net.feed((1, 128), 0, 30522, "int32")
    segments = net.feed((1, 128), 0, 2, "int32")
    tables = [net.weight(rows, 768) for rows in (30522, 512, 2)]
    net.picked = tables[0]
    inputs = words, segments, *tables, net.weight(768), net.weight(768)
    return net.nodes_outputs("EmbedLayerNormalization", 2, *inputs, domain=MICROSOFT)


def skipped(operator: str, biased: bool) -> Build:
    """A residual sum and its normalisation."""

    def build(net: Net) -> str:
        parameters = [net.weight(768) for _ in range(1 + biased)]
        return net.node(operator, net.feed(TOKENS), net.feed(TOKENS), *parameters, domain=MICROSOFT)

    return build


def _multi_head(net: Net) -> str:
    inputs = (net.feed(TOKENS) for _ in range(3))
    return net.node("MultiHeadAttention", *inputs, domain=MICROSOFT, num_heads=12)


def _quantized_attention(net: Net) -> str:
    x, weights, bias = net.feed(TOKENS, 0, 256, "uint8"), _weights(net, 768, 2304), net.weight(2304)
    scales = net.constant(0.01, "float32"), net.constant(0.001, "float32")
    zeros = net.constant(_ZERO, "uint8"), net.constant(0, "int8")
    return net.node("QAttention", x, weights, bias, *scales, "", *zeros, domain=MICROSOFT, num_heads=12)


def grouped_attention(length: int, past: int) -> Build:
    """GroupQueryAttention of 32 heads for 8 of size 64, of which so many positions are in the cache."""

    def build(net: Net) -> list[str]:
        query, *pair = (net.feed((1, length, heads * 64)) for heads in (32, 8, 8))
        caches = (net.feed((1, 8, past, 64)) for _ in range(2))
        total = past + length
        lengths = net.feed_array(np.array([total - 1], np.int32)), net.feed_array(np.array(total, np.int32))
        heads = {"num_heads": 32, "kv_num_heads": 8}
        return net.nodes_outputs("GroupQueryAttention", 3, query, *pair, *caches, *lengths, domain=MICROSOFT, **heads)

    return build


def _rotary(net: Net) -> str:
    angles = np.arange(128 * 32).reshape(128, 32) / 99
    tables = net.constant(np.cos(angles), "float32"), net.constant(np.sin(angles), "float32")
    positions = net.constant(np.arange(128)[None], "int64")
    return net.node("RotaryEmbedding", net.feed((1, 12, 128, 64)), positions, *tables, domain=MICROSOFT)


def byte_lstm(steps: int, batch: int, inputs: int, hidden: int, longest: int | None = None) -> Build:
    """DynamicQuantizeLSTM. longest: as of `layers.recurrent`, for all rows."""

    def build(net: Net) -> list[str]:
        weights = _weights(net, 1, inputs, 4 * hidden), _weights(net, 1, hidden, 4 * hidden)
        scales = (net.constant([0.5 / 127 / hidden**0.5], "float32") for _ in range(2))
        zero = net.constant([0], "int8")
        lengths = "" if longest is None else net.feed_array(np.full(batch, longest, np.int32))
        given = net.feed((steps, batch, inputs)), *weights, net.weight(1, 8 * hidden), lengths, "", "", ""
        w_scale, r_scale = scales
        inputs_ = *given, w_scale, zero, r_scale, zero
        return net.nodes_outputs("DynamicQuantizeLSTM", 3, *inputs_, domain=MICROSOFT, hidden_size=hidden)

    return build


def _fused_conv(net: Net) -> str:
    taps = net.weight(64, 64, 3, 3), net.weight(64)
    return net.node("FusedConv", net.feed(IMAGE), *taps, domain=MICROSOFT, activation="Relu", pads=[1] * 4)


def _fused_gemm(net: Net) -> str:
    weights = net.weight(256, 784), net.weight(256)
    return net.node("FusedGemm", net.feed((64, 784)), *weights, domain=MICROSOFT, activation="Relu", transB=1)


def _scaled_by_bytes(operator: str) -> Build:
    def build(net: Net) -> str:
        x = net.feed(IMAGE) if operator == "QuantizeLinear" else net.feed(IMAGE, 0, 256, "uint8")
        return net.node(operator, x, *_place(net), domain=MICROSOFT)

    return build


CONTRIBUTED: dict[str, Build] = {
    "BiasGelu": contributed("BiasGelu", TOKENS, (768,)),
    "FastGelu": contributed("FastGelu", TOKENS, (768,)),
    "Gelu": contributed("Gelu", TOKENS),
    "QuickGelu": contributed("QuickGelu", TOKENS, alpha=1.702),
    "FusedConv 3x3 64, 56": _fused_conv,
    "FusedGemm 64x784x256": _fused_gemm,
    "FusedMatMul 12 x 128x64x128": contributed(
        "FusedMatMul", (1, 12, 128, 64), (1, 12, 128, 64), transB=1, alpha=0.125
    ),
    "TransposeMatMul 256x512x128": contributed("TransposeMatMul", (512, 256), (512, 128), transA=1),
    "SkipLayerNormalization": skipped("SkipLayerNormalization", biased=True),
    "SkipSimplifiedLayerNormalization": skipped("SkipSimplifiedLayerNormalization", biased=False),
    "EmbedLayerNormalization": _embeddings,
    "RotaryEmbedding": _rotary,
    "MultiHeadAttention": _multi_head,
    "GroupQueryAttention, 128 tokens": grouped_attention(128, 0),
    "GroupQueryAttention, 1 behind 512": grouped_attention(1, 512),
    "QAttention": _quantized_attention,
    "MatMulNBits 1x2048x2048, 4 bits": blocked_product(1, 2048, 2048, 4),
    "MatMulNBits 64x768x768, 4 bits": blocked_product(64, 768, 768, 4),
    "MatMulNBits 1x2048x2048, 8 bits": blocked_product(1, 2048, 2048, 8),
    "MatMulBnb4 16x768x768": _four_bit_floats,
    "GatherBlockQuantized": _gathered_blocks,
    "DynamicQuantizeMatMul 128x768x768": _dynamic_product,
    "MatMulIntegerToFloat 128x768x768": _product_to_float,
    "DynamicQuantizeLSTM 64 steps, 256": byte_lstm(64, 1, 128, 256),
    "DynamicQuantizeLSTM 64 steps, 256, batch 8": byte_lstm(64, 8, 128, 256),
    "DynamicQuantizeLSTM 20 of 200 steps, 256": byte_lstm(200, 1, 128, 256, longest=20),
    "QGemm 64x512x1000": _quantized_gemm,
    "QLinearConv 3x3 64, 56": _quantized_conv,
    "QLinearAdd": quantized("QLinearAdd", IMAGE, IMAGE),
    "QLinearMul": quantized("QLinearMul", IMAGE, IMAGE),
    "QLinearConcat": _quantized_concat,
    "QLinearWhere": _quantized_where,
    "QLinearLeakyRelu": quantized("QLinearLeakyRelu", IMAGE, alpha=0.1),
    "QLinearSigmoid": quantized("QLinearSigmoid", IMAGE),
    "QLinearSoftmax": quantized("QLinearSoftmax", (1, 12, 128, 128), axis=-1, opset=13),
    "QLinearAveragePool 3x3": quantized("QLinearAveragePool", IMAGE, kernel_shape=[3, 3], pads=[1] * 4),
    "QLinearGlobalAveragePool": quantized("QLinearGlobalAveragePool", (1, 512, 14, 14)),
    "QuantizeLinear": _scaled_by_bytes("QuantizeLinear"),
    "DequantizeLinear": _scaled_by_bytes("DequantizeLinear"),
}
"""The family "contributed"."""

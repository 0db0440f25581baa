"""The cases of `bench.operators`, by family: operators over the shapes that common networks have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from bench.operators.contributed import CONTRIBUTED
from bench.operators.control import choice, counted_loop, optimizer, scan
from bench.operators.element_types import TYPED
from bench.operators.elements import (
    cast,
    chain,
    clip,
    compress,
    fed_range,
    gather,
    gather_elements,
    gather_nd,
    power,
    prelu,
    resize,
    scatter_elements,
    scatter_nd,
    slice_,
    split,
    suppression,
    tanh_gelu,
    tensor_scatter,
    top_k,
    unique,
    where,
)
from bench.operators.layers import (
    attention,
    attention_node,
    batch_norm,
    causal_conv,
    conv,
    conv_transpose,
    dense,
    depthwise,
    dequantize,
    flex_attention,
    gemm,
    integer_conv,
    integer_product,
    integers_alone,
    layer_norm,
    linear_attention,
    loss,
    quantize,
    recurrent,
    rotary_embedding,
    scaled,
    squeeze_excite,
)
from bench.operators.learned import chosen_features, coefficients, forest, joined_features, learned, support_vectors
from bench.operators.net import Build, Net, before_22, in_opset, newest, op, positive, typed, with_integers
from bench.operators.signals import (
    affine_grid,
    col2im,
    deform_conv,
    fourier,
    grid_sample,
    max_roi_pool,
    max_unpool,
    mel_weights,
    roi_align,
    short_time_fourier,
)

L1, L2, L3, MEMORY = (1, 64, 5, 5), (1, 128, 28, 28), (1, 64, 112, 112), (4, 64, 224, 224)
"""Images of 1.6 thousand to 12.8 million elements: the data of one operator lie in this cache, or in memory."""
TOKENS = (1, 128, 768)
ASYMMETRIC = {"coordinate_transformation_mode": "asymmetric"}
ALIGNED = {"coordinate_transformation_mode": "align_corners"}


def _unary(operator: str, **more: Any) -> tuple[str, Build]:
    return operator, op(operator, L2, **more)


CASES: dict[str, dict[str, Build]] = {
    "convolution": {
        "7x7/2 image": conv((1, 3, 224, 224), 64, 7, 2),
        "3x3/2 image": conv((1, 3, 224, 224), 32, 3, 2, then="silu"),
        "3x3 image, 224": conv((1, 3, 224, 224), 64, 3),
        "16x16/16 patches": conv((1, 3, 224, 224), 768, 16, 16, pad=0, then=""),
        "4x4/4 patches": conv((1, 3, 224, 224), 96, 4, 4, pad=0, then=""),
        "3x3 64, 224": conv((1, 64, 224, 224), 64, 3),
        "3x3 64, 56": conv((1, 64, 56, 56), 64, 3),
        "3x3 128, 28": conv((1, 128, 28, 28), 128, 3),
        "3x3 256, 14": conv((1, 256, 14, 14), 256, 3),
        "3x3 512, 7": conv((1, 512, 7, 7), 512, 3),
        "3x3 64, 56, residual": conv((1, 64, 56, 56), 64, 3, residual=True),
        "3x3 64, 28, batch 8": conv((8, 64, 28, 28), 64, 3),
        "3x3 128 to 32, 28": conv((1, 128, 28, 28), 32, 3),
        "3x3/2 128, 56": conv((1, 128, 56, 56), 128, 3, 2),
        "3x3/2 256 to 512, 14": conv((1, 256, 14, 14), 512, 3, 2),
        "1x1 64 to 256, 56": conv((1, 64, 56, 56), 256, 1, then=""),
        "1x1 256 to 64, 56": conv((1, 256, 56, 56), 64, 1),
        "1x1 1024 to 256, 14": conv((1, 1024, 14, 14), 256, 1),
        "1x1 512 to 2048, 7, residual": conv((1, 512, 7, 7), 2048, 1, residual=True),
        "1x1/2 256 to 512, 56": conv((1, 256, 56, 56), 512, 1, 2, then=""),
        "1x1 24 to 144, 56": conv((1, 24, 56, 56), 144, 1, then="relu6"),
        "1x1 320 to 1280, 7": conv((1, 320, 7, 7), 1280, 1, then="HardSwish"),
        "3x3 dilated 2, 256, 28": conv((1, 256, 28, 28), 256, 3, dilation=2),
        "3x3 dilated 12, 256, 28": conv((1, 256, 28, 28), 256, 3, dilation=12),
        "3x3 32 groups, 256, 28": conv((1, 256, 28, 28), 256, 3, groups=32),
        "5x5 64, 28": conv((1, 64, 28, 28), 64, 5),
        "3 taps, 80 to 384, 3000": conv((1, 80, 3000), 384, 3, then="gelu"),
        "31 taps, 64, 1000": conv((1, 64, 1000), 64, 31),
        "3x3x3 16 to 32, 16": conv((1, 16, 16, 32, 32), 32, 3),
        "transposed 2x2/2, 128 to 64, 56": conv_transpose((1, 128, 56, 56), 64, 2, 2),
        "transposed 4x4/2, 256 to 128, 14": conv_transpose((1, 256, 14, 14), 128, 4, 2, 1),
        "squeeze and excite, 240, 28": squeeze_excite(240, 28, 60),
    },
    "integers": {
        "product 128x768x768": integer_product(128, 768, 768),
        "product 128x768x3072": integer_product(128, 768, 3072),
        "product 128x3072x768": integer_product(128, 3072, 768),
        "product 512x512x512": integer_product(512, 512, 512),
        "MatMulInteger 128x768x768": integers_alone("MatMulInteger", (128, 768), (768, 768)),
        "ConvInteger 3x3 64, 56": integers_alone("ConvInteger", (1, 64, 56, 56), (64, 64, 3, 3), pads=[1] * 4),
        "7x7/2 image": integer_conv((1, 3, 224, 224), 64, 7, 2),
        "3x3 64, 56": integer_conv((1, 64, 56, 56), 64, 3),
        "3x3 128, 28": integer_conv((1, 128, 28, 28), 128, 3),
        "3x3 256, 14": integer_conv((1, 256, 14, 14), 256, 3),
        "3x3 512, 7": integer_conv((1, 512, 7, 7), 512, 3),
        "3x3/2 128 to 256, 28": integer_conv((1, 128, 28, 28), 256, 3, 2),
        "1x1 64 to 256, 56": integer_conv((1, 64, 56, 56), 256, 1),
        "1x1 1024 to 256, 14": integer_conv((1, 1024, 14, 14), 256, 1),
    },
    "depthwise": {
        "3x3 32, 112": depthwise((1, 32, 112, 112), 3),
        "3x3 144, 56": depthwise((1, 144, 56, 56), 3),
        "3x3/2 96, 112": depthwise((1, 96, 112, 112), 3, 2),
        "3x3 384, 14": depthwise((1, 384, 14, 14), 3, then="silu"),
        "5x5 240, 28": depthwise((1, 240, 28, 28), 5, then="HardSwish"),
        "5x5/2 672, 14": depthwise((1, 672, 14, 14), 5, 2, then="silu"),
        "7x7 96, 56": depthwise((1, 96, 56, 56), 7, then=""),
        "7x7 768, 7": depthwise((1, 768, 7, 7), 7, then=""),
        "31 taps, 256, 500": conv((1, 256, 500), 256, 31, groups=256, then="silu"),
    },
    "product": {
        "128x768x768": dense((128,), 768, 768, bias=False),
        "128x768x768 + bias": dense((1, 128), 768, 768),
        "128x768x3072 + bias, Gelu": dense((1, 128), 768, 3072, "gelu"),
        "128x3072x768 + bias, residual": dense((1, 128), 3072, 768, residual=True),
        "197x768x2304 + bias": dense((1, 197), 768, 2304),
        "49x768x3072 + bias, Gelu": dense((1, 49), 768, 3072, "gelu"),
        "32x384x1536 + bias, Gelu": dense((1, 32), 384, 1536, "gelu"),
        "1024x1024x1024": dense((1024,), 1024, 1024, bias=False),
        "256x256x256": dense((256,), 256, 256, bias=False),
        "16x64x64": dense((16,), 64, 64, "Relu"),
        "1x768x3072": dense((1, 1), 768, 3072, "gelu"),
        "1x4096x4096": dense((1, 1), 4096, 4096, bias=False),
        "1x768x16384": dense((1, 1), 768, 16384, bias=False),
        "Gemm 1x2048x1000": gemm(1, 2048, 1000),
        "Gemm 8x512x1000": gemm(8, 512, 1000),
        "Gemm 64x784x256, Relu": gemm(64, 784, 256, "Relu"),
        "two inputs, 512x512x512": op("MatMul", (512, 512), (512, 512)),
        "two inputs, 12 x 128x64x128": op("MatMul", (1, 12, 128, 64), (1, 12, 64, 128)),
        "two inputs, 8 x 256x256x256": op("MatMul", (8, 256, 256), (8, 256, 256)),
        "two inputs, 64 x 16x32x16": op("MatMul", (64, 16, 32), (64, 32, 16)),
        "Einsum bhqd,bhkd->bhqk": op("Einsum", (1, 12, 128, 64), (1, 12, 128, 64), equation="bhqd,bhkd->bhqk"),
        "Einsum bqhd,bkhd->bhqk": op("Einsum", (1, 128, 12, 64), (1, 128, 12, 64), equation="bqhd,bkhd->bhqk"),
        "float64 256x256x256": typed("MatMul", "float64", (256, 256), (256, 256), low=-1, high=1),
    },
    "attention": {
        "12 heads, 128x64": attention(12, 128, 64),
        "12 heads, 128x64, padding mask": attention(12, 128, 64, mask="padding"),
        "12 heads, 128x64, packed": attention(12, 128, 64, mask="padding", packed=True),
        "12 heads, 197x64, packed": attention(12, 197, 64, packed=True),
        "12 heads, 256x64, causal": attention(12, 256, 64, mask="causal"),
        "8 heads, 1024x64": attention(8, 1024, 64),
        "12 heads, 32x32, batch 4": attention(12, 32, 32, batch=4, mask="padding"),
        "12 heads, 1 query, 1024 keys": attention(12, 1, 64, keys=1024),
        "Attention node, 12 heads, 128x64": attention_node((1, 12, 128, 64), (1, 12, 128, 64)),
        "Attention node, causal": attention_node((1, 12, 256, 64), (1, 12, 256, 64), is_causal=1),
        "Attention node, 32 heads for 8": attention_node((1, 32, 128, 64), (1, 8, 128, 64)),
        "RotaryEmbedding, 12 heads, 128x64": rotary_embedding(12, 128, 64),
    },
    "normalization": {
        "LayerNormalization, 768": layer_norm(*TOKENS),
        "LayerNormalization, residual": layer_norm(*TOKENS, residual=True),
        "LayerNormalization, written out": layer_norm(*TOKENS, written_out=True),
        "LayerNormalization, 96": layer_norm(1, 56, 56, 96),
        "LayerNormalization, 1 row": layer_norm(1, 1, 768),
        "RMSNormalization": scaled("RMSNormalization", TOKENS, biased=False, axis=-1),
        "BatchNormalization": batch_norm((1, 64, 56, 56)),
        "BatchNormalization, Relu": batch_norm((1, 64, 56, 56), "Relu"),
        "InstanceNormalization": scaled("InstanceNormalization", (1, 64, 128, 128)),
        "GroupNormalization": scaled("GroupNormalization", (1, 64, 64, 64), num_groups=8),
        "MeanVarianceNormalization": op("MeanVarianceNormalization", (1, 64, 56, 56), axes=[0, 2, 3]),
        "LpNormalization": op("LpNormalization", TOKENS, axis=-1, p=2),
        "LRN": op("LRN", (1, 64, 56, 56), size=5),
    },
    "softmax": {
        "12x128x128": op("Softmax", (1, 12, 128, 128), axis=-1),
        "1x1000": op("Softmax", (1, 1000), axis=-1),
        "128x30522": op("Softmax", (128, 30522), axis=-1),
        "21 channels": op("Softmax", (1, 21, 224, 224), axis=1),
        "LogSoftmax 128x30522": op("LogSoftmax", (128, 30522), axis=-1),
        "LogSoftmax 100x29": op("LogSoftmax", (100, 29), axis=-1),
        "Hardmax": op("Hardmax", (128, 1000), axis=-1),
    },
    "reduction": {
        "ReduceMean, last axis": with_integers("ReduceMean", TOKENS, [-1]),
        "ReduceMean, tokens": with_integers("ReduceMean", TOKENS, [1]),
        "ReduceMean, image": with_integers("ReduceMean", (1, 128, 28, 28), [2, 3]),
        "ReduceSum, all": with_integers("ReduceSum", (1024, 1024), [0, 1]),
        "ReduceSum, first axis": with_integers("ReduceSum", (1024, 1024), [0]),
        "ReduceMax, last axis": with_integers("ReduceMax", (128, 30522), [-1]),
        "ReduceMin, first axis": with_integers("ReduceMin", (1024, 1024), [0]),
        "ReduceL1, last axis": with_integers("ReduceL1", TOKENS, [-1]),
        "ReduceLogSum, last axis": in_opset(21, positive("ReduceLogSum", TOKENS, [-1])),
        "ReduceL2, last axis": with_integers("ReduceL2", TOKENS, [-1]),
        "ReduceProd, last axis": with_integers("ReduceProd", (128, 64, 16), [-1]),
        "ReduceLogSumExp, last axis": with_integers("ReduceLogSumExp", (128, 1000), [-1]),
        "ReduceSumSquare, short": with_integers("ReduceSumSquare", (100000, 4), [-1]),
        "ArgMax, last axis": op("ArgMax", (128, 30522), axis=-1),
        "ArgMax, channels": op("ArgMax", (1, 21, 224, 224), axis=1),
        "ArgMin, 1000": op("ArgMin", (1, 1000), axis=-1),
        "CumSum, last axis": with_integers("CumSum", (128, 1024), [1]),
        "CumSum, first axis": with_integers("CumSum", (1024, 128), [0]),
        "TopK 5 of 1000": top_k((1, 1000), 5),
        "TopK 100 of 8400": top_k((1, 8400), 100),
        "TopK 50 of 32000": top_k((8, 32000), 50),
    },
    "arithmetic": {
        "Add, L1": op("Add", L1, L1),
        "Add, L2": op("Add", L2, L2),
        "Add, L3": op("Add", L3, L3),
        "Add, memory": op("Add", MEMORY, MEMORY),
        "Add a row": op("Add", TOKENS, (768,)),
        "Add a channel": op("Add", L2, (128, 1, 1)),
        "Add a column": op("Add", (1024, 128), (1024, 1)),
        "Mul by a channel": op("Mul", L2, (1, 128, 1, 1)),
        "Mul by a number": op("Mul", L2, ()),
        "Sub, outer": op("Sub", (512, 1), (1, 512)),
        "Div, L2": op("Div", L2, L2, low=0.5, high=2.0),
        "Pow 2": power(L2, 2.0),
        "Pow 0.5": power(L2, 0.5),
        "Pow 2.2": power(L2, 2.2),
        "Pow, both": op("Pow", L2, L2, low=0.1, high=3.0),
        "Max of two": op("Max", L2, L2),
        "Sum of four": op("Sum", L2, L2, L2, L2),
        "Mod, fmod": op("Mod", L2, L2, low=0.5, high=10.0, fmod=1),
        "Add int64": typed("Add", "int64", L2, L2),
        "Mul int32": typed("Mul", "int32", L2, L2),
        "Div int64": typed("Div", "int64", L2, L2, low=1),
        "Mod int64": typed("Mod", "int64", L2, L2, low=1),
        "Add float64": typed("Add", "float64", L2, L2),
        "Max int8": typed("Max", "int8", L2, L2),
        "Min of two": op("Min", L2, L2),
        "Mean of four": op("Mean", L2, L2, L2, L2),
    },
    "activation": {
        "Relu, L1": op("Relu", L1),
        "Relu, L2": op("Relu", L2),
        "Relu, L3": op("Relu", L3),
        "Relu, memory": op("Relu", MEMORY),
        "Clip": clip(L2),
        "PRelu": prelu(L2),
        "Sigmoid, L1": op("Sigmoid", L1),
        "Sigmoid, L3": op("Sigmoid", L3),
        "Gelu, erf": op("Gelu", TOKENS),
        "Gelu, tanh": op("Gelu", TOKENS, approximate="tanh"),
        "Gelu, written out": chain("gelu", TOKENS),
        "Gelu by tanh, written out": tanh_gelu(TOKENS),
        "SiLU, written out": chain("silu", L2),
        "Swish": in_opset(24, op("Swish", L2)),
        "SwiGLU": newest(op("SwiGLU", (1, 128, 3072), (1, 128, 3072))),
        **dict(
            _unary(name)
            for name in (
                *("LeakyRelu", "ThresholdedRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "HardSwish"),
                *("Tanh", "Softplus", "Softsign", "Mish", "Shrink"),
            )
        ),
    },
    "function": {
        **dict(
            _unary(name) for name in ("Abs", "Neg", "Floor", "Ceil", "Round", "Sign", "Exp", "Erf", "IsNaN", "IsInf")
        ),
        **dict(_unary(name) for name in ("Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh")),
        **dict(_unary(name, low=0.1, high=4.0) for name in ("Log", "Sqrt", "Reciprocal")),
        **dict(_unary(name, low=-0.9, high=0.9) for name in ("Asin", "Acos", "Atanh")),
        "Acosh": op("Acosh", L2, low=1.1, high=4.0),
    },
    "logic": {
        "Greater": op("Greater", L2, L2),
        "GreaterOrEqual": op("GreaterOrEqual", L2, L2),
        "Less": op("Less", L2, L2),
        "LessOrEqual": op("LessOrEqual", L2, L2),
        "Equal int64": typed("Equal", "int64", L2, L2, high=3),
        "And": typed("And", "bool", L2, L2, high=2),
        "Or": typed("Or", "bool", L2, L2, high=2),
        "Xor": typed("Xor", "bool", L2, L2, high=2),
        "Not": typed("Not", "bool", L2, high=2),
        "BitwiseAnd int32": typed("BitwiseAnd", "int32", L2, L2),
        "BitwiseOr int32": typed("BitwiseOr", "int32", L2, L2),
        "BitwiseXor int32": typed("BitwiseXor", "int32", L2, L2),
        "BitwiseNot int32": typed("BitwiseNot", "int32", L2),
        "BitShift uint32": typed("BitShift", "uint32", L2, L2, high=31, direction="RIGHT"),
        "Where": where(L2),
        "Cast float32 to float16": cast("float32", "float16", L2),
        "Cast float16 to float32": cast("float16", "float32", L2),
        "Cast float32 to float64": cast("float32", "float64", L2),
        "Cast float32 to int64": cast("float32", "int64", L2),
        "Cast int64 to float32": cast("int64", "float32", L2),
        "Cast float32 to uint8": cast("float32", "uint8", L2),
        "Cast float32 to bool": cast("float32", "bool", L2),
        "CastLike int32 to float32": lambda net: net.node("CastLike", net.feed(L2, 0, 9, "int32"), net.feed((1,))),
    },
    "pooling": {
        "MaxPool 3x3/2": op("MaxPool", (1, 64, 112, 112), kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        "MaxPool 2x2/2": op("MaxPool", (1, 64, 224, 224), kernel_shape=[2, 2], strides=[2, 2]),
        "MaxPool 13x13": op("MaxPool", (1, 256, 13, 13), kernel_shape=[13, 13], pads=[6] * 4),
        "MaxPool 2, one axis": op("MaxPool", (1, 64, 4000), kernel_shape=[2], strides=[2]),
        "AveragePool 3x3": op("AveragePool", (1, 192, 35, 35), kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        "AveragePool 2x2/2": op("AveragePool", (1, 128, 56, 56), kernel_shape=[2, 2], strides=[2, 2]),
        "AveragePool 2x2x2/2": op("AveragePool", (1, 32, 16, 32, 32), kernel_shape=[2] * 3, strides=[2] * 3),
        "LpPool 3x3/2": op("LpPool", (1, 64, 56, 56), kernel_shape=[3, 3], strides=[2, 2]),
        "GlobalAveragePool 7x7": op("GlobalAveragePool", (1, 2048, 7, 7)),
        "GlobalAveragePool 56x56": op("GlobalAveragePool", (1, 96, 56, 56)),
        "GlobalMaxPool": op("GlobalMaxPool", (1, 512, 14, 14)),
        "GlobalLpPool": before_22(op("GlobalLpPool", (1, 512, 14, 14))),
    },
    "movement": {
        "Transpose to heads": op("Transpose", (1, 128, 12, 64), perm=[0, 2, 1, 3]),
        "Transpose of keys": op("Transpose", (1, 128, 12, 64), perm=[0, 2, 3, 1]),
        "Transpose NCHW to NHWC": op("Transpose", (1, 64, 56, 56), perm=[0, 2, 3, 1]),
        "Transpose NHWC to NCHW, image": op("Transpose", (1, 224, 224, 3), perm=[0, 3, 1, 2]),
        "Transpose 1024x1024": op("Transpose", (1024, 1024), perm=[1, 0]),
        "Transpose 4096x4096": op("Transpose", (4096, 4096), perm=[1, 0]),
        "Reshape": with_integers("Reshape", TOKENS, [1, 128, 12, 64]),
        "Flatten": op("Flatten", (1, 512, 14, 14)),
        "Squeeze": with_integers("Squeeze", TOKENS, [0]),
        "Unsqueeze": with_integers("Unsqueeze", TOKENS, [1]),
        "Identity": op("Identity", TOKENS),
        "Dropout": op("Dropout", TOKENS),
        "Shape": op("Shape", TOKENS),
        "Size": op("Size", TOKENS),
        "ConstantOfShape": lambda net: net.node("ConstantOfShape", net.feed_array(np.array([128, 768]))),
        "Concat of channels": op("Concat", (1, 256, 28, 28), (1, 256, 28, 28), axis=1),
        "Concat of columns": op("Concat", (128, 64), (128, 64), (128, 64), axis=1),
        "Concat of columns, odd": op("Concat", (1000, 3), (1000, 2), axis=1),
        "Split of channels": split((1, 256, 28, 28), 2, 1),
        "Split of q, k, v": split((1, 128, 2304), 3, 2),
        "Slice of an image": slice_((1, 64, 112, 112), [8, 8], [104, 104], [1, 1]),
        "Slice, every second": slice_((1, 64, 112, 112), [0, 0], [112, 112], [2, 2]),
        "Slice, reversed": slice_((64, 1024), [-1], [-(2**31)], [-1]),
        "Pad constant": with_integers("Pad", (1, 64, 56, 56), [0, 0, 1, 1, 0, 0, 1, 1]),
        "Pad reflect": with_integers("Pad", (1, 64, 56, 56), [0, 0, 3, 3, 0, 0, 3, 3], mode="reflect"),
        "Pad edge": with_integers("Pad", (1, 3, 224, 224), [0, 0, 3, 3, 0, 0, 3, 3], mode="edge"),
        "CenterCropPad": with_integers("CenterCropPad", (1, 64, 64, 64), [56, 72], axes=[2, 3]),
        "Expand": with_integers("Expand", (1, 128, 1, 1), [1, 128, 28, 28]),
        "Tile": with_integers("Tile", (64, 256), [4, 2]),
        "DepthToSpace": op("DepthToSpace", (1, 256, 56, 56), blocksize=2, mode="CRD"),
        "SpaceToDepth": op("SpaceToDepth", (1, 16, 224, 224), blocksize=2),
        "Trilu": op("Trilu", (12, 256, 256), upper=0),
    },
    "indexing": {
        "Gather, embedding": gather((30522, 768), (1, 128)),
        "Gather, short rows": gather((1000, 16), (4096,)),
        "Gather, columns": gather((512, 1024), (256,), axis=1),
        "Gather, one row": gather((197, 768), ()),
        "GatherElements, columns": gather_elements((256, 1024), 1),
        "GatherElements, rows": gather_elements((1024, 256), 0),
        "GatherND, rows": gather_nd((64, 128, 256), 512, 2),
        "GatherND, elements": gather_nd((256, 256), 10000, 2),
        "ScatterND, rows": scatter_nd((1024, 256), 128),
        "ScatterElements, columns": scatter_elements((256, 1024), 1),
        "Scatter, columns": in_opset(10, scatter_elements((256, 1024), 1, "Scatter")),
        "TensorScatter, 1 of 512": in_opset(24, tensor_scatter(512, 1)),
        "TensorScatter, 128 of 512": in_opset(24, tensor_scatter(512, 128)),
        "OneHot 1000": lambda net: net.node(
            "OneHot", net.feed((256,), 0, 1000, "int64"), net.integers(1000), net.constant([0, 1], "float32")
        ),
        "NonZero": typed("NonZero", "bool", (512, 512), high=2),
        "Compress, rows": compress(1024, 256),
        "Unique, 100 elements": unique(100, 50, 1),
        "Unique, 10000 elements": unique(10000, 5000, 1),
        "Unique, 10000 elements, all outputs": unique(10000, 100, 4),
        "NonMaxSuppression, 1000 boxes": suppression(1000, 1),
        "NonMaxSuppression, 8400 boxes of 4 classes": suppression(8400, 4),
        "Range, float32": fed_range(10000, "float32"),
        "Range, int64": fed_range(10000, "int64"),
        "EyeLike": op("EyeLike", (512, 512)),
        "ReverseSequence": lambda net: net.node(
            "ReverseSequence", net.feed((100, 16, 64)), net.feed((16,), 50, 100, "int64"), time_axis=0, batch_axis=1
        ),
    },
    "resize": {
        "nearest x2": resize((1, 128, 28, 28), 2, "nearest", nearest_mode="floor", **ASYMMETRIC),
        "nearest x2, half pixel": resize((1, 128, 28, 28), 2, "nearest"),
        "linear x2": resize((1, 64, 56, 56), 2, "linear"),
        "linear x8, 21 channels": resize((1, 21, 28, 28), 8, "linear", **ALIGNED),
        "linear x0.5": resize((1, 3, 448, 448), 0.5, "linear"),
        "cubic x2": resize((1, 3, 112, 112), 2, "cubic"),
        "Upsample nearest x2": in_opset(
            9, lambda net: net.node("Upsample", net.feed((1, 128, 28, 28)), net.constant([1, 1, 2, 2], "float32"))
        ),
    },
    "sampling": {
        "GridSample linear, 3 channels, 224": grid_sample((1, 3, 224, 224), (224, 224)),
        "GridSample linear, 64 channels, 56, border": grid_sample((1, 64, 56, 56), (56, 56), padding_mode="border"),
        "GridSample linear, 64 channels, 64": grid_sample((1, 64, 64, 64), (64, 64)),
        "GridSample nearest, 3 channels, 224": grid_sample((1, 3, 224, 224), (224, 224), mode="nearest"),
        "GridSample cubic, 3 channels, 112": grid_sample((1, 3, 112, 112), (112, 112), mode="cubic"),
        "GridSample 8 heads, 1200 points": grid_sample((8, 32, 32, 32), (300, 4)),
        "GridSample volume, 16": grid_sample((1, 4, 16, 32, 32), (16, 32, 32)),
        "AffineGrid 56": affine_grid(4, 56, 56),
        "DeformConv 64, 56": deform_conv((1, 64, 56, 56), 64),
        "DeformConv 256, 14": deform_conv((1, 256, 14, 14), 256),
        "DeformConv 64, 28, 4 groups": deform_conv((1, 64, 28, 28), 64, 4),
        "RoiAlign 7x7, 100 of 256 channels, 50": before_22(roi_align((1, 256, 50, 50), 100, 7, sampling_ratio=2)),
        "RoiAlign 7x7, 100 behind Conv": before_22(roi_align((1, 256, 50, 50), 100, 7, "Conv", sampling_ratio=2)),
        "RoiAlign 14x14, adaptive": before_22(roi_align((1, 64, 50, 50), 100, 14)),
        "RoiAlign 7x7, largest": before_22(roi_align((1, 64, 50, 50), 100, 7, sampling_ratio=2, mode="max")),
        "MaxRoiPool 7x7, 100 of 256 channels": before_22(max_roi_pool((1, 256, 50, 50), 100, 7)),
        "Col2Im 3x3, 64, 56": col2im(1, 64, 56, 3, 1, 1),
        "Col2Im 3x3/2, 64, 28": col2im(1, 64, 28, 3, 2, 1),
        "Col2Im 16x16 patches, 224": col2im(1, 3, 224, 16, 16, 0),
        "MaxUnpool 2x2, 64, 28": max_unpool(1, 64, 28, 28),
    },
    "loss": {
        "cross entropy 128x1000": loss("SoftmaxCrossEntropyLoss", 128, 1000),
        "cross entropy 1x1000": loss("SoftmaxCrossEntropyLoss", 1, 1000),
        "cross entropy 21 classes, 128x128, weighted": loss("SoftmaxCrossEntropyLoss", 1, 21, 128, 128, weighted=True),
        "negative log likelihood 4096x32": loss("NegativeLogLikelihoodLoss", 4096, 32),
        "negative log likelihood 21, 128x128, none": loss(
            "NegativeLogLikelihoodLoss", 1, 21, 128, 128, reduction="none"
        ),
    },
    "quantization": {
        "QuantizeLinear": quantize(L2),
        "DequantizeLinear": dequantize(L2),
        "DynamicQuantizeLinear": lambda net: net.nodes_outputs("DynamicQuantizeLinear", 3, net.feed(TOKENS)),
    },
    "signals": {
        "DFT, 64 rows of 1024": fourier(64, 1024),
        "DFT, 64 rows of 1000": fourier(64, 1000),
        "STFT, 16000 by 400 and 160": short_time_fourier(16000, 400, 160),
        "STFT, 16000 by 512 and 256": short_time_fourier(16000, 512, 256),
        "HannWindow 4096": lambda net: net.node("HannWindow", net.feed_array(np.array(4096))),
        "HammingWindow 4096": lambda net: net.node("HammingWindow", net.feed_array(np.array(4096))),
        "BlackmanWindow 4096": lambda net: net.node("BlackmanWindow", net.feed_array(np.array(4096))),
        "MelWeightMatrix 80x201": mel_weights(80, 400),
    },
    "matrices": {
        "Det 1000 of 3x3": before_22(op("Det", (1000, 3, 3))),
        "Det 16 of 64x64": before_22(op("Det", (16, 64, 64), low=0, high=0.1)),
    },
    "linear attention": {
        "LinearAttention linear, 256 steps": linear_attention(256, "linear"),
        "LinearAttention gated, 256 steps": linear_attention(256, "gated"),
        "LinearAttention gated delta, 256 steps": linear_attention(256, "gated_delta"),
        "LinearAttention gated delta, 1 step": linear_attention(1, "gated_delta"),
        "CausalConvWithState 1024x256": causal_conv(1024, 256),
        "CausalConvWithState 1024x1": causal_conv(1024, 1),
        "FlexAttention, capped, 12 heads, 128x64": flex_attention(12, 128, 64),
        "CumProd, last axis": newest(with_integers("CumProd", (128, 1024), [1])),
        "BitCast, BitwiseAnd": newest(
            lambda net: net.node(
                "BitwiseAnd",
                net.node("BitCast", net.feed((512, 512)), to=onnx.TensorProto.INT32),
                net.constant(0x7FFFFFFF, "int32"),
            )
        ),
    },
    "random": {  # of no spread, so that answers can be compared: the numbers are drawn as others
        "RandomNormal": before_22(op("RandomNormal", shape=[512, 512], mean=1.0, scale=1e-30)),
        "RandomNormalLike": before_22(op("RandomNormalLike", (512, 512), mean=1.0, scale=1e-30)),
        "RandomUniform": before_22(lambda net: net.node("RandomUniform", shape=[512, 512], low=1.0, high=1.0)),
        "RandomUniformLike": before_22(
            lambda net: net.node("RandomUniformLike", net.feed((512, 512)), low=1.0, high=1.0)
        ),
        "Bernoulli": before_22(
            lambda net: net.node("Mul", net.node("Bernoulli", net.feed((512, 512), 0)), net.constant(0, "float32"))
        ),
        "Multinomial 1x50257": before_22(
            lambda net: net.node(
                "Multinomial", net.feed_array(np.where(np.arange(50257) == 7, 0, -np.inf).astype(np.float32)[None])
            )
        ),
    },
    "features": {
        "LinearRegressor 1000x64": learned(
            "LinearRegressor", 1000, 64, coefficients=coefficients(64), intercepts=[0.5]
        ),
        "LinearRegressor 1x64": learned("LinearRegressor", 1, 64, coefficients=coefficients(64), intercepts=[0.5]),
        **{
            f"LinearClassifier {rows}x64, 10 classes": learned(
                *("LinearClassifier", rows, 64, 2),
                coefficients=coefficients(10, 64),
                intercepts=coefficients(10),
                classlabels_ints=list(range(10)),
                post_transform="SOFTMAX",
            )
            for rows in (1, 1000)
        },
        "SVMRegressor RBF, 1000x64": learned("SVMRegressor", 1000, 64, **support_vectors(200, 64, "RBF")),
        "SVMRegressor linear, 1000x64": learned("SVMRegressor", 1000, 64, **support_vectors(200, 64, "LINEAR")),
        "SVMRegressor RBF, 1x64": learned("SVMRegressor", 1, 64, **support_vectors(200, 64, "RBF")),
        "SVMClassifier RBF, 1000x64": learned("SVMClassifier", 1000, 64, 2, **support_vectors(200, 64, "RBF", 4)),
        "SVMClassifier RBF, 1x64": learned("SVMClassifier", 1, 64, 2, **support_vectors(200, 64, "RBF", 4)),
        "Scaler 1000x64": learned("Scaler", 1000, 64, offset=coefficients(64), scale=coefficients(64)),
        "Normalizer L2 1000x64": learned("Normalizer", 1000, 64, norm="L2"),
        "Normalizer L1 1000x64": learned("Normalizer", 1000, 64, norm="L1"),
        "Imputer 1000x64": learned(
            "Imputer", 1000, 64, imputed_value_floats=coefficients(64), replaced_value_float=float("nan")
        ),
        "Binarizer 1000x64": learned("Binarizer", 1000, 64, threshold=0.5),
        "OneHotEncoder 1000x8, 9 categories": learned("OneHotEncoder", 1000, 8, low=0, cats_int64s=list(range(9))),
        "LabelEncoder 1000x8": learned(
            "LabelEncoder", 1000, 8, low=0, keys_int64s=list(range(9)), values_floats=coefficients(9)
        ),
        "ArrayFeatureExtractor 8 of 1000x64": chosen_features(1000, 64, 8),
        "FeatureVectorizer 1000 of 3 and 5": joined_features(1000, (3, 5)),
        "TreeEnsembleRegressor 1000x30": forest("TreeEnsembleRegressor", 1000, 30, 100, 6),
        "TreeEnsembleRegressor 1x30": forest("TreeEnsembleRegressor", 1, 30, 100, 6),
        "TreeEnsembleClassifier 1000x30": forest("TreeEnsembleClassifier", 1000, 30, 100, 6),
        "TreeEnsemble 1000x30": forest("TreeEnsemble", 1000, 30, 100, 6),
    },
    "recurrent": {
        "LSTM 64 steps, 256": recurrent("LSTM", 64, 1, 256, 256),
        "LSTM both ways, 100 steps, 128": recurrent("LSTM", 100, 1, 128, 128, both=True),
        "LSTM 50 steps, 512, batch 16": recurrent("LSTM", 50, 16, 512, 512),
        "LSTM 1 step, 512": recurrent("LSTM", 1, 1, 512, 512),
        "GRU 100 steps, 256": recurrent("GRU", 100, 1, 256, 256, linear_before_reset=1),
        "GRU both ways, 64 steps, 128": recurrent("GRU", 64, 1, 128, 128, both=True, linear_before_reset=1),
        "GRU 64 steps, 256, batch 8": recurrent("GRU", 64, 8, 128, 256),
        "RNN 64 steps, 256": recurrent("RNN", 64, 1, 128, 256),
        "LSTM 20 of 200 steps, 256": recurrent("LSTM", 200, 1, 256, 256, longest=20),
        "LSTM both ways, 20 of 200 steps, 128": recurrent("LSTM", 200, 4, 128, 128, both=True, longest=20),
        "GRU 20 of 200 steps, 256, batch 8": recurrent("GRU", 200, 8, 128, 256, longest=20),
    },
    "types": TYPED,
    "contributed": CONTRIBUTED,
    "training": {
        name: optimizer(name, count, **attributes)
        for name, count, attributes in (
            ("Adagrad", 1, {"norm_coefficient": 0.01}),
            ("Momentum", 1, {"alpha": 0.9, "beta": 1.0, "norm_coefficient": 0.01, "mode": "standard"}),
            ("Adam", 2, {"norm_coefficient": 0.01}),
        )
    },
    "control flow": {
        "Scan, 100 steps of 256": scan(100, 256),
        "Loop, 100 steps of 256": counted_loop(100, 256),
        "If": choice(TOKENS),
    },
}


OURS_ALONE = frozenset({"linear attention", "training", "activation/SwiGLU"})
"""Families, and cases of others, that onnxruntime has nothing of."""


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    family: str
    name: str
    build: Build
    ours_alone: bool = False
    """Whether onnxruntime lacks the operator."""

    def make(self) -> tuple[onnx.ModelProto, Net]:
        """The model, and the net that holds its feeds and weights."""
        net = Net()
        return net.model(self.build(net)), net


def cases(filters: Sequence[str] = ()) -> Iterator[Case]:
    """The cases of whose "family/name" some filter is a part, in any case of letters; all without filters."""
    for family, members in CASES.items():
        for name, build in members.items():
            if not filters or any(part.lower() in f"{family}/{name}".lower() for part in filters):
                yield Case(family, name, build, not OURS_ALONE.isdisjoint((family, f"{family}/{name}")))

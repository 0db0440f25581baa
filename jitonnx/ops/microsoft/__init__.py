"""Operators that onnxruntime has beside ONNX's, its contributed ones: domain com.microsoft."""

NEWEST = 1
"""The newest operator-set version."""

FAMILIES = {
    "activation": "BiasGelu FastGelu Gelu QuickGelu",
    "attention": "GroupQueryAttention MultiHeadAttention RotaryEmbedding",
    "convolution": "FusedConv",
    "linear_attention": "CausalConvWithState LinearAttention LinearAttentionGate",
    "experts": "MoE",
    "matmul": "FusedGemm FusedMatMul TransposeMatMul",
    "nbits": "GatherBlockQuantized MatMulBnb4 MatMulNBits",
    "normalization": "EmbedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization",
    "quantization": (
        "DequantizeLinear DynamicQuantizeMatMul MatMulIntegerToFloat QGemm QLinearAdd QLinearAveragePool "
        "QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearSigmoid "
        "QLinearSoftmax QLinearWhere QuantizeLinear"
    ),
    "recurrent": "DynamicQuantizeLSTM",
    "same_as_onnx": "ExpandDims GatherND GridSample Pad Range SampleOp Trilu Unique",
    "self_attention": "Attention QAttention",
    "text": "Tokenizer",
}
"""The modules of this folder, and the names of the operators that each lists in OPERATORS."""

"""Operators that onnxruntime has beside ONNX's, its contributed ones: domain com.microsoft."""

NEWEST = 1
"""The newest operator-set version."""

FAMILIES = {
    "activation": "BiasGelu FastGelu GatedAdd Gelu QuickGelu ScaledSiLU",
    "attention": "GroupQueryAttention MultiHeadAttention",
    "convolution": "ConvTransposeWithDynamicPads FusedConv",
    "generation": "BifurcationDetector DynamicTimeWarping NGramRepeatBlock",
    "hashing": "MurmurHash3",
    "hyper_connections": "EngramGate HyperConnectionPostMix HyperConnectionPreMix",
    "linear_algebra": "CDist Inverse",
    "linear_attention": "CausalConvWithState LinearAttention LinearAttentionGate",
    "decoder_attention": "DecoderMaskedMultiHeadAttention",
    "experts": "MoE MoEGroupRouter QMoE",
    "matmul": "FusedGemm FusedMatMul MatMulInteger16 TransposeMatMul",
    "nbits": "GatherBlockQuantized MatMulBnb4 MatMulNBits",
    "ngrams": "NGramHashMapping VarlenNGramHashMapping",
    "normalization": (
        "BranchwiseRMSNorm EmbedLayerNormalization GatedRMSNorm QEmbedLayerNormalization SkipLayerNormalization "
        "SkipSimplifiedLayerNormalization"
    ),
    "packed_rows": "GatherPacked",
    "packed_sequences": "GatedDeltaNet VarlenCausalConvWithState",
    "quantization": (
        "DequantizeLinear DynamicQuantizeMatMul MatMulIntegerToFloat QGemm QLinearAdd QLinearAveragePool "
        "QLinearConcat QLinearConv QLinearGlobalAveragePool QLinearLeakyRelu QLinearMul QLinearSigmoid "
        "QLinearSoftmax QLinearWhere QuantizeLinear"
    ),
    "recurrent": "DynamicQuantizeLSTM",
    "regions": "CropAndResize",
    "rotary": "MRotaryEmbedding RotaryEmbedding",
    "same_as_onnx": "ExpandDims GatherND GridSample Pad Range SampleOp Trilu Unique",
    "search": "BeamSearch GreedySearch Sampling WhisperBeamSearch",
    "self_attention": "Attention QAttention",
    "sparse_attention": "SparseAttention",
    "sparse": "SparseToDenseMatMul",
    "text": "Tokenizer",
    "windows": "MaxpoolWithMask NhwcMaxPool UnfoldTensor",
}
"""The modules of this folder, and the names of the operators that each declares, which are those of its classes."""

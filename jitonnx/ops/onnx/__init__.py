"""ONNX's own operators: domain ai.onnx, which files write as "" too."""

NEWEST = 28
"""The newest operator-set version."""

FAMILIES = {
    "activation": (
        "Celu Elu Gelu HardSigmoid HardSwish LeakyRelu Mish PRelu Relu Selu Shrink Sigmoid Softplus Softsign "
        "SwiGLU Swish Tanh ThresholdedRelu"
    ),
    "arithmetic": (
        "Abs Add BitShift Ceil Clip Div Erf Exp Floor IsInf IsNaN Log Max Mean Min Mod Mul Neg Pow Reciprocal "
        "Round Sign Sqrt Sub Sum"
    ),
    "attention": "Attention RotaryEmbedding",
    "cast": "BitCast Cast CastLike",
    "col2im": "Col2Im",
    "concat_split": "Concat Split",
    "control_flow": "If Loop Scan",
    "convolution": "Conv ConvTranspose",
    "cumulative": "CumProd CumSum",
    "deform_conv": "DeformConv",
    "depth_to_space": "DepthToSpace SpaceToDepth",
    "det": "Det",
    "dropout": "Dropout",
    "einsum": "Einsum",
    "experimental": "Affine Crop DynamicSlice ImageScaler ParametricSoftplus Scale ScaledTanh",
    "gather": "Gather GatherElements GatherND",
    "generators": "ConstantOfShape EyeLike Range",
    "grid_sample": "AffineGrid GridSample",
    "identity": "Identity",
    "images": "ImageDecoder",
    "linear_attention": "CausalConvWithState LinearAttention",
    "logic": (
        "And BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Equal Greater GreaterOrEqual Less LessOrEqual Not Or Where Xor"
    ),
    "loss": "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
    "matmul": "Gemm MatMul",
    "max_unpool": "MaxUnpool",
    "normalization": (
        "BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization LpNormalization "
        "MeanVarianceNormalization RMSNormalization SimplifiedLayerNormalization"
    ),
    "object_detection": "NonMaxSuppression",
    "one_hot": "OneHot",
    "optional": "Optional OptionalGetElement OptionalHasElement",
    "padding": "CenterCropPad Pad",
    "pooling": "AveragePool GlobalAveragePool GlobalLpPool GlobalMaxPool LpPool MaxPool",
    "quantization": (
        "ConvInteger DequantizeLinear DynamicQuantizeLinear MatMulInteger QLinearConv QLinearMatMul QuantizeLinear"
    ),
    "random": "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike",
    "recurrent": "GRU LSTM RNN",
    "reduction": (
        "ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd "
        "ReduceSum ReduceSumSquare"
    ),
    "regions": "MaxRoiPool RoiAlign",
    "resize": "Resize Upsample",
    "reverse_sequence": "ReverseSequence",
    "scatter": "Scatter ScatterElements ScatterND TensorScatter",
    "selection": "Compress NonZero TopK Unique",
    "sequence": (
        "ConcatFromSequence SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert SequenceLength "
        "SequenceMap SplitToSequence"
    ),
    "shape": "Expand Flatten Reshape Shape Size Squeeze Transpose Unsqueeze",
    "slice": "Slice",
    "softmax": "Hardmax LogSoftmax Softmax",
    "spectral": "BlackmanWindow DFT HammingWindow HannWindow MelWeightMatrix STFT",
    "text": "RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer",
    "tile": "Tile",
    "trigonometry": "Acos Acosh Asin Asinh Atan Atanh Cos Cosh Sin Sinh Tan",
    "trilu": "Trilu",
}
"""The modules of this folder, and the names of the operators that each declares, which are those of its classes."""

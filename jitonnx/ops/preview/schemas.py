"""The schemas of domain ai.onnx.preview, which `jitonnx.ops.generate` writes and `jitonnx.ir.schema` reads."""

TYPES = (
    "tensor(bfloat16) tensor(double) tensor(float) tensor(float16)",
)

SCHEMAS = """\
FlexAttention 1 Q:T1 K:T1 V:T1 > Y:T1 | T1=0 | prob_mod:GRAPH scale:FLOAT score_mod:GRAPH softmax_precision:INT
"""

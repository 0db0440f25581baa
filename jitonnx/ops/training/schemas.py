"""The schemas of domain ai.onnx.preview.training, which `jitonnx.ops.generate` writes and `jitonnx.ir.schema` reads."""

TYPES = (
    "tensor(double) tensor(float)",
    "tensor(int64)",
    "tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(double) tensor(float) tensor(float16)",
)

SCHEMAS = """\
Adagrad 1 R:T1 T:T2 inputs**1:T3 > outputs**1:T3 | T1=0 T2=1 T3=0 | decay_factor:FLOAT epsilon:FLOAT norm_coefficient:FLOAT
Adam 1 R:T1 T:T2 inputs**1:T3 > outputs**1:T3 | T1=0 T2=1 T3=0 | alpha:FLOAT beta:FLOAT epsilon:FLOAT norm_coefficient:FLOAT norm_coefficient_post:FLOAT
Gradient 1 Inputs**1:T1 > Outputs**1:T2 | T1=2 T2=3 | xs:STRINGS! y:STRING! zs:STRINGS
Momentum 1 R:T1 T:T2 inputs**1:T3 > outputs**1:T3 | T1=0 T2=1 T3=0 | alpha:FLOAT! beta:FLOAT! mode:STRING! norm_coefficient:FLOAT!
"""

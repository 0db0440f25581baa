"""The schemas of domain ai.onnx, which `jitonnx.ops.generate` writes and `jitonnx.ir.schema` reads."""

TYPES = (
    "tensor(double) tensor(float) tensor(float16)",
    "tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(double) tensor(float) tensor(float16)",
    "tensor(double) tensor(float) tensor(float16) tensor(int32) tensor(int64) tensor(uint32) tensor(uint64)",
    "tensor(bfloat16) tensor(double) tensor(float) tensor(float16) tensor(int32) tensor(int64) tensor(uint32) tensor(uint64)",
    "tensor(int64)",
    "tensor(bool)",
    "tensor(bfloat16) tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(float8e8m0) tensor(int16) tensor(int2) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(uint16) tensor(uint2) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(int32) tensor(int64)",
    "tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(float8e8m0) tensor(int16) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(float8e8m0) tensor(int16) tensor(int2) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint2) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float6e2m3) tensor(float6e3m2) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(float8e8m0) tensor(int16) tensor(int2) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint2) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(float) tensor(float16)",
    "tensor(float)",
    "tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint64)) seq(tensor(uint8))",
    "tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(float8e8m0) tensor(int16) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(float8e8m0) tensor(int16) tensor(int2) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint2) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(uint16) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(uint16) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(float8e8m0) tensor(int16) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(uint16) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(float8e8m0) tensor(int16) tensor(int2) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(uint16) tensor(uint2) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(int8) tensor(uint8)",
    "tensor(int32)",
    "tensor(double) tensor(float) tensor(int32) tensor(int64) tensor(uint32) tensor(uint64)",
    "tensor(int32) tensor(int8) tensor(uint8)",
    "tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int32) tensor(int8) tensor(uint8)",
    "tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int4) tensor(int8) tensor(uint16) tensor(uint4) tensor(uint8)",
    "tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int4) tensor(int8) tensor(uint16) tensor(uint4) tensor(uint8)",
    "tensor(bfloat16) tensor(float) tensor(float16) tensor(float8e8m0)",
    "tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int2) tensor(int32) tensor(int4) tensor(int8) tensor(uint16) tensor(uint2) tensor(uint4) tensor(uint8)",
    "tensor(float4e2m1) tensor(float6e2m3) tensor(float6e3m2) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int2) tensor(int32) tensor(int4) tensor(int8) tensor(uint16) tensor(uint2) tensor(uint4) tensor(uint8)",
    "tensor(bfloat16) tensor(double) tensor(float) tensor(float16) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz)",
    "tensor(uint8)",
    "tensor(bool) tensor(int32) tensor(int64)",
    "seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(int16))) optional(seq(tensor(int32))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint32))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(int16)) optional(tensor(int32)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint32)) optional(tensor(uint64)) optional(tensor(uint8)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(int16))) optional(seq(tensor(int32))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint32))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(int16)) optional(tensor(int32)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint32)) optional(tensor(uint64)) optional(tensor(uint8)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(int16))) optional(seq(tensor(int32))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint32))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(int16)) optional(tensor(int32)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint32)) optional(tensor(uint64)) optional(tensor(uint8)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(int16))) optional(seq(tensor(int32))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint32))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(int16)) optional(tensor(int32)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint32)) optional(tensor(uint64)) optional(tensor(uint8)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(int16))) optional(seq(tensor(int32))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint32))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(int16)) optional(tensor(int32)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint32)) optional(tensor(uint64)) optional(tensor(uint8)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(float8e8m0) tensor(int16) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(int16))) optional(seq(tensor(int32))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint32))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(int16)) optional(tensor(int32)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint32)) optional(tensor(uint64)) optional(tensor(uint8)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(float8e8m0) tensor(int16) tensor(int2) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint2) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "optional(seq(tensor(bfloat16))) optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(int16))) optional(seq(tensor(int32))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint32))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bfloat16)) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(int16)) optional(tensor(int32)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint32)) optional(tensor(uint64)) optional(tensor(uint8)) seq(tensor(bfloat16)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "optional(seq(tensor(bfloat16))) optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(int16))) optional(seq(tensor(int32))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint32))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bfloat16)) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(float8e4m3fn)) optional(tensor(float8e4m3fnuz)) optional(tensor(float8e5m2)) optional(tensor(float8e5m2fnuz)) optional(tensor(int16)) optional(tensor(int32)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint32)) optional(tensor(uint64)) optional(tensor(uint8)) seq(tensor(bfloat16)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(float8e4m3fn)) seq(tensor(float8e4m3fnuz)) seq(tensor(float8e5m2)) seq(tensor(float8e5m2fnuz)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "optional(seq(tensor(bfloat16))) optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(int16))) optional(seq(tensor(int32))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint32))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bfloat16)) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(float8e4m3fn)) optional(tensor(float8e4m3fnuz)) optional(tensor(float8e5m2)) optional(tensor(float8e5m2fnuz)) optional(tensor(int16)) optional(tensor(int32)) optional(tensor(int4)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint32)) optional(tensor(uint4)) optional(tensor(uint64)) optional(tensor(uint8)) seq(tensor(bfloat16)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(float8e4m3fn)) seq(tensor(float8e4m3fnuz)) seq(tensor(float8e5m2)) seq(tensor(float8e5m2fnuz)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int4)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint4)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "optional(seq(tensor(bfloat16))) optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(int16))) optional(seq(tensor(int32))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint32))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bfloat16)) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(float4e2m1)) optional(tensor(float8e4m3fn)) optional(tensor(float8e4m3fnuz)) optional(tensor(float8e5m2)) optional(tensor(float8e5m2fnuz)) optional(tensor(int16)) optional(tensor(int32)) optional(tensor(int4)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint32)) optional(tensor(uint4)) optional(tensor(uint64)) optional(tensor(uint8)) seq(tensor(bfloat16)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(float4e2m1)) seq(tensor(float8e4m3fn)) seq(tensor(float8e4m3fnuz)) seq(tensor(float8e5m2)) seq(tensor(float8e5m2fnuz)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int4)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint4)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "optional(seq(tensor(bfloat16))) optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(int16))) optional(seq(tensor(int32))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint32))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bfloat16)) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(float4e2m1)) optional(tensor(float8e4m3fn)) optional(tensor(float8e4m3fnuz)) optional(tensor(float8e5m2)) optional(tensor(float8e5m2fnuz)) optional(tensor(float8e8m0)) optional(tensor(int16)) optional(tensor(int32)) optional(tensor(int4)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint32)) optional(tensor(uint4)) optional(tensor(uint64)) optional(tensor(uint8)) seq(tensor(bfloat16)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(float4e2m1)) seq(tensor(float8e4m3fn)) seq(tensor(float8e4m3fnuz)) seq(tensor(float8e5m2)) seq(tensor(float8e5m2fnuz)) seq(tensor(float8e8m0)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int4)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint4)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(float8e8m0) tensor(int16) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "optional(seq(tensor(bfloat16))) optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(int16))) optional(seq(tensor(int32))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint32))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bfloat16)) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(float4e2m1)) optional(tensor(float8e4m3fn)) optional(tensor(float8e4m3fnuz)) optional(tensor(float8e5m2)) optional(tensor(float8e5m2fnuz)) optional(tensor(float8e8m0)) optional(tensor(int16)) optional(tensor(int2)) optional(tensor(int32)) optional(tensor(int4)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint2)) optional(tensor(uint32)) optional(tensor(uint4)) optional(tensor(uint64)) optional(tensor(uint8)) seq(tensor(bfloat16)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(float4e2m1)) seq(tensor(float8e4m3fn)) seq(tensor(float8e4m3fnuz)) seq(tensor(float8e5m2)) seq(tensor(float8e5m2fnuz)) seq(tensor(float8e8m0)) seq(tensor(int16)) seq(tensor(int2)) seq(tensor(int32)) seq(tensor(int4)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint2)) seq(tensor(uint32)) seq(tensor(uint4)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(float8e8m0) tensor(int16) tensor(int2) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint2) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(double) tensor(float)",
    "tensor(bfloat16) tensor(float)",
    "tensor(double) tensor(float) tensor(float16) tensor(int8) tensor(uint8)",
    "tensor(bfloat16) tensor(double) tensor(float) tensor(float16) tensor(int8) tensor(uint8)",
    "tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8)",
    "tensor(bfloat16) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8)",
    "optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(int16))) optional(seq(tensor(int32))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint32))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(int16)) optional(tensor(int32)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint32)) optional(tensor(uint64)) optional(tensor(uint8))",
    "seq(tensor(bfloat16)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(float4e2m1)) seq(tensor(float6e2m3)) seq(tensor(float6e3m2)) seq(tensor(float8e4m3fn)) seq(tensor(float8e4m3fnuz)) seq(tensor(float8e5m2)) seq(tensor(float8e5m2fnuz)) seq(tensor(float8e8m0)) seq(tensor(int16)) seq(tensor(int2)) seq(tensor(int32)) seq(tensor(int4)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint2)) seq(tensor(uint32)) seq(tensor(uint4)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float6e2m3) tensor(float6e3m2) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(float8e8m0) tensor(int16) tensor(int2) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint2) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "optional(seq(tensor(bfloat16))) optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(float4e2m1))) optional(seq(tensor(float6e2m3))) optional(seq(tensor(float6e3m2))) optional(seq(tensor(float8e4m3fn))) optional(seq(tensor(float8e4m3fnuz))) optional(seq(tensor(float8e5m2))) optional(seq(tensor(float8e5m2fnuz))) optional(seq(tensor(float8e8m0))) optional(seq(tensor(int16))) optional(seq(tensor(int2))) optional(seq(tensor(int32))) optional(seq(tensor(int4))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint2))) optional(seq(tensor(uint32))) optional(seq(tensor(uint4))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bfloat16)) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(float4e2m1)) optional(tensor(float6e2m3)) optional(tensor(float6e3m2)) optional(tensor(float8e4m3fn)) optional(tensor(float8e4m3fnuz)) optional(tensor(float8e5m2)) optional(tensor(float8e5m2fnuz)) optional(tensor(float8e8m0)) optional(tensor(int16)) optional(tensor(int2)) optional(tensor(int32)) optional(tensor(int4)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint2)) optional(tensor(uint32)) optional(tensor(uint4)) optional(tensor(uint64)) optional(tensor(uint8))",
    "optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(int16))) optional(seq(tensor(int32))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint32))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(int16)) optional(tensor(int32)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint32)) optional(tensor(uint64)) optional(tensor(uint8)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint32) tensor(uint64) tensor(uint8)",
    "optional(seq(tensor(bfloat16))) optional(seq(tensor(bool))) optional(seq(tensor(complex128))) optional(seq(tensor(complex64))) optional(seq(tensor(double))) optional(seq(tensor(float))) optional(seq(tensor(float16))) optional(seq(tensor(float4e2m1))) optional(seq(tensor(float6e2m3))) optional(seq(tensor(float6e3m2))) optional(seq(tensor(float8e4m3fn))) optional(seq(tensor(float8e4m3fnuz))) optional(seq(tensor(float8e5m2))) optional(seq(tensor(float8e5m2fnuz))) optional(seq(tensor(float8e8m0))) optional(seq(tensor(int16))) optional(seq(tensor(int2))) optional(seq(tensor(int32))) optional(seq(tensor(int4))) optional(seq(tensor(int64))) optional(seq(tensor(int8))) optional(seq(tensor(string))) optional(seq(tensor(uint16))) optional(seq(tensor(uint2))) optional(seq(tensor(uint32))) optional(seq(tensor(uint4))) optional(seq(tensor(uint64))) optional(seq(tensor(uint8))) optional(tensor(bfloat16)) optional(tensor(bool)) optional(tensor(complex128)) optional(tensor(complex64)) optional(tensor(double)) optional(tensor(float)) optional(tensor(float16)) optional(tensor(float4e2m1)) optional(tensor(float6e2m3)) optional(tensor(float6e3m2)) optional(tensor(float8e4m3fn)) optional(tensor(float8e4m3fnuz)) optional(tensor(float8e5m2)) optional(tensor(float8e5m2fnuz)) optional(tensor(float8e8m0)) optional(tensor(int16)) optional(tensor(int2)) optional(tensor(int32)) optional(tensor(int4)) optional(tensor(int64)) optional(tensor(int8)) optional(tensor(string)) optional(tensor(uint16)) optional(tensor(uint2)) optional(tensor(uint32)) optional(tensor(uint4)) optional(tensor(uint64)) optional(tensor(uint8)) seq(tensor(bfloat16)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(float4e2m1)) seq(tensor(float6e2m3)) seq(tensor(float6e3m2)) seq(tensor(float8e4m3fn)) seq(tensor(float8e4m3fnuz)) seq(tensor(float8e5m2)) seq(tensor(float8e5m2fnuz)) seq(tensor(float8e8m0)) seq(tensor(int16)) seq(tensor(int2)) seq(tensor(int32)) seq(tensor(int4)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint2)) seq(tensor(uint32)) seq(tensor(uint4)) seq(tensor(uint64)) seq(tensor(uint8)) tensor(bfloat16) tensor(bool) tensor(complex128) tensor(complex64) tensor(double) tensor(float) tensor(float16) tensor(float4e2m1) tensor(float6e2m3) tensor(float6e3m2) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(float8e8m0) tensor(int16) tensor(int2) tensor(int32) tensor(int4) tensor(int64) tensor(int8) tensor(string) tensor(uint16) tensor(uint2) tensor(uint32) tensor(uint4) tensor(uint64) tensor(uint8)",
    "tensor(double) tensor(float) tensor(float16) tensor(int32) tensor(int64)",
    "tensor(bfloat16) tensor(double) tensor(float) tensor(float16) tensor(int32) tensor(int64)",
    "tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int8) tensor(uint8)",
    "tensor(float) tensor(int32)",
    "tensor(bfloat16) tensor(float) tensor(float16) tensor(int32)",
    "tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int4) tensor(int8) tensor(uint16) tensor(uint4) tensor(uint8)",
    "tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int4) tensor(int8) tensor(uint16) tensor(uint4) tensor(uint8)",
    "tensor(bfloat16) tensor(float) tensor(float16) tensor(float8e8m0) tensor(int32)",
    "tensor(float4e2m1) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int2) tensor(int4) tensor(int8) tensor(uint16) tensor(uint2) tensor(uint4) tensor(uint8)",
    "tensor(float4e2m1) tensor(float6e2m3) tensor(float6e3m2) tensor(float8e4m3fn) tensor(float8e4m3fnuz) tensor(float8e5m2) tensor(float8e5m2fnuz) tensor(int16) tensor(int2) tensor(int4) tensor(int8) tensor(uint16) tensor(uint2) tensor(uint4) tensor(uint8)",
    "tensor(double) tensor(float) tensor(int16) tensor(int32) tensor(int64)",
    "tensor(bfloat16) tensor(double) tensor(float) tensor(float16) tensor(int16) tensor(int32) tensor(int64)",
    "tensor(double) tensor(float) tensor(float16) tensor(int32) tensor(int64) tensor(int8) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(double) tensor(float) tensor(float16) tensor(int32) tensor(int64) tensor(int8) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(bfloat16) tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(int32) tensor(int64) tensor(int8) tensor(uint32) tensor(uint64) tensor(uint8)",
    "tensor(string)",
    "seq(tensor(bfloat16)) seq(tensor(bool)) seq(tensor(complex128)) seq(tensor(complex64)) seq(tensor(double)) seq(tensor(float)) seq(tensor(float16)) seq(tensor(int16)) seq(tensor(int32)) seq(tensor(int64)) seq(tensor(int8)) seq(tensor(string)) seq(tensor(uint16)) seq(tensor(uint32)) seq(tensor(uint64)) seq(tensor(uint8))",
    "tensor(int32) tensor(int64) tensor(string)",
    "tensor(bool) tensor(double) tensor(float) tensor(float16) tensor(int32) tensor(int64)",
)

SCHEMAS = """\
Abs 1 X:T > Y:T | T=0 | consumed_inputs:INTS
Abs 6,13 X:T > Y:T | T=1,2 |
Acos,Asin,Atan,Cos,Sin,Tan 7,22 input:T > output:T | T=0,3 |
Acosh,Asinh,Atanh,Cosh,Sinh 9,22 input:T > output:T | T=0,3 |
Add,Div,Mul,Sub 1 A:T B:T > C:T | T=0 | axis:INT broadcast:INT consumed_inputs:INTS
Add,Div,Mul,Sub 6 A:T B:T > C:T | T=4 | axis:INT broadcast:INT
Add,Div,Mul,Sub 7,13,14 A:T B:T > C:T | T=4,5,2 |
Affine,ParametricSoftplus 1 X:T > Y:T | T=0 | alpha:FLOAT beta:FLOAT
Affine,ParametricSoftplus 10- X:T > Y:T | T=0 | alpha:FLOAT beta:FLOAT
AffineGrid 20 theta:T1 size:T2 > grid:T1 | T1=3 T2=6 | align_corners:INT
And,Or,Xor 1 A:T B:T > C:T1 | T=7 T1=7 | axis:INT broadcast:INT
And,Or,Xor 7 A:T B:T > C:T1 | T=7 T1=7 |
ArgMax,ArgMin 1,11 data:T > reduced:tensor(int64) | T=1 | axis:INT keepdims:INT
ArgMax,ArgMin 12,13 data:T > reduced:tensor(int64) | T=1,2 | axis:INT keepdims:INT select_last_index:INT
Attention 23 Q:T1 K:T1 V:T2 attn_mask?:U past_key?:T1 past_value?:T2 > Y:T1 present_key?:T1 present_value?:T2 qk_matmul_output?:T1 | T1=3 T2=3 U=8 | is_causal:INT kv_num_heads:INT q_num_heads:INT qk_matmul_output_mode:INT scale:FLOAT softcap:FLOAT softmax_precision:INT
Attention 24 Q:T1 K:T1 V:T2 attn_mask?:U past_key?:T1 past_value?:T2 nonpad_kv_seqlen?:tensor(int64) > Y:T1 present_key?:T1 present_value?:T2 qk_matmul_output?:T1 | T1=3 T2=3 U=8 | is_causal:INT kv_num_heads:INT q_num_heads:INT qk_matmul_output_mode:INT scale:FLOAT softcap:FLOAT softmax_precision:INT
Attention 25 Q:T1 K:T1 V:T2 attn_mask?:U past_key?:T1 past_value?:T2 nonpad_kv_seqlen?:tensor(int64) > Y:T1 present_key?:T1 present_value?:T2 qk_matmul_output?:T1 | T1=3 T2=3 U=8 | is_causal:INT kv_num_heads:INT left_window_size:INT q_num_heads:INT qk_matmul_output_mode:INT right_window_size:INT scale:FLOAT softcap:FLOAT softmax_precision:INT
AveragePool 1 X:T > Y:T | T=0 | auto_pad:STRING kernel_shape:INTS! pads:INTS strides:INTS
AveragePool 7 X:T > Y:T | T=0 | auto_pad:STRING count_include_pad:INT kernel_shape:INTS! pads:INTS strides:INTS
AveragePool 10,11 X:T > Y:T | T=0 | auto_pad:STRING ceil_mode:INT count_include_pad:INT kernel_shape:INTS! pads:INTS strides:INTS
AveragePool 19,22 X:T > Y:T | T=0,3 | auto_pad:STRING ceil_mode:INT count_include_pad:INT dilations:INTS kernel_shape:INTS! pads:INTS strides:INTS
BatchNormalization 1 X:T scale:T B:T mean:T var:T > Y:T mean?:T var?:T saved_mean?:T saved_var?:T | T=0 | consumed_inputs:INTS! epsilon:FLOAT is_test:INT momentum:FLOAT spatial:INT
BatchNormalization 6 X:T scale:T B:T mean:T var:T > Y:T mean?:T var?:T saved_mean?:T saved_var?:T | T=0 | epsilon:FLOAT is_test:INT momentum:FLOAT spatial:INT
BatchNormalization 7 X:T scale:T B:T mean:T var:T > Y:T mean?:T var?:T saved_mean?:T saved_var?:T | T=0 | epsilon:FLOAT momentum:FLOAT spatial:INT
BatchNormalization 9 X:T scale:T B:T mean:T var:T > Y:T mean?:T var?:T saved_mean?:T saved_var?:T | T=0 | epsilon:FLOAT momentum:FLOAT
BatchNormalization 14 X:T scale:T B:T input_mean:U input_var:U > Y:T running_mean?:U running_var?:U | T=3 U=3 | epsilon:FLOAT momentum:FLOAT training_mode:INT
BatchNormalization 15 X:T scale:T1 B:T1 input_mean:T2 input_var:T2 > Y:T running_mean?:T2 running_var?:T2 | T=3 T1=3 T2=3 | epsilon:FLOAT momentum:FLOAT training_mode:INT
Bernoulli 15,22 input:T1 > output:T2 | T1=0,3 T2=8 | dtype:INT seed:FLOAT
BitCast 26 input:T1 > output:T2 | T1=9 T2=9 | to:INT!
BitShift 11,28 X:T Y:T > Z:T | T=10,11 | direction:STRING!
BitwiseAnd,BitwiseOr,BitwiseXor 18 A:T B:T > C:T | T=11 |
BitwiseNot 18 X:T > Y:T | T=11 |
BlackmanWindow,HammingWindow,HannWindow 17 size:T1 > output:T2 | T1=12 T2=2 | output_datatype:INT periodic:INT
Cast 1 input:T1 > output:T2 | T1=13 T2=13 | to:STRING!
Cast 6,9,13 input:T1 > output:T2 | T1=13,14,15 T2=13,14,15 | to:INT!
Cast 19,21,23 input:T1 > output:T2 | T1=16,17,18 T2=16,17,18 | saturate:INT to:INT!
Cast 24,25,28 input:T1 > output:T2 | T1=19,20,21 T2=19,20,21 | round_mode:STRING saturate:INT to:INT!
CastLike 15 input:T1 target_type:T2 > output:T2 | T1=15 T2=15 |
CastLike 19,21,23 input:T1 target_type:T2 > output:T2 | T1=16,17,18 T2=16,17,18 | saturate:INT
CastLike 24,25 input:T1 target_type:T2 > output:T2 | T1=19,20 T2=19,20 | round_mode:STRING saturate:INT
CausalConvWithState 27 input:T weight:T bias?:T past_state?:T > output:T present_state:T | T=22 | activation:STRING
Ceil,Floor,Reciprocal,Sigmoid,Sqrt 1 X:T > Y:T | T=0 | consumed_inputs:INTS
Ceil,Floor,Reciprocal,Sigmoid,Sqrt 6,13 X:T > Y:T | T=0,3 |
Celu 12,28 X:T > Y:T | T=23,3 | alpha:FLOAT
CenterCropPad 18 input_data:T shape:Tind > output_data:T | T=24 Tind=12 | axes:INTS
Clip 1 input:T > output:T | T=0 | consumed_inputs:INTS max:FLOAT min:FLOAT
Clip 6 input:T > output:T | T=0 | max:FLOAT min:FLOAT
Clip 11,12,13 input:T min?:T max?:T > output:T | T=0,1,2 |
Col2Im 18 input:T image_shape:tensor(int64) block_shape:tensor(int64) > output:T | T=24 | dilations:INTS pads:INTS strides:INTS
Compress 9,11,28 input:T condition:T1 > output:T | T=25,25,24 T1=7 | axis:INT
Concat 1 inputs*1:T > concat_result:T | T=0 | axis:INT
Concat 4,11,13 inputs*1:T > concat_result:T | T=25,25,24 | axis:INT!
ConcatFromSequence 11 input_sequence:S > concat_result:T | S=26 T=25 | axis:INT! new_axis:INT
Constant 1,9  > output:T | T=0,25 | value:TENSOR!
Constant 11  > output:T | T=25 | sparse_value:SPARSE_TENSOR value:TENSOR
Constant 12,13,19,21,23,24,25  > output:T | T=25,24,27,28,29,30,31 | sparse_value:SPARSE_TENSOR value:TENSOR value_float:FLOAT value_floats:FLOATS value_int:INT value_ints:INTS value_string:STRING value_strings:STRINGS
ConstantOfShape 9,20,21,23,24,25 input:T1 > output:T2 | T1=6 T2=13,32,33,34,35,36 | value:TENSOR
Conv 1,11,22 X:T W:T B?:T > Y:T | T=0,0,3 | auto_pad:STRING dilations:INTS group:INT kernel_shape:INTS pads:INTS strides:INTS
ConvInteger 10 x:T1 w:T2 x_zero_point?:T1 w_zero_point?:T2 > y:T3 | T1=37 T2=37 T3=38 | auto_pad:STRING dilations:INTS group:INT kernel_shape:INTS pads:INTS strides:INTS
ConvTranspose 1,11,22 X:T W:T B?:T > Y:T | T=0,0,3 | auto_pad:STRING dilations:INTS group:INT kernel_shape:INTS output_padding:INTS output_shape:INTS pads:INTS strides:INTS
Crop 1 input:T > output:T | T=0 | border:INTS scale:INTS
Crop 10- input:T > output:T | T=0 | border:INTS! scale:INTS
CumProd 26 x:T axis:T2 > y:T | T=5 T2=12 | exclusive:INT reverse:INT
CumSum 11,14 x:T axis:T2 > y:T | T=39,5 T2=12 | exclusive:INT reverse:INT
DFT 17 input:T1 dft_length?:T2 > output:T1 | T1=3 T2=12 | axis:INT inverse:INT onesided:INT
DFT 20 input:T1 dft_length?:T2 axis?:tensor(int64) > output:T1 | T1=3 T2=12 | inverse:INT onesided:INT
DeformConv 19,22 X:T W:T offset:T B?:T mask?:T > Y:T | T=0,3 | dilations:INTS group:INT kernel_shape:INTS offset_group:INT pads:INTS strides:INTS
DepthToSpace 1 input:T > output:T | T=25 | blocksize:INT!
DepthToSpace 11,13,28 input:T > output:T | T=25,24,24 | blocksize:INT! mode:STRING
DequantizeLinear 10 x:T x_scale:tensor(float) x_zero_point?:T > y:tensor(float) | T=40 |
DequantizeLinear 13 x:T x_scale:tensor(float) x_zero_point?:T > y:tensor(float) | T=40 | axis:INT
DequantizeLinear 19 x:T1 x_scale:T2 x_zero_point?:T1 > y:T2 | T1=41 T2=22 | axis:INT
DequantizeLinear 21 x:T1 x_scale:T2 x_zero_point?:T1 > y:T2 | T1=42 T2=22 | axis:INT block_size:INT
DequantizeLinear 23,24,25,28 x:T1 x_scale:T2 x_zero_point?:T1 > y:T3 | T1=43,43,45,46 T2=22,44,44,44 T3=22 | axis:INT block_size:INT output_dtype:INT
Det,Round 11,22 X:T > Y:T | T=0,3 |
Dropout 1 data:T > output:T mask?:T | T=0 | consumed_inputs:INTS is_test:INT ratio:FLOAT
Dropout 6 data:T > output:T mask?:T | T=0 | is_test:INT ratio:FLOAT
Dropout 7 data:T > output:T mask?:T | T=0 | ratio:FLOAT
Dropout 10 data:T > output:T mask?:T1 | T=0 T1=7 | ratio:FLOAT
Dropout 12,13,22 data:T ratio?:T1 training_mode?:T2 > output:T mask?:T2 | T=0,3,47 T1=0,0,47 T2=7 | seed:INT
DynamicQuantizeLinear 11 x:T1 > y:T2 y_scale:tensor(float) y_zero_point:T2 | T1=23 T2=48 |
DynamicSlice 1 data:T starts:Tind ends:Tind axes?:Tind > output:T | T=25 Tind=12 |
DynamicSlice 10- data:T starts:Tind ends:Tind axes?:Tind > output:T | T=25 Tind=12 |
Einsum 12,28 Inputs*1:T > Output:T | T=1,2 | equation:STRING!
Elu 1 X:T > Y:T | T=0 | alpha:FLOAT consumed_inputs:INTS
Elu 6,22 X:T > Y:T | T=0,3 | alpha:FLOAT
Equal 1 A:T B:T > C:T1 | T=49 T1=7 | axis:INT broadcast:INT
Equal 7,11,13,19 A:T B:T > C:T1 | T=49,13,8,15 T1=7 |
Erf 9,13 input:T > output:T | T=1,3 |
Exp,Log,Tanh 1 input:T > output:T | T=0 | consumed_inputs:INTS
Exp,Log,Tanh 6,13 input:T > output:T | T=0,3 |
Expand 8,13 input:T shape:tensor(int64) > output:T | T=25,24 |
EyeLike 9,22 input:T1 > output:T2 | T1=13,8 T2=13,8 | dtype:INT k:INT
Flatten 1,9,11,13,21,23,24,25 input:T > output:T | T=0,25,25,24,28,29,30,31 | axis:INT
GRU 1 X:T W:T R:T B?:T sequence_lens?:T1 initial_h?:T > Y?:T Y_h:T | T=0 T1=38 | activation_alpha:FLOATS activation_beta:FLOATS activations:STRINGS clip:FLOAT direction:STRING hidden_size:INT output_sequence:INT
GRU 3 X:T W:T R:T B?:T sequence_lens?:T1 initial_h?:T > Y?:T Y_h?:T | T=0 T1=38 | activation_alpha:FLOATS activation_beta:FLOATS activations:STRINGS clip:FLOAT direction:STRING hidden_size:INT linear_before_reset:INT output_sequence:INT
GRU 7 X:T W:T R:T B?:T sequence_lens?:T1 initial_h?:T > Y?:T Y_h?:T | T=0 T1=38 | activation_alpha:FLOATS activation_beta:FLOATS activations:STRINGS clip:FLOAT direction:STRING hidden_size:INT linear_before_reset:INT
GRU 14,22 X:T W:T R:T B?:T sequence_lens?:T1 initial_h?:T > Y?:T Y_h?:T | T=0,3 T1=38 | activation_alpha:FLOATS activation_beta:FLOATS activations:STRINGS clip:FLOAT direction:STRING hidden_size:INT layout:INT linear_before_reset:INT
Gather 1,11,13 data:T indices:Tind > output:T | T=25,25,24 Tind=12 | axis:INT
GatherElements 11,13 data:T indices:Tind > output:T | T=25,24 Tind=12 | axis:INT
GatherND 11 data:T indices:tensor(int64) > output:T | T=25 |
GatherND 12,13 data:T indices:tensor(int64) > output:T | T=25,24 | batch_dims:INT
Gelu 20 X:T > Y:T | T=3 | approximate:STRING
Gemm 1,6 A:T B:T C:T > Y:T | T=0 | alpha:FLOAT beta:FLOAT broadcast:INT transA:INT transB:INT
Gemm 7,9 A:T B:T C:T > Y:T | T=0,4 | alpha:FLOAT beta:FLOAT transA:INT transB:INT
Gemm 11,13 A:T B:T C?:T > Y:T | T=4,5 | alpha:FLOAT beta:FLOAT transA:INT transB:INT
GlobalAveragePool,GlobalMaxPool,Softplus 1,22 X:T > Y:T | T=0,3 |
GlobalLpPool 1 X:T > Y:T | T=0 | p:FLOAT
GlobalLpPool 2,22 X:T > Y:T | T=0,3 | p:INT
Greater,Less 1 A:T B:T > C:T1 | T=0 T1=7 | axis:INT broadcast:INT
Greater,Less 7,9,13 A:T B:T > C:T1 | T=0,1,2 T1=7 |
GreaterOrEqual,LessOrEqual 12,16 A:T B:T > C:T1 | T=1,2 T1=7 |
GridSample 16,20,22 X:T1 grid:T2 > Y:T1 | T1=25,25,24 T2=0,0,3 | align_corners:INT mode:STRING padding_mode:STRING
GroupNormalization 18- X:T scale:T bias:T > Y:T | T=3 | epsilon:FLOAT num_groups:INT!
GroupNormalization 21 X:T scale:T bias:T > Y:T | T=3 | epsilon:FLOAT num_groups:INT! stash_type:INT
HardSigmoid 1 X:T > Y:T | T=0 | alpha:FLOAT beta:FLOAT consumed_inputs:INTS
HardSigmoid 6,22 X:T > Y:T | T=0,3 | alpha:FLOAT beta:FLOAT
HardSwish 14,22 X:T > Y:T | T=0,3 |
Hardmax,LogSoftmax,Softmax 1,11,13 input:T > output:T | T=0,0,3 | axis:INT
Identity 1,13 input:T > output:T | T=25,24 |
Identity 14,16,19,21,23,24,25 input:V > output:V | V=50,51,52,53,54,55,56 |
If 1,11,13,16,19,21,23,24,25 cond:B > outputs**1:V | V=25,25,57,58,59,60,61,62,63 B=7 | else_branch:GRAPH! then_branch:GRAPH!
ImageDecoder 20 encoded_stream:T1 > image:T2 | T1=48 T2=48 | pixel_format:STRING
ImageScaler 1 input:T > output:T | T=0 | bias:FLOATS scale:FLOAT
ImageScaler 10- input:T > output:T | T=0 | bias:FLOATS scale:FLOAT
InstanceNormalization 1 input:T scale:T B:T > output:T | T=0 | consumed_inputs:INTS epsilon:FLOAT
InstanceNormalization 6,22 input:T scale:T B:T > output:T | T=0,3 | epsilon:FLOAT
IsInf 10,20 X:T1 > Y:T2 | T1=64,47 T2=7 | detect_negative:INT detect_positive:INT
IsNaN 9,13,20 X:T1 > Y:T2 | T1=0,3,47 T2=7 |
LRN 1,13 X:T > Y:T | T=0,3 | alpha:FLOAT beta:FLOAT bias:FLOAT size:INT!
LSTM 1 X:T W:T R:T B?:T sequence_lens?:T1 initial_h?:T initial_c?:T P?:T > Y?:T Y_h?:T Y_c?:T | T=0 T1=38 | activation_alpha:FLOATS activation_beta:FLOATS activations:STRINGS clip:FLOAT direction:STRING hidden_size:INT input_forget:INT output_sequence:INT
LSTM 7 X:T W:T R:T B?:T sequence_lens?:T1 initial_h?:T initial_c?:T P?:T > Y?:T Y_h?:T Y_c?:T | T=0 T1=38 | activation_alpha:FLOATS activation_beta:FLOATS activations:STRINGS clip:FLOAT direction:STRING hidden_size:INT input_forget:INT
LSTM 14,22 X:T W:T R:T B?:T sequence_lens?:T1 initial_h?:T initial_c?:T P?:T > Y?:T Y_h?:T Y_c?:T | T=0,3 T1=38 | activation_alpha:FLOATS activation_beta:FLOATS activations:STRINGS clip:FLOAT direction:STRING hidden_size:INT input_forget:INT layout:INT
LayerNormalization 1 X:T Scale:V B?:V > Y:V Mean?:U InvStdDev?:U | T=3 U=64 V=3 | axis:INT epsilon:FLOAT stash_type:INT
LayerNormalization 17 X:T Scale:T B?:T > Y:T Mean?:U InvStdDev?:U | T=3 U=65 | axis:INT epsilon:FLOAT stash_type:INT
LeakyRelu 1 X:T > Y:T | T=0 | alpha:FLOAT consumed_inputs:INTS
LeakyRelu 6,16 X:T > Y:T | T=0,3 | alpha:FLOAT
LinearAttention 27 query:T key:T value:T past_state?:S decay?:T beta?:T > output:T present_state:S | T=22 S=22 | chunk_size:INT kv_num_heads:INT! q_num_heads:INT! scale:FLOAT update_rule:STRING
Loop 1 M?:I cond?:B v_initial**1:V > v_final_and_scan_outputs**1:V | V=25 I=6 B=7 | body:GRAPH!
Loop 11,13,16,19,21,23,24,25 M?:I cond?:B v_initial**0:V > v_final_and_scan_outputs**1:V | V=25,57,58,59,60,61,62,63 I=6 B=7 | body:GRAPH!
LpNormalization 1,22 input:T > output:T | T=0,3 | axis:INT p:INT
LpPool 1 X:T > Y:T | T=0 | auto_pad:STRING kernel_shape:INTS p:FLOAT pads:INTS strides:INTS
LpPool 2,11 X:T > Y:T | T=0 | auto_pad:STRING kernel_shape:INTS! p:INT pads:INTS strides:INTS
LpPool 18,22 X:T > Y:T | T=0,3 | auto_pad:STRING ceil_mode:INT dilations:INTS kernel_shape:INTS! p:INT pads:INTS strides:INTS
MatMul 1,9,13 A:T B:T > Y:T | T=0,4,5 |
MatMulInteger 10 A:T1 B:T2 a_zero_point?:T1 b_zero_point?:T2 > Y:T3 | T1=37 T2=37 T3=38 |
Max 1 data_0*1:T > max:T | T=0 | consumed_inputs:INTS
Max 6,8,12,13 data_0*1:T > max:T | T=0,0,1,2 |
MaxPool 1 X:T > Y:T | T=0 | auto_pad:STRING kernel_shape:INTS! pads:INTS strides:INTS
MaxPool 8 X:T > Y:T Indices?:I | T=0 I=6 | auto_pad:STRING kernel_shape:INTS! pads:INTS storage_order:INT strides:INTS
MaxPool 10,11,12,22 X:T > Y:T Indices?:I | T=0,0,66,67 I=6 | auto_pad:STRING ceil_mode:INT dilations:INTS kernel_shape:INTS! pads:INTS storage_order:INT strides:INTS
MaxRoiPool 1,22 X:T rois:T > Y:T | T=0,3 | pooled_shape:INTS! spatial_scale:FLOAT
MaxUnpool 9,11,22 X:T1 I:T2 output_shape?:T2 > output:T1 | T1=0,0,3 T2=6 | kernel_shape:INTS! pads:INTS strides:INTS
Mean 1 data_0*1:T > mean:T | T=0 | consumed_inputs:INTS
Mean 6,8,13 data_0*1:T > mean:T | T=0,0,3 |
MeanVarianceNormalization 1 input:T > output:T | T=0 | across_channels:INT normalize_variance:INT
MeanVarianceNormalization 9,13 X:T > Y:T | T=0,3 | axes:INTS
MelWeightMatrix 17 num_mel_bins:T1 dft_length:T1 sample_rate:T1 lower_edge_hertz:T2 upper_edge_hertz:T2 > output:T3 | T1=12 T2=3 T3=2 | output_datatype:INT
Min 1 data_0*1:T > min:T | T=0 | consumed_inputs:INTS
Min 6,8,12,13 data_0*1:T > min:T | T=0,0,1,2 |
Mish 18,22 X:T > Y:T | T=0,3 |
Mod 10,13,28 A:T B:T > C:T | T=1,2,2 | fmod:INT
Multinomial 7,22 input:T1 > output:T2 | T1=0,3 T2=12 | dtype:INT sample_size:INT seed:FLOAT
Neg 1 X:T > Y:T | T=0 | consumed_inputs:INTS
Neg 6,13 X:T > Y:T | T=68,69 |
NegativeLogLikelihoodLoss 12,13,22 input:T target:Tind weight?:T > loss:T | T=0,0,3 Tind=12 | ignore_index:INT reduction:STRING
NonMaxSuppression 10,11 boxes:tensor(float) scores:tensor(float) max_output_boxes_per_class?:tensor(int64) iou_threshold?:tensor(float) score_threshold?:tensor(float) > selected_indices:tensor(int64) |  | center_point_box:INT
NonZero 9,13 X:T > Y:tensor(int64) | T=25,24 |
Not 1 X:T > Y:T | T=7 |
OneHot 9,11,28 indices:T1 depth:T2 values:T3 > output:T3 | T1=1 T2=1 T3=25,25,24 | axis:INT
Optional 15,28 input?:V > output:O | V=57,71 O=70,72 | type:TYPE_PROTO
OptionalGetElement 15,18,28 input:O > output:V | O=70,73,74 V=57,57,71 |
OptionalHasElement 15 input:O > output:B | O=70 B=7 |
OptionalHasElement 18,28 input?:O > output:B | O=73,74 B=7 |
PRelu 1 X:T slope:T > Y:T | T=0 | consumed_inputs:INTS
PRelu 6,7,9,16 X:T slope:T > Y:T | T=0,0,4,5 |
Pad 1 data:T > output:T | T=0 | mode:STRING paddings:INTS! value:FLOAT
Pad 2 data:T > output:T | T=0 | mode:STRING pads:INTS! value:FLOAT
Pad 11,13 data:T pads:tensor(int64) constant_value?:T > output:T | T=1,24 | mode:STRING
Pad 18,19,21,23,24,25 data:T pads:tensor(int64) constant_value?:T axes?:Tind > output:T | T=24,24,28,29,30,31 Tind=12 | mode:STRING
Pow 1 X:T Y:T > Z:T | T=0 | axis:INT broadcast:INT
Pow 7 X:T Y:T > Z:T | T=0 |
Pow 12,13,15 X:T Y:T1 > Z:T | T=75,76,76 T1=1,1,2 |
QLinearConv 10 x:T1 x_scale:tensor(float) x_zero_point:T1 w:T2 w_scale:tensor(float) w_zero_point:T2 y_scale:tensor(float) y_zero_point:T3 B?:T4 > y:T3 | T1=37 T2=37 T3=37 T4=38 | auto_pad:STRING dilations:INTS group:INT kernel_shape:INTS pads:INTS strides:INTS
QLinearMatMul 10 a:T1 a_scale:tensor(float) a_zero_point:T1 b:T2 b_scale:tensor(float) b_zero_point:T2 y_scale:tensor(float) y_zero_point:T3 > y:T3 | T1=37 T2=37 T3=37 |
QLinearMatMul 21 a:T1 a_scale:TS a_zero_point:T1 b:T2 b_scale:TS b_zero_point:T2 y_scale:TS y_zero_point:T3 > y:T3 | TS=22 T1=77 T2=77 T3=77 |
QuantizeLinear 10 x:T1 y_scale:tensor(float) y_zero_point?:T2 > y:T2 | T1=78 T2=37 |
QuantizeLinear 13 x:T1 y_scale:tensor(float) y_zero_point?:T2 > y:T2 | T1=78 T2=37 | axis:INT
QuantizeLinear 19 x:T1 y_scale:T1 y_zero_point?:T2 > y:T2 | T1=79 T2=77 | axis:INT saturate:INT
QuantizeLinear 21 x:T1 y_scale:T1 y_zero_point?:T2 > y:T2 | T1=79 T2=80 | axis:INT block_size:INT output_dtype:INT saturate:INT
QuantizeLinear 23,24,25,28 x:T1 y_scale:T2 y_zero_point?:T3 > y:T3 | T1=79 T2=79,82,82,82 T3=81,81,83,84 | axis:INT block_size:INT output_dtype:INT precision:INT saturate:INT
RMSNormalization 23 X:T scale:V > Y:V | T=3 V=3 | axis:INT epsilon:FLOAT stash_type:INT
RNN 1 X:T W:T R:T B?:T sequence_lens?:T1 initial_h?:T > Y?:T Y_h?:T | T=0 T1=38 | activation_alpha:FLOATS activation_beta:FLOATS activations:STRINGS clip:FLOAT direction:STRING hidden_size:INT output_sequence:INT
RNN 7 X:T W:T R:T B?:T sequence_lens?:T1 initial_h?:T > Y?:T Y_h?:T | T=0 T1=38 | activation_alpha:FLOATS activation_beta:FLOATS activations:STRINGS clip:FLOAT direction:STRING hidden_size:INT
RNN 14,22 X:T W:T R:T B?:T sequence_lens?:T1 initial_h?:T > Y?:T Y_h?:T | T=0,3 T1=38 | activation_alpha:FLOATS activation_beta:FLOATS activations:STRINGS clip:FLOAT direction:STRING hidden_size:INT layout:INT
RandomNormal 1,22  > output:T | T=0,3 | dtype:INT mean:FLOAT scale:FLOAT seed:FLOAT shape:INTS!
RandomNormalLike 1,22 input:T1 > output:T2 | T1=25,24 T2=0,3 | dtype:INT mean:FLOAT scale:FLOAT seed:FLOAT
RandomUniform 1,22  > output:T | T=0,3 | dtype:INT high:FLOAT low:FLOAT seed:FLOAT shape:INTS!
RandomUniformLike 1,22 input:T1 > output:T2 | T1=25,24 T2=0,3 | dtype:INT high:FLOAT low:FLOAT seed:FLOAT
Range 11 start:T limit:T delta:T > output:T | T=85 |
Range 27 start:T limit:T delta:T > output:T | T=86 | stash_type:INT
ReduceL1,ReduceL2,ReduceMean,ReduceProd,ReduceSumSquare 1,11,13 data:T > reduced:T | T=4,4,5 | axes:INTS keepdims:INT
ReduceL1,ReduceL2,ReduceMean,ReduceProd,ReduceSumSquare 18 data:T axes?:tensor(int64) > reduced:T | T=5 | keepdims:INT noop_with_empty_axes:INT
ReduceLogSum,ReduceLogSumExp 1,11,13 data:T > reduced:T | T=4,4,5 | axes:INTS keepdims:INT
ReduceLogSum,ReduceLogSumExp 18,28 data:T axes?:tensor(int64) > reduced:T | T=5,3 | keepdims:INT noop_with_empty_axes:INT
ReduceMax,ReduceMin 1,11,12,13 data:T > reduced:T | T=4,4,87,88 | axes:INTS keepdims:INT
ReduceMax,ReduceMin 18,20 data:T axes?:tensor(int64) > reduced:T | T=88,89 | keepdims:INT noop_with_empty_axes:INT
ReduceSum 1,11 data:T > reduced:T | T=4 | axes:INTS keepdims:INT
ReduceSum 13 data:T axes?:tensor(int64) > reduced:T | T=5 | keepdims:INT noop_with_empty_axes:INT
RegexFullMatch 20 X:T1 > Y:T2 | T1=90 T2=7 | pattern:STRING
Relu 1 X:T > Y:T | T=0 | consumed_inputs:INTS
Relu 6,13,14 X:T > Y:T | T=0,3,69 |
Reshape 1 data:T > reshaped:T | T=0 | consumed_inputs:INTS shape:INTS
Reshape 5,13 data:T shape:tensor(int64) > reshaped:T | T=25,24 |
Reshape 14,19,21,23,24,25 data:T shape:tensor(int64) > reshaped:T | T=24,27,28,29,30,31 | allowzero:INT
Resize 10 X:T scales:tensor(float) > Y:T | T=25 | mode:STRING
Resize 11 X:T1 roi:T2 scales:tensor(float) sizes?:tensor(int64) > Y:T1 | T1=25 T2=0 | coordinate_transformation_mode:STRING cubic_coeff_a:FLOAT exclude_outside:INT extrapolation_value:FLOAT mode:STRING nearest_mode:STRING
Resize 13 X:T1 roi?:T2 scales?:tensor(float) sizes?:tensor(int64) > Y:T1 | T1=24 T2=0 | coordinate_transformation_mode:STRING cubic_coeff_a:FLOAT exclude_outside:INT extrapolation_value:FLOAT mode:STRING nearest_mode:STRING
Resize 18,19 X:T1 roi?:T2 scales?:tensor(float) sizes?:tensor(int64) > Y:T1 | T1=24 T2=0 | antialias:INT axes:INTS coordinate_transformation_mode:STRING cubic_coeff_a:FLOAT exclude_outside:INT extrapolation_value:FLOAT keep_aspect_ratio_policy:STRING mode:STRING nearest_mode:STRING
ReverseSequence 10,28 input:T sequence_lens:tensor(int64) > Y:T | T=25,24 | batch_axis:INT time_axis:INT
RoiAlign 10 X:T1 rois:T1 batch_indices:T2 > Y:T1 | T1=0 T2=6 | mode:STRING output_height:INT output_width:INT sampling_ratio:INT spatial_scale:FLOAT
RoiAlign 16,22 X:T1 rois:T1 batch_indices:T2 > Y:T1 | T1=0,3 T2=6 | coordinate_transformation_mode:STRING mode:STRING output_height:INT output_width:INT sampling_ratio:INT spatial_scale:FLOAT
RotaryEmbedding 23 X:T cos_cache:T sin_cache:T position_ids?:M > Y:T | T=22 M=6 | interleaved:INT num_heads:INT rotary_embedding_dim:INT
STFT 17 signal:T1 frame_step:T2 window?:T1 frame_length?:T2 > output:T1 | T1=3 T2=12 | onesided:INT
Scale 1 input:T > output:T | T=0 | scale:FLOAT
Scale 10- input:T > output:T | T=0 | scale:FLOAT
ScaledTanh 1 input:T > output:T | T=0 | alpha:FLOAT beta:FLOAT
ScaledTanh 10- input:T > output:T | T=0 | alpha:FLOAT beta:FLOAT
Scan 8 sequence_lens?:I initial_state_and_scan_inputs**1:V > final_state_and_scan_outputs**1:V | I=6 V=25 | body:GRAPH! directions:INTS num_scan_inputs:INT!
Scan 9,11,16,19,21,23,24,25 initial_state_and_scan_inputs**1:V > final_state_and_scan_outputs**1:V | V=25,25,24,27,28,29,30,31 | body:GRAPH! num_scan_inputs:INT! scan_input_axes:INTS scan_input_directions:INTS scan_output_axes:INTS scan_output_directions:INTS
Scatter 9 data:T indices:Tind updates:T > output:T | T=25 Tind=12 | axis:INT
Scatter 11- data:T indices:Tind updates:T > output:T | T=25 Tind=12 | axis:INT
ScatterElements 11,13 data:T indices:Tind updates:T > output:T | T=25,24 Tind=12 | axis:INT
ScatterElements 16,18 data:T indices:Tind updates:T > output:T | T=24 Tind=12 | axis:INT reduction:STRING
ScatterND 11,13 data:T indices:tensor(int64) updates:T > output:T | T=25,24 |
ScatterND 16,18 data:T indices:tensor(int64) updates:T > output:T | T=24 | reduction:STRING
Selu 1 X:T > Y:T | T=0 | alpha:FLOAT consumed_inputs:INTS gamma:FLOAT
Selu 6,22 X:T > Y:T | T=0,3 | alpha:FLOAT gamma:FLOAT
SequenceAt 11 input_sequence:S position:I > tensor:T | S=26 T=25 I=12 |
SequenceConstruct 11 inputs*1:T > output_sequence:S | T=25 S=26 |
SequenceEmpty 11  > output:S | S=26 | dtype:INT
SequenceErase 11 input_sequence:S position?:I > output_sequence:S | S=26 I=12 |
SequenceInsert 11 input_sequence:S tensor:T position?:I > output_sequence:S | T=25 S=26 I=12 |
SequenceLength 11 input_sequence:S > length:I | S=26 I=6 |
SequenceMap 17 input_sequence:S additional_inputs**0:V > out_sequence**1:S | S=26 V=57 | body:GRAPH!
Shape 1,13 data:T > shape:T1 | T=25,24 T1=6 |
Shape 15,19,21,23,24,25 data:T > shape:T1 | T=24,27,28,29,30,31 T1=6 | end:INT start:INT
Shrink 9 input:T > output:T | T=1 | bias:FLOAT lambd:FLOAT
Sign 9,13 input:T > output:T | T=1,2 |
SimplifiedLayerNormalization 1 X:T scale:V > Y:V inv_std_var?:U | T=3 U=64 V=3 | axis:INT epsilon:FLOAT stash_type:INT
Size 1,13,19,21,23,24,25 data:T > size:T1 | T=25,24,27,28,29,30,31 T1=6 |
Slice 1 data:T > output:T | T=25 | axes:INTS ends:INTS! starts:INTS!
Slice 10,11,13 data:T starts:Tind ends:Tind axes?:Tind steps?:Tind > output:T | T=25,25,24 Tind=12 |
SoftmaxCrossEntropyLoss 12,13 scores:T labels:Tind weights?:T > output:T log_prob?:T | T=0,3 Tind=12 | ignore_index:INT reduction:STRING
Softsign 1,22 input:T > output:T | T=0,3 |
SpaceToDepth 1,13 input:T > output:T | T=25,24 | blocksize:INT!
SpaceToDepth 28 input:T > output:T | T=24 | blocksize:INT! mode:STRING
Split 1 input:T split?:T > outputs...*1:T | T=0 | axis:INT split:INTS
Split 2,11 input:T > outputs*1:T | T=25 | axis:INT split:INTS
Split 13 input:T split?:tensor(int64) > outputs*1:T | T=24 | axis:INT
Split 18 input:T split?:tensor(int64) > outputs*1:T | T=24 | axis:INT num_outputs:INT
SplitToSequence 11,24 input:T split?:I > output_sequence:S | T=25,24 I=12 S=26,91 | axis:INT keepdims:INT
Squeeze 1,11 data:T > squeezed:T | T=25 | axes:INTS
Squeeze 13,21,23,24,25 data:T axes?:tensor(int64) > squeezed:T | T=24,28,29,30,31 |
StringConcat 20 X:T Y:T > Z:T | T=90 |
StringNormalizer 10 X:tensor(string) > Y:tensor(string) |  | case_change_action:STRING is_case_sensitive:INT locale:STRING stopwords:STRINGS
StringSplit 20 X:T1 > Y:T2 Z:T3 | T1=90 T2=90 T3=6 | delimiter:STRING maxsplit:INT
Sum 1 data_0*1:T > sum:T | T=0 | consumed_inputs:INTS
Sum 6,8,13 data_0*1:T > sum:T | T=0,0,3 |
SwiGLU 28 A:T B:T > Y:T | T=3 | alpha:FLOAT
Swish 24 X:T > Y:T | T=3 | alpha:FLOAT
TensorScatter 24 past_cache:T update:T write_indices?:tensor(int64) > present_cache:T | T=30 | axis:INT mode:STRING
TfIdfVectorizer 9 X:T > Y:T1 | T=92 T1=23 | max_gram_length:INT! max_skip_count:INT! min_gram_length:INT! mode:STRING! ngram_counts:INTS! ngram_indexes:INTS! pool_int64s:INTS pool_strings:STRINGS weights:FLOATS
ThresholdedRelu 1,10,22 X:T > Y:T | T=0,0,3 | alpha:FLOAT
Tile 1 input:T tiles:T axis:T > output:T | T=0 T1=6 |
Tile 6,13 input:T repeats:T1 > output:T | T=25,24 T1=6 |
TopK 1 X:T > Values:T Indices:I | T=0 I=6 | axis:INT k:INT!
TopK 10 X:T K:tensor(int64) > Values:T Indices:I | T=0 I=6 | axis:INT
TopK 11,24 X:T K:tensor(int64) > Values:T Indices:I | T=1,2 I=6 | axis:INT largest:INT sorted:INT
Transpose 1,13,21,23,24,25 data:T > transposed:T | T=25,24,28,29,30,31 | perm:INTS
Trilu 14 input:T k?:tensor(int64) > output:T | T=24 | upper:INT
Unique 11,28 X:T > Y:T indices?:tensor(int64) inverse_indices?:tensor(int64) counts?:tensor(int64) | T=25,24 | axis:INT sorted:INT
Unsqueeze 1,11 data:T > expanded:T | T=25 | axes:INTS!
Unsqueeze 13,21,23,24,25 data:T axes:tensor(int64) > expanded:T | T=24,28,29,30,31 |
Upsample 1 X:T > Y:T | T=93 | height_scale:FLOAT! mode:STRING width_scale:FLOAT!
Upsample 7 X:T > Y:T | T=25 | mode:STRING scales:FLOATS!
Upsample 9 X:T scales:tensor(float) > Y:T | T=25 | mode:STRING
Upsample 10- X:T scales:tensor(float) > Y:T | T=25 | mode:STRING
Where 9,16 condition:B X:T Y:T > output:T | B=7 T=25,24 |
"""

"""jitonnx runs ONNX models on CPUs: it compiles each model to native code through Numba and llvmlite."""

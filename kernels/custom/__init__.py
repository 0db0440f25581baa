"""Users' kernels: functions over arrays that Numba compiled (`jitonnx.custom.kernel`)."""

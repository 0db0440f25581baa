"""Convolutions: direct (implicit GEMM), transposed, depthwise. `spec` plans and packs without Numba; `kernel` builds code."""

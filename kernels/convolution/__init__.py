"""Convolutions: direct (implicit GEMM), transposed, depthwise. `spec` plans and packs, `kernel` builds the code."""

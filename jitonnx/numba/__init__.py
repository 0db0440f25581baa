"""Users' scalar functions: compiled by Numba, and translated from its LLVM IR to expressions of ours."""

"""The runtime's native functions, written with the builder of LLVM IR that kernels have, too.

`driver` imports this package only when their object code is not in the kernel cache, so a warm start builds nothing.
What each function does is written above it as C; the IR is a transcription.
"""

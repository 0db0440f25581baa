"""The language in which kernels are written: traced values, types, loops, and the LLVM module that they become."""

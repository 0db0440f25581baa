"""From a plan's kernels to object code: source, lowering through Numba, optimisation, the kernel cache."""

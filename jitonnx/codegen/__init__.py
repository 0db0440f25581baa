"""From a plan's kernels to object code: code, optimisation, the kernel cache."""

"""Makes object code of a plan's kernels: code, optimisation, the kernel cache."""

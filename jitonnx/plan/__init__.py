"""Makes a plan of statements: what is fused, which kernels run, where values lie, how work is split."""

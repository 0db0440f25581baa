"""From statements to a plan: what is fused, which kernels run, where values lie, how work is split."""

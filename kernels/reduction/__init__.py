"""Reductions of one axis: sums, means, norms, extremes and where they are."""

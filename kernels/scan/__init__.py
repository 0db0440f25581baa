"""Scans: sums and products of all elements up to each one along an axis."""

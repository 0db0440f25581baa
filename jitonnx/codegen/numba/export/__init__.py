"""Whole models as Python packages that need NumPy and Numba alone: a kernel for each region, and what calls them."""

"""Regions as Numba kernels: sources that people read, written from regions' computations, and compiled by Numba."""

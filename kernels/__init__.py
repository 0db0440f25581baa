"""The hand-written kernel library. This module and those without Numba (packing) import nothing heavy."""

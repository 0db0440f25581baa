"""Users' scalar functions: compiled by Numba, translated to expressions of ours, kept on disk."""

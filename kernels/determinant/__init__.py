"""Determinants of matrices: Det."""

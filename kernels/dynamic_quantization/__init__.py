"""Quantising by the least and the largest element, which only a run tells."""

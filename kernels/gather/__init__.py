"""Gather, GatherND and GatherElements: elements or runs of a tensor taken by index."""

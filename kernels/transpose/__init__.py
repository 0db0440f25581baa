"""Copies between tensors whose axes lie in memory in another order."""

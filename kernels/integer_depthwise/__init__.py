"""Depthwise convolutions of 8-bit integers."""

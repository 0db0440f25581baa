"""Pooling over windows of channels-last tensors: maximum (with or without indices), average, Lp norm."""

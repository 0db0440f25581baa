"""Pooling over windows: maximum (with or without indices), average, Lp norm; channels-last, or in planes."""

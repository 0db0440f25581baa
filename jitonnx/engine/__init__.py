"""Engines: what makes programs of a model's graph, shape by shape, and runs them."""

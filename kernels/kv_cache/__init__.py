"""Caches of keys and values: what a step adds to them."""

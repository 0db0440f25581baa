"""Caches of keys and values that hold the last positions alone: what a step adds to them and drops."""

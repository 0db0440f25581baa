"""Bytes by a table of 256."""

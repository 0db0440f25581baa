"""Blocks of an image added up where they overlap: Col2Im."""

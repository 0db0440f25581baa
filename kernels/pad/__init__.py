"""Pad: elements added before and after, or cut, along axes."""

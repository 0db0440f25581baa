"""Compiled models in files: written by a session, opened by the next one in place of an engine."""

"""Conditions that only data shows and under which a run is an error: a division by an integer 0."""

"""Resampling: output elements as weighted sums of input elements, by tables made for each axis."""

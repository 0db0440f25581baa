"""Elementary functions on vectors, with their error bounds; vecmath offers them all."""

"""Products with constant matrices of 2, 4 or 8 bits, which have a scale for each block of a column."""

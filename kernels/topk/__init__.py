"""TopK: the largest or smallest elements of rows, in order, and where they stand."""

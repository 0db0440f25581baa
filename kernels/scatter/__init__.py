"""ScatterElements and ScatterND: elements or runs of a tensor written, or combined with others, by index."""

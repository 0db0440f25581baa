"""Elements and slices that the data chooses, one behind the other: NonZero and Compress."""

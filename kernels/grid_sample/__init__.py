"""Images read between their pixels: GridSample and deformable convolution."""

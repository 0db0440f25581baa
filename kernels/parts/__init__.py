"""What families of kernels share: loops over rows, planes and tiles, tasks, packing of weights, moving of bytes."""

"""The distinct elements or slices of a tensor: ONNX's Unique."""

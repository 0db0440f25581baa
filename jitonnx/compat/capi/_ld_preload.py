"""Libraries that onnxruntime's wheels load before their own. Here there are none."""

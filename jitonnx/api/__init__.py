"""The face beside `InferenceSession`: what users give and what they are told, under onnxruntime's names."""

"""Other projects' names: onnxruntime's modules, ONNX's backend interface, jitonnx in the place of onnxruntime."""

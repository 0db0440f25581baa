"""Single operators beside onnxruntime and the machine's limits: `python -m bench.operators`."""

# requires: onnx-asr==0.12.0, onnxruntime, numpy
import numpy as np
from _inputs import sound
from onnx_asr.onnx import OnnxSessionOptions
from onnx_asr.preprocessors.preprocessor import OnnxPreprocessor

result = [
    OnnxPreprocessor(name, OnnxSessionOptions())(sound(3)[None], np.array([48000]))
    for name in ("gigaam_v2", "kaldi", "nemo80", "nemo128", "whisper80", "whisper128")
]

# requires: livekit-plugins-silero==1.8.9
from _inputs import sound
from livekit.plugins.silero.onnx_model import OnnxModel, new_inference_session

model = OnnxModel(onnx_session=new_inference_session(True), sample_rate=16000)
result = [model(sound(3)[start : start + 512]) for start in range(0, 40960, 512)]

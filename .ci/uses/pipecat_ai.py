# requires: pipecat-ai[silero]==1.14.0
import numpy as np
from _inputs import sound
from pipecat.audio.vad.silero import SileroVADAnalyzer

analyzer = SileroVADAnalyzer(sample_rate=16000)
analyzer.set_sample_rate(16000)
wave = (sound(3) * 32767).astype(np.int16)
result = [analyzer.voice_confidence(wave[start : start + 512].tobytes()) for start in range(0, 40960, 512)]

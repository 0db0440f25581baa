# requires: openwakeword==0.4.0
import numpy as np
from _inputs import sound
from openwakeword.model import Model

model = Model()
wave = (sound(4) * 32767).astype(np.int16)
heard = [model.predict(wave[start : start + 1280]) for start in range(0, len(wave), 1280)]
# Each word's chances over time are one array: onnxruntime's Sigmoid is rounded to multiples of 2**-24.
result = {word: [float(one[word]) for one in heard] for word in heard[0]}

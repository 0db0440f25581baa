# requires: openwakeword==0.4.0
import numpy as np
from _inputs import sound
from openwakeword.model import Model

model = Model()
wave = (sound(4) * 32767).astype(np.int16)
heard = [model.predict(wave[start : start + 1280]) for start in range(0, len(wave), 1280)]
# All chances are one array: onnxruntime's Sigmoid gives multiples of 2**-25, which silence is near to.
words = sorted(heard[0])
result = np.array([[one[word] for word in words] for one in heard])

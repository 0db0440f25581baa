# requires: openwakeword==0.4.0
import numpy as np
from _inputs import sound
from openwakeword.model import Model

model = Model()
wave = (sound(4) * 32767).astype(np.int16)
result = [model.predict(wave[start : start + 1280]) for start in range(0, len(wave), 1280)]

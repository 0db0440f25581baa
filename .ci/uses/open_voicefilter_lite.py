# requires: open-voicefilter-lite==0.2.0
import numpy as np
from _inputs import sound
from voicefilter_lite import StreamingVoiceFilter

wave = sound(4)
voice = StreamingVoiceFilter()
voice.set_enrollment(wave[:32000])
result = np.concatenate([voice.step(wave[start : start + 160]) for start in range(32000, 48000, 160)])

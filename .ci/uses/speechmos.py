# requires: speechmos==0.0.1.1, librosa, onnxruntime
from _inputs import sound
from speechmos import aecmos, dnsmos, plcmos

wave = sound(10)
result = [
    dnsmos.run(wave, 16000),
    plcmos.run(wave, 16000),
    aecmos.run({"lpb": wave, "mic": wave * 0.5, "enh": wave * 0.25}, 16000, talk_type="dt"),
]

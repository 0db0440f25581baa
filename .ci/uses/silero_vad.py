# requires: silero-vad==6.2.3
import torch
from _inputs import sound
from silero_vad import get_speech_timestamps, load_silero_vad

model = load_silero_vad(onnx=True)
wave = torch.from_numpy(sound(4))
result = [get_speech_timestamps(wave, model, threshold=0.2), model.audio_forward(wave[None], 16000)]

# requires: faster-whisper==1.2.1
from _inputs import sound
from faster_whisper.vad import VadOptions, get_speech_timestamps, get_vad_model

result = [get_speech_timestamps(sound(4), VadOptions(threshold=0.2)), get_vad_model()(sound(4)[: 512 * 100])]

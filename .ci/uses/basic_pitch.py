# requires: basic-pitch==0.4.0, setuptools<81
import soundfile
from _inputs import sound
from basic_pitch import FilenameSuffix, build_icassp_2022_model_path
from basic_pitch.inference import predict

soundfile.write("sound.wav", sound(3), 16000)
output, _, notes = predict("sound.wav", build_icassp_2022_model_path(FilenameSuffix.onnx))
result = [output, len(notes)]

# requires: EfficientWord-Net==1.0.5, setuptools<81
from _inputs import sound
from eff_word_net.audio_processing import Resnet50_Arc_loss

result = Resnet50_Arc_loss().audioToVector(sound(1.5))

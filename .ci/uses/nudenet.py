# requires: nudenet==3.4.2, pillow
from _inputs import page, photo
from nudenet import NudeDetector

detector = NudeDetector()
result = [detector.detect(picture) for picture in (photo(), page())]

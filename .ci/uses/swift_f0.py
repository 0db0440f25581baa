# requires: swift-f0==0.3.0
from _inputs import sound
from swift_f0 import SwiftF0

found = SwiftF0().detect(sound(3), 16000)
result = [found.timestamps, found.pitch_hz, found.confidence]

# requires: piper-tts==1.8.0
from piper.tashkeel import TashkeelDiacritizer

result = TashkeelDiacritizer()("بسم الله الرحمن الرحيم")

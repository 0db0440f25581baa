# requires: fastembed, onnx, tokenizers
from _inputs import text_model
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType

TextEmbedding.add_custom_model(
    model="own/small", pooling=PoolingType.MEAN, normalization=True, sources=ModelSource(hf="own/small"), dim=8
)
folder = text_model("model", "onnx/model.onnx")
model = TextEmbedding("own/small", specific_model_path=folder)
result = list(model.embed(["a small model", "a model runs here", "here"]))

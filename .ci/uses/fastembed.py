# requires: fastembed, onnx, tokenizers
import json
from pathlib import Path

import numpy as np
import onnx
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, pre_tokenizers

folder = Path("model")
folder.mkdir(exist_ok=True)
words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "small", "model", "runs", "here"]
tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="[UNK]"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.save(str(folder / "tokenizer.json"))
(folder / "config.json").write_text(json.dumps({"pad_token_id": 0}))
(folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 32, "pad_token": "[PAD]"}))
(folder / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]", "unk_token": "[UNK]"}))
weights = numpy_helper.from_array(np.random.default_rng(0).normal(size=(9, 8)).astype(np.float32), "w")
shape = ["batch", "steps"]
graph = helper.make_graph(
    [helper.make_node("Gather", ["w", "input_ids"], ["last_hidden_state"])],
    "embedding",
    [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in ("input_ids", "attention_mask")],
    [helper.make_tensor_value_info("last_hidden_state", TensorProto.FLOAT, [*shape, 8])],
    [weights],
)
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "model.onnx")
TextEmbedding.add_custom_model(
    model="own/small", pooling=PoolingType.MEAN, normalization=True, sources=ModelSource(hf="own/small"), dim=8
)
model = TextEmbedding("own/small", specific_model_path=str(folder))
result = list(model.embed(["a small model", "a model runs here", "here"]))

"""A folder with a small encoder of texts, as optimum and sentence-transformers write them."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from onnx import TensorProto, helper, numpy_helper

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "small", "model", "runs", "here", "query:"]
SIZE, LONGEST = 8, 12


def write_encoder(
    folder: Path,
    *,
    place: str = "model.onnx",
    classes: int = 0,
    pooling: dict[str, Any] | None = None,
    pooled: bool = False,
    config: dict[str, Any] | None = None,
) -> Path:
    """Write a model and a tokenizer. Each token's vector tells of all tokens that are no padding. classes: of one
    logit or several a text, instead of vectors. pooled: a vector a text, too. config: of config.json."""
    (folder / place).parent.mkdir(parents=True, exist_ok=True)
    text = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]")
    )
    text.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    text.post_processor = tokenizers.processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    text.enable_padding(length=10)  # which is not to be heeded
    text.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": LONGEST}))
    (folder / "config.json").write_text(
        json.dumps({"pad_token_id": 0, "max_position_embeddings": 40, **(config or {})})
    )
    if pooling is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    random = np.random.default_rng(2)
    weights = {
        "words": random.normal(size=(len(WORDS), SIZE)).astype(np.float32),
        "types": random.normal(size=(2, SIZE)).astype(np.float32),
        "head": random.normal(size=(SIZE, max(classes, 1))).astype(np.float32),
        "one": np.array([1]),
        "last": np.array([2]),
    }
    node = helper.make_node
    nodes = [
        node("Gather", ["words", "input_ids"], ["a"]),
        node("Gather", ["types", "token_type_ids"], ["b"]),
        node("Add", ["a", "b"], ["x"]),
        node("Cast", ["attention_mask"], ["m0"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["m0", "last"], ["m"]),
        node("Mul", ["x", "m"], ["xm"]),
        node("ReduceSum", ["xm", "one"], ["sum"], keepdims=1),
        node("ReduceSum", ["m", "one"], ["count"], keepdims=1),
        node("Div", ["sum", "count"], ["mean"]),
        node("Tanh", ["mean"], ["told"]),
        node("Add", ["x", "told"], ["last_hidden_state"]),
        node("Squeeze", ["told", "one"], ["sentence_embedding"]),
        node("MatMul", ["sentence_embedding", "head"], ["logits"]),
    ]
    shapes: dict[str, list[Any]] = {
        "last_hidden_state": ["batch", "steps", SIZE],
        "sentence_embedding": ["batch", SIZE],
        "logits": ["batch", classes],
    }
    names = ["logits"] if classes else ["last_hidden_state", *(["sentence_embedding"] if pooled else [])]
    graph = helper.make_graph(
        nodes,
        "encoder",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "steps"])
            for name in ("input_ids", "attention_mask", "token_type_ids")
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shapes[name]) for name in names],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (folder / place).write_bytes(made.SerializeToString())
    return folder

"""A folder with a small language model of random weights, as onnxruntime-genai's model builder writes them."""

import json
from pathlib import Path

import numpy as np
import tokenizers
from onnx import ModelProto, TensorProto, helper, numpy_helper

from bench.decoder import Shape

WORDS = ["hello", "world", "kernel", "cache", "token", " the", " of"]
SHAPE = Shape(2, 64, 96, (4, 2), 300, 512)
WINDOW = 16
TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{{ eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write_folder(folder: Path, model: ModelProto, **changes: object) -> Path:
    """Write a model, a tokenizer and the configurations. changes: of `model` in genai_config.json."""
    folder.mkdir(exist_ok=True)
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    config = {
        "model": {
            "bos_token_id": 1,
            "eos_token_id": [2],
            "pad_token_id": 3,
            "context_length": 256,
            "type": "llama",
            "vocab_size": SHAPE.vocabulary,
            "decoder": {
                "session_options": {"log_id": "genai", "provider_options": [], "intra_op_num_threads": 2},
                "filename": "model.onnx",
                "head_size": SHAPE.depth,
                "hidden_size": SHAPE.width,
                "num_attention_heads": SHAPE.heads[0],
                "num_key_value_heads": SHAPE.heads[1],
                "num_hidden_layers": SHAPE.layers,
                "inputs": {
                    "input_ids": "ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past.%d.key",
                    "past_value_names": "past.%d.value",
                },
                "outputs": {
                    "logits": "logits",
                    "present_key_names": "present.%d.key",
                    "present_value_names": "present.%d.value",
                },
            },
            **changes,
        },
        "search": {"max_length": 256, "past_present_share_buffer": True, "top_p": 1.0},
    }
    (folder / "genai_config.json").write_text(json.dumps(config))
    text = tokenizers.Tokenizer(tokenizers.models.BPE())
    text.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    text.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    special = ["<unk>", "<s>", "</s>", "<pad>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=SHAPE.vocabulary, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    text.train_from_iterator(WORDS * 4, trainer)
    text.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<s>",
                "eos_token": {"content": "</s>"},
                "pad_token": "<pad>",
                "unk_token": "<unk>",
                "chat_template": TEMPLATE,
            }
        )
    )
    return folder


def windowed(model: ModelProto) -> ModelProto:
    """The first layer's attention looks back over a window, in a cache of little more rows."""
    made = ModelProto()
    made.CopyFrom(model)
    node = next(node for node in made.graph.node if node.op_type == "GroupQueryAttention")
    node.attribute.extend([helper.make_attribute("local_window_size", WINDOW)])
    cached = ModelProto()
    cached.CopyFrom(made)
    node = next(node for node in cached.graph.node if node.op_type == "GroupQueryAttention")
    node.attribute.append(helper.make_attribute("sliding_window_cache", 1))
    for side in (cached.graph.input, cached.graph.output):
        for entry in side:
            if ".0." in entry.name:
                entry.type.tensor_type.shape.dim[2].dim_param = "window_rows"
    return cached


def write_windowed_folder(folder: Path, model: ModelProto) -> Path:
    """Write a model whose first layer looks back over WINDOW tokens alone."""
    write_folder(folder, windowed(model))
    config = json.loads((folder / "genai_config.json").read_text())
    window = {"window_size": WINDOW, "slide_inputs": False, "slide_key_value_cache": False, "layers": [0]}
    config["model"]["decoder"]["sliding_window"] = window
    (folder / "genai_config.json").write_text(json.dumps(config))
    return folder


def with_state(model: ModelProto) -> ModelProto:
    """Tokens that were there are less probable: a state of a fixed size counts them."""
    made = ModelProto()
    made.CopyFrom(model)
    graph, sizes = made.graph, ["batch", SHAPE.vocabulary]
    next(node for node in graph.node if "logits" in node.output).output[0] = "raw"
    constants = {
        "count": np.array(SHAPE.vocabulary),
        "values": np.array([0, 1], np.float32),
        "axis": np.array([1]),
        "less": np.array(-0.5, np.float32),
    }
    graph.initializer.extend([numpy_helper.from_array(value, name) for name, value in constants.items()])
    graph.node.extend(
        [
            helper.make_node("OneHot", ["ids", "count", "values"], ["each"]),
            helper.make_node("ReduceSum", ["each", "axis"], ["new"], keepdims=0),
            helper.make_node("Add", ["past_conv.0", "new"], ["present_conv.0"]),
            helper.make_node("Mul", ["present_conv.0", "less"], ["change"]),
            helper.make_node("Unsqueeze", ["change", "axis"], ["changes"]),
            helper.make_node("Add", ["raw", "changes"], ["logits"]),
        ]
    )
    graph.input.append(helper.make_tensor_value_info("past_conv.0", TensorProto.FLOAT, sizes))
    graph.output.append(helper.make_tensor_value_info("present_conv.0", TensorProto.FLOAT, sizes))
    return made

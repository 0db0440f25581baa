"""A folder with a small language model of random weights, as onnxruntime-genai's model builder writes them."""

import json
from pathlib import Path

import tokenizers
from onnx import ModelProto

from bench.decoder import Shape

WORDS = ["hello", "world", "kernel", "cache", "token", " the", " of"]
SHAPE = Shape(2, 64, 96, (4, 2), 300, 512)
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

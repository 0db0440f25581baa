"""Folders with a small model of speech of random weights: as onnxruntime-genai's model builder writes them for Whisper,
and as optimum does, of the same weights."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from onnx import TensorProto, helper, numpy_helper

MELS, FRAMES, LAYERS, HEADS, DEPTH, POSITIONS = 80, 3000, 2, 2, 16, 64
WIDTH, SOUNDS = HEADS * DEPTH, FRAMES // 2
LANGUAGES = ("en", "de", "fr")
SPECIAL = [
    "<|endoftext|>",
    "<|startoftranscript|>",
    *(f"<|{code}|>" for code in LANGUAGES),
    *(f"<|{name}|>" for name in ("translate", "transcribe", "startoflm", "startofprev", "nospeech", "notimestamps")),
]
TIMES = [f"<|{step * 0.02:.2f}|>" for step in range(1501)]
PROMPT = "<|startoftranscript|><|en|><|transcribe|><|notimestamps|>"
VALUE, FLOAT, INT32, INT64 = helper.make_tensor_value_info, TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64


def tokenizer() -> tokenizers.Tokenizer:
    """Bytes and some words, then the special tokens and the timestamps, as Whisper has them."""
    made = tokenizers.Tokenizer(tokenizers.models.BPE())
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=280, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(["hello world speech to text of the kernel"] * 4, trainer)
    made.add_special_tokens(SPECIAL)
    made.add_tokens(TIMES)
    return made


class Part:
    """The nodes of a graph, its inputs, outputs and constants."""

    def __init__(self, weights: dict[str, np.ndarray]) -> None:
        self.weights, self.nodes = weights, list[Any]()
        self.inputs, self.outputs = list[Any](), list[Any]()

    def add(self, kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def heads(self, given: str, weight: str, output: str) -> str:
        """[batch, heads, steps, depth]."""
        product = self.add("MatMul", [given, weight], f"{output}.p")
        self.add("Reshape", [product, "heads"], f"{output}.h")
        return self.add("Transpose", [f"{output}.h"], output, perm=[0, 2, 1, 3])

    def attend(self, query: str, keys: str, values: str, output: str, mask: str = "") -> str:
        self.add("Transpose", [keys], f"{output}.t", perm=[0, 1, 3, 2])
        scores = self.add("MatMul", [query, f"{output}.t"], f"{output}.scores")
        if mask:
            scores = self.add("Where", [mask, scores, "lowest"], f"{output}.masked")
        self.add("Softmax", [scores], f"{output}.part", axis=-1)
        self.add("MatMul", [f"{output}.part", values], f"{output}.y")
        self.add("Transpose", [f"{output}.y"], f"{output}.yt", perm=[0, 2, 1, 3])
        return self.add("Reshape", [f"{output}.yt", "flat"], output)

    def write(self, path: Path) -> None:
        used = {name for node in self.nodes for name in node.input}
        numbers = {"zero": 0, "one": 1, "axis1": [1], "heads": [0, -1, HEADS, DEPTH], "flat": [0, -1, WIDTH]}
        constants = [numpy_helper.from_array(self.weights[name], name) for name in sorted(used & set(self.weights))]
        constants += [
            numpy_helper.from_array(np.array(number), name) for name, number in numbers.items() if name in used
        ]
        constants.append(numpy_helper.from_array(np.array(-1e9, np.float32), "lowest"))
        graph = helper.make_graph(self.nodes, "part", self.inputs, self.outputs, constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        path.write_bytes(model.SerializeToString())


def weights(words: int) -> dict[str, np.ndarray]:
    random = np.random.default_rng(11)
    made = {
        "conv1": random.normal(size=(WIDTH, MELS, 3)) / 6,
        "conv2": random.normal(size=(WIDTH, WIDTH, 3)) / 6,
        "heard": random.normal(size=(SOUNDS, WIDTH)) * 0.3,
        "table": random.normal(size=(words, WIDTH)),
        "places": random.normal(size=(POSITIONS, WIDTH)) * 0.7,
        "head": random.normal(size=(WIDTH, words)) / WIDTH**0.5,
    }
    for layer in range(LAYERS):
        for one in ("q", "k", "v", "o", "cq", "ck", "cv", "co"):
            made[f"{one}.{layer}"] = random.normal(size=(WIDTH, WIDTH)) * 1.5 / WIDTH**0.5
    return {name: one.astype(np.float32) for name, one in made.items()}


def cross(part: Part, layer: int, names: tuple[str, str], sounds: int | str) -> None:
    """Keys and values of what the encoder gives ("hidden"), as outputs."""
    for weight, name in zip(("ck", "cv"), names, strict=True):
        part.heads("hidden", f"{weight}.{layer}", name)
        part.outputs.append(VALUE(name, FLOAT, ["batch_size", HEADS, sounds, DEPTH]))


def encoder(values: dict[str, np.ndarray], given: str, output: str) -> Part:
    part = Part(values)
    part.inputs = [VALUE(given, FLOAT, ["batch_size", MELS, FRAMES])]
    part.outputs = [VALUE(output, FLOAT, ["batch_size", SOUNDS, WIDTH])]
    part.add("Conv", [given, "conv1"], "c1", kernel_shape=[3], pads=[1, 1])
    part.add("Gelu", ["c1"], "g1")
    part.add("Conv", ["g1", "conv2"], "c2", kernel_shape=[3], pads=[1, 1], strides=[2])
    part.add("Gelu", ["c2"], "g2")
    part.add("Transpose", ["g2"], "gt", perm=[0, 2, 1])
    part.add("Add", ["gt", "heard"], output)
    return part


def decoder(values: dict[str, np.ndarray], names: dict[str, str], ids: int, *, has_caches: bool) -> Part:
    """names: of the past and the present, and those of the encoder's output; the layer stands at %d, key or value at
    %s."""
    part = Part(values)
    words = values["head"].shape[1]
    part.inputs = [VALUE("input_ids", ids, ["batch_size", "sequence_length"])]
    part.outputs = [VALUE("logits", FLOAT, ["batch_size", "sequence_length", words])]
    if not has_caches:
        part.inputs.append(VALUE("encoder_hidden_states", FLOAT, ["batch_size", "heard", WIDTH]))
        part.add("Identity", ["encoder_hidden_states"], "hidden")
    part.add("Gather", ["table", "input_ids"], "words")
    for layer in range(LAYERS):
        x, presents = f"x.{layer}", []
        for kind in ("key", "value"):
            present = names["present"].replace("%d", str(layer)).replace("%s", kind)
            part.outputs.append(VALUE(present, FLOAT, ["batch_size", HEADS, "total_length", DEPTH]))
            presents.append(present)
            if has_caches:
                past = names["past"].replace("%d", str(layer)).replace("%s", kind)
                part.inputs.append(VALUE(past, FLOAT, ["batch_size", HEADS, "past_length", DEPTH]))
        if layer == 0:  # positions come from the number of tokens before
            part.nodes += [
                helper.make_node("Shape", ["input_ids"], ["own"], start=1),
                helper.make_node("Squeeze", ["own"], ["steps"]),
            ]
            if has_caches:
                past = names["past"].replace("%d", "0").replace("%s", "key")
                part.nodes += [
                    helper.make_node("Shape", [past], ["before1"], start=2, end=3),
                    helper.make_node("Squeeze", ["before1"], ["before"]),
                ]
            else:
                part.add("Sub", ["steps", "steps"], "before")
            part.add("Add", ["before", "steps"], "total")
            part.add("Range", ["before", "total", "one"], "where")
            part.add("Range", ["zero", "total", "one"], "columns")
            part.add("Gather", ["places", "where"], "positions")
            part.add("Add", ["words", "positions"], "x.0")
            part.add("Unsqueeze", ["where", "axis1"], "rows")
            part.add("LessOrEqual", ["columns", "rows"], "allowed")
        for present, kind, weight in zip(presents, ("key", "value"), "kv", strict=True):
            if has_caches:
                past = names["past"].replace("%d", str(layer)).replace("%s", kind)
                part.heads(x, f"{weight}.{layer}", f"new{kind}.{layer}")
                part.add("Concat", [past, f"new{kind}.{layer}"], present, axis=2)
            else:
                part.heads(x, f"{weight}.{layer}", present)
        part.attend(part.heads(x, f"q.{layer}", f"qh.{layer}"), presents[0], presents[1], f"self.{layer}", "allowed")
        part.add("MatMul", [f"self.{layer}", f"o.{layer}"], f"so.{layer}")
        part.add("Add", [x, f"so.{layer}"], f"y.{layer}")
        key, value = (names["cross"].replace("%d", str(layer)).replace("%s", kind) for kind in ("key", "value"))
        if has_caches:
            part.inputs += [VALUE(one, FLOAT, ["batch_size", HEADS, names["heard"], DEPTH]) for one in (key, value)]
        else:
            key, value = (one.replace("past_key_values", "present") for one in (key, value))
            cross(part, layer, (key, value), names["heard"])
        part.attend(part.heads(f"y.{layer}", f"cq.{layer}", f"cqh.{layer}"), key, value, f"cross.{layer}")
        part.add("MatMul", [f"cross.{layer}", f"co.{layer}"], f"co.{layer}.y")
        part.add("Add", [f"y.{layer}", f"co.{layer}.y"], f"x.{layer + 1}")
    part.add("MatMul", [f"x.{LAYERS}", "head"], "logits")
    return part


def write_tokenizer(folder: Path) -> tokenizers.Tokenizer:
    folder.mkdir(parents=True, exist_ok=True)
    made = tokenizer()
    made.save(str(folder / "tokenizer.json"))
    end = "<|endoftext|>"
    special = {f"{name}_token": end for name in ("bos", "eos", "pad", "unk")}
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "WhisperTokenizer", **special}))
    return made


def generation(made: tokenizers.Tokenizer, **changes: Any) -> dict[str, Any]:
    """What generation_config.json says."""
    ids = {name: made.token_to_id(name) for name in SPECIAL}
    never = ["startoftranscript", "translate", "transcribe", "startoflm", "startofprev", "nospeech"]
    return {
        "decoder_start_token_id": ids["<|startoftranscript|>"],
        "eos_token_id": ids["<|endoftext|>"],
        "pad_token_id": ids["<|endoftext|>"],
        "is_multilingual": True,
        "lang_to_id": {f"<|{code}|>": ids[f"<|{code}|>"] for code in LANGUAGES},
        "task_to_id": {task: ids[f"<|{task}|>"] for task in ("transcribe", "translate")},
        "no_timestamps_token_id": ids["<|notimestamps|>"],
        "max_initial_timestamp_index": 50,
        "suppress_tokens": [1, 7, *(ids[f"<|{name}|>"] for name in never)],
        "begin_suppress_tokens": [220, ids["<|endoftext|>"]],
        **changes,
    }


def write_builders(folder: Path) -> Path:
    """As onnxruntime-genai's model builder."""
    made = write_tokenizer(folder)
    values = weights(made.get_vocab_size())
    part = encoder(values, "audio_features", "hidden_states")
    part.add("Identity", ["hidden_states"], "hidden")
    for layer in range(LAYERS):
        cross(part, layer, (f"present_key_cross_{layer}", f"present_value_cross_{layer}"), SOUNDS)
    part.write(folder / "encoder.onnx")
    names = {"past": "past_%s_self_%d", "present": "present_%s_self_%d", "cross": "past_%s_cross_%d"}
    decoder(values, {**names, "heard": str(SOUNDS)}, INT32, has_caches=True).write(folder / "decoder.onnx")
    sizes = {"head_size": DEPTH, "hidden_size": WIDTH, "num_attention_heads": HEADS}
    sizes |= {"num_hidden_layers": LAYERS, "num_key_value_heads": HEADS}
    end = made.token_to_id("<|endoftext|>")
    config = {
        "bos_token_id": end,
        "eos_token_id": end,
        "pad_token_id": end,
        "context_length": POSITIONS,
        "type": "whisper",
        "vocab_size": made.get_vocab_size(),
        "encoder": {
            "filename": "encoder.onnx",
            **sizes,
            "inputs": {"audio_features": "audio_features"},
            "outputs": {
                "encoder_hidden_states": "hidden_states",
                "cross_present_key_names": "present_key_cross_%d",
                "cross_present_value_names": "present_value_cross_%d",
            },
        },
        "decoder": {
            "filename": "decoder.onnx",
            "session_options": {"log_id": "genai", "provider_options": [], "intra_op_num_threads": 2},
            **sizes,
            "inputs": {
                "input_ids": "input_ids",
                "past_key_names": "past_key_self_%d",
                "past_value_names": "past_value_self_%d",
                "cross_past_key_names": "past_key_cross_%d",
                "cross_past_value_names": "past_value_cross_%d",
            },
            "outputs": {
                "logits": "logits",
                "present_key_names": "present_key_self_%d",
                "present_value_names": "present_value_self_%d",
            },
        },
    }
    search = {"max_length": POSITIONS, "past_present_share_buffer": False, "top_k": 1, "num_beams": 1}
    (folder / "genai_config.json").write_text(json.dumps({"model": config, "search": search}))
    window = {"n_fft": 400, "frame_length": 400, "hop_length": 160, "hann_win": np.hanning(401)[:-1].tolist()}
    bands = {"chunk_size": 30, "hop_length": 160, "n_fft": 400, "n_mel": MELS}
    steps = [("audio_decoder", "AudioDecoder", {}), ("STFT", "STFTNorm", window), ("log_mel", "LogMelSpectrum", bands)]
    operations = [{"operation": {"name": name, "type": kind, "attrs": attrs}} for name, kind, attrs in steps]
    (folder / "audio_processor_config.json").write_text(json.dumps({"feature_extraction": {"sequence": operations}}))
    return folder


def write_optimums(folder: Path, **changes: Any) -> Path:
    """As optimum, of two decoders. changes: of generation_config.json."""
    made = write_tokenizer(folder)
    values = weights(made.get_vocab_size())
    encoder(values, "input_features", "last_hidden_state").write(folder / "encoder_model.onnx")
    names = {"past": "past_key_values.%d.decoder.%s", "present": "present.%d.decoder.%s", "heard": "heard"}
    names["cross"] = "past_key_values.%d.encoder.%s"
    for name, has_caches in (("decoder_model.onnx", False), ("decoder_with_past_model.onnx", True)):
        decoder(values, names, INT64, has_caches=has_caches).write(folder / name)
    config = {"model_type": "whisper", "is_encoder_decoder": True, "max_target_positions": POSITIONS}
    config |= {"d_model": WIDTH, "decoder_attention_heads": HEADS, "vocab_size": made.get_vocab_size()}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps(generation(made, **changes)))
    features = {"feature_extractor_type": "WhisperFeatureExtractor", "feature_size": MELS, "n_fft": 400}
    features |= {"hop_length": 160, "chunk_length": 30, "sampling_rate": 16000}
    (folder / "preprocessor_config.json").write_text(json.dumps(features))
    return folder

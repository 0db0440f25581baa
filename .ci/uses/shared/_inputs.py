"""What the scripts of the folder above feed: pictures and sounds that are the same everywhere, and small models."""

from __future__ import annotations

from typing import Any

import numpy as np


def page(text: str = "Hello World 2026\njitonnx runs it", size: tuple[int, int] = (480, 200)) -> np.ndarray:
    """A white page with black text, uint8 [height, width, 3]."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", size, "white")
    ImageDraw.Draw(picture).multiline_text((20, 30), text, "black", ImageFont.load_default(40))
    return np.array(picture)


def table(size: tuple[int, int] = (400, 240)) -> np.ndarray:
    """A page with a table of 3 rows and 3 columns."""
    from PIL import Image, ImageDraw, ImageFont

    picture = Image.new("RGB", size, "white")
    draw = ImageDraw.Draw(picture)
    for row in range(3):
        for column in range(3):
            left, top = 20 + 120 * column, 20 + 66 * row
            draw.rectangle((left, top, left + 120, top + 66), outline="black", width=2)
            draw.text((left + 20, top + 16), f"a{row}{column}", "black", ImageFont.load_default(28))
    return np.array(picture)


def photo(size: tuple[int, int] = (320, 240)) -> np.ndarray:
    """Soft shapes in colours, uint8 [height, width, 3]."""
    x, y = np.meshgrid(np.linspace(-1, 1, size[0]), np.linspace(-1, 1, size[1]))
    waves = np.stack([np.sin(3 * x + 2 * y), np.cos(4 * x - y), np.sin(5 * x * y + 1)], 2)
    disc = ((x**2 + (y * 1.2) ** 2) < 0.4)[:, :, None] * np.array([0.9, 0.7, 0.6])
    return np.clip((0.25 * waves + 0.4 + 0.4 * disc) * 255, 0, 255).astype(np.uint8)


def sound(seconds: float = 2.0, rate: int = 16000) -> np.ndarray:
    """Something between a voice and a tone, with pauses: float32 [samples] within -1 and 1."""
    t = np.arange(int(seconds * rate)) / rate
    pitch = 140 + 20 * np.sin(2 * np.pi * 1.5 * t)
    voice = sum(np.sin(2 * np.pi * np.cumsum(pitch * k) / rate) / k for k in range(1, 20))
    spoken = (np.sin(2 * np.pi * 0.8 * t) > -0.3) * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * t))
    noise = np.random.default_rng(0).normal(size=len(t)) * 0.005
    return (0.1 * voice * spoken + noise).astype(np.float32)


def network(file: str, inputs: int = 16, outputs: int = 4, shape: tuple[Any, ...] | None = None) -> str:
    """Write a small ONNX model: two layers of vectors [n, inputs], or, with a shape of images, two convolutions."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(1)
    if shape is None:
        sizes: list[tuple[int, ...]] = [(inputs, 32), (32,), (32, outputs), (outputs,)]
        nodes = [
            helper.make_node("MatMul", ["x", "w0"], ["a"]),
            helper.make_node("Add", ["a", "w1"], ["b"]),
            helper.make_node("Relu", ["b"], ["c"]),
            helper.make_node("Gemm", ["c", "w2", "w3"], ["y"]),
        ]
        given, made = ["n", inputs], ["n", outputs]
    else:
        sizes = [(8, shape[1], 3, 3), (8,), (1, 8, 1, 1), (1,)]
        nodes = [
            helper.make_node("Conv", ["x", "w0", "w1"], ["a"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["a"], ["b"]),
            helper.make_node("Conv", ["b", "w2", "w3"], ["c"]),
            helper.make_node("Sigmoid", ["c"], ["y"]),
        ]
        given, made = list(shape), [shape[0], 1, *shape[2:]]
    weights = [
        numpy_helper.from_array((random.normal(size=size) * 0.3).astype(np.float32), f"w{place}")
        for place, size in enumerate(sizes)
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, made)],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), file)
    return file


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "small", "model", "runs", "here"]


def text_model(
    folder: str,
    file: str = "model.onnx",
    inputs: tuple[str, ...] = ("input_ids", "attention_mask"),
    classes: int = 0,
) -> str:
    """Write a tokenizer of few words, as Hugging Face keeps one, and an encoder of one layer for it.

    The model returns [batch, steps, 8], or with classes what the first step says, [batch, classes].
    """
    import json
    from pathlib import Path

    import onnx
    from onnx import TensorProto, helper, numpy_helper
    from tokenizers import Tokenizer, models, pre_tokenizers

    whole = Path(folder)
    (whole / file).parent.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(whole / "tokenizer.json"))
    (whole / "config.json").write_text(json.dumps({"pad_token_id": 0}))
    (whole / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 32, "pad_token": "[PAD]"}))
    (whole / "special_tokens_map.json").write_text(json.dumps({"pad_token": "[PAD]", "unk_token": "[UNK]"}))
    random = np.random.default_rng(2)
    sizes = {"words": (len(WORDS), 8), "types": (2, 8), "q": (8, 8), "k": (8, 8), "scale": (8,), "head": (8, classes)}
    weights = {name: random.normal(size=size).astype(np.float32) for name, size in sizes.items() if 0 not in size}
    constants = {"one": np.float32(1), "most": np.float32(1e4), "axis": np.int64([1]), "first": np.int64(0)}
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["e0"]),
        helper.make_node("Cast", ["attention_mask"], ["m0"], to=TensorProto.FLOAT),
        helper.make_node("Sub", ["m0", "one"], ["m1"]),
        helper.make_node("Mul", ["m1", "most"], ["m2"]),
        helper.make_node("Unsqueeze", ["m2", "axis"], ["m"]),
        helper.make_node("MatMul", ["e", "q"], ["a0"]),
        helper.make_node("MatMul", ["e", "k"], ["a1"]),
        helper.make_node("Transpose", ["a1"], ["a2"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["a0", "a2"], ["a3"]),
        helper.make_node("Add", ["a3", "m"], ["a4"]),
        helper.make_node("Softmax", ["a4"], ["a5"]),
        helper.make_node("MatMul", ["a5", "e"], ["a6"]),
        helper.make_node("Add", ["a6", "e"], ["a7"]),
        helper.make_node("LayerNormalization", ["a7", "scale"], ["last_hidden_state"]),
    ]
    typed = "token_type_ids" in inputs
    nodes[1:1] = (
        [
            helper.make_node("Gather", ["types", "token_type_ids"], ["e1"]),
            helper.make_node("Add", ["e0", "e1"], ["e"]),
        ]
        if typed
        else [helper.make_node("Identity", ["e0"], ["e"])]
    )
    made, shape = "last_hidden_state", ["batch", "steps", 8]
    if classes:
        made, shape = "logits", ["batch", classes]
        nodes.append(helper.make_node("Gather", ["last_hidden_state", "first"], ["step"], axis=1))
        nodes.append(helper.make_node("MatMul", ["step", "head"], [made]))
    graph = helper.make_graph(
        nodes,
        "encoder",
        [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "steps"]) for name in inputs],
        [helper.make_tensor_value_info(made, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in {**weights, **constants}.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    onnx.save(model, str(whole / file))
    return folder

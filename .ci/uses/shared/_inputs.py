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

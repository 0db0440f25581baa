"""Folders with small models of images and text, of random weights, as onnxruntime-genai reads them."""

import dataclasses
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from onnx import ModelProto, TensorProto, helper, numpy_helper

from bench.decoder import decoder
from tests.genai.folders import SHAPE, write_folder

VISION_SHAPE = dataclasses.replace(SHAPE, vocabulary=320, positions=4096)
MARKS = {
    "gemma3": ["<start_of_image>", "<image_soft_token>", "<end_of_image>"],
    "phi3v": [],
    "phi4mm": ["<|endoftext10|>"],
    "qwen2_5_vl": ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"],
}
"""Special tokens of each type: they come behind the others."""
TEMPLATES = {
    "gemma3": "<start_of_image>",
    "qwen2_5_vl": "<|vision_start|><|image_pad|><|vision_end|>",
}
"""What a template writes for an image; the others' have texts alone."""
ALIGNERS = {"phi4mm": "phi4-vision-aligner"}
"""What brings outputs of several images to one shape."""
SMALLEST = 300
"""The first of these tokens."""


def steps(kind: str) -> list[dict[str, Any]]:
    """What `processor_config.json` of a type names, at a small size."""
    decode = [("DecodeImage", {"color_space": "BGR"}), ("ConvertRGB", {})]
    rescale = ("Rescale", {"rescale_factor": 1 / 255})
    if kind == "gemma3":
        named = [
            *decode,
            ("Resize", {"interpolation": "CUBIC", "width": 32, "height": 32, "keep_aspect_ratio": 0}),
            rescale,
            ("Normalize", {"mean": [0.5] * 3, "std": [0.5] * 3}),
            ("Permute3D", {"dims": [2, 0, 1]}),
        ]
    elif kind == "phi3v":
        named = [*decode, ("Phi3ImageTransform", {"num_crops": 1, "num_img_tokens": 144})]
    elif kind == "phi4mm":
        base = {"dyhd_base_resolution": 448}
        named = [
            ("DecodeImage", {"color_space": "RGB"}),
            ("Phi4VisionDynamicPreprocess", {"dynamic_hd": 4, **base}),
            rescale,
            ("Normalize", {"mean": [0.5] * 3, "std": [0.5] * 3}),
            ("Phi4VisionProcessor", {"interpolation": "CUBIC", **base}),
        ]
    else:
        sizes = {"patch_size": 14, "merge_size": 2}
        named = [
            *decode,
            ("Resize", {"width": 56, "height": 56, "smart_resize": 1, "min_pixels": 3136, "max_pixels": 9000, **sizes}),
            rescale,
            ("Normalize", {"mean": [0.48, 0.46, 0.41], "std": [0.27, 0.26, 0.28], "qwen2_5_vl": 1}),
            ("PatchImage", {"temporal_patch_size": 2, **sizes}),
        ]
    made = [
        {"operation": {"name": f"step{place}", "domain": "com.microsoft.extensions", "type": name, "attrs": attributes}}
        for place, (name, attributes) in enumerate(named)
    ]
    if kind == "phi4mm":  # the mask is the second output of the second step
        made[2]["operation"]["inputs"] = [":0"]
        made[4]["operation"]["inputs"] = [":0", "step1:1"]
    return made


class _Graph:
    """Nodes and constants of a model."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        name = f"constant.{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.array(value, dtype), name))
        return name

    def weights(self, *shape: int) -> str:
        return self.constant(self.random.normal(size=shape) / np.sqrt(shape[0]), np.float32)

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        name = output or f"{operator}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def model(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> ModelProto:
        graph = helper.make_graph(self.nodes, "part", inputs, outputs, self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _float(name: str, *shape: str | int) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def _int64(name: str, *shape: str | int) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.INT64, shape)


def vision(kind: str, *, images: str | int = "images") -> ModelProto:
    """Features of pixels. images: how many a run of Qwen's takes."""
    graph, width = _Graph(5), VISION_SHAPE.width
    if kind == "gemma3":
        kernel = graph.weights(width, 3, 2, 2)
        planes = graph.add("Conv", "pixel_values", kernel, strides=[2, 2])
        rows = graph.add("Reshape", planes, graph.constant([0, width, 256]))
        graph.add("Transpose", rows, output="image_features", perm=[0, 2, 1])
        return graph.model(
            [_float("pixel_values", "images", 3, 32, 32)], [_float("image_features", "images", 256, width)]
        )
    if kind == "qwen2_5_vl":
        size = 3 * 2 * 14 * 14
        rows = graph.add("Reshape", "pixel_values", graph.constant([-1, 4 * size]))
        product = graph.add("MatMul", rows, graph.weights(4 * size, width))
        grid = graph.add("Cast", graph.add("ReduceMax", "image_grid_thw", keepdims=0), to=TensorProto.FLOAT)
        graph.add("Add", product, grid, output="image_features")
        inputs = [_float("pixel_values", "patches", size), _int64("image_grid_thw", images, 3)]
        return graph.model(inputs, [_float("image_features", "tokens", width)])
    # As many rows as the images take, by (h w + 1) 144 + 1 + (h + 1) 12 of crops of 336 pixels.
    crops = graph.add("Div", "image_sizes", graph.constant([336]))
    high = graph.add("Gather", crops, graph.constant(0), axis=1)
    wide = graph.add("Gather", crops, graph.constant(1), axis=1)
    whole = graph.add("Add", graph.add("Mul", high, wide), graph.constant([1]))
    tall = graph.add("Mul", graph.add("Add", high, graph.constant([1])), graph.constant([12]))
    counts = graph.add("Add", graph.add("Mul", whole, graph.constant([144])), tall)
    count = graph.add("ReduceSum", graph.add("Add", counts, graph.constant([1])), keepdims=0)
    places = graph.add("Range", graph.constant(0), count, graph.constant(1))
    places = graph.add("Cast", graph.add("Unsqueeze", places, graph.constant([1])), to=TensorProto.FLOAT)
    corner = graph.add("Slice", "pixel_values", *(graph.constant(value) for value in ([0, 0], [8, 8], [3, 4])))
    mean = graph.add("ReduceMean", corner, keepdims=0)
    angles = graph.add("Mul", places, graph.constant(np.linspace(-0.1, 0.1, width)[None], np.float32))
    graph.add("Add", graph.add("Sin", angles), mean, output="image_features")
    inputs = [_float("pixel_values", "images", "crops", 3, "height", "width"), _int64("image_sizes", "images", 2)]
    return graph.model(inputs, [_float("image_features", "tokens", width)])


def embedding(kind: str, table: np.ndarray) -> ModelProto:
    """Rows of tokens; features take the place of those that stand for images."""
    graph, width = _Graph(6), VISION_SHAPE.width
    if kind == "phi3v":
        stands = graph.add("Less", "input_ids", graph.constant(0))
    else:
        stands = graph.add("Equal", "input_ids", graph.constant(SMALLEST + 1))
    known = graph.add("Where", stands, graph.constant(0), "input_ids")
    rows = graph.add("Gather", graph.constant(table, np.float32), known)
    places = graph.add("Transpose", graph.add("NonZero", stands), perm=[1, 0])
    features = graph.add("Reshape", "image_features", graph.constant([-1, width]))
    graph.add("ScatterND", rows, places, features, output="inputs_embeds")
    sizes = ("images", "places", width) if kind == "gemma3" else ("tokens", width)
    return graph.model(
        [_int64("input_ids", "batch", "steps"), _float("image_features", *sizes)],
        [_float("inputs_embeds", "batch", "steps", width)],
    )


def without_table(model: ModelProto, kind: str) -> tuple[ModelProto, np.ndarray]:
    """The decoder of rows, and the table that it had. Qwen's has positions in three dimensions."""
    graph = model.graph
    gather = next(node for node in graph.node if "ids" in node.input)
    table = next(one for one in graph.initializer if one.name == gather.input[0])
    graph.node.remove(gather)
    graph.initializer.remove(table)
    entry = next(one for one in graph.input if one.name == "ids")
    graph.input.remove(entry)
    batch, steps_ = (dimension.dim_param for dimension in entry.type.tensor_type.shape.dim)
    graph.input.insert(0, _float("inputs_embeds", batch, steps_, VISION_SHAPE.width))
    rows = "inputs_embeds"
    if kind == "qwen2_5_vl":
        more = _Graph(7)
        turned = more.add("Cast", more.add("Transpose", "position_ids", perm=[1, 2, 0]), to=TensorProto.FLOAT)
        angles = more.add("MatMul", turned, more.weights(3, VISION_SHAPE.width))
        rows = more.add("Add", "inputs_embeds", more.add("Sin", angles), output="placed")
        for one in more.constants:
            one.name = f"position.{one.name}"
        for node in more.nodes:
            node.input[:] = [f"position.{name}" if name.startswith("constant") else name for name in node.input]
        graph.initializer.extend(more.constants)
        for place, node in enumerate(more.nodes):
            graph.node.insert(place, node)
        graph.input.insert(1, _int64("position_ids", 3, batch, steps_))
    for node in graph.node:
        node.input[:] = [rows if name == gather.output[0] else name for name in node.input]
    return model, numpy_helper.to_array(table)


def write_vision_folder(folder: Path, kind: str, **changes: Any) -> Path:
    """Write a folder with a model of a type. changes: of `model` in genai_config.json."""
    model, table = without_table(decoder(VISION_SHAPE), kind)
    write_folder(folder, model)
    (folder / "vision.onnx").write_bytes(vision(kind).SerializeToString())
    (folder / "embedding.onnx").write_bytes(embedding(kind, table).SerializeToString())
    (folder / "processor_config.json").write_text(
        json.dumps({"processor": {"name": kind, "transforms": steps(kind), "output_aligner": ALIGNERS.get(kind, "")}})
    )
    place = folder / "genai_config.json"
    config = json.loads(place.read_text())
    section = config["model"]
    section |= {"type": kind, "vocab_size": VISION_SHAPE.vocabulary, "context_length": VISION_SHAPE.positions}
    config["search"]["max_length"] = VISION_SHAPE.positions
    section["decoder"]["inputs"] |= {"inputs_embeds": "inputs_embeds"}
    del section["decoder"]["inputs"]["input_ids"]
    section["embedding"] = {"filename": "embedding.onnx"}
    section["vision"] = {"filename": "vision.onnx"}
    if kind == "qwen2_5_vl":
        section["decoder"]["inputs"] |= {"position_ids": "position_ids"}
        section["vision"] |= {"spatial_merge_size": 2, "inputs": {"image_grid_thw": "image_grid_thw"}}
        section |= {"image_token_id": SMALLEST + 1, "vision_start_token_id": SMALLEST}
    section |= changes
    place.write_text(json.dumps(config))
    text = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    text.add_special_tokens([f"<extra{number}>" for number in range(text.get_vocab_size(), SMALLEST)])
    text.add_special_tokens(MARKS[kind])
    text.save(str(folder / "tokenizer.json"))
    place = folder / "tokenizer_config.json"
    settings = json.loads(place.read_text())
    mark = TEMPLATES.get(kind, "?")
    settings["chat_template"] = (
        "{% for message in messages %}<|{{ message['role'] }}|>{% if message['content'] is string %}"
        "{{ message['content'] }}{% else %}{% for part in message['content'] %}{% if part['type'] == 'image' %}"
        + mark
        + "{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}{{ eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    )
    place.write_text(json.dumps(settings))
    return folder


def picture(width: int, height: int, kind: str = "PNG", seed: int = 0) -> bytes:
    """A file with a picture: a gradient with noise."""
    from PIL import Image

    random = np.random.default_rng(seed)
    across, down = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    whole = np.stack([across, down, 255 - across], 2) + random.normal(0, 20, (height, width, 3))
    file = io.BytesIO()
    Image.fromarray(whole.clip(0, 255).astype(np.uint8)).save(file, kind)
    return file.getvalue()

"""A decoder of the kind of Llama with weights of 4 or 8 bits: how many tokens a second, beside onnxruntime.

    python -m bench.decoder --size 0.1 --bits 4 --threads 2

The model is what exporters write for onnxruntime: MatMulNBits, GroupQueryAttention with caches,
SimplifiedLayerNormalization. Its weights are drawn from a seed. Caches of a fixed capacity are bound as both past and
present, so that a step adds one row to them. A prompt is read, then tokens are made one by one, those of the greatest
logits. Both engines go in turns, some tokens at a time, as other processes may take their part of the machine.

Decoding reads each weight once a token: its bound is the rate at which memory is read (`bench.machine`).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from bench.machine import read_bandwidth

BLOCK = 32
_TURN = 8
"""Tokens that an engine makes in its turn."""


@dataclass(frozen=True)
class Shape:
    """A decoder's sizes. heads: of queries, and of keys and values."""

    layers: int
    width: int
    inner: int
    heads: tuple[int, int]
    vocabulary: int = 32000
    positions: int = 2048

    @property
    def depth(self) -> int:
        return self.width // self.heads[0]


SIZES = {
    "tiny": Shape(2, 128, 256, (4, 2), 512, 512),
    "0.1": Shape(12, 768, 2048, (12, 4)),
    "1": Shape(22, 2048, 5632, (32, 4)),
}


def decoder(shape: Shape, bits: int = 4, accuracy_level: int = 0, seed: int = 0) -> ModelProto:
    """ids [batch, steps], attention_mask [batch, total], past.N.key and .value [batch, heads, past, depth], to logits
    [batch, steps, vocabulary], present.N.key and .value."""
    return _Decoder(shape, bits, accuracy_level, seed).model()


class _Decoder:
    """Builds one model."""

    def __init__(self, shape: Shape, bits: int, accuracy_level: int, seed: int) -> None:
        self.shape, self.bits, self.accuracy_level = shape, bits, accuracy_level
        self.random = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.quantised_bytes = 0

    def constant(self, array: np.ndarray) -> str:
        name = f"constant.{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def add(self, operator: str, inputs: Sequence[str], outputs: int | Sequence[str] = 1, **attributes: Any) -> Any:
        number = len(self.nodes)
        names = [f"{operator}.{number}.{i}" for i in range(outputs)] if isinstance(outputs, int) else list(outputs)
        self.nodes.append(helper.make_node(operator, inputs, names, f"{operator}.{number}", **attributes))
        return names[0] if len(names) == 1 else names

    def product(self, x: str, inputs: int, outputs: int) -> str:
        blocks = -(-inputs // BLOCK)
        numbers = self.random.integers(0, 256, (outputs, blocks, BLOCK * self.bits // 8), np.uint8)
        spread = 2.0**self.bits / np.sqrt(12)
        scales = self.random.uniform(0.7, 1.3, (outputs, blocks)).astype(np.float32) / np.float32(
            spread * np.sqrt(inputs)
        )
        self.quantised_bytes += numbers.nbytes + scales.nbytes
        made: str = self.add(
            "MatMulNBits",
            [x, self.constant(numbers), self.constant(scales)],
            domain="com.microsoft",
            K=inputs,
            N=outputs,
            bits=self.bits,
            block_size=BLOCK,
            accuracy_level=self.accuracy_level,
        )
        return made

    def norm_scale(self) -> str:
        return self.constant(self.random.uniform(0.8, 1.2, self.shape.width).astype(np.float32))

    def model(self) -> ModelProto:
        shape, (heads, shared), depth = self.shape, self.shape.heads, self.shape.depth
        angles = np.arange(shape.positions)[:, None] / 10000.0 ** (np.arange(0, depth, 2) / depth)
        cosines, sines = (self.constant(f(angles).astype(np.float32)) for f in (np.cos, np.sin))
        one = self.constant(np.array([1], np.int64))
        counts = self.add("ReduceSum", ["attention_mask", one], keepdims=0)
        lengths = self.add("Cast", [self.add("Sub", [counts, one])], to=TensorProto.INT32)
        size = self.add("Gather", [self.add("Shape", ["attention_mask"]), self.constant(np.array(1, np.int64))])
        total = self.add("Cast", [size], to=TensorProto.INT32)
        table = self.constant(self.random.normal(size=(shape.vocabulary, shape.width)).astype(np.float32))
        x = self.add("Gather", [table, "ids"])
        y = self.add("SimplifiedLayerNormalization", [x, self.norm_scale()], axis=-1, epsilon=1e-5)
        caches: list[Any] = []
        for layer in range(shape.layers):
            names = [f"past.{layer}.key", f"past.{layer}.value"]
            presents = [f"present.{layer}.key", f"present.{layer}.value"]
            caches.append((names, presents))
            packed = self.product(y, shape.width, (heads + 2 * shared) * depth)
            attended = self.add(
                "GroupQueryAttention",
                [packed, "", "", *names, lengths, total, cosines, sines],
                [f"attention.{layer}", *presents],
                domain="com.microsoft",
                num_heads=heads,
                kv_num_heads=shared,
                do_rotary=1,
            )[0]
            x, y = self.skip(x, self.product(attended, shape.width, shape.width))
            gate, up = (self.product(y, shape.width, shape.inner) for _ in range(2))
            gated = self.add("Mul", [self.add("Mul", [gate, self.add("Sigmoid", [gate])]), up])
            x, y = self.skip(x, self.product(gated, shape.inner, shape.width))
        logits = self.product(y, shape.width, shape.vocabulary)
        self.nodes[-1].output[0] = "logits"
        assert logits
        return self.graph(caches)

    def skip(self, x: str, y: str) -> tuple[str, str]:
        """The sum and its norm."""
        name = f"skip.{len(self.nodes)}"
        outputs = [f"{name}.norm", "", "", f"{name}.sum"]
        self.add("SkipSimplifiedLayerNormalization", [x, y, self.norm_scale()], outputs, domain="com.microsoft")
        return outputs[3], outputs[0]

    def graph(self, caches: Sequence[tuple[list[str], list[str]]]) -> ModelProto:
        shape, value = self.shape, helper.make_tensor_value_info
        rows = [
            [value(name, TensorProto.FLOAT, ["batch", shape.heads[1], size, shape.depth]) for name in names]
            for pair in caches
            for names, size in zip(pair, ("past", "rows"), strict=True)
        ]
        inputs = [value("ids", TensorProto.INT64, ["batch", "steps"])]
        inputs += [value("attention_mask", TensorProto.INT64, ["batch", "total"])]
        inputs += [one for names in rows[::2] for one in names]
        outputs = [value("logits", TensorProto.FLOAT, ["batch", "steps", shape.vocabulary])]
        outputs += [one for names in rows[1::2] for one in names]
        graph = helper.make_graph(self.nodes, "decoder", inputs, outputs, self.constants)
        imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=imports, ir_version=10)


class Generator:
    """Makes tokens with a session of either engine, whose caches are bound once."""

    def __init__(self, module: Any, session: Any, capacity: int) -> None:
        self.module, self.session = module, session
        self.binding = session.io_binding()
        self.length = 0
        self.caches = []
        for entry in session.get_inputs():
            if not entry.name.startswith("past."):
                continue
            zeros = np.zeros((1, entry.shape[1], capacity, entry.shape[3]), np.float32)
            cache = module.OrtValue.ortvalue_from_numpy(zeros)
            self.caches.append(cache)
            self.binding.bind_ortvalue_input(entry.name, cache)
            self.binding.bind_ortvalue_output(entry.name.replace("past", "present"), cache)

    def read(self, ids: np.ndarray) -> np.ndarray:
        """The logits [vocabulary] behind some more tokens."""
        self.length += len(ids)
        self.binding.bind_cpu_input("ids", ids.reshape(1, -1).astype(np.int64))
        self.binding.bind_cpu_input("attention_mask", np.ones((1, self.length), np.int64))
        self.binding.bind_output("logits")  # of another shape
        self.session.run_with_iobinding(self.binding)
        outputs = self.binding.get_outputs()
        logits: np.ndarray = outputs[-1].numpy()
        last: np.ndarray = logits[0, -1]
        return last

    def tokens(self, first: int, count: int) -> list[int]:
        """`count` tokens behind `first`, each that of the greatest logit."""
        found = [first]
        for _ in range(count):
            found.append(int(self.read(np.array(found[-1:])).argmax()))
        return found[1:]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.decoder", description="Tokens a second of a decoder.")
    parser.add_argument("--size", choices=SIZES, default="0.1", help="billions of parameters (default: 0.1)")
    parser.add_argument("--bits", type=int, choices=(4, 8), default=4, help="of a weight (default: 4)")
    parser.add_argument("--level", type=int, default=0, help="accuracy_level of MatMulNBits (default: 0)")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    parser.add_argument("--prompt", type=int, default=128, help="tokens (default: 128)")
    parser.add_argument("--turns", type=int, default=8, help=f"turns of {_TURN} tokens each (default: 8)")
    options = parser.parse_args(arguments)
    shape = SIZES[options.size]
    builder = _Decoder(shape, options.bits, options.level, 0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "decoder.onnx"
        path.write_bytes(builder.model().SerializeToString())
        print(report(measured(path, options.threads, options.prompt, options.turns), builder, options.threads))


def measured(path: Path, threads: int, prompt: int, turns: int) -> dict[str, tuple[float, list[float]]]:
    """Measure each engine: the seconds of the prompt, and those of a token in each turn."""
    import onnxruntime

    import jitonnx

    generators: dict[str, Generator] = {}
    for name, module in (("onnxruntime", onnxruntime), ("jitonnx", jitonnx)):
        options: Any = module.SessionOptions()
        options.intra_op_num_threads = threads
        session = module.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        generators[name] = Generator(module, session, prompt + turns * _TURN)
    ids = np.arange(3, 3 + prompt)
    prompts: dict[str, list[float]] = {name: [] for name in generators}
    last: dict[str, int] = {}
    for _ in range(3):
        for name, generator in generators.items():
            generator.length = 0
            started = time.perf_counter()
            last[name] = int(generator.read(ids).argmax())
            prompts[name].append(time.perf_counter() - started)
    tokens: dict[str, list[float]] = {name: [] for name in generators}
    for _ in range(turns):
        for name, generator in generators.items():
            for _ in range(_TURN):
                started = time.perf_counter()
                last[name] = generator.tokens(last[name], 1)[0]
                tokens[name].append(time.perf_counter() - started)
    return {name: (min(prompts[name]), tokens[name]) for name in generators}


def report(found: dict[str, tuple[float, list[float]]], builder: _Decoder, threads: int) -> str:
    """A table: prompt, median and best token, and how much of the memory's rate the best one reads weights at."""
    memory = read_bandwidth(512 << 20, threads)
    lines = [
        f"{builder.quantised_bytes / 1e6:.0f} MB of weights and scales a token; memory is read at {memory:.1f} GB/s"
    ]
    for name, (prompt, tokens) in found.items():
        median, best = statistics.median(tokens), min(tokens)
        rate = builder.quantised_bytes / best / 1e9
        lines.append(
            f"{name:12} prompt {prompt * 1e3:8.1f} ms   token {median * 1e3:7.2f} ms (best {best * 1e3:7.2f})   "
            f"{1 / median:6.1f} tokens/s   {rate:5.1f} GB/s, {rate / memory:.2f} of the memory's rate"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()

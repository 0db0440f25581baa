"""What the first start of a tiny model costs, of which fixed cost is nearly all: an Add, a product, ten nodes, a Conv.

    python -m bench.first_starts                        # four models that it makes itself
    python -m bench.first_starts --threads 2 --rounds 9

Fresh processes take turns: jitonnx with an empty kernel cache (`first`), jitonnx with the cache that this filled
(`again`), onnxruntime. Each imports NumPy and the runtime, makes a session of the model file and runs it once.
Python's own cache of compiled modules is filled, as it is for installed packages. Times are medians in milliseconds: of
the clock from before the runtime's import (NumPy's included) to the first result, of the session alone, and the CPU
time of the process and all that it starts, from its beginning to its end.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from bench.results import add_record, keep

SCRIPT = """
import json, sys, time
began = time.perf_counter()
kind, model, inputs, threads, output = sys.argv[1:]
if kind == "onnxruntime":
    import onnxruntime as runtime
else:
    import jitonnx as runtime
import numpy as np
x = np.load(inputs)
options = runtime.SessionOptions()
options.intra_op_num_threads = int(threads)
opening = time.perf_counter()
session = runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
opened = time.perf_counter()
y = session.run(None, {"x": x})[0]
print(json.dumps([1e3 * (time.perf_counter() - began), 1e3 * (opened - opening)]), flush=True)
np.save(output, y)
"""
KINDS = ("first", "again", "onnxruntime")
TOLERANCE = 1e-4
"""Largest difference to onnxruntime's output, over its largest value."""


def models() -> dict[str, tuple[onnx.ModelProto, np.ndarray]]:
    """The models by name, with the input `x` of each; their outputs are `y`."""
    random = np.random.default_rng(0)

    def made(nodes: Sequence[onnx.NodeProto], shape: Sequence[int], *weights: Sequence[int]) -> onnx.ModelProto:
        """A model of nodes that read `x` and the weights w0, w1, …, of these shapes."""
        arrays = [random.standard_normal(sizes).astype(np.float32) / 8 for sizes in weights]
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        constants = [numpy_helper.from_array(array, f"w{number}") for number, array in enumerate(arrays)]
        graph = helper.make_graph(nodes, "tiny", inputs, outputs, constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    node = helper.make_node
    perceptron = []
    for layer, before in enumerate(["x", "r0", "r1", "r2"]):
        perceptron.append(node("Gemm", [before, f"w{layer}"], [f"t{layer}"]))
        perceptron.append(node("Relu", [f"t{layer}"], [f"r{layer}"]))
    perceptron += [node("Add", ["r3", "x"], ["s"]), node("Softmax", ["s"], ["y"])]
    product = [node("MatMul", ["x", "w0"], ["t"]), node("Relu", ["t"], ["y"])]
    made_of = {
        "Add": made([node("Add", ["x", "w0"], ["y"])], (4, 64), (64,)),
        "MatMul, Relu": made(product, (4, 64), (64, 128)),
        "perceptron of 10 nodes": made(perceptron, (4, 64), *[(64, 64)] * 4),
        "Conv": made([node("Conv", ["x", "w0"], ["y"], pads=[1] * 4)], (1, 16, 32, 32), (32, 16, 3, 3)),
    }
    shapes = {"Conv": (1, 16, 32, 32)}
    return {
        name: (model, random.standard_normal(shapes.get(name, (4, 64))).astype(np.float32))
        for name, model in made_of.items()
    }


def start(kind: str, folder: Path, cache: str, threads: int) -> tuple[float, float, float]:
    """Milliseconds of the clock to the first result, of the session alone, and of CPU time, of one process."""
    arguments = [kind, folder / "model.onnx", folder / "x.npy", threads, folder / f"{kind}.npy"]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {"PYTHONPYCACHEPREFIX": str(folder.parent / "bytecode"), "JITONNX_CACHE_DIR": cache}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    elapsed, session = json.loads(done.stdout)
    return elapsed, session, 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measure(model: onnx.ModelProto, x: np.ndarray, folder: Path, threads: int, rounds: int) -> dict[str, list[float]]:
    """Medians by kind, in the order of what `start` returns, over rounds in turns behind one that does not count."""
    folder.mkdir()
    onnx.save(model, folder / "model.onnx")
    np.save(folder / "x.npy", x)
    found: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in KINDS}
    for number in range(rounds + 1):
        with tempfile.TemporaryDirectory() as cache:
            for kind in KINDS:
                times = start(kind, folder, cache, threads)
                if number:
                    found[kind].append(times)
    reference = np.load(folder / "onnxruntime.npy")
    for kind in ("first", "again"):
        difference = np.abs(np.load(folder / f"{kind}.npy") - reference).max()
        assert difference <= TOLERANCE * np.abs(reference).max(), f"{kind} is wrong by {difference}"
    return {kind: [statistics.median(column) for column in zip(*times, strict=True)] for kind, times in found.items()}


def cells(name: str, row: Mapping[str, Sequence[float]]) -> list[str]:
    """A row of the table."""
    return [name, *(f"{figure:.0f}" if figure >= 10 else f"{figure:.1f}" for kind in KINDS for figure in row[kind])]


COLUMNS = ["model", *(f"{kind}, {what}" for kind in KINDS for what in ("ms", "session", "CPU"))]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.first_starts", description="First starts of tiny models.")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    add_record(parser)
    options = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (name, (model, x)) in enumerate(models().items()):
            row = measure(model, x, Path(folder) / str(number), options.threads, options.rounds)
            rows.append(cells(name, row))
            print("".join(f"{cell:>20}" for cell in rows[-1]), flush=True)
    if options.record:
        keep(options.record, [options.threads], COLUMNS, rows)


if __name__ == "__main__":
    main()

"""How compiling grows with a model: chains of elementwise operators, the longer the worse for what is not linear.

    python -m bench.chains                        # 300, 3000 and 20000 nodes of each kind, milliseconds a node
    python -m bench.chains --nodes 300 3000 --kinds residual

`chain` applies one function after another, `residual` adds a value to its Sigmoid again and again, `doubling` adds a
value to itself, so that what is written out doubles with each node. Cold is the making of a session and its first run
with an empty kernel cache, warm the same with a filled one, each in a process of its own; CPU seconds of all processes.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

KINDS = ("chain", "residual", "doubling")
ROWS, COLUMNS = 4, 33

SCRIPT = """
import resource, sys
import numpy as np
import jitonnx

def seconds():
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))

options = jitonnx.SessionOptions()
options.intra_op_num_threads = 1
options.add_session_config_entry("jitonnx.keep_model", "0")
x = np.linspace(-1, 1, int(sys.argv[2]) * int(sys.argv[3]), dtype=np.float32).reshape(int(sys.argv[2]), -1)
began = seconds()
(y,) = jitonnx.InferenceSession(sys.argv[1], options).run(None, {"x": x})
print(seconds() - began)
"""


def model(kind: str, nodes: int) -> bytes:
    """A model of so many nodes: x, float32 [ROWS, COLUMNS], to y."""
    from jitonnx.proto import onnx_pb2 as onnx

    proto = onnx.ModelProto(ir_version=8)
    proto.opset_import.add(domain="", version=17)
    graph, value = proto.graph, "x"
    graph.name = f"{kind} of {nodes}"

    def node(operator: str, *inputs: str) -> str:
        made = graph.node.add(op_type=operator, name=f"node{len(graph.node)}", input=inputs)
        made.output.append("y" if len(graph.node) == nodes else f"value{len(graph.node)}")
        return made.output[0]

    while len(graph.node) < nodes:
        number = len(graph.node)
        if kind == "chain":
            value = node(("Tanh", "Abs", "Neg", "Relu", "Sigmoid")[number % 5], value)
        elif kind == "doubling":
            value = node("Add", value, value)
        else:
            value = node("Add", value, node("Sigmoid", value)) if number + 2 <= nodes else node("Neg", value)
    for name, values in (("x", graph.input), ("y", graph.output)):
        tensor = values.add(name=name).type.tensor_type
        tensor.elem_type = onnx.TensorProto.FLOAT
        for size in (ROWS, COLUMNS):
            tensor.shape.dim.add(dim_value=size)
    return proto.SerializeToString()


def seconds(path: Path, cache: Path, limit: float) -> float:
    """CPU seconds of a session and its first run; infinite where that takes longer than the limit.

    NumPy's library for products is given one thread: others spin for 0.03 s behind NumPy's import if a CPU is free.
    """
    command = [sys.executable, "-c", SCRIPT, str(path), str(ROWS), str(COLUMNS)]
    environment = {**os.environ, "JITONNX_CACHE_DIR": str(cache), "OPENBLAS_NUM_THREADS": "1"}

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit), int(limit) + 1))

    done = subprocess.run(command, env=environment, capture_output=True, text=True, preexec_fn=limited, check=False)
    if done.returncode < 0:
        return float("inf")
    if done.returncode:
        raise RuntimeError(f"{path.stem} did not run: {done.stderr[-2000:]}")
    return float(done.stdout)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.chains", description="How compiling grows with a model.")
    parser.add_argument("--nodes", type=int, nargs="+", default=[300, 3000, 20000])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--limit", type=float, default=120.0, help="CPU seconds for one start")
    options = parser.parse_args(arguments)
    print(f"{'kind':10}{'nodes':>8}{'cold s':>9}{'ms/node':>9}{'warm s':>9}{'ms/node':>9}")
    for kind in options.kinds:
        for nodes in options.nodes:
            with tempfile.TemporaryDirectory() as name:
                path = Path(name) / f"{kind}.onnx"
                path.write_bytes(model(kind, nodes))
                cold, warm = (seconds(path, Path(name) / "cache", options.limit) for _ in range(2))
            each = f"{cold:9.2f}{1e3 * cold / nodes:9.2f}{warm:9.2f}{1e3 * warm / nodes:9.2f}"
            print(f"{kind:10}{nodes:8}{each}", flush=True)


if __name__ == "__main__":
    main()

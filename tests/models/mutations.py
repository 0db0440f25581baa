"""Small models with something broken in them, each run in a process of its own with bounds on time and memory.

    python -m tests.models.mutations --count 2000

makes ONNX's node models, breaks one or several things in each (by a seed, so that each can be made again) and runs what
comes out. Allowed are an answer and an error of jitonnx's own; a crash, another error, a process that takes longer than
`SECONDS` of a CPU or more than `MEMORY` is printed with its seed, and the status is 1.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test.case.node import collect_testcases

import jitonnx
from jitonnx import errors

SECONDS = 20
"""A CPU may take so many; code of a model is compiled within."""
MEMORY = 4 << 30
"""Bytes of address space beyond what the process has when it begins."""

EXTREMES = (
    0,
    1,
    -1,
    2,
    3,
    7,
    8,
    64,
    1 << 20,
    1 << 31,
    (1 << 31) - 1,
    1 << 40,
    (1 << 63) - 1,
    -(1 << 63),
    -2,
    -(1 << 31),
)
FLOATS = (0.0, -0.0, 1.0, -1.0, 1e-45, 3.4e38, float("inf"), float("-inf"), float("nan"), 0.5)


@cache
def bases() -> list[tuple[onnx.ModelProto, list[Any]]]:
    """ONNX's node models, each with what its first case feeds."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    return [(case.model, list(case.data_sets[0][0])) for case in cases if case.model is not None and case.data_sets]


def mutated(seed: int) -> tuple[bytes, list[Any], str]:
    """The model of a seed, what to feed it, and what was done to it."""
    rng = random.Random(seed)
    base, feeds = rng.choice(bases())
    model = onnx.ModelProto()
    model.CopyFrom(base)
    done = [model.graph.name]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        change = rng.choice(CHANGES)
        done.append(change.__name__.strip("_"))
        change(rng, model)
    data = model.SerializeToString()
    if rng.random() < 0.1:
        done.append("bytes")
        data = _bytes(rng, data)
    if rng.random() < 0.2:
        done.append("feeds")
        feeds = [_fed(rng, feed) for feed in feeds]
    return data, feeds, " ".join(done)


# ---------------------------------------------------------------- changes


def _graphs(graph: onnx.GraphProto) -> list[onnx.GraphProto]:
    found = [graph]
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += _graphs(attribute.g)
    return found


def _graph(rng: random.Random, model: onnx.ModelProto) -> onnx.GraphProto:
    return rng.choice(_graphs(model.graph))


def _node(rng: random.Random, model: onnx.ModelProto) -> onnx.NodeProto:
    nodes = [node for graph in _graphs(model.graph) for node in graph.node]
    nodes += [node for function in model.functions for node in function.node]
    return rng.choice(nodes or [onnx.NodeProto()])


def _names(model: onnx.ModelProto) -> list[str]:
    found = [""]
    for graph in _graphs(model.graph):
        found += [value.name for value in (*graph.input, *graph.output)]
        found += [name for node in graph.node for name in (*node.input, *node.output)]
    return found


def _input_name(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    if node.input:
        node.input[rng.randrange(len(node.input))] = rng.choice(_names(model))


def _inputs(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    names = list(node.input)
    rng.shuffle(names)
    if rng.random() < 0.5:
        names = names[: rng.randrange(len(names) + 1)] if rng.random() < 0.5 else [*names, rng.choice(_names(model))]
    node.input[:] = names


def _outputs(rng: random.Random, model: onnx.ModelProto) -> None:
    node = _node(rng, model)
    names = list(node.output)
    node.output[:] = rng.choice((names[:-1], [*names, "more"], ["", *names[1:]], names[::-1]))


def _operator(rng: random.Random, model: onnx.ModelProto) -> None:
    _node(rng, model).op_type = rng.choice([schema.name for schema in onnx.defs.get_all_schemas()])


def _domain(rng: random.Random, model: onnx.ModelProto) -> None:
    _node(rng, model).domain = rng.choice(("", "ai.onnx", "ai.onnx.ml", "com.microsoft", "else"))


def _attribute(rng: random.Random, model: onnx.ModelProto) -> None:
    """Another value, another kind, twice, or none."""
    node = _node(rng, model)
    if not node.attribute:
        return
    attribute = rng.choice(list(node.attribute))
    way = rng.randrange(6)
    if way == 0:
        node.attribute.remove(attribute)
    elif way == 1:
        node.attribute.append(attribute)
    elif way == 2:
        attribute.type = rng.randrange(15)  # type: ignore[assignment]
    elif attribute.ints:
        attribute.ints[rng.randrange(len(attribute.ints))] = rng.choice(EXTREMES)
    elif attribute.floats:
        attribute.floats[rng.randrange(len(attribute.floats))] = rng.choice(FLOATS)
    elif attribute.type == onnx.AttributeProto.STRING:
        attribute.s = rng.choice((b"", b"linear", b"\xff", b"NOTSET", b"none", b"x" * 1000))
    elif attribute.type == onnx.AttributeProto.FLOAT:
        attribute.f = rng.choice(FLOATS)
    else:
        attribute.i = rng.choice(EXTREMES)


def _lists(rng: random.Random, model: onnx.ModelProto) -> None:
    """An attribute's list, longer or shorter."""
    for attribute in _node(rng, model).attribute:
        for values in (attribute.ints, attribute.floats):
            if values and rng.random() < 0.5:
                values[:] = list(values)[:-1] if rng.random() < 0.5 else [*values, values[0]]  # type: ignore[index]


def _version(rng: random.Random, model: onnx.ModelProto) -> None:
    if model.opset_import:
        rng.choice(list(model.opset_import)).version = rng.choice((*range(1, 28), 0, -1, 1000))


def _declared(rng: random.Random, model: onnx.ModelProto) -> None:
    """The type or shape of an input or output."""
    graph = _graph(rng, model)
    values = [*graph.input, *graph.output]
    if not values:
        return
    kind = rng.choice(values).type.tensor_type
    way = rng.randrange(4)
    if way == 0:
        kind.elem_type = rng.randrange(27)
    elif way == 1:
        kind.ClearField("shape")
    elif way == 2:
        kind.shape.dim.add().dim_value = rng.choice(EXTREMES)
    elif kind.shape.dim:
        dim = rng.choice(list(kind.shape.dim))
        if rng.random() < 0.5:
            dim.dim_param = rng.choice(("n", "m", "", "?"))
        else:
            dim.dim_value = rng.choice(EXTREMES)


def _initializer(rng: random.Random, model: onnx.ModelProto) -> None:
    """An input becomes a constant, of any elements."""
    graph = _graph(rng, model)
    if not graph.input:
        return
    name = rng.choice(list(graph.input)).name
    shape = [rng.choice((0, 1, 2, 3, 4)) for _ in range(rng.randrange(4))]
    if rng.random() < 0.5:
        array = np.array([rng.choice(EXTREMES) for _ in range(int(np.prod(shape)))], np.int64)
    else:
        array = np.array([rng.choice(FLOATS) for _ in range(int(np.prod(shape)))], np.float32)
    tensor = onnx.numpy_helper.from_array(array.reshape(shape), name)
    if rng.random() < 0.3:
        tensor.dims[:] = [rng.choice(EXTREMES) for _ in tensor.dims]
    if rng.random() < 0.2:
        tensor.raw_data = tensor.raw_data[:-1]
    graph.initializer.append(tensor)


def _nodes(rng: random.Random, model: onnx.ModelProto) -> None:
    """A node taken out, or there twice."""
    graph = _graph(rng, model)
    if graph.node:
        node = rng.choice(list(graph.node))
        if rng.random() < 0.5:
            graph.node.remove(node)
        else:
            graph.node.append(node)


def _graph_output(rng: random.Random, model: onnx.ModelProto) -> None:
    graph = _graph(rng, model)
    if graph.output:
        rng.choice(list(graph.output)).name = rng.choice(_names(model))


def _tensor(rng: random.Random, model: onnx.ModelProto) -> None:
    """A tensor of an attribute or an initializer: type, dimensions, or where its data are."""
    tensors = [tensor for graph in _graphs(model.graph) for tensor in graph.initializer]
    tensors += [
        attribute.t
        for graph in _graphs(model.graph)
        for node in graph.node
        for attribute in node.attribute
        if attribute.HasField("t")
    ]
    if not tensors:
        return
    tensor = rng.choice(tensors)
    way = rng.randrange(4)
    if way == 0:
        tensor.data_type = rng.randrange(27)
    elif way == 1:
        tensor.dims.append(rng.choice(EXTREMES))
    elif way == 2 and tensor.dims:
        tensor.dims[0] = rng.choice(EXTREMES)
    else:
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=rng.choice(("nowhere", "../up", "/etc/passwd", "x" * 5000)))


CHANGES: Sequence[Callable[[random.Random, onnx.ModelProto], None]] = (
    *(_input_name, _inputs, _outputs, _operator, _domain, _attribute, _attribute, _attribute, _lists, _version),
    *(_declared, _declared, _initializer, _initializer, _nodes, _graph_output, _tensor),
)


def _bytes(rng: random.Random, data: bytes) -> bytes:
    broken = bytearray(data)
    for _ in range(rng.choice((1, 2, 8))):
        way, at = rng.randrange(3), rng.randrange(len(broken))
        if way == 0:
            broken[at] = rng.randrange(256)
        elif way == 1:
            del broken[at : at + rng.choice((1, 10))]
        else:
            broken[at:at] = bytes([rng.randrange(256)])
        if not broken:
            break
    return bytes(broken)


def _fed(rng: random.Random, feed: Any) -> Any:
    """Another array: of another shape or type, or with extreme elements."""
    if not isinstance(feed, np.ndarray) or feed.dtype == object:
        return feed
    way = rng.randrange(4)
    if way == 0:
        return feed[None]
    if way == 1:
        return feed[:0] if feed.ndim else feed
    if way == 2:
        return feed.astype(rng.choice((np.float32, np.int64, np.int32, np.float64)))
    changed = feed.copy()
    if changed.size and changed.dtype.kind in "iu":
        changed.flat[rng.randrange(changed.size)] = np.array(rng.choice(EXTREMES)).astype(changed.dtype)
    elif changed.size and changed.dtype.kind == "f":
        changed.flat[rng.randrange(changed.size)] = rng.choice(FLOATS)
    return changed


# ---------------------------------------------------------------- runs


def fault(seed: int) -> str:
    """What is wrong with how the model of a seed is dealt with; "" if nothing is."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            os.write(writer, _outcome(seed).encode()[-8000:])
        finally:
            os._exit(0)
    os.close(writer)
    said = b""
    while part := os.read(reader, 1 << 16):
        said += part
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"killed by {signal.Signals(os.WTERMSIG(status)).name}"
    return said.decode() if said else "it ended without a word"


def _outcome(seed: int) -> str:
    """What comes of the model of a seed in this process, which gets bounds: that it is right, or what was raised."""
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY, held + MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    warnings.simplefilter("ignore")
    data, feeds, _ = mutated(seed)
    try:
        options = jitonnx.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        session = jitonnx.InferenceSession(data, options)
        names = [entry.name for entry in session.get_inputs()]
        session.run(None, dict(zip(names, feeds, strict=False)))
    except errors.Error as error:
        return f"it calls itself a bug: {error}" if "Bug:" in str(error) else "right"
    except BaseException:
        return traceback.format_exc()
    return "right"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    chosen = parser.parse_args()
    bases()
    found = 0
    for seed in range(chosen.first, chosen.first + chosen.count):
        if seed % 500 == 499:
            print(f"seed {seed} ...", flush=True)
        wrong = fault(seed)
        if wrong != "right":
            found += 1
            print(f"seed {seed}: {mutated(seed)[2]}\n{wrong}", flush=True)
    print(f"{chosen.count} models, {found} of them not dealt with as they should be")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

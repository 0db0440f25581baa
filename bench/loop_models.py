"""Models that are loops: recurrences over time, a product again and again, and greedy decoders as one model each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

OPSET = 20
VOCABULARY, WIDTH, HEADS = 1000, 256, 4
"""Sizes; the decoders are of another width, too."""

Feeds = dict[str, np.ndarray]


class LoopCase(NamedTuple):
    """A model and what it is fed. steps: how many iterations that makes."""

    name: str
    model: onnx.ModelProto
    feeds: Feeds
    steps: int


class _Writer:
    """Nodes of a graph, each named after its only output, and its constants."""

    def __init__(self, seed: int = 0, prefix: str = "") -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._prefix = prefix
        self._rng = np.random.default_rng(seed)

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """The name of a node's output, or of several."""
        names = [f"{self._prefix}{operator.lower()}_{len(self.nodes)}_{number}" for number in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def constant(self, value: Any, dtype: Any = np.int64) -> str:
        """The name of a new constant."""
        name = f"{self._prefix}constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def weights(self, *shape: int, scale: float | None = None) -> str:
        """The name of new weights."""
        spread = (scale or 1.0) / np.sqrt(shape[0] if scale is None else 1)
        return self.constant(self._rng.standard_normal(shape) * spread, np.float32)

    def rename(self, name: str, new: str) -> None:
        """Rename a value."""
        self.nodes.append(helper.make_node("Identity", [name], [new]))


def _tensor(name: str, shape: Sequence[Any] | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _model(writer: _Writer, inputs: Sequence[Any], outputs: Sequence[Any]) -> onnx.ModelProto:
    graph = helper.make_graph(writer.nodes, "main", list(inputs), list(outputs), writer.constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    model.ir_version = 9
    return model


def _body(writer: _Writer, inputs: Sequence[Any], outputs: Sequence[Any]) -> onnx.GraphProto:
    return helper.make_graph(writer.nodes, "body", list(inputs), list(outputs), writer.constants)


def smoothing(length: int = 1000, width: int = 64) -> LoopCase:
    """Scan: y = y + (x - y) * rate."""
    body = _Writer(prefix="body_")
    change = body.add("Mul", body.add("Sub", "x", "y"), body.constant(0.1, np.float32))
    body.rename(body.add("Add", "y", change), "y_next")
    body.rename("y_next", "row")
    row = [width]
    writer = _Writer()
    graph = _body(body, [_tensor("y", row), _tensor("x", row)], [_tensor("y_next", row), _tensor("row", row)])
    writer.nodes.append(helper.make_node("Scan", ["start", "signal"], ["end", "smooth"], body=graph, num_scan_inputs=1))
    model = _model(
        writer,
        [_tensor("start", row), _tensor("signal", ["time", width])],
        [_tensor("end", row), _tensor("smooth", ["time", width])],
    )
    rng = np.random.default_rng(1)
    feeds = {
        "start": np.zeros(width, np.float32),
        "signal": rng.standard_normal((length, width)).astype(np.float32),
    }
    return LoopCase(f"smoothing (Scan of {length} x {width})", model, feeds, length)


def gated(length: int = 1000, width: int = WIDTH) -> LoopCase:
    """Loop: h = sigmoid(g) * h + (1 - sigmoid(g)) * tanh(x), as in light recurrent layers; x and g are captured."""
    body = _Writer(prefix="body_")
    x, g = (body.add("Gather", name, "number") for name in ("x", "g"))
    keep = body.add("Sigmoid", g)
    new = body.add("Mul", body.add("Sub", body.constant(1.0, np.float32), keep), body.add("Tanh", x))
    body.rename(body.add("Add", body.add("Mul", keep, "h"), new), "h_next")
    body.rename("going", "condition_out")
    body.rename("h_next", "row")
    row = [1, width]
    graph = _body(
        body,
        [_tensor("number", [], TensorProto.INT64), _tensor("going", [], TensorProto.BOOL), _tensor("h", row)],
        [_tensor("condition_out", [], TensorProto.BOOL), _tensor("h_next", row), _tensor("row", row)],
    )
    writer = _Writer()
    times = writer.add("Gather", writer.add("Shape", "x"), writer.constant(0))
    writer.nodes.append(helper.make_node("Loop", [times, "", "start"], ["end", "states"], body=graph))
    shape = ["time", 1, width]
    model = _model(
        writer,
        [_tensor("start", row), _tensor("x", shape), _tensor("g", shape)],
        [_tensor("end", row), _tensor("states", shape)],
    )
    rng = np.random.default_rng(2)
    feeds = {name: rng.standard_normal((length, 1, width)).astype(np.float32) for name in ("x", "g")}
    feeds["start"] = np.zeros(row, np.float32)
    return LoopCase(f"gated (Loop of {length} x {width})", model, feeds, length)


def product(rows: int, times: int = 100) -> LoopCase:
    """Loop: x = tanh(x W), W of 256 x 256."""
    body = _Writer(prefix="body_")
    body.rename(body.add("Tanh", body.add("MatMul", "x", body.weights(WIDTH, WIDTH))), "x_next")
    body.rename("going", "condition_out")
    shape = [rows, WIDTH]
    graph = _body(
        body,
        [_tensor("number", [], TensorProto.INT64), _tensor("going", [], TensorProto.BOOL), _tensor("x", shape)],
        [_tensor("condition_out", [], TensorProto.BOOL), _tensor("x_next", shape)],
    )
    writer = _Writer()
    writer.nodes.append(helper.make_node("Loop", [writer.constant(times), "", "start"], ["end"], body=graph))
    model = _model(writer, [_tensor("start", shape)], [_tensor("end", shape)])
    feeds = {"start": np.random.default_rng(3).standard_normal(shape).astype(np.float32)}
    return LoopCase(f"product (Loop of {times}, {rows} x 256 x 256)", model, feeds, times)


def _decoder(
    body: _Writer, states: Sequence[tuple[str, str, Sequence[Any], np.ndarray]], logits: str, name: str, length: int
) -> LoopCase:
    """A greedy decoder: a Loop that ends at the token 0 or after `length` tokens, given what the next logits are.

    states: what is carried besides the token, its name in the next iteration, its shape and what it begins with.
    """
    token = body.add("ArgMax", logits, axis=-1, keepdims=0)
    body.rename(token, "token_next")
    body.rename("token_next", "row")
    ended = body.add("Equal", body.add("ReduceMax", token, keepdims=0), body.constant(0))
    body.rename(body.add("Not", ended), "condition_out")
    integer = TensorProto.INT64
    graph = _body(
        body,
        [
            _tensor("number", [], integer),
            _tensor("going", [], TensorProto.BOOL),
            _tensor("token", [1], integer),
            *(_tensor(before, shape) for before, _, shape, _ in states),
        ],
        [
            _tensor("condition_out", [], TensorProto.BOOL),
            _tensor("token_next", [1], integer),
            *(_tensor(behind, [None] * len(shape)) for _, behind, shape, _ in states),
            _tensor("row", [1], integer),
        ],
    )
    writer = _Writer()
    begins = writer.constant(True, np.bool_)
    names = [before for before, *_ in states]
    writer.nodes.append(
        helper.make_node(
            "Loop",
            ["most", begins, "start", *(f"{one}_start" for one in names)],
            ["last", *(f"{one}_end" for one in names), "tokens"],
            body=graph,
        )
    )
    inputs = [_tensor("most", [], integer), _tensor("start", [1], integer)]
    inputs += [_tensor(f"{before}_start", shape) for before, _, shape, _ in states]
    outputs = [_tensor("tokens", [None, 1], integer)]
    outputs += [_tensor(f"{one}_end", [None] * len(shape)) for one, (_, _, shape, _) in zip(names, states, strict=True)]
    feeds = {"most": np.array(length), "start": np.array([1])}
    feeds |= {f"{before}_start": start for before, _, _, start in states}
    return LoopCase(f"{name}, {length} tokens", _model(writer, inputs, outputs), feeds, length)


def lstm_decoder(length: int = 64, width: int = WIDTH) -> LoopCase:
    """Embedding, an LSTM's step, logits, ArgMax."""
    body = _Writer(4, "body_")
    x = body.add(
        "Unsqueeze", body.add("Gather", body.weights(VOCABULARY, width, scale=1.0), "token"), body.constant([0])
    )
    _, h, c = body.add(
        "LSTM",
        x,
        body.weights(1, 4 * width, width, scale=0.08),
        body.weights(1, 4 * width, width, scale=0.08),
        body.weights(1, 8 * width, scale=0.1),
        "",
        "h",
        "c",
        outputs=3,
        hidden_size=width,
    )
    body.rename(h, "h_next")
    body.rename(c, "c_next")
    logits = body.add("MatMul", body.add("Squeeze", h, body.constant([0])), body.weights(width, VOCABULARY))
    shape = [1, 1, width]
    states = [(name, f"{name}_next", shape, np.zeros(shape, np.float32)) for name in ("h", "c")]
    return _decoder(body, states, logits, f"LSTM decoder of {width}", length)


def transformer_decoder(length: int = 64, prompt: int = 16, width: int = WIDTH) -> LoopCase:
    """Embedding, a transformer block whose caches grow by a row each token, logits, ArgMax."""
    body = _Writer(5, "body_")
    size = width // HEADS

    def norm(x: str) -> str:
        return str(body.add("LayerNormalization", x, body.constant(np.ones(width), np.float32)))

    def heads(x: str) -> str:
        shaped = body.add("Reshape", x, body.constant([1, 1, HEADS, size]))
        return str(body.add("Transpose", shaped, perm=[0, 2, 1, 3]))

    x = body.add(
        "Unsqueeze", body.add("Gather", body.weights(VOCABULARY, width, scale=1.0), "token"), body.constant([0])
    )
    normed = norm(x)
    q, k, v = (heads(body.add("MatMul", normed, body.weights(width, width))) for _ in range(3))
    keys, values = body.add("Concat", "keys", k, axis=2), body.add("Concat", "values", v, axis=2)
    body.rename(keys, "keys_next")
    body.rename(values, "values_next")
    scores = body.add("MatMul", q, body.add("Transpose", keys, perm=[0, 1, 3, 2]))
    scaled = body.add("Mul", scores, body.constant(size**-0.5, np.float32))
    mixed = body.add("MatMul", body.add("Softmax", scaled, axis=-1), values)
    joined = body.add("Reshape", body.add("Transpose", mixed, perm=[0, 2, 1, 3]), body.constant([1, 1, width]))
    x = body.add("Add", x, body.add("MatMul", joined, body.weights(width, width)))
    hidden = body.add("Gelu", body.add("MatMul", norm(x), body.weights(width, 4 * width)))
    x = body.add("Add", x, body.add("MatMul", hidden, body.weights(4 * width, width)))
    last = body.add("Squeeze", norm(x), body.constant([0]))
    logits = body.add("MatMul", last, body.weights(width, VOCABULARY))
    rng = np.random.default_rng(6)
    shape = [1, HEADS, "past", size]
    starts = [rng.standard_normal((1, HEADS, prompt, size)).astype(np.float32) for _ in range(2)]
    states = [(name, f"{name}_next", shape, start) for name, start in zip(("keys", "values"), starts, strict=True)]
    return _decoder(body, states, logits, f"transformer decoder of {width}", length)


def _flags(prefix: str) -> tuple[list[Any], Any]:
    """The number and the condition that the body of a Loop is given, and the condition that it gives."""
    given = [
        _tensor(f"{prefix}number", [], TensorProto.INT64),
        _tensor(f"{prefix}going", [], TensorProto.BOOL),
    ]
    return given, _tensor(f"{prefix}condition_out", [], TensorProto.BOOL)


def nested(outer: int = 50, inner: int = 20, width: int = 64) -> LoopCase:
    """Loop in a Loop: u = tanh(u w + s) again and again, from what that gave before on; trip counts are inputs."""
    body, within = _Writer(prefix="body_"), _Writer(prefix="inner_")
    within.rename(within.add("Tanh", within.add("Add", within.add("Mul", "u", "w"), "s")), "u_next")
    within.rename("inner_going", "inner_condition_out")
    row = [width]
    given, condition_out = _flags("inner_")
    graph = _body(within, [*given, _tensor("u", row)], [condition_out, _tensor("u_next", row)])
    body.nodes.append(helper.make_node("Loop", ["m", "", "s"], ["t"], body=graph))
    body.rename(body.add("Neg", "t"), "s_next")
    body.rename("t", "row")
    body.rename("body_going", "body_condition_out")
    given, condition_out = _flags("body_")
    graph = _body(body, [*given, _tensor("s", row)], [condition_out, _tensor("s_next", row), _tensor("row", row)])
    writer = _Writer()
    writer.nodes.append(helper.make_node("Loop", ["n", "", "start"], ["end", "rows"], body=graph))
    counts = [_tensor(name, [], TensorProto.INT64) for name in ("n", "m")]
    inputs = [*counts, _tensor("start", row), _tensor("w", row)]
    model = _model(writer, inputs, [_tensor("end", row), _tensor("rows", [None, width])])
    rng = np.random.default_rng(7)
    feeds = {name: rng.standard_normal(row).astype(np.float32) for name in ("start", "w")}
    feeds |= {"n": np.array(outer), "m": np.array(inner)}
    return LoopCase(f"nested (Loop of {outer} Loops of {inner} x {width})", model, feeds, outer * inner)


def grid(rows: int = 32, columns: int = 32, width: int = 64) -> LoopCase:
    """Scan in a Scan: h[i, j] = tanh(x[i, j] + a h[i, j-1] + b h[i-1, j]), as in recurrent layers over images."""
    body, within = _Writer(prefix="body_"), _Writer(prefix="inner_")
    left = within.add("Mul", "left", within.weights(width, scale=0.5))
    above = within.add("Mul", "above", within.weights(width, scale=0.5))
    within.rename(within.add("Tanh", within.add("Sum", "x", left, above)), "h")
    within.rename("h", "h_row")
    one, line = [width], ["columns", width]
    graph = _body(
        within,
        [_tensor("left", one), _tensor("x", one), _tensor("above", one)],
        [_tensor("h", one), _tensor("h_row", one)],
    )
    zeros = body.constant(np.zeros(width), np.float32)
    body.nodes.append(
        helper.make_node("Scan", [zeros, "x_line", "line"], ["last", "line_next"], body=graph, num_scan_inputs=2)
    )
    body.rename("line_next", "line_row")
    graph = _body(
        body,
        [_tensor("line", line), _tensor("x_line", line)],
        [_tensor("line_next", line), _tensor("line_row", line)],
    )
    writer = _Writer()
    writer.nodes.append(helper.make_node("Scan", ["start", "image"], ["end", "h_all"], body=graph, num_scan_inputs=1))
    whole = ["rows", "columns", width]
    inputs = [_tensor("start", line), _tensor("image", whole)]
    model = _model(writer, inputs, [_tensor("end", line), _tensor("h_all", whole)])
    feeds = {"image": np.random.default_rng(8).standard_normal((rows, columns, width)).astype(np.float32)}
    feeds["start"] = np.zeros((columns, width), np.float32)
    return LoopCase(f"grid (Scan of {rows} Scans of {columns} x {width})", model, feeds, rows * columns)


def cached_readers(batch: int = 8, length: int = 24, width: int = 64) -> LoopCase:
    """Loop in a Loop: for each sample a cache grows by what attention over it gives; a choice in between."""
    body, within = _Writer(9, "body_"), _Writer(10, "inner_")
    scores = within.add("MatMul", "q", within.add("Transpose", "cache", perm=[1, 0]))
    read = within.add("MatMul", within.add("Softmax", scores, axis=-1), "cache")
    within.rename(within.add("Tanh", within.add("MatMul", read, within.weights(width, width))), "q_next")
    within.rename(within.add("Concat", "cache", "q_next", axis=0), "cache_next")
    within.rename("inner_going", "inner_condition_out")
    given, condition_out = _flags("inner_")
    states = [_tensor("cache", ["past", width]), _tensor("q", [1, width])]
    behind = [_tensor("cache_next", [None, width]), _tensor("q_next", [1, width])]
    graph = _body(within, [*given, *states], [condition_out, *behind])
    sample = body.add("Gather", "prompts", "body_number")
    first = body.add("Gather", sample, body.constant([0]))
    body.nodes.append(helper.make_node("Loop", ["most", "", sample, first], ["kept", "last"], body=graph))
    total = body.add("ReduceSum", "last", keepdims=0)
    branches = []
    for operator in ("Neg", "Abs"):
        branch = _Writer(prefix=f"{operator}_")
        branch.rename(branch.add(operator, "last"), f"{operator}_last")
        branches.append(_body(branch, [], [_tensor(f"{operator}_last", [1, width])]))
    positive = body.add("Greater", total, body.constant(0, np.float32))
    body.nodes.append(helper.make_node("If", [positive], ["chosen"], then_branch=branches[0], else_branch=branches[1]))
    body.rename("body_going", "body_condition_out")
    body.rename("chosen", "row")
    body.rename(body.add("Add", "sum", "chosen"), "sum_next")
    given, condition_out = _flags("body_")
    graph = _body(
        body,
        [*given, _tensor("sum", [1, width])],
        [condition_out, _tensor("sum_next", [1, width]), _tensor("row", None)],
    )
    writer = _Writer()
    writer.nodes.append(helper.make_node("Loop", ["batch", "", "start"], ["end", "rows"], body=graph))
    counts = [_tensor(name, [], TensorProto.INT64) for name in ("batch", "most")]
    inputs = [*counts, _tensor("start", [1, width]), _tensor("prompts", ["samples", "prompt", width])]
    model = _model(writer, inputs, [_tensor("end", [1, width]), _tensor("rows", [None, 1, width])])
    rng = np.random.default_rng(11)
    feeds = {"batch": np.array(batch), "most": np.array(length), "start": np.zeros((1, width), np.float32)}
    feeds["prompts"] = rng.standard_normal((batch, 4, width)).astype(np.float32)
    name = f"cached readers (Loop of {batch} Loops of {length} x {width})"
    return LoopCase(name, model, feeds, batch * length)


def listed(length: int = 100, width: int = 64) -> LoopCase:
    """Loop over unbound rows: h = tanh(h W + x), appended to a list, which is stacked; as PyTorch writes such loops."""
    body = _Writer(prefix="body_")
    x = body.add("SequenceAt", "rows", "number")
    product = body.add("MatMul", "h", body.weights(width, width))
    body.rename(body.add("Tanh", body.add("Add", product, x)), "h_next")
    body.rename(body.add("SequenceInsert", "list", "h_next"), "list_next")
    body.rename("going", "condition_out")
    row = [1, width]
    lists = [helper.make_tensor_sequence_value_info(name, TensorProto.FLOAT, None) for name in ("list", "list_next")]
    graph = _body(
        body,
        [_tensor("number", [], TensorProto.INT64), _tensor("going", [], TensorProto.BOOL), _tensor("h", row), lists[0]],
        [_tensor("condition_out", [], TensorProto.BOOL), _tensor("h_next", row), lists[1]],
    )
    writer = _Writer()
    writer.rename(writer.add("SplitToSequence", "x", axis=0, keepdims=0), "rows")
    times, empty = writer.add("SequenceLength", "rows"), writer.add("SequenceEmpty")
    writer.nodes.append(helper.make_node("Loop", [times, "", "start", empty], ["end", "all"], body=graph))
    writer.rename(writer.add("ConcatFromSequence", "all", axis=0), "states")
    shape = ["time", 1, width]
    inputs = [_tensor("start", row), _tensor("x", shape)]
    model = _model(writer, inputs, [_tensor("end", row), _tensor("states", ["rows_all", width])])
    rng = np.random.default_rng(12)
    feeds = {"x": rng.standard_normal((length, 1, width)).astype(np.float32), "start": np.zeros(row, np.float32)}
    return LoopCase(f"listed (Loop of {length} x {width}, a list)", model, feeds, length)


CASES: tuple[Callable[[], LoopCase], ...] = (
    smoothing,
    lambda: gated(width=64),
    gated,
    lambda: product(1),
    lambda: product(WIDTH),
    lambda: lstm_decoder(width=128),
    lstm_decoder,
    lambda: transformer_decoder(width=128),
    transformer_decoder,
    lambda: transformer_decoder(512),
    nested,
    grid,
    cached_readers,
    listed,
)

"""Random functions over arrays as users' kernels: compiled by Numba into a model, and run by Python in its evaluation.

Drawn are the ranks, types and sizes of arrays, loops over items and within them, what elements are read (neighbours,
other places), arithmetic, conditions and inner loops, attributes, one or two outputs, and what stands around the node.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from onnx import helper

import jitonnx
from jitonnx import custom
from jitonnx.engine.interpreter import evaluate
from jitonnx.ir.dtypes import HALVES, DType
from jitonnx.model import load
from tests.ops.differential.drawing import OTHERS, SAME, Draw

DOMAIN = "test.drawn"
TYPES = tuple(
    DType[name] for name in ("FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16", "INT32", "INT8", "UINT8", "INT64", "BOOL")
)
INDICES = "ijk"
SIZES = (1, 2, 3, 5, 8, 17)


class Drawn:
    """A function as text, and the types of its arrays."""

    def __init__(self, d: Draw) -> None:
        self.d, self.rank = d, d.integer(1, 3)
        self.inputs = [d.pick(TYPES) for _ in range(d.integer(1, 3))]
        self.outputs = [d.pick(TYPES) for _ in range(d.integer(1, 2))]
        self.in_items = d.flag()
        """Whether an item is an index of the first axis; else there is one for all of them."""
        names = [f"x{n}" for n in range(len(self.inputs))]
        made = [f"y{n}" for n in range(len(self.outputs))]
        lines = [f"def Drawn({', '.join((*names, *made))}, begin, end, rate=0.75, count=2, flipped=False):"]
        first = "range(begin, end)" if self.in_items else "range(x0.shape[0])"
        spans = [first, *(f"range(x0.shape[{axis}])" for axis in range(1, self.rank))]
        for depth, (index, span) in enumerate(zip(INDICES, spans, strict=False)):
            lines.append("    " * (1 + depth) + f"for {index} in {span}:")
        at = ", ".join(INDICES[: self.rank])
        for name, dtype in zip(made, self.outputs, strict=True):
            body = [f"v = {self.number(3)}"]
            if d.flag():
                body += ["for step in range(count):", f"    v = v * 0.5 + {self.number(1)}"]
            if d.flag():
                body += [f"if flipped or v > {d.integer(-3, 3)}:", f"    v = {self.number(2)}"]
            low = 0 if dtype in (DType.UINT8, DType.BOOL) else -100
            body.append(f"v = max({low}.0, min(100.0, v))")
            body.append(f"{name}[{at}] = v > 0.5" if dtype is DType.BOOL else f"{name}[{at}] = v")
            lines += ["    " * (1 + self.rank) + line for line in body]
        self.source = "\n".join(lines)

    def number(self, depth: int) -> str:
        """An expression of float64, bounded by the elements' size and `depth`."""
        kind = self.d.integer(0, 5 if depth else 2)
        if kind == 0:
            return self.d.pick(("rate", "1.5", "-2.0", f"({INDICES[self.rank - 1]} * 0.25)", "(0.5 + count)"))
        if kind <= 2:
            number = self.d.integer(0, len(self.inputs) - 1)
            element = f"x{number}[{', '.join(self.place(axis) for axis in range(self.rank))}]"
            return f"(1.0 if {element} else -1.0)" if self.inputs[number] is DType.BOOL else f"np.float64({element})"
        if kind == 5:
            return f"({self.number(depth - 1)} if {self.condition()} else {self.number(depth - 1)})"
        operation = self.d.pick(("{} + {}", "{} - {}", "{} * 0.5 + {}", "max({}, {})", "min({}, {})", "abs({}) - {}"))
        return f"({operation.format(self.number(depth - 1), self.number(depth - 1))})"

    def condition(self) -> str:
        """One that no rounding decides."""
        index = INDICES[self.d.integer(0, self.rank - 1)]
        return self.d.pick((f"{index} > 0", f"{index} % 2 == 0", "flipped", "count > 1", "rate > 0.5"))

    def place(self, axis: int) -> str:
        """An index within an axis."""
        index, size = INDICES[axis], f"x0.shape[{axis}]"
        forms = (index, f"max({index} - 1, 0)", f"min({index} + 1, {size} - 1)", f"{size} - 1 - {index}", "-1")
        return self.d.pick((*forms, f"({index} + count) % {size}"))

    def declaration(self) -> Any:
        scope: dict[str, Any] = {"np": np}
        exec(self.source, scope)
        kinds, given = self.outputs, [f"x{n}: tensor({dtype.text})" for n, dtype in enumerate(self.inputs)]
        return custom.kernel(
            scope["Drawn"],
            domain=DOMAIN,
            inputs=given,
            outputs=[f"y{n}: tensor({dtype.text})" for n, dtype in enumerate(kinds)],
            infer=lambda self, context, x, *others: tuple(custom.TensorType(dtype, x.shape) for dtype in kinds),
            items=(lambda self, x, *others: x.shape[0]) if self.in_items else None,
            cost=100,
        )


def model_of(d: Draw, drawn: Drawn, shape: tuple[int, ...]) -> bytes:
    """The kernel, between nodes that move and compute: its inputs may be views, its outputs parts of others."""
    open_sizes = [f"n{axis}" for axis in range(drawn.rank)] if d.flag() else list(shape)
    nodes, names, inputs, results = [], [], [], []
    turned = list(range(drawn.rank))[::-1]
    for number, dtype in enumerate(drawn.inputs):
        moved = d.flag()
        sizes = [open_sizes[axis] for axis in turned] if moved else open_sizes
        inputs.append(helper.make_tensor_value_info(f"in{number}", dtype, sizes))
        nodes.append(helper.make_node("Transpose" if moved else "Identity", [f"in{number}"], [f"x{number}"]))
        names.append(f"x{number}")
    made = [f"y{number}" for number in range(len(drawn.outputs))]
    attributes = {"rate": d.pick((0.25, 1.0)), "count": d.integer(0, 3), "flipped": int(d.flag())}
    nodes.append(helper.make_node("Drawn", names, made, domain=DOMAIN, **attributes))
    for name, dtype in zip(made, drawn.outputs, strict=True):
        behind = d.pick(("", "Neg", "Concat", "Transpose"))
        if behind == "Neg" and dtype in (DType.UINT8, DType.BOOL):
            behind = ""
        if behind:
            given = [name, name] if behind == "Concat" else [name]
            options = {"axis": drawn.rank - 1} if behind == "Concat" else {}
            nodes.append(helper.make_node(behind, given, [f"{name}_{behind}"], **options))
        results.append(f"{name}_{behind}" if behind else name)
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_empty_tensor_value_info(name) for name in results])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def check(profile: settings) -> None:
    @profile
    @given(st.data())
    def compared(data: Any) -> None:
        d = Draw(data.draw)
        drawn = Drawn(d)
        note(drawn.source)
        shape = tuple(d.pick(SIZES) for _ in range(drawn.rank))
        content = model_of(d, drawn, shape)
        options = jitonnx.SessionOptions()
        options.intra_op_num_threads = d.integer(1, 2)
        options.graph_optimization_level = jitonnx.GraphOptimizationLevel(d.pick((99, 0)))
        options.register_custom_ops(drawn.declaration())
        session = jitonnx.InferenceSession(content, options)
        graph = load(content, registry=options.registry()).graph
        for sizes in (shape, *([tuple(reversed(shape))] if not graph.inputs[0].type.static else ())):
            feeds = {}
            for value, dtype in zip(graph.inputs, drawn.inputs, strict=True):
                turned = any(node.operator.name == "Transpose" and value in node.inputs for node in graph)
                elements = d.random.integers(0 if dtype in (DType.UINT8, DType.BOOL) else -9, 10, sizes)
                feeds[value.name] = (elements.T if turned else elements).astype(dtype.numpy)
            for got, expected, value in zip(
                session.run(None, feeds), evaluate(graph, feeds), graph.outputs, strict=True
            ):
                assert got.dtype == expected.dtype and got.shape == expected.shape
                rough = 1e-5 if value.dtype not in HALVES else 2e-2
                np.testing.assert_allclose(
                    got.astype(np.float64),
                    np.asarray(expected).astype(np.float64),
                    rtol=rough,
                    atol=1 if value.dtype.is_integer else rough,
                )

    compared()


def test_random_kernels() -> None:
    check(settings(SAME, max_examples=6))


@pytest.mark.slow
def test_other_random_kernels() -> None:
    check(settings(OTHERS, max_examples=100))

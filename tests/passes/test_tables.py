"""Rows of a constant table that are multiplied by constant weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from jitonnx.engine.interpreter import evaluate
from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.ops.onnx.activation import Relu
from jitonnx.ops.onnx.arithmetic import Add, Mul
from jitonnx.ops.onnx.gather import Gather
from jitonnx.ops.onnx.matmul import MatMul
from jitonnx.ops.onnx.normalization import LayerNormalization, RMSNormalization
from jitonnx.ops.onnx.recurrent import GRU, LSTM, RNN
from jitonnx.ops.onnx.shape import Reshape
from jitonnx.passes.report import Reason
from jitonnx.passes.rules import tables
from jitonnx.support.kernel_cache import KernelCache
from tests.passes.graphs import Build, Value, normal, operators, rewritten

INDICES = np.array([[3, 0, -1], [7, 7, 2]], np.int64)


def test_a_product_of_gathered_rows_is_gathered() -> None:
    def author(b: Build) -> Value:
        return b.op(MatMul(), b.op(Gather(), normal(9, 5), b.input(INDICES)), normal(5, 6))

    graph, report = rewritten(author)
    assert operators(graph) == {"Gather": 1}
    assert report.counts["products of a table"] == 1


def test_a_row_that_a_scalar_is_made_into_is_no_gathered_one() -> None:
    def author(b: Build) -> Value:
        return b.op(MatMul(), b.op(Reshape(), b.op(Relu(), b.input(np.float32(2))), np.array([-1])), normal(1, 6))

    rewritten(author)


@pytest.mark.parametrize("norm", [LayerNormalization(), RMSNormalization(axis=2), LayerNormalization(axis=-1)])
def test_what_goes_row_by_row_is_done_to_the_table(norm: Any) -> None:
    def author(b: Build) -> list[Value]:
        x = b.op(Gather(), normal(9, 5), b.input(INDICES))
        scaled = b.op(Add(), b.op(Mul(), x, normal(5, seed=1)), np.float32(0.5))
        y = b.op(norm, b.op(Relu(), scaled), normal(5, seed=2))
        return [b.op(MatMul(), y, normal(5, 6)), b.op(MatMul(), y, normal(5, 4)), b.op(Relu(), x)]

    graph, _ = rewritten(author)
    assert "MatMul" not in operators(graph) and "Split" in operators(graph)


def test_what_does_not_go_row_by_row_stays() -> None:
    def author(b: Build) -> list[Value]:
        x = b.op(Gather(), normal(9, 5), b.input(INDICES))
        by_place = b.op(Add(), x, normal(3, 5))
        whole = b.op(LayerNormalization(axis=1), x, normal(3, 5))
        column = b.op(Gather(axis=1), normal(5, 9), b.input(INDICES[0]))
        return [b.op(MatMul(), y, normal(5, 4, seed=n)) for n, y in enumerate((by_place, whole))] + [
            b.op(MatMul(), column, normal(3, 4))
        ]

    assert operators(rewritten(author)[0])["MatMul"] == 3


def test_a_large_table_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "TABLE_BYTES", 100)

    def author(b: Build) -> Value:
        return b.op(MatMul(), b.op(Gather(), normal(9, 5), b.input(INDICES)), normal(5, 6))

    graph, report = rewritten(author)
    assert operators(graph)["MatMul"] == 1
    assert [entry.reason for entry in report.declined] == [Reason.TOO_LARGE]


def layer_graph(layer: Any, author: Build, bias: bool, states: bool) -> list[Value]:
    gates, directions, hidden = layer.gates, layer.directions, 6
    x = author.op(Gather(), normal(9, 5), author.input(INDICES))
    operands: list[Any] = [
        x,
        normal(directions, gates * hidden, 5, seed=1) / 2,
        normal(directions, gates * hidden, hidden, seed=2) / 2,
    ]
    lengths = author.input(np.array([2, 1, 2], np.int32))
    start = author.input(normal(directions, 3, hidden, seed=4))
    operands += [normal(directions, 2 * gates * hidden, seed=3) if bias else None, lengths if states else None]
    operands += [start] if states else []
    return list(author.ops(layer, 1 + layer.states, *operands))


@pytest.mark.parametrize(("bias", "states"), [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize(
    "layer",
    [
        LSTM(hidden_size=6),
        LSTM(hidden_size=6, direction="bidirectional", clip=0.8),
        GRU(hidden_size=6, direction="reverse"),
        GRU(hidden_size=6, direction="bidirectional", linear_before_reset=True),
        RNN(hidden_size=6),
    ],
    ids=repr,
)
def test_layers_of_gathered_rows(layer: Any, bias: bool, states: bool) -> None:
    def author(b: Build) -> list[Value]:
        return layer_graph(layer, b, bias, states)

    graph, report = rewritten(author, rtol=1e-4, atol=1e-5)
    assert "ProjectedLayer" in operators(graph)
    assert report.counts["layers of a table"] == 1
    build = Build()
    build.graph.outputs = author(build)
    expected = evaluate(build.graph, build.feeds)
    engine = Engine(build.graph, Settings(threads=1), KernelCache())
    assert engine.compiled is not None and "layers of a table" in engine.report.counts
    for ours, wanted in zip(engine.run(list(build.feeds.values())), expected, strict=True):
        np.testing.assert_allclose(ours, wanted, 1e-4, 1e-5)

"""Cases of training and of control flow."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from bench.operators.net import TRAINING, Build, Net, Shape


def optimizer(operator: str, states: int, **attributes: Any) -> Build:
    """A step on 512 x 512 weights. states: how many tensors there are beside weights and gradient."""

    def build(net: Net) -> list[str]:
        head = net.feed_array(np.array(0.01, np.float32)), net.feed_array(np.array(7))
        tensors = net.feed((512, 512)), net.feed((512, 512)), *(net.feed((512, 512), 0) for _ in range(states))
        return net.nodes_outputs(operator, 1 + states, *head, *tensors, domain=TRAINING, **attributes)

    return build


# ---------------------------------------------------------------- training, control flow


def _state_and_row(size: int) -> tuple[list[onnx.NodeProto], list[onnx.ValueInfoProto], list[onnx.ValueInfoProto]]:
    """The nodes of a step: state = tanh(state + row), which is stacked, too."""
    nodes = [
        helper.make_node("Add", ["state", "row"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["next"]),
        helper.make_node("Identity", ["next"], ["stacked"]),
    ]
    given, made = ([_float_info(name, size) for name in names] for names in (("state", "row"), ("next", "stacked")))
    return nodes, given, made


def _float_info(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)


def scan(steps: int, size: int) -> Build:
    """A recurrence over rows."""

    def build(net: Net) -> list[str]:
        nodes, inputs, outputs = _state_and_row(size)
        body = helper.make_graph(nodes, "step", inputs, outputs)
        return net.nodes_outputs("Scan", 2, net.feed((size,)), net.feed((steps, size)), body=body, num_scan_inputs=1)

    return build


def counted_loop(steps: int, size: int) -> Build:
    """The same by Loop, which gathers its row by the number of the iteration."""

    def build(net: Net) -> list[str]:
        nodes, (state, _), outputs = _state_and_row(size)
        rows = net.feed((steps, size))
        nodes = [
            helper.make_node("Gather", [rows, "number"], ["row"], axis=0),
            helper.make_node("Identity", ["go"], ["condition_out"]),
            *nodes,
        ]
        number, go, condition_out = (
            helper.make_tensor_value_info(name, kind, [])
            for name, kind in (("number", onnx.TensorProto.INT64), ("go", 9), ("condition_out", 9))
        )
        body = helper.make_graph(nodes, "step", [number, go, state], [condition_out, *outputs])
        return net.nodes_outputs("Loop", 2, net.feed_array(np.array(steps)), "", net.feed((size,)), body=body)

    return build


def choice(shape: Shape) -> Build:
    """If: one of two activations."""

    def build(net: Net) -> str:
        x = net.feed(shape)
        branches = {
            f"{name}_branch": helper.make_graph(
                [helper.make_node(operator, [x], [name])], name, [], [_float_info(name, *shape)]
            )
            for name, operator in (("then", "Relu"), ("else", "Tanh"))
        }
        return net.node("If", net.feed_array(np.array(True)), **branches)

    return build

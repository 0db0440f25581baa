"""What tests ask of onnxruntime, evaluated on NumPy: for machines that onnxruntime does not run on (`.ci/aarch64`)."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np

from jitonnx.engine.interpreter import evaluate
from jitonnx.model import load


class GraphOptimizationLevel(enum.Enum):
    """NumPy evaluates a graph as it is, whatever the level."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_ALL = 99


class SessionOptions:
    """They change nothing about results."""

    graph_optimization_level = GraphOptimizationLevel.ORT_ENABLE_ALL
    intra_op_num_threads = inter_op_num_threads = 1
    log_severity_level = 2


class InferenceSession:
    """A model, whose nodes `run` evaluates one by one."""

    def __init__(
        self,
        model: bytes | str | PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Sequence[str] = (),
    ) -> None:
        self._graph = load(model).graph

    def get_inputs(self) -> list[Any]:
        return list(self._graph.inputs)

    def get_outputs(self) -> list[Any]:
        return list(self._graph.outputs)

    def run(self, outputs: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Any]:
        names = [value.name for value in self._graph.outputs]
        results = dict(zip(names, evaluate(self._graph, {k: np.asarray(v) for k, v in feeds.items()}), strict=True))
        return [results[name] for name in outputs or names]

"""Models with graphs within graphs, and sessions of them compared with onnxruntime."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import helper

from jitonnx import InferenceSession, load
from jitonnx.api.saved.saving import model_info, write_cached
from jitonnx.engine.pipeline import Engine
from tests.session.models import node

AGAIN = 3
"""How often all is run again: from the second run on native code goes from step to step."""


def graph(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], name: str = "body") -> Any:
    return helper.make_graph(list(nodes), name, list(inputs), list(outputs))


def bytes_of(nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any], opset: int = 20) -> bytes:
    made = helper.make_model(graph(nodes, inputs, outputs), opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 10
    return made.SerializeToString()


def check(model: bytes, *feeds: dict[str, Any]) -> InferenceSession:
    """A session of the model; AssertionError unless it gives what onnxruntime gives, and gives the same from a file."""
    session = InferenceSession(model)
    theirs = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    results = [session.run(None, feed) for feed in feeds]
    for feed, result in zip(feeds, results, strict=True):
        for ours, expected in zip(result, theirs.run(None, feed), strict=True):
            assert_same(ours, expected)
    for _ in range(AGAIN):
        for feed, result in zip(feeds, results, strict=True):
            for ours, expected in zip(session.run(None, feed), result, strict=True):
                assert_same(ours, expected)
    check_kept(session, feeds, results)
    return session


def check_kept(session: InferenceSession, feeds: Sequence[dict[str, Any]], results: Sequence[Any]) -> None:
    """AssertionError unless what the kernel cache would keep of a model gives these results."""
    engine = session.engine
    assert isinstance(engine, Engine)
    if engine.unplanned or engine.variants or session.compile_status.numpy_runs:
        return  # which needs the model
    with tempfile.TemporaryDirectory() as folder:
        write_cached([engine], [], model_info(session._model.description), [], Path(folder) / "kept", lambda: None)
        kept = load(Path(folder) / "kept")
        assert repr(kept.get_inputs()) == repr(session.get_inputs()) and kept.declared_inputs == session.declared_inputs
        for feed, result in zip(feeds, results, strict=True):
            for ours, expected in zip(kept.run(None, feed), result, strict=True):
                assert_same(ours, expected)


def assert_same(ours: Any, expected: Any) -> None:
    if isinstance(expected, list):
        assert len(ours) == len(expected)
        for one, other in zip(ours, expected, strict=True):
            assert_same(one, other)
        return
    assert ours.shape == expected.shape and ours.dtype == expected.dtype
    np.testing.assert_allclose(ours, expected, 1e-5, 1e-6)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


def constant(name: str, value: Any, kind: int) -> Any:
    array = np.asarray(value)
    return node("Constant", [], [name], value=helper.make_tensor(name, kind, array.shape, array.ravel().tolist()))

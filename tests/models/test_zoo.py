"""The benchmark models, compiled, against onnxruntime: the small ones by default, all 18 with `-m slow`."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import jitonnx
from bench import zoo
from bench.models import difference
from jitonnx.ir.computation.lowering import lower
from jitonnx.model import load
from jitonnx.passes import optimize
from jitonnx.plan.make import make_plan
from jitonnx.target.machine import host

SMALL = ("gru_ctc", "lstm_tagger", "mlp_tiny", "mobilenet_v2", "squeezenet1_1", "unet_gn")
NAMES = [pytest.param(name, marks=() if name in SMALL else pytest.mark.slow) for name in zoo.names()]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zoo")


def open_both(path: Path, threads: int) -> tuple[jitonnx.InferenceSession, onnxruntime.InferenceSession]:
    """The model in jitonnx and in onnxruntime."""
    options, theirs = jitonnx.SessionOptions(), onnxruntime.SessionOptions()
    options.intra_op_num_threads = theirs.intra_op_num_threads = threads
    return jitonnx.InferenceSession(path, options), onnxruntime.InferenceSession(path, theirs)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", NAMES)
def test_model_agrees_with_onnxruntime(name: str, threads: int, folder: Path) -> None:
    (path,) = zoo.materialize(folder, [name])
    feeds = zoo.feeds(name)
    ours, theirs = open_both(path, threads)
    outputs = ours.run(None, feeds)
    assert difference(outputs, theirs.run(None, feeds)) <= 1e-4
    assert all((a == b).all() for a, b in zip(outputs, ours.run(None, feeds), strict=True)), "a second run differs"
    assert ours.engine.schedule is None, "a node was left to NumPy"


@pytest.mark.slow
def test_vision_transformer_in_front_of_its_head() -> None:
    """vit_b_16 was exported with a head of zeros, so its output says nothing: compare what the head is given."""
    model = zoo.model("vit_b_16")
    model.graph.output.add().name = model.graph.node[-1].input[0]
    feeds = zoo.feeds("vit_b_16")
    source = model.SerializeToString()
    outputs = jitonnx.InferenceSession(source).run(None, feeds)
    expected = onnxruntime.InferenceSession(source).run(None, feeds)
    assert np.abs(expected[1]).max() > 0.1
    assert difference(outputs, expected) <= 1e-4


@pytest.mark.slow
def test_new_shapes_of_a_dynamic_model_cost_an_instantiation(folder: Path) -> None:
    (path,) = zoo.materialize(folder, ["minilm_l6"])
    ours, theirs = open_both(path, 2)
    rng = np.random.default_rng(0)
    compiled = ours.engine.compiled
    assert compiled is not None
    symbols = set(compiled.symbols)
    for batch, sequence in ((2, 64), (1, 17), (3, 128), (1, 1), (4, 33)):
        feeds = {
            "a_0": rng.integers(0, 1000, (batch, sequence)),
            "a_1": (rng.random((batch, sequence)) > 0.2) | (np.arange(sequence) == 0),
        }
        feeds["a_1"] = feeds["a_1"].astype(np.int64)
        started = time.perf_counter()
        ours.engine.program(tuple(feed.shape for feed in feeds.values()))
        print(f"program for {batch} x {sequence}: {1e3 * (time.perf_counter() - started):.1f} ms")
        assert difference(ours.run(None, feeds), theirs.run(None, feeds)) <= 1e-4
    assert set(compiled.symbols) == symbols, "a new shape compiled a kernel"


def test_shape_arithmetic_leaves_no_kernels() -> None:
    """Only what depends on the inputs' values is computed of minilm_l6, with symbolic batch and sequence."""
    graph = load(zoo.model("minilm_l6")).graph
    optimize(graph)
    kinds = {call.label.split()[0] for call in make_plan(lower(graph), host()).calls}
    assert kinds == {"attention", "gather", "gemm", "layer", "region"}

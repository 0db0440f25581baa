"""Models whose sizes are open: planned once, compiled once, and right for every size that is fed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnxruntime
import pytest

import jitonnx
from jitonnx.codegen.objects import Objects
from tests.session.models import model, node, tensor

Feeds = Iterable[Mapping[str, np.ndarray]]


def data(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape).astype(np.float32)


def check(source: bytes, feeds: Feeds, monkeypatch: pytest.MonkeyPatch, tolerance: float = 2e-5) -> Any:
    """The session, after it ran all feeds as onnxruntime does: without a cut, with nothing compiled after loading."""
    session = jitonnx.InferenceSession(source)
    engine = session.engine
    assert engine.cut is None, engine.cut.explained()
    assert engine.compiled is not None, engine.only_concrete
    peer = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    with monkeypatch.context() as patch:
        patch.setattr(Objects, "__call__", None)  # compiles
        for feed in feeds:
            shapes = [array.shape for array in feed.values()]
            assert engine.sizes(tuple(shapes)) is not None, f"an assumption does not hold for {shapes}"
            for ours, theirs in zip(session.run(None, feed), peer.run(None, feed), strict=True):
                assert ours.shape == theirs.shape and ours.dtype == theirs.dtype, shapes
                np.testing.assert_allclose(ours, theirs, tolerance, tolerance, err_msg=str(shapes))
    assert len(engine._engines) == 0
    return session


# ---------------------------------------------------------------------------------------------- what a reshape leaves


def test_size_left_by_a_reshape_behind_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [
        node("Slice", ["x", "start", "end", "axis"], ["s"]),
        node("Reshape", ["s", "shape"], ["r"]),
        node("MatMul", ["r", "w"], ["y"]),
    ]
    constants = {"start": [3], "end": [2**62], "axis": [1], "shape": [0, 0, -1], "w": data(8, 3)}
    source = model(nodes, [tensor("x", (1, "w", 2, 4))], [tensor("y", None)], constants)
    check(source, [{"x": data(1, width, 2, 4)} for width in (4, 5, 64, 8, 4)], monkeypatch)


def test_size_left_beside_products_of_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    """As recognisers of text do: [N, C, 2, W] halved three times, to steps of all rows and channels."""
    shape = [
        node("Shape", ["p"], ["whole"]),
        node("Gather", ["whole", "zero"], ["n"]),
        node("Gather", ["whole", "three"], ["steps"]),
        node("Concat", ["steps", "n", "rest"], ["shape"], axis=0),
    ]
    nodes = [
        *(
            node("MaxPool", [before], [after], kernel_shape=[1, 3], strides=[1, 2], pads=[0, 1, 0, 1])
            for before, after in (("x", "p1"), ("p1", "p2"), ("p2", "p"))
        ),
        *shape,
        node("Transpose", ["p"], ["t"], perm=[3, 0, 1, 2]),
        node("Reshape", ["t", "shape"], ["r"]),
        node("MatMul", ["r", "w"], ["y"]),
    ]
    constants = {"zero": [0], "three": [3], "rest": [-1], "w": data(10, 7)}
    source = model(nodes, [tensor("x", ("n", 5, 2, "w"))], [tensor("y", None)], constants)
    check(source, [{"x": data(n, 5, 2, w)} for n, w in ((1, 1), (2, 63), (3, 64), (1, 65), (2, 160))], monkeypatch)


def test_pieces_of_an_axis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices that a size leaves nothing of, and their concatenation, which has the size of the whole again."""
    nodes = [
        node("Slice", ["x", "zero", "three", "one"], ["a"]),
        node("Slice", ["x", "three", "seven", "one"], ["b"]),
        node("Slice", ["x", "seven", "end", "one"], ["c"]),
        node("Slice", ["x", "one", "last", "one"], ["inner"]),
        node("Concat", ["c", "b", "a"], ["turned"], axis=1),
        node("Add", ["turned", "x"], ["y"]),
        node("Relu", ["inner"], ["z"]),
    ]
    constants = {"zero": [0], "one": [1], "three": [3], "seven": [7], "end": [2**62], "last": [-1]}
    source = model(nodes, [tensor("x", ("n", "w"))], [tensor("y", None), tensor("z", None)], constants)
    session = check(source, [{"x": data(2, width)} for width in (9, 1, 2, 3, 5, 7, 8, 100)], monkeypatch)
    assert not session.engine.compiled.plan.assumptions

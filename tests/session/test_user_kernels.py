"""Users' kernels, functions over arrays that Numba compiles, against the same functions in plain Python."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import jitonnx
from jitonnx import custom, errors
from jitonnx.ir.operator import evaluate_arrays

DOMAIN = "test.kernels"


def same_type(self: Any, context: Any, x: Any) -> Any:
    return x.type


@custom.kernel(domain=DOMAIN, outputs=["Y: T"], infer=same_type, items=lambda self, x, y: y.shape[0])
def Diffuse(x: Any, y: Any, begin: Any, end: Any, rate: Any = 0.25) -> None:
    """A step of diffusion on a grid, whose border stays."""
    height, width = x.shape
    for i in range(begin, end):
        for j in range(width):
            if i == 0 or j == 0 or i == height - 1 or j == width - 1:
                y[i, j] = x[i, j]
            else:
                around = x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1]
                y[i, j] = x[i, j] + rate * (around - 4 * x[i, j])


def _kept_types(self: Any, context: Any, boxes: Any, scores: Any) -> Any:
    classes, count = scores.shape
    if context.demand_equal(boxes.shape[0], count) is False:
        raise custom.InferenceError(f"{boxes.type} has not one row for each of {scores.type}")
    return custom.TensorType(custom.DType.BOOL, (classes, count)), custom.TensorType(custom.DType.INT64, (classes,))


@custom.kernel(
    domain=DOMAIN,
    inputs=["boxes: T", "scores: T"],
    outputs=["kept: tensor(bool)", "counts: tensor(int64)"],
    types=[custom.DType.FLOAT, custom.DType.DOUBLE],
    infer=_kept_types,
    items=lambda self, boxes, scores, kept, counts: counts.shape[0],
    cost=200,
)
def Suppress(
    boxes: Any, scores: Any, kept: Any, counts: Any, begin: Any, end: Any, overlap: Any = 0.5, soft: Any = False
) -> None:
    """Non-maximum suppression, a class an item: the best box left is kept, those that overlap it are not."""
    for c in range(begin, end):
        counts[c] = 0
        for i in range(boxes.shape[0]):
            kept[c, i] = scores[c, i] > 0
        last = math.inf
        place = -1
        while True:
            best = -1
            for i in range(boxes.shape[0]):  # the next in the order of scores, then of places
                behind = scores[c, i] < last or (scores[c, i] == last and i > place)
                if kept[c, i] and behind and (best < 0 or scores[c, i] > scores[c, best]):
                    best = i
            if best < 0:
                break
            last, place = scores[c, best], best
            counts[c] += 1
            for i in range(boxes.shape[0]):
                if i == best or not kept[c, i] or scores[c, i] > last or (scores[c, i] == last and i < best):
                    continue
                wide = min(boxes[i, 2], boxes[best, 2]) - max(boxes[i, 0], boxes[best, 0])
                high = min(boxes[i, 3], boxes[best, 3]) - max(boxes[i, 1], boxes[best, 1])
                if wide > 0 and high > 0:
                    shared = wide * high
                    a = (boxes[i, 2] - boxes[i, 0]) * (boxes[i, 3] - boxes[i, 1])
                    b = (boxes[best, 2] - boxes[best, 0]) * (boxes[best, 3] - boxes[best, 1])
                    if shared > overlap * (a + b - shared) and not soft:
                        kept[c, i] = False


@custom.kernel(domain=DOMAIN, outputs=["Y: T"], infer=same_type)
def Picked(x: Any, y: Any, begin: Any, end: Any, step: Any = 1) -> None:
    """One item: elements `step` places on; negative ones are refused."""
    for i in range(x.shape[0]):
        if x[i] < 0:
            raise ValueError("an element is negative")
        y[i] = x[i + step]


def options(*declarations: Any, threads: int = 1, **entries: str) -> Any:
    made = jitonnx.SessionOptions()
    made.intra_op_num_threads = threads
    made.register_custom_ops(*declarations)
    for key, value in entries.items():
        made.add_session_config_entry(f"jitonnx.{key}", value)
    return made


def model(
    name: str, inputs: dict[str, Any], outputs: list[str], elem: int = TensorProto.FLOAT, **attributes: Any
) -> bytes:
    """The operator between others: its inputs are what Neg and Transpose give, if there is one."""
    values = [helper.make_tensor_value_info(each, elem, shape) for each, shape in inputs.items()]
    node = helper.make_node(name, list(inputs), outputs, name="mine", domain=DOMAIN, **attributes)
    results = [helper.make_empty_tensor_value_info(each) for each in outputs]
    graph = helper.make_graph([node], "graph", values, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def calls(session: Any) -> list[str]:
    return [call.label for call in session.engine.compiled.plan.calls]


def boxes_of(count: int, classes: int, dtype: Any = np.float32) -> tuple[Any, Any]:
    random = np.random.default_rng(count)
    corners = random.uniform(0, 10, (count, 2))
    boxes = np.concatenate([corners, corners + random.uniform(0, 4, (count, 2))], 1).astype(dtype)
    return boxes, (random.integers(-2, 9, (classes, count)) / 8).astype(dtype)


TYPES = ("FLOAT", "DOUBLE", "INT32", "FLOAT16", "BFLOAT16")


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("elem", [getattr(TensorProto, name) for name in TYPES])
def test_a_stencil(elem: int, threads: int) -> None:
    dtype = helper.tensor_dtype_to_np_dtype(elem)
    session = jitonnx.InferenceSession(
        model("Diffuse", {"x": ["h", "w"]}, ["y"], elem), options(Diffuse, threads=threads)
    )
    assert [call for call in calls(session) if not call.startswith("region")] == ["kernel Diffuse"]
    for shape in ((0, 3), (3, 0), (1, 1), (2, 5), (7, 13), (61, 33)):
        x = (np.random.default_rng(1).normal(size=shape) * 100).astype(dtype)
        expected = evaluate_arrays(Diffuse(), (x,))[0]
        (y,) = session.run(None, {"x": x})
        tolerance = {TensorProto.FLOAT16: 1e-3, TensorProto.BFLOAT16: 1e-2}.get(elem, 1e-4)
        np.testing.assert_allclose(
            y.astype(np.float64),
            expected.astype(np.float64),
            rtol=tolerance,
            atol=100 * tolerance if elem != TensorProto.INT32 else 1,
        )
        assert y.dtype == dtype


def test_between_other_nodes_and_with_attributes() -> None:
    """What it reads lies transposed, and what it writes is read on; sizes are fixed."""
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [9, 6])]
    nodes = [
        helper.make_node("Transpose", ["x"], ["a"]),
        helper.make_node("Diffuse", ["a"], ["b"], domain=DOMAIN, rate=0.125),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Concat", ["c", "b"], ["y"], axis=1),
    ]
    graph = helper.make_graph(nodes, "graph", values, [helper.make_empty_tensor_value_info("y")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)]
    data = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    x = np.random.default_rng(2).normal(size=(9, 6)).astype(np.float32)
    (b,) = evaluate_arrays(Diffuse(rate=0.125), (x.T,))
    for level in (0, 99):
        chosen = options(Diffuse)
        chosen.graph_optimization_level = jitonnx.GraphOptimizationLevel(level)
        (y,) = jitonnx.InferenceSession(data, chosen).run(None, {"x": x})
        np.testing.assert_allclose(y, np.concatenate([np.maximum(b, 0), b], 1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("threads", [1, 2])
def test_suppression(threads: int) -> None:
    """Two outputs of other types; attributes of a float and a truth value; NaN among the scores."""
    data = model("Suppress", {"boxes": ["n", 4], "scores": ["c", "n"]}, ["kept", "counts"], overlap=0.25)
    session = jitonnx.InferenceSession(data, options(Suppress, threads=threads))
    assert calls(session) == ["kernel Suppress"]
    for count, classes in ((0, 2), (1, 1), (5, 0), (17, 3), (40, 5)):
        boxes, scores = boxes_of(count, classes)
        scores[:, 3:4] = np.nan
        for got, expected in zip(
            session.run(None, {"boxes": boxes, "scores": scores}),
            evaluate_arrays(Suppress(overlap=0.25), (boxes, scores)),
            strict=True,
        ):
            np.testing.assert_array_equal(got, expected)


def test_exceptions_are_errors_that_say_which() -> None:
    session = jitonnx.InferenceSession(model("Picked", {"x": ["n"]}, ["y"], step=-1), options(Picked))
    assert calls(session) == ["kernel Picked"]
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.roll(x, 1))  # -1 is the last, as in Python
    with pytest.raises(
        errors.InvalidArgument, match=r"Picked node 'mine'.*'Picked' raised ValueError: an element is neg"
    ):
        session.run(None, {"x": -x})
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.roll(x, 1))
    over = jitonnx.InferenceSession(model("Picked", {"x": ["n"]}, ["y"]), options(Picked))
    with pytest.raises(
        errors.InvalidArgument, match=r"Picked node 'mine'.*'Picked' raised IndexError: index is out of b"
    ):
        over.run(None, {"x": x})


def allocates(x: Any, y: Any, begin: Any, end: Any) -> None:
    y[:] = x + np.ones(x.shape[0], x.dtype)


def unknown(x: Any, y: Any, begin: Any, end: Any) -> None:
    y[0] = sorted(x, key=print)


def writes(x: Any, y: Any, begin: Any, end: Any) -> None:
    x[0] = 1


def returns(x: Any, y: Any, begin: Any, end: Any) -> Any:
    return x[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("function", "said"),
    [
        (allocates, "allocates needs .*memory that it allocates: a kernel works on the arrays that it is given"),
        (unknown, "Numba does not compile unknown"),
        (writes, "Numba does not compile writes"),
        (returns, "returns returns float32; a kernel writes to its outputs"),
    ],
)
def test_what_cannot_be_compiled_is_refused(function: Any, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the model is loaded, and not as a defect of ours, which would be survived."""
    monkeypatch.delenv("JITONNX_STRICT")
    declared = custom.kernel(function, domain=DOMAIN, name="Refused", outputs=["Y: T"], infer=same_type)
    with pytest.raises(Exception, match=said):
        jitonnx.InferenceSession(model("Refused", {"x": [4]}, ["y"]), options(declared))


def test_wrong_declarations() -> None:
    def no_range(x: Any, y: Any) -> None:
        pass

    def text(x: Any, y: Any, begin: Any, end: Any, mode: Any = "a") -> None:
        pass

    with pytest.raises(TypeError, match=r"no_range\(x, y\) is no kernel with 1 outputs"):
        custom.kernel(no_range, domain=DOMAIN, outputs=["Y: T"], infer=same_type)
    with pytest.raises(TypeError, match="mode='a' of text: an attribute is"):
        custom.kernel(text, domain=DOMAIN, outputs=["Y: T"], infer=same_type)
    with pytest.raises(TypeError, match="takes 1 arrays to read"):
        custom.kernel(allocates, domain=DOMAIN, outputs=["Y: T"], infer=same_type, inputs=["X?: T"])


_START = """
import sys
import numpy as np
import jitonnx
from jitonnx import custom

@jitonnx.register
@custom.kernel(domain="test.kernels", outputs=["Y: T"], infer=lambda self, context, x: x.type,
               items=lambda self, x, y: y.shape[0])
def Twice(x, y, begin, end):
    for i in range(begin, end):
        for j in range(x.shape[1]):
            y[i, j] = 2 * x[i, j]

session = jitonnx.InferenceSession(sys.argv[1])
for n in (3, 0, 200):
    x = np.ones((n, 3), np.float32)
    (y,) = session.run(None, {"x": x})
    assert (y == 2).all() and y.shape == x.shape
found = sorted(name for name in sys.modules if name.partition(".")[0] == "numba")
assert bool(found) == (sys.argv[2] == "cold"), found
if sys.argv[2] == "cold":
    session.save(sys.argv[3])
"""
_ARTIFACT = """
import sys
import numpy as np
import jitonnx
session = jitonnx.load(sys.argv[1])
for n in (3, 0, 200):
    (y,) = session.run(None, {"x": np.ones((n, 3), np.float32)})
    assert (y == 2).all() and y.shape == (n, 3)
assert not [name for name in sys.modules if name.partition(".")[0] in ("numba", "llvmlite")]
"""


def test_warm_starts_and_artifacts_import_no_numba(tmp_path: Path) -> None:
    path, saved = tmp_path / "model.onnx", tmp_path / "saved.jitonnx"
    path.write_bytes(model("Twice", {"x": ["n", 3]}, ["y"]))

    def start(*arguments: Any, cache: str = "cache") -> None:
        environment = {**os.environ, "JITONNX_CACHE_DIR": str(tmp_path / cache)}
        subprocess.run([sys.executable, "-c", *map(str, arguments)], env=environment, timeout=120, check=True)

    start(_START, path, "cold", saved)
    start(_START, path, "warm", saved)
    start(_ARTIFACT, saved)


def doubled(x: Any, y: Any, begin: Any, end: Any) -> None:
    for i in range(begin, end):
        y[i] = 2 * x[i]


def of(**described: Any) -> Any:
    return custom.kernel(
        doubled, **{"domain": DOMAIN, "name": "Doubled", "outputs": ["Y: T"], "infer": same_type, **described}
    )


@pytest.mark.parametrize(
    ("described", "said"),
    [
        ({"cost": 0}, "cost of doubled is in nanoseconds"),
        ({"outputs": "Y: T"}, "outputs of doubled are a list of texts"),
        ({"infer": None}, "infer of doubled is a function"),
        ({"items": 3}, "items of doubled is a function"),
        ({"types": ["float"]}, "members of custom.DType are needed"),
        ({"types": [custom.DType.STRING]}, "arrays are of numbers or truth values"),
        ({"domain": None}, "needs texts as domain and name"),
    ],
)
def test_what_is_said_beside_a_function_is_looked_at(described: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        of(**described)


@pytest.mark.parametrize(
    ("described", "error", "said"),
    [
        ({"items": lambda self, x, y: -3}, TypeError, "items of doubled gives -3"),
        ({"items": lambda self, x, y: 1 // 0}, TypeError, "items of doubled raised ZeroDivisionError"),
        ({"infer": lambda self, context, x: (x.type, x.type)}, errors.Fail, r"as many TensorTypes as outputs \(1\)"),
        (
            {"infer": lambda self, context, x: custom.TensorType(custom.DType.STRING, x.shape)},
            errors.Fail,
            "of numbers or truth values",
        ),
        ({"infer": lambda self, context: 3}, errors.Fail, "infer of doubled raised TypeError"),
    ],
)
def test_what_others_functions_give_is_looked_at(
    described: Any, error: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where defects of ours are survived: these are none."""
    monkeypatch.delenv("JITONNX_STRICT")
    with pytest.raises(error, match=f"Doubled node 'mine'.*{said}"):
        jitonnx.InferenceSession(model("Doubled", {"x": ["n"]}, ["y"]), options(of(**described)))

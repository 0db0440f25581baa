"""Sizes that a model leaves open: what they may be is what onnxruntime takes, whatever a plan assumed of them.

Each model is fed several sets of shapes. What onnxruntime answers, the session answers, too; what it refuses is refused
with the input, the axis and the size. Few plans serve all of them.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ValueInfoProto, helper, numpy_helper

from jitonnx import InferenceSession, SessionOptions
from jitonnx.errors import Error, InvalidArgument
from tests.session.models import Shape, node, tensor

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Open:
    """A model, the shapes of its inputs, feeds for it, and how many plans may serve them beside the usual one."""

    name: str
    nodes: Sequence[Any]
    inputs: dict[str, Shape]
    feeds: Sequence[Shapes]
    plans: int = 0
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    outputs: Sequence[str] = ("y",)
    opset: int = 18

    def __str__(self) -> str:
        return self.name

    def build(self) -> bytes:
        """The model's file."""
        inputs = [tensor(name, shape) for name, shape in self.inputs.items()]
        constants = [numpy_helper.from_array(array, name) for name, array in self.constants.items()]
        outputs = [ValueInfoProto(name=name) for name in self.outputs]
        graph = helper.make_graph(list(self.nodes), "graph", inputs, outputs, constants)
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()

    def feed(self, shapes: Shapes) -> dict[str, np.ndarray]:
        """Arrays of these shapes for the inputs."""
        return {name: normal(*shape, seed=i) for i, (name, shape) in enumerate(zip(self.inputs, shapes, strict=True))}


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def both(sizes: Sequence[int], rest: tuple[int, ...]) -> list[Shapes]:
    """Feeds for two inputs whose first sizes are each of `sizes`, in all combinations."""
    return [((a, *rest), (b, *rest)) for a, b in itertools.product(sizes, sizes)]


def one(*shapes: tuple[int, ...]) -> list[Shapes]:
    """Feeds for one input."""
    return [(shape,) for shape in shapes]


SIZES = (3, 1, 2, 0, 5)
ROWS = one(*((n, 2) for n in (7, 4, 3, 2, 1, 0)))
SQUEEZED = [node("Squeeze", ["x"], ["y"])]
MODELS = [
    Open("matmul", [node("MatMul", ["x", "w"], ["y"])], {"x": ("n", "k")}, one((2, 7), (0, 7), (1, 7), (2, 6), (2, 0)),
         constants={"w": normal(7, 5)}),
    Open("matmul of a vector", [node("MatMul", ["x", "w"], ["y"])], {"x": ("k",)}, one((7,), (6,)),
         constants={"w": normal(7, 5)}),
    Open("matmul of stacks", [node("MatMul", ["a", "b"], ["y"])], {"a": ("n", 2, "k"), "b": ("m", "l", 4)},
         [((a, 2, k), (b, k, 4)) for a, b in itertools.product((3, 1), (3, 1)) for k in (2, 5)], 2),
    Open("gemm", [node("Gemm", ["x", "w", "c"], ["y"])], {"x": ("n", "k"), "c": ("a", "b")},
         [((n, 7), c) for n in (2, 1, 3) for c in ((n, 5), (1, 5), (n, 1), (1, 1), (2, 5))] + [((2, 6), (2, 5))], 3,
         {"w": normal(7, 5)}),
    Open("gemm, transposed", [node("Gemm", ["x", "w"], ["y"], transA=1)], {"x": ("k", "n")},
         one((7, 2), (7, 1), (6, 2)), constants={"w": normal(7, 5)}),
    Open("1x1 convolution", [node("Conv", ["x", "w"], ["y"])], {"x": ("n", "c", "h", "w")},
         one((2, 7, 3, 4), (1, 7, 1, 1), (2, 6, 3, 4)), constants={"w": normal(5, 7, 1, 1)}),
    Open("3x3 convolution", [node("Conv", ["x", "w"], ["y"])], {"x": ("n", "c", "h", "w")},
         one((2, 7, 3, 4), (1, 7, 1, 5), (0, 7, 5, 5), (1, 7, 5, 0)), constants={"w": normal(5, 7, 3, 3)}),
    Open("3x3 convolution, padded", [node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])], {"x": ("n", "c", "h", "w")},
         one((2, 7, 3, 4), (1, 7, 1, 5), (0, 7, 5, 5)), constants={"w": normal(5, 7, 3, 3)}),
    Open("linear behind flatten", [node("Flatten", ["x"], ["f"]), node("Gemm", ["f", "w"], ["y"])],
         {"x": ("n", "c", "h")}, one((2, 3, 4), (1, 6, 2), (3, 12, 1), (2, 3, 5), (0, 3, 4)),
         constants={"w": normal(12, 5)}),
    Open("linear behind a reshape", [node("Reshape", ["x", "s"], ["f"]), node("MatMul", ["f", "w"], ["y"])],
         {"x": ("n", "k")}, one((6, 2), (1, 12), (4, 6), (5, 5)), constants={"s": ints(-1, 12), "w": normal(12, 5)}),
    Open("squeeze", SQUEEZED, {"x": ("b", 1, 2)}, one((1, 1, 2), (3, 1, 2), (0, 1, 2), (5, 1, 2)), 1),
    Open("squeeze of three", SQUEEZED, {"x": ("a", "b", "c")}, one(*itertools.product((2, 1), (3, 1), (4, 1))), 7),
    Open("squeeze of chosen axes", [node("Squeeze", ["x", "axes"], ["y"])], {"x": ("a", "b", "c")},
         one((2, 1, 3), (1, 1, 1), (2, 3, 1)), constants={"axes": ints(1)}),
    Open("shape of what is squeezed", [*SQUEEZED, node("Shape", ["y"], ["s"]), node("ReduceSum", ["y", "last"], ["t"])],
         {"x": ("b", "c", 2)}, one((1, 3, 2), (4, 3, 2), (4, 1, 2), (1, 1, 2)), 3, {"last": ints(-1)}, ("y", "s", "t")),
    Open("sum", [node("Add", ["a", "b"], ["y"])], {"a": ("n", 3), "b": ("m", 3)}, both(SIZES, (3,)), 2),
    Open("sum with a constant", [node("Add", ["x", "c"], ["y"])], {"x": ("n", "m")},
         one((4, 3), (1, 3), (4, 1), (1, 1), (2, 3)), 3, {"c": normal(4, 3)}),
    Open("sums that fit 1 alone", [node("Add", ["x", "c"], ["a"]), node("Add", ["x", "d"], ["b"])], {"x": ("n",)},
         one((1,), (4,), (3,)), 1, {"c": normal(4), "d": normal(3)}, ("a", "b")),
    Open("sum of products", [node("MatMul", ["a", "w"], ["m"]), node("Add", ["m", "b"], ["y"])],
         {"a": ("n", 3), "b": ("m", 5)}, [((n, 3), (m, 5)) for n, m in itertools.product(SIZES, SIZES)], 2,
         {"w": normal(3, 5)}),
    Open("one name for all", [node("Add", ["a", "b"], ["y"])], {"a": ("n", "n"), "b": ("n", "n")},
         [((7, 5), (7, 1)), ((5, 5), (5, 5)), ((3, 2), (3, 1)), ((3, 1), (1, 1)), ((2, 3), (2, 3))], 3),
    Open("unknown rank", [node("Add", ["a", "b"], ["y"])], {"a": None, "b": None},
         [((4, 2), (2,)), ((3, 5), (5,)), ((4,), (4,)), ((7, 2), (2,)), ((7, 2), (1,)), ((), ())], 4),
    Open("expand", [node("Shape", ["t"], ["s"]), node("Expand", ["x", "s"], ["y"])], {"x": ("n", 1), "t": ("m", "k")},
         [((n, 1), (m, k)) for n in (3, 1) for m in (3, 1, 2) for k in (1, 4)], 2),
    Open("reshape to sizes", [node("Shape", ["t"], ["s"]), node("Concat", ["s", "rest"], ["r"], axis=0),
                              node("Reshape", ["x", "r"], ["y"])],
         {"x": ("n", "m"), "t": ("k",)}, [((4, 2), (k,)) for k in (2, 4, 3, 0)] + [((0, 2), (3,))], 1,
         {"rest": ints(-1)}),
    Open("reshape by halves", [node("Reshape", ["x", "r"], ["y"])], {"x": ("n", "m")},
         one((4, 2), (3, 2), (0, 3), (3, 3)), constants={"r": ints(2, -1)}),
    Open("slice", [node("Slice", ["x", "from", "to"], ["y"])], {"x": ("n", 2)}, ROWS, 1,
         {"from": ints(2), "to": ints(4)}),
    Open("slice from the end", [node("Slice", ["x", "from", "to"], ["y"])], {"x": ("n", 2)}, ROWS, 2,
         {"from": ints(-3), "to": ints(-1)}),
    Open("slice backwards", [node("Slice", ["x", "from", "to", "axes", "steps"], ["y"])], {"x": ("n", 2)}, ROWS,
         constants={"from": ints(-1), "to": ints(-(2**40)), "axes": ints(0), "steps": ints(-2)}),
    Open("slice up to a size", [node("Shape", ["t"], ["s"]), node("Sub", ["s", "less"], ["to"]),
                                node("Slice", ["x", "from", "to"], ["y"])],
         {"x": ("n", 2), "t": ("m",)}, [((5, 2), (m,)) for m in (7, 12, 4, 2, 3, 1, 0)], 3,
         {"less": ints(3), "from": ints(1)}),
    Open("split in equal parts", [node("Split", ["x"], ["a", "b", "c"])], {"x": ("n", 2)},
         one(*((n, 2) for n in (6, 3, 0, 5))), outputs=("a", "b", "c"), opset=13),
    Open("split", [node("Split", ["x"], ["a", "b", "c"], num_outputs=3)], {"x": ("n", 2)},
         one(*((n, 2) for n in (6, 5, 8, 3))), 1, outputs=("a", "b", "c")),
    Open("split by sizes", [node("Split", ["x", "sizes"], ["a", "b"])], {"x": ("n", 2)}, one((5, 2), (4, 2)),
         constants={"sizes": ints(2, 3)}, outputs=("a", "b")),
    Open("concat", [node("Concat", ["a", "b"], ["y"], axis=0)], {"a": ("n", "k"), "b": ("m", "l")},
         [((2, 3), (4, 3)), ((0, 3), (1, 3)), ((2, 3), (2, 4)), ((2, 1), (2, 3))]),
    Open("scale of a normalization", [node("LayerNormalization", ["x", "w"], ["y"])], {"x": ("n", 6), "w": ("k",)},
         [((2, 6), (6,)), ((3, 6), (1,)), ((3, 6), (2,))], 1),
    Open("attention", [node("MatMul", ["q", "k"], ["s"]), node("Softmax", ["s"], ["p"]),
                       node("MatMul", ["p", "v"], ["y"])],
         {"q": ("a", 2, "n", 4), "k": ("b", 2, 4, "m"), "v": ("c", 2, "l", 3)},
         [((a, 2, 5, 4), (b, 2, 4, 6), (c, 2, 6, 3)) for a in (3, 1) for b in (3, 1) for c in (3, 1)], 6),
    Open("top k", [node("TopK", ["x", "k"], ["y", "i"])], {"x": ("n", "m")}, one((2, 5), (2, 3), (0, 3), (2, 2)),
         constants={"k": ints(3)}, outputs=("y", "i")),
    Open("pool", [node("MaxPool", ["x"], ["y"], kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1)],
         {"x": ("n", 2, "h", "w")}, one((1, 2, 5, 6), (1, 2, 3, 4), (2, 2, 7, 3))),
    Open("pool of the same size",
         [node("AveragePool", ["x"], ["y"], kernel_shape=[3], strides=[2], auto_pad="SAME_UPPER")],
         {"x": ("n", 2, "h")}, one((1, 2, 5), (1, 2, 6), (2, 2, 1), (2, 2, 2))),
]  # fmt: skip


@pytest.mark.parametrize("given", MODELS, ids=str)
def test_open_sizes(given: Open) -> None:
    data = given.build()
    session, peer = InferenceSession(data), onnxruntime_session(data)
    for shapes in given.feeds:
        feed = given.feed(shapes)
        expected = answer(peer, feed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "inputs disagree")
            if expected is None:
                try:
                    session.run(None, feed)
                except Error as error:
                    assert isinstance(error, InvalidArgument), f"{shapes}: {error!r}"
                    assert any(f"{name!r} is " in str(error) for name in feed), f"{shapes}: {error}"
                continue
            results = session.run(None, feed)
        for result, value in zip(results, expected, strict=True):
            assert result.dtype == value.dtype and result.shape == value.shape, f"{shapes}: {result.shape}"
            np.testing.assert_allclose(result, value, rtol=1e-4, atol=1e-5, err_msg=str(shapes))
    assert session.compile_status.numpy_runs == 0
    assert len(session.engine.variants) <= given.plans


def onnxruntime_session(data: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])


def answer(session: onnxruntime.InferenceSession, feed: dict[str, np.ndarray]) -> list[np.ndarray] | None:
    """What onnxruntime answers; None where it refuses."""
    try:
        outputs: list[np.ndarray] = session.run(None, feed)
    except Exception:  # its errors have no base class of their own
        return None
    return outputs


def test_a_size_that_does_not_fit_is_named() -> None:
    nodes = [node("Relu", ["x"], ["r"]), node("MatMul", ["r", "w"], ["y"], name="project")]
    given = Open("", nodes, {"x": ("n", "k")}, (), constants={"w": normal(7, 5)})
    session = InferenceSession(given.build())
    assert session.get_inputs()[0].shape == ["n", "k"]
    text = r"axis 1 of 'x' is 6.*MatMul node 'project'.*\(6\).*\(7\)"
    with pytest.raises(InvalidArgument, match=text) as caught:
        session.run(None, {"x": normal(2, 6)})
    assert isinstance(caught.value, ValueError)
    (y,) = session.run(None, {"x": normal(2, 7)})
    np.testing.assert_allclose(y, np.maximum(normal(2, 7), 0) @ given.constants["w"], rtol=1e-5, atol=1e-6)


def test_a_size_that_two_inputs_share_by_what_is_done_with_them() -> None:
    nodes = [node("Concat", ["a", "b"], ["c"], axis=1), node("MatMul", ["c", "w"], ["y"], name="project")]
    given = Open("", nodes, {"a": ("n", "i"), "b": ("m", "j")}, (), constants={"w": normal(7, 5)})
    session = InferenceSession(given.build())
    for rows, first in ((2, 3), (1, 0), (4, 7)):
        a, b = normal(rows, first), normal(rows, 7 - first)
        (y,) = session.run(None, {"a": a, "b": b})
        np.testing.assert_allclose(y, np.concatenate([a, b], 1) @ given.constants["w"], rtol=1e-5, atol=1e-6)
    with pytest.raises(InvalidArgument, match=r"axis 0 of 'a' is 2 and axis 0 of 'b' is 3.*Concat"):
        session.run(None, {"a": normal(2, 3), "b": normal(3, 4)})
    with pytest.raises(InvalidArgument, match=r"axis 1 of 'a' is 3 and axis 1 of 'b' is 3.*project"):
        session.run(None, {"a": normal(2, 3), "b": normal(2, 3)})


@pytest.mark.parametrize("names", [("?", "?", "?"), ("-1", "-1", "None"), ("unk", "UNK", "unknown"), ("", None, "?")])
def test_names_that_say_nothing(names: tuple[str | None, ...], recwarn: pytest.WarningsRecorder) -> None:
    """Height and width of images, and the length of something else, under one name: they have nothing to do with it."""
    height, width, other = names
    nodes = [node("MaxPool", ["x"], ["p"], kernel_shape=[2, 2]), node("Relu", ["t"], ["y"])]
    given = Open("", nodes, {"x": (1, 2, height, width), "t": (other,)}, (), outputs=("p", "y"))
    session = InferenceSession(given.build())
    peer = onnxruntime_session(given.build())
    shapes = [entry.shape for entry in (*session.get_inputs(), *session.get_outputs())]
    assert shapes[:2] == [entry.shape for entry in peer.get_inputs()]
    for sizes in ((4, 6, 3), (6, 4, 4), (2, 2, 2), (8, 2, 0)):
        feed = given.feed(((1, 2, *sizes[:2]), sizes[2:]))
        for result, value in zip(session.run(None, feed), peer.run(None, feed), strict=True):
            np.testing.assert_array_equal(result, value)
    assert not session.engine.variants and not recwarn.list


def test_a_name_of_several_sizes_is_warned_of_once() -> None:
    """`width` of two inputs that have nothing to do with each other: one plan more, whatever they are."""
    nodes = [node("Relu", ["a"], ["y"]), node("Neg", ["b"], ["z"])]
    given = Open("", nodes, {"a": ("width", 2), "b": ("width", 3)}, (), outputs=("y", "z"))
    session = InferenceSession(given.build())
    with pytest.warns(UserWarning, match="'width' is 5 on axis 0 of 'a', but 4 on axis 0 of 'b'") as caught:
        for a, b in ((4, 4), (5, 4), (3, 8), (1, 7), (0, 2), (6, 6)):
            feed = given.feed(((a, 2), (b, 3)))
            y, z = session.run(None, feed)
            np.testing.assert_array_equal(y, np.maximum(feed["a"], 0))
            np.testing.assert_array_equal(z, -feed["b"])
    assert len(caught) == 1 and len(session.engine.variants) == 1
    assert session.compile_status == ("compiled", 0, 0, 0)


@pytest.mark.parametrize(("shape", "shown"), [((2,), [2]), (("b", 2), ["b", 2]), (None, [])])
def test_declared_ranks_that_hang_on_sizes(shape: Shape, shown: list[Any], recwarn: pytest.WarningsRecorder) -> None:
    source = Open("", SQUEEZED, {"x": ("b", 1, 2)}, ())
    graph = helper.make_graph(SQUEEZED, "g", [tensor("x", source.inputs["x"])], [tensor("y", shape)])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8).SerializeToString()
    session, peer = InferenceSession(data), onnxruntime_session(data)
    if shape is not None:
        assert session.get_outputs()[0].shape == shown == peer.get_outputs()[0].shape
    for rows in (1, 3, 1, 0):
        x = normal(rows, 1, 2)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], peer.run(None, {"x": x})[0], strict=True)
    told = [str(each.message) for each in recwarn.list]
    assert len(told) == (shape is not None) and all("output 'y' is declared with" in text for text in told)


def test_a_dimension_without_a_telling_name_can_be_fixed() -> None:
    given = Open("", [node("Relu", ["x"], ["y"])], {"x": ("?", "n", "?")}, ())
    options = SessionOptions()
    options.add_free_dimension_override_by_name("?", 3)
    session = InferenceSession(given.build(), options)
    assert session.get_inputs()[0].shape == [3, "n", 3] and session.get_outputs()[0].shape == [3, "n", 3]


@pytest.mark.parametrize("mode", ["before", "background", "cached"])
def test_other_sizes_in_every_mode(mode: str) -> None:
    given = next(one for one in MODELS if one.name == "sum of products")
    InferenceSession(given.build()).run(None, given.feed(((3, 3), (1, 5))))  # fills the cache
    options = SessionOptions()
    options.add_session_config_entry("jitonnx.compile", mode)
    session = InferenceSession(given.build(), options)
    for a, b in ((3, 1), (4, 1), (2, 2)):
        feed = given.feed(((a, 3), (b, 5)))
        for _ in range(3):
            (y,) = session.run(None, feed)
            np.testing.assert_allclose(y, feed["a"] @ given.constants["w"] + feed["b"], rtol=1e-5, atol=1e-6)
            assert session.wait_until_compiled() and session.compile_status.state == "compiled"
    assert len(session.engine.variants) == 1


def test_an_end_that_follows_from_the_size_of_another_value() -> None:
    """The last of the sums of durations, up to which a Range counts: rewrites make a slice of it, and that is told."""
    nodes = [
        node("Cast", ["x"], ["durations"], to=7),
        node("CumSum", ["durations", "zero"], ["ends"]),
        node("Gather", ["ends", "last"], ["end"]),
        node("Range", ["zero", "end", "one"], ["frames"]),
        node("Unsqueeze", ["frames", "first"], ["row"]),
        node("Unsqueeze", ["ends", "second"], ["column"]),
        node("Less", ["row", "column"], ["before"]),
        node("Cast", ["before"], ["mask"], to=1),
        node("MatMul", ["w", "mask"], ["y"]),
    ]
    numbers = {"zero": 0, "last": -1, "one": 1, "first": [0], "second": [1]}
    given = Open(
        "durations",
        nodes,
        {"x": ("n",), "w": (3, "n")},
        (),
        constants={name: np.array(value, np.int64) for name, value in numbers.items()},
    )
    data = given.build()
    session, reference = InferenceSession(data), onnxruntime.InferenceSession(data)
    for durations in ([2, 3, 1], [4, 0], [1], [0, 0, 0], [2, 2, 2, 2]):
        feed = {"x": np.array(durations, np.float32), "w": normal(3, len(durations))}
        (result,), (expected,) = session.run(None, feed), reference.run(None, feed)
        np.testing.assert_allclose(result, expected, 1e-6, 1e-6)
    (nothing,) = session.run(None, {"x": np.array([1, -3], np.float32), "w": normal(3, 2)})
    assert nothing.shape == (3, 0)

"""`jitonnx export`: packages compute what sessions compute, without jitonnx; what cannot be written is named."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import jitonnx
import jitonnx.tools.demo
from jitonnx.errors import Fail, InvalidArgument, NotImplemented
from jitonnx.tools import export as exporting
from jitonnx.tools.cli import main
from jitonnx.tools.export import export
from tests.models.node_tests import ALIGNED, by_onnxruntime, node_tests
from tests.models.test_node_models import COMPILED, assert_close, values
from tests.session import half_models, models
from tests.session.models import model, node, tensor

_number = itertools.count()

ALONE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("jitonnx", "onnx", "onnxruntime", "google", "torch"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Refuse())
import numpy as np
import package

x = np.load("x.npy")
for number, count in enumerate((1, 7)):
    np.save(f"y{number}.npy", package.run(x[:count])[0])
"""


@pytest.fixture(autouse=True)
def _as_plain_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are Python functions here, as compiling them takes most of the time; one test below compiles."""
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)


@pytest.fixture
def package(tmp_path: Path) -> Callable[..., Any]:
    """A model, exported and imported."""

    def package(source: Any, *sizes: Any, **options: Any) -> Any:
        name = f"exported_{next(_number)}"
        export(source, tmp_path / name, *sizes, **options)
        place = str(tmp_path / name)
        spec = importlib.util.spec_from_file_location(name, f"{place}/__init__.py", submodule_search_locations=[place])
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        imported.append(name)
        return module

    imported: list[str] = []
    yield package  # type: ignore[misc]
    for name in [one for one in sys.modules if one.partition(".")[0] in imported]:
        del sys.modules[name]


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def agree(given: Any, wanted: Any, tolerance: float = 1e-5) -> None:
    for one, other in zip(given, wanted, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        if one.dtype.kind == "f":
            np.testing.assert_allclose(one, other, tolerance, tolerance)
        else:
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("compiled", [True, False], ids=["numba", "python"])
def test_alone(tmp_path: Path, compiled: bool) -> None:
    """In a process that cannot import jitonnx, by Numba and as plain Python."""
    made = export(jitonnx.tools.demo.model_path(), tmp_path / "package")
    assert made.kernels and made.weights and made.weight_bytes > 10_000
    x = np.random.default_rng(1).integers(0, 17, (7, 1, 8, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    kept = {"NUMBA_CACHE_DIR": str(tmp_path / "numba"), "NUMBA_DISABLE_JIT": str(int(not compiled))}
    path = os.pathsep.join(one for one in sys.path if one and Path(one).name in ("site-packages", "dist-packages"))
    done = subprocess.run(
        [sys.executable, "-c", ALONE],
        cwd=tmp_path,
        env={**os.environ, **kept, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    session = jitonnx.InferenceSession(jitonnx.tools.demo.model_path())
    (name,) = (one.name for one in session.get_inputs())
    for number, count in enumerate((1, 7)):
        agree([np.load(tmp_path / f"y{number}.npy")], session.run(None, {name: x[:count]}), 1e-4)


def _chain() -> bytes:
    """Layouts, a normalisation, a softmax and a reduction; two outputs, and an input that is one, too."""
    nodes = [
        node("Transpose", ["x"], ["turned"], perm=[0, 2, 1]),
        node("Mul", ["turned", "scale"], ["scaled"]),
        node("LayerNormalization", ["scaled", "scale", "scale"], ["normal"]),
        node("Softmax", ["normal"], ["shares"], axis=1),
        node("ReduceMean", ["shares", "axes"], ["mean"], keepdims=1),
        node("Sub", ["shares", "mean"], ["centred"]),
        node("Exp", ["centred"], ["curved"]),
        node("Where", ["mask", "curved", "x0"], ["chosen"]),
        node("Reshape", ["chosen", "flat"], ["result"]),
        node("Identity", ["x"], ["same"]),
    ]
    constants = {
        "scale": np.linspace(0.5, 2, 5, dtype=np.float32),
        "axes": np.array([1]),
        "x0": np.float32(-1),
        "flat": np.array([0, -1]),
        "mask": np.array([True, False, True, True, False]),
    }
    outputs = [tensor("result", ("n", None)), tensor("same", ("n", 5, "m"))]
    return model(nodes, [tensor("x", ("n", 5, "m"))], outputs, constants)


def _convolutional() -> bytes:
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1], strides=[2, 1]),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "d"], ["e"], group=6, dilations=[2, 2], pads=[2, 0, 2, 0]),
        node("HardSwish", ["e"], ["h"]),
        node("MaxPool", ["h"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("AveragePool", ["p"], ["a"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("GlobalAveragePool", ["a"], ["g"]),
        node("Flatten", ["g"], ["f"]),
        node("Gemm", ["f", "m", "n"], ["y"], transB=1, alpha=0.5),
    ]
    sizes = {"w": (6, 3, 3, 3), "b": (6,), "d": (6, 1, 3, 3), "m": (4, 6), "n": (4,)}
    weights = {name: normal(*shape, seed=number) for number, (name, shape) in enumerate(sizes.items())}
    return model(nodes, [tensor("x", ("n", 3, 13, 11))], [tensor("y", ("n", 4))], weights)


def _integers() -> bytes:
    """Division and remainders round as the model says, sums wrap around, and a product is one of bytes."""
    nodes = [
        node("Div", ["a", "b"], ["quotient"]),
        node("Mod", ["a", "b"], ["rest"]),
        node("Add", ["quotient", "rest"], ["sum"]),
        node("Mul", ["sum", "large"], ["wrapped"]),
        node("BitShift", ["bits", "bits"], ["shifted"], direction="LEFT"),
        node("MatMulInteger", ["bits", "weight", "zero"], ["product"]),
        node("ArgMax", ["product"], ["best"], axis=1),
        node("DynamicQuantizeLinear", ["f"], ["q", "q_scale", "q_zero"]),
        node("Cast", ["f"], ["cut"], to=TensorProto.INT8),
        node("TopK", ["a", "k"], ["top", "places"], axis=0),
    ]
    constants = {
        "large": np.int64(1 << 62),
        "weight": np.random.default_rng(3).integers(0, 256, (4, 3)).astype(np.uint8),
        "zero": np.uint8(128),
        "k": np.array([2]),
    }
    inputs = [
        tensor("a", ("n", 4), TensorProto.INT64),
        tensor("b", (4,), TensorProto.INT64),
        tensor("bits", ("n", 4), TensorProto.UINT8),
        tensor("f", ("n", 4)),
    ]
    outputs = [
        tensor("wrapped", ("n", 4), TensorProto.INT64),
        tensor("shifted", ("n", 4), TensorProto.UINT8),
        tensor("product", ("n", 3), TensorProto.INT32),
        tensor("best", ("n", 1), TensorProto.INT64),
        tensor("q", ("n", 4), TensorProto.UINT8),
        tensor("q_scale", ()),
        tensor("q_zero", (), TensorProto.UINT8),
        tensor("cut", ("n", 4), TensorProto.INT8),
        tensor("top", (2, 4), TensorProto.INT64),
        tensor("places", (2, 4), TensorProto.INT64),
    ]
    return model(nodes, inputs, outputs, constants)


def _integer_feeds(count: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(count)
    return {
        "a": draw.integers(-50, 50, (count, 4)),
        "b": np.array([3, -3, 7, -1]),
        "bits": draw.integers(0, 256, (count, 4)).astype(np.uint8),
        "f": normal(count, 4, seed=count) * 9,
    }


MODELS: dict[str, tuple[Callable[[], bytes], Callable[[int], dict[str, np.ndarray]]]] = {
    "chain": (_chain, lambda count: {"x": normal(count, 5, count + 2)}),
    "convolutional": (_convolutional, lambda count: {"x": normal(count, 3, 13, 11)}),
    "integers": (_integers, _integer_feeds),
    "two outputs": (models.two_outputs, lambda count: {"a": normal(count, 3), "b": normal(count, 3, seed=1)}),
}


@pytest.mark.parametrize("level", [0, 99])
@pytest.mark.parametrize("name", MODELS)
def test_as_the_session(package: Callable[..., Any], name: str, level: int) -> None:
    """Of open sizes, which one package serves, rewritten or not."""
    make, feeds_of = MODELS[name]
    data = make()
    module, session = package(data, level=level), jitonnx.InferenceSession(data)
    assert list(module.INPUTS) == [one.name for one in session.get_inputs()]
    assert list(module.OUTPUTS) == [one.name for one in session.get_outputs()]
    for count in (2, 5):
        feeds = feeds_of(count)
        agree(module.run(*feeds.values()), session.run(None, feeds))


def test_special_values(package: Callable[..., Any]) -> None:
    operators = ("Relu", "Exp", "Erf", "Floor", "Round", "Sign", "Sqrt", "Reciprocal", "IsNaN")
    nodes = [node(operator, ["x"], [operator]) for operator in operators]
    nodes += [node("Cast", ["x"], ["whole"], to=TensorProto.INT32), node("ReduceMax", ["x"], ["max"])]
    kinds = dict.fromkeys(("IsNaN",), TensorProto.BOOL) | {"whole": TensorProto.INT32}
    shapes = {"max": (1,)}
    outputs = [tensor(o, shapes.get(o, (8,)), kinds.get(o, models.FLOAT)) for o in (*operators, "whole", "max")]
    data = model(nodes, [tensor("x", (8,))], outputs)
    x = np.array([np.nan, np.inf, -np.inf, -0.0, 0.5, 2.5, -1.5, 3e9], np.float32)
    ours, theirs = package(data).run(x), jitonnx.InferenceSession(data).run(None, {"x": x})
    agree(ours, theirs)
    for operator, one, other in zip(operators, ours, theirs, strict=False):
        if operator in ("Floor", "Round", "Sqrt", "Reciprocal"):
            np.testing.assert_array_equal(np.signbit(one[x == x]), np.signbit(other[x == x]))


@pytest.mark.parametrize("make", [half_models.mlp, half_models.cnn, half_models.block, half_models.elementwise])
def test_halves(package: Callable[..., Any], tmp_path: Path, make: Callable[[str], bytes]) -> None:
    """NumPy has float16; bfloat16 it does not have, and each node that meets it is named."""
    data = make("float16")
    session = jitonnx.InferenceSession(data)
    feeds = {
        one.name: np.random.default_rng(2).standard_normal([size if isinstance(size, int) else 2 for size in one.shape])
        for one in session.get_inputs()
    }
    feeds = {name: x.astype(np.float16) for name, x in feeds.items()}
    agree(package(data).run(*feeds.values()), session.run(None, feeds), 2e-2)
    with pytest.raises(NotImplemented, match="bfloat16, which NumPy does not have by itself"):
        export(make("bfloat16"), tmp_path / "bfloat16")


def _first_of_each_operator() -> list[str]:
    """The first node test of each operator, and others of operators that have several ways."""
    found: dict[str, str] = {}
    for name, test in sorted(node_tests().items()):
        found.setdefault(test.model.graph.node[0].op_type, name)
    ways = (
        "attention_4d_gqa",
        "conv_with_strides_padding",
        "resize_upsample",
        "lstm",
        "gru",
        "gather",
        "scatter",
        "slice",
    )
    more = [name for name in sorted(node_tests()) if name.removeprefix("test_").startswith(ways)]
    return sorted({*found.values(), *more})


OTHERWISE = {"test_expand_dim_changed"}
"""Whose result has the sizes that an input's elements tell, where a package takes them for those of another input."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", _first_of_each_operator())
def test_nodes(package: Callable[..., Any], name: str) -> None:
    """ONNX's tests of nodes: a package gives what is wanted, or there is none, for a reason that names the node."""
    test = node_tests()[name]
    try:
        module = package(test.model)
    except NotImplemented as error:
        first, *reasons, hint = str(error).split("\n")
        assert "the model cannot be exported" in first and "InferenceSession" in hint
        assert reasons and all(": " in reason and "Bug" not in reason for reason in reasons)
        return
    for inputs, outputs in by_onnxruntime(test) if name in ALIGNED else test.data_sets:
        if name in OTHERWISE:
            with pytest.raises(ValueError, match="the package is for sizes with"):
                module.run(*values(inputs))
            continue
        assert_close(list(module.run(*values(inputs))), values(outputs), test, COMPILED)


def _refused(*nodes: Any, kind: int = models.FLOAT) -> ModelProto:
    graph = helper.make_graph(
        [node("Relu", ["x"], ["r"], "first"), *nodes], "graph", [tensor("x", (3,))], [tensor("y", None, kind)]
    )
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])


def _branch(operator: str) -> Any:
    return helper.make_graph([node(operator, ["r"], ["z"])], operator, [], [tensor("z", None)])


REFUSED = {
    "control flow": (
        _refused(
            node("ReduceSum", ["r"], ["s"], keepdims=0),
            node("Cast", ["s"], ["c"], to=TensorProto.BOOL),
            node("If", ["c"], ["y"], "choose", then_branch=_branch("Exp"), else_branch=_branch("Neg")),
        ),
        "\n  If node 'choose': it runs graphs of its own\n",
    ),
    "strings": (
        _refused(node("Cast", ["r"], ["y"], "spell", to=TensorProto.STRING), kind=TensorProto.STRING),
        "\n  Cast node 'spell': strings",
    ),
    "sizes of data": (
        _refused(node("NonZero", ["r"], ["y"], "find"), kind=TensorProto.INT64),
        "\n  NonZero node 'find': the size of what it gives depends on data\n",
    ),
    "random numbers": (
        _refused(node("RandomNormalLike", ["r"], ["y"], "draw")),
        "\n  RandomNormalLike node 'draw': its computation, Draw, has no plain form\n",
    ),
    "foreign type": (
        _refused(
            node("Cast", ["r"], ["b"], "narrow", to=TensorProto.BFLOAT16),
            node("Cast", ["b"], ["y"], "widen", to=models.FLOAT),
        ),
        "'narrow': 'b' is of bfloat16, which NumPy does not have by itself\n",
    ),
}


@pytest.mark.parametrize("why", REFUSED)
def test_refused(tmp_path: Path, why: str) -> None:
    """By node, with the reason and what to do; and nothing is left on disk."""
    source, text = REFUSED[why]
    with pytest.raises(NotImplemented) as caught:
        export(source, tmp_path / "package", level=0)
    said = str(caught.value)
    assert text in said and "'first'" not in said and said.endswith("jitonnx.InferenceSession runs the whole")
    assert not any(tmp_path.iterdir())


def test_all_that_is_refused_is_named_at_once(tmp_path: Path) -> None:
    source = _refused(node("RandomNormalLike", ["r"], ["a"], "one"), node("RandomUniformLike", ["a"], ["y"], "two"))
    with pytest.raises(NotImplemented, match=r"'one'(.|\n)*'two'"):
        export(source, tmp_path / "package")


def test_sizes(package: Callable[..., Any]) -> None:
    """Open ones are those of the inputs, which have to agree; what is given is fixed."""
    a = normal(2, 3)
    module = package(models.two_outputs())
    assert module.INPUTS == {"a": "float32[N, M]", "b": "float32[N, M]"}
    for shape in ((2, 3), (1, 1), (0, 4)):
        x = normal(*shape)
        agree(module.run(x, x), [x + x, x - x])
    with pytest.raises(
        ValueError, match=r"input 'b' has the shape \(2, 2\), but the model takes \(N, M\), with .*'M': 3"
    ):
        module.run(a, normal(2, 2))
    with pytest.raises(ValueError, match=r"input 'b' has the shape \(3,\)"):
        module.run(a, normal(3))
    with pytest.raises(ValueError, match="input 'a' is of float64, but the model takes float32"):
        module.run(a.astype(np.float64), a)
    for sizes in ({"shapes": {"a": (2, 3)}}, {"dimensions": {"N": 2, "M": 3}}):
        fixed = package(models.two_outputs(), **sizes)
        assert fixed.OUTPUTS == {"sum": "float32[2, 3]", "difference": "float32[2, 3]"}
        agree(fixed.run(a, a), [a + a, a - a])
        with pytest.raises(ValueError, match=r"input 'a' has the shape \(3, 3\), but the model takes \(2, 3\)"):
            fixed.run(normal(3, 3), normal(3, 3))
    with pytest.raises(InvalidArgument, match="no dimension 'K'"):
        package(models.two_outputs(), dimensions={"K": 3})


def test_sizes_that_broadcast(package: Callable[..., Any]) -> None:
    """Two open sizes that an Add brings together are taken for equal: others are refused, never read beyond."""
    data = model([node("Add", ["a", "b"], ["y"])], [tensor("a", ("n",)), tensor("b", ("m",))], [tensor("y", (None,))])
    module = package(data)
    agree(module.run(normal(3), normal(3, seed=1)), [normal(3) + normal(3, seed=1)])
    for one, other in ((4, 3), (1, 3), (3, 1)):
        with pytest.raises(ValueError, match=r"n == m|m == n"):
            module.run(normal(one), normal(other))
    agree(package(data, {"a": (1,), "b": (3,)}).run(normal(1), normal(3)), [normal(1) + normal(3)])


def test_strange_arrays(package: Callable[..., Any]) -> None:
    """Inputs with any strides and in any order of bytes, and lists; outputs are arrays of their own."""
    module = package(models.relu_add(("N", 3)))
    x = normal(8, 6)[::-2, ::2]
    wanted = [models.relu_add_result(x)]
    for given in (x, x.astype(">f4"), np.asfortranarray(x)):
        agree(module.run(given), wanted)
    identity = package(model([node("Identity", ["x"], ["y"])], [tensor("x", (2, 3))], [tensor("y", (2, 3))]))
    given = normal(2, 3)
    (y,) = identity.run(given)
    assert not np.shares_memory(y, given) and y.flags.c_contiguous and y.flags.writeable


def test_weights_are_mapped(package: Callable[..., Any], tmp_path: Path) -> None:
    weight = normal(40, 30)
    module = package(
        model([node("MatMul", ["x", "w"], ["y"])], [tensor("x", (2, 40))], [tensor("y", (2, 30))], {"w": weight})
    )
    inner = sys.modules[f"{module.__name__}.model"]
    assert isinstance(inner.w.base, np.memmap) and not inner.w.flags.writeable
    np.testing.assert_array_equal(np.load(tmp_path / module.__name__ / "weights" / "w.npy"), weight)


def test_names_of_the_model_are_no_code(package: Callable[..., Any]) -> None:
    """What a model calls its values becomes identifiers of their own, whatever it is."""
    names = ["np", "1st/layer", "print", "class", "x y", '"""', "run", "é\n", "maximum", "\\", "i"]
    nodes = [node("Sigmoid", [one], [other], other) for one, other in itertools.pairwise(names)]
    data = model(nodes, [tensor(names[0], (2, 3))], [tensor(name, (2, 3)) for name in names[1:]])
    x = normal(2, 3)
    agree(package(data).run(x), jitonnx.InferenceSession(data).run(None, {"np": x}))


def test_external_and_sparse_sources(package: Callable[..., Any], tmp_path: Path) -> None:
    """Weights that lie in files beside the model are written as any other."""
    import onnx

    weight = normal(64, 64)
    proto = models.proto(
        [node("MatMul", ["x", "w"], ["y"])], [tensor("x", (2, 64))], [tensor("y", (2, 64))], {"w": weight}
    )
    assert numpy_helper.to_array(proto.graph.initializer[0]).shape == (64, 64)
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=16)
    x = normal(2, 64)
    agree(package(tmp_path / "m.onnx").run(x), [x @ weight])


@pytest.mark.parametrize(
    "name, text",
    [
        ("a-b", "'a-b' cannot be imported: give a folder whose name is a Python identifier"),
        ("class", "'class' cannot be imported"),
        ("there", "is there already: give another folder, or remove it"),
        ("file", "is there already"),
        ("no/package", "there is no folder"),
    ],
)
def test_places_that_are_refused(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.py").touch()
    (tmp_path / "file").touch()
    with pytest.raises(InvalidArgument, match=text):
        export(models.relu_add(), tmp_path / name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "mine.py", "there"]


def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(exporting.np, "save", full)
    with pytest.raises(OSError, match="No space left"):
        export(jitonnx.tools.demo.model_path(), tmp_path / "package")
    assert not any(tmp_path.iterdir())


def test_numbers_without_axes(package: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy makes numbers of arrays without axes, which Numba's kernels cannot index."""
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 0)
    nodes = [
        node("MatMul", ["x", "x"], ["product"]),
        node("Gather", ["x", "place"], ["gathered"]),
        node("GatherND", ["x", "places"], ["found"]),
        node("ReduceMean", ["x"], ["mean"], keepdims=0),
        node("DynamicQuantizeLinear", ["mean"], ["q", "q_scale", "q_zero"]),
        node("DequantizeLinear", ["q", "q_scale", "q_zero"], ["quantised"]),
        node("Sum", ["product", "gathered", "found", "mean", "quantised"], ["sum"]),
        node("Exp", ["sum"], ["y"]),
    ]
    data = model(nodes, [tensor("x", (5,))], [tensor("y", ())], {"place": np.int64(3), "places": np.array([1])})
    x = normal(5)
    agree(package(data, level=0).run(x), jitonnx.InferenceSession(data).run(None, {"x": x}))


def test_no_elements(package: Callable[..., Any]) -> None:
    """No images, and images without pixels."""
    nodes = [
        node("Conv", ["x", "w"], ["c"], kernel_shape=[2, 2], pads=[1, 1, 1, 1]),
        node("InstanceNormalization", ["c", "s", "s"], ["n"]),
        node("ConvTranspose", ["n", "t"], ["y"]),
    ]
    sizes = {"w": (4, 2, 2, 2), "s": (4,), "t": (4, 3, 2, 2)}
    weights = {name: normal(*shape) for name, shape in sizes.items()}
    data = model(nodes, [tensor("x", ("n", 2, "h", 5))], [tensor("y", ("n", 3, None, None))], weights)
    module, session = package(data), jitonnx.InferenceSession(data)
    for shape in ((0, 2, 4, 5), (3, 2, 0, 5), (2, 2, 4, 5)):
        agree(module.run(normal(*shape)), session.run(None, {"x": normal(*shape)}))


def test_open_sizes_of_which_the_model_needs_certain_ones(package: Callable[..., Any], tmp_path: Path) -> None:
    """Every other row from the last but one backwards is as many rows as there are, or one, only of up to three."""
    nodes = [node("Slice", ["x", "from", "to", "axes", "step"], ["s"]), node("Add", ["s", "x"], ["y"])]
    constants = {"from": np.array([-2]), "to": np.array([-100]), "axes": np.array([0]), "step": np.array([-2])}
    data = model(nodes, [tensor("x", ("n", 3))], [tensor("y", (None, 3))], constants)
    with pytest.raises(NotImplemented, match=r"for open sizes: Add node 'make_y' .*do not broadcast.*--dim NAME=1"):
        export(data, tmp_path / "package")
    x = normal(2, 3)
    agree(package(data, dimensions={"n": 2}).run(x), [x + x[:1]])


def test_sizes_that_fit_nothing(tmp_path: Path) -> None:
    data = model(
        [node("MatMul", ["a", "b"], ["y"])],
        [tensor("a", ("n", "k")), tensor("b", ("l", "m"))],
        [tensor("y", ("n", "m"))],
    )
    with pytest.raises(Fail, match=r"MatMul node 'make_y' .*the last axis of A \(3\)"):
        export(data, tmp_path / "package", {"a": (2, 3), "b": (4, 5)})


def test_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    place = tmp_path / "digits"
    assert main(["export", str(jitonnx.tools.demo.model_path()), "-o", str(place), "--dim", "batch=1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{place}: ") and "Numba function" in out and "weight files of" in out
    assert sorted(path.name for path in place.iterdir()) == ["__init__.py", "model.py", "operators.py", "weights"]
    for path in place.glob("*.py"):
        source = path.read_text("utf-8")
        assert "jitonnx." not in source and max(map(len, source.split("\n"))) <= 120
        compile(source, str(path), "exec")
    assert main(["export", str(jitonnx.tools.demo.model_path()), "-o", str(place)]) == 1
    assert "is there already" in capsys.readouterr().err

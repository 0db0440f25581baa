"""Operators whose weights a run computes, and integers where floats are usual: compiled once, for whatever sizes.

Each case is a model of open sizes that is run with two sets of them. Nothing is left to NumPy, whose evaluation is what
the results are compared with.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest
from onnx import helper, numpy_helper

import jitonnx
from jitonnx.engine.interpreter import evaluate
from jitonnx.model import load

FLOATS = ("float32", "float64", "float16")
INTEGERS = ("int32", "uint32", "int64", "uint64")
SMALL = ("int8", "uint8")
TOLERANCES = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-9}

Sizes = tuple[tuple[int, ...], tuple[int, ...]]


class Input(NamedTuple):
    """A graph input: what it is called, its sizes as the model has them, and those of two runs."""

    name: str
    shape: str
    sizes: Sizes
    dtype: str = ""
    """The case's type if empty."""


class Case(NamedTuple):
    """A model of one operator."""

    operator: str
    inputs: tuple[Input, ...]
    attributes: Mapping[str, Any] = MappingProxyType({})
    constants: Mapping[str, Any] = MappingProxyType({})
    order: str = ""
    """Names of the node's inputs; those of `inputs` and then of `constants` if empty."""
    opset: int = 23
    outputs: int = 1


def image(axes: int, name: str = "x") -> Input:
    shape = "N 4 " + " ".join(f"s{axis}" for axis in range(axes))
    return Input(name, shape, ((2, 4, *(9,) * axes), (1, 4, *(7,) * axes)))


def fixed(name: str, *shape: int) -> Input:
    return Input(name, " ".join(map(str, shape)), (shape, shape))


def convolutions() -> dict[str, Case]:
    found = {}
    for axes in (1, 2, 3):
        window = (3,) * axes
        weights = fixed("w", 6, 4, *window), fixed("w", 6, 2, *window), fixed("w", 4, 6, *window)
        bias = fixed("b", 6)
        grouped = {"group": 2, "strides": [2] * axes}
        found |= {
            f"Conv over {axes}": Case("Conv", (image(axes), weights[0]), {"pads": [1] * 2 * axes}),
            f"Conv over {axes}, in groups": Case("Conv", (image(axes), weights[1], bias), grouped),
            f"ConvTranspose over {axes}": Case("ConvTranspose", (image(axes), weights[2]), {"strides": [2] * axes}),
        }
    channels = Input("x", "N C H W", ((2, 4, 5, 6), (1, 3, 7, 3)))
    open_weights = Input("w", "O C 3 3", ((6, 4, 3, 3), (5, 3, 3, 3)))
    found["Conv with an open number of channels"] = Case("Conv", (channels, open_weights))
    return found


def recurrences() -> dict[str, Case]:
    found = {}
    for operator, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        rows = gates * 8
        x, known_x = (Input("x", f"T B {size}", ((7, 2, 5), (3, 1, 5 if size == "5" else 6))) for size in ("I", "5"))
        w = Input("w", f"1 {rows} I", ((1, rows, 5), (1, rows, 6)))
        anything = (Input("w", "D G I", w.sizes), Input("r", "D G H", ((1, rows, 8), (1, rows, 8))))
        r, b, units = fixed("r", 1, rows, 8), fixed("b", 1, 2 * rows), {"hidden_size": 8}
        found[operator] = Case(operator, (known_x, fixed("w", 1, rows, 5), r, b), units, outputs=2)
        found[f"{operator} with an open number of features"] = Case(operator, (x, w, r, b), units)
        found[f"{operator} with weights of open sizes"] = Case(operator, (x, *anything), units)
    return found


def normalisations() -> dict[str, Case]:
    x = Input("x", "N C H W", ((2, 4, 5, 6), (1, 3, 7, 3)))
    s, b, m, v = (Input(name, "C", ((4,), (3,))) for name in "sbmv")
    rows = Input("x", "N S D", ((2, 5, 16), (1, 3, 7)))
    last, lasting = (Input(name, "D", ((16,), (7,))) for name in "sb")
    return {
        "BatchNormalization": Case("BatchNormalization", (x, s, b, m, v)),
        "InstanceNormalization": Case("InstanceNormalization", (x, s, b)),
        "GroupNormalization": Case("GroupNormalization", (x, s, b), {"num_groups": 1}),
        "LayerNormalization": Case("LayerNormalization", (rows, last, lasting)),
        "RMSNormalization": Case("RMSNormalization", (rows, last)),
        "LRN": Case("LRN", (x,), {"size": 3}),
    }


def attentions() -> dict[str, Case]:
    q = Input("q", "B 2 Q 8", ((2, 2, 5, 8), (1, 2, 3, 8)))
    k, v = (Input(name, "B 2 K 8", ((2, 2, 6, 8), (1, 2, 4, 8))) for name in "kv")
    mask = Input("m", "Q K", ((5, 6), (3, 4)))
    return {
        "Attention": Case("Attention", (q, k, v)),
        "Attention, causal": Case("Attention", (q, k, v), {"is_causal": 1}),
        "Attention with a mask": Case("Attention", (q, k, v, mask)),
        "Attention with a mask of truth": Case("Attention", (q, k, v, mask._replace(dtype="bool"))),
    }


def products() -> dict[str, Case]:
    a, b = Input("a", "N K", ((3, 9), (2, 5))), Input("b", "K M", ((9, 4), (5, 1)))
    turned = Input("a", "K N", ((9, 3), (5, 2)))
    c = Input("c", "M", ((4,), (1,)))
    many = (Input("a", "B N K", ((2, 3, 9), (1, 2, 5))), Input("b", "B M K", ((2, 4, 9), (1, 1, 5))))
    return {
        "MatMul": Case("MatMul", (a, b)),
        "Gemm": Case("Gemm", (a, b, c)),
        "Gemm, scaled": Case("Gemm", (turned, b, c), {"transA": 1, "alpha": 1.5, "beta": -0.5}),
        "Gemm, its sum scaled": Case("Gemm", (a, b, c), {"beta": 2.5}),
        "Einsum": Case("Einsum", many, {"equation": "bik,bjk->bij"}),
    }


ROWS = Input("x", "N M", ((3, 9), (2, 5)))
REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")


def reductions() -> dict[str, Case]:
    found = {}
    for kind in REDUCTIONS:
        for axes in ([0], [1], [0, 1]):
            found[f"Reduce{kind} over {axes}"] = Case(f"Reduce{kind}", (ROWS,), {}, {"axes": np.array(axes)})
    found |= {
        "ArgMax": Case("ArgMax", (ROWS,), {"axis": 1}),
        "ArgMin": Case("ArgMin", (ROWS,), {"axis": 0}),
        "TopK": Case("TopK", (ROWS,), {"axis": 1}, {"k": np.array([3])}, outputs=2, opset=24),
        "TopK of columns": Case("TopK", (ROWS,), {"axis": 0, "largest": 0}, {"k": np.array([2])}, outputs=2, opset=24),
    }
    return found


def resizes() -> dict[str, Case]:
    x = Input("x", "N C H W", ((2, 4, 5, 6), (1, 3, 7, 3)))
    up, down = ({"scales": np.array([1, 1, *scales], np.float32)} for scales in ((2, 2), (0.6, 1.7)))
    return {
        "Resize": Case("Resize", (x,), {}, up, "x  scales"),
        "Resize by odd factors": Case("Resize", (x,), {"nearest_mode": "ceil"}, down, "x  scales"),
    }


def indexing() -> dict[str, Case]:
    data = Input("x", "A B C D E", ((3, 4, 2, 3, 2), (2, 3, 3, 2, 4)))
    found = {}
    for width in range(1, 6):
        places = Input("i", f"N {width}", ((5, width), (0, width)), "int64")
        found[f"GatherND of {width}"] = Case("GatherND", (data, places))
        rest = [shape[width:] for shape in data.sizes]
        one = places._replace(sizes=((1, width), (0, width)))
        updates = Input("u", " ".join(["N", *"ABCDE"[width:]]), ((1, *rest[0]), (0, *rest[1])))
        found[f"ScatterND of {width}"] = Case("ScatterND", (data, one, updates))
    updates = Input("u", "N D E", ((1, 3, 2), (0, 2, 4)))
    places = Input("i", "N W", ((1, 3), (0, 3)), "int64")
    found["ScatterND of an open width"] = Case("ScatterND", (data, places, updates))
    found["GatherND in batches"] = Case(
        "GatherND", (data, Input("i", "A B N 2", ((3, 4, 5, 2), (2, 3, 0, 2)), "int64")), {"batch_dims": 2}
    )
    elements = Input("i", "A B Q D E", ((3, 4, 5, 3, 2), (2, 3, 0, 2, 4)), "int32")
    found["GatherElements"] = Case("GatherElements", (data, elements), {"axis": 2})
    found["Gather"] = Case("Gather", (data, Input("i", "P Q", ((4, 5), (2, 0)), "int32")), {"axis": 2})
    return found


def typed(cases: dict[str, Case], *dtypes: str) -> list[Any]:
    return [pytest.param(case, dtype, id=f"{name}, {dtype}") for name, case in cases.items() for dtype in dtypes]


CASES = [
    *typed(convolutions(), *FLOATS),
    *typed(recurrences(), *FLOATS),
    *typed(normalisations(), *FLOATS),
    *typed(attentions(), *FLOATS),
    *typed(products(), *INTEGERS, "float64"),
    *typed(reductions(), *INTEGERS),
    *typed(
        {name: case for name, case in reductions().items() if case.operator in ("ArgMax", "TopK")}, *SMALL, "float16"
    ),
    *typed(resizes(), *INTEGERS, "bool", "float64"),
    *typed(indexing(), "float32", "int64", "bool", "float16", "uint8"),
]


def model(case: Case, dtype: str) -> bytes:
    inputs = [
        helper.make_tensor_value_info(
            given.name,
            helper.np_dtype_to_tensor_dtype(np.dtype(given.dtype or dtype)),
            [int(size) if size.isdigit() else size for size in given.shape.split()],
        )
        for given in case.inputs
    ]
    names = case.order.split(" ") if case.order else [*(given.name for given in case.inputs), *case.constants]
    outputs = [f"y{i}" for i in range(case.outputs)]
    node = helper.make_node(case.operator, names, outputs, **case.attributes)
    constants = [numpy_helper.from_array(np.asarray(array), name) for name, array in case.constants.items()]
    graph = helper.make_graph(
        [node], "graph", inputs, [helper.make_empty_tensor_value_info(y) for y in outputs], constants
    )
    opsets = [helper.make_opsetid("", case.opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def array_of(
    given: Input, dtype: str, sizes: tuple[int, ...], random: np.random.Generator, wrapping: bool
) -> np.ndarray:
    """wrapping: with integers whose sums and products wrap around."""
    kind = np.dtype(given.dtype or dtype)
    if given.name == "i":
        return random.integers(-2, 2, sizes).astype(kind)
    if given.name == "v":  # a variance
        return random.random(sizes).astype(kind)
    if kind.kind == "f":
        return random.standard_normal(sizes).astype(kind)
    if kind.kind == "b":
        return random.random(sizes) < 0.5
    largest = int(np.iinfo(kind).max) if wrapping and kind.itemsize >= 4 else 9
    return random.integers(0 if kind.kind == "u" else -largest, largest, sizes, dtype=kind, endpoint=True)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("case", "dtype"), CASES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_compiled_for_any_size(case: Case, dtype: str) -> None:
    data = model(case, dtype)
    session = jitonnx.InferenceSession(data)
    engine = session.engine
    assert engine.compiled is not None and engine.schedule is None, f"left to NumPy: {engine.schedule.reasons()}"
    random = np.random.default_rng(0)
    in_doubles = {"alpha", "beta"} & {*case.attributes}  # which round, or have no integer, when numbers are large
    for which, wrapping in ((0, False), (1, False), (0, not in_doubles)):
        feeds = {given.name: array_of(given, dtype, given.sizes[which], random, wrapping) for given in case.inputs}
        results = session.run(None, feeds)
        for result, expected in zip(results, evaluate(load(data).graph, feeds), strict=True):
            assert result.dtype == expected.dtype and result.shape == expected.shape
            tolerance = TOLERANCES.get(str(expected.dtype), 0)
            a, b = (array if array.dtype.kind != "f" else array.astype(np.float64) for array in (result, expected))
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    assert session.compile_status.numpy_runs == 0 and not list(engine._engines)


@pytest.mark.filterwarnings("ignore:output")
def test_tuples_of_an_open_width() -> None:
    """GatherND whose results' rank hangs on a size: a run with another width has code made for that one."""
    data, places = Input("x", "A B C", ((3, 4, 5),)), Input("i", "N W", ((6, 2),), "int64")
    session = jitonnx.InferenceSession(model(Case("GatherND", (data, places)), "float32"))
    random = np.random.default_rng(0)
    for width in (3, 2, 1, 2, 3):
        for rows, sizes in ((6, (3, 4, 5)), (0, (3, 4, 5)), (4, (2, 7, 2))):
            x, i = random.standard_normal(sizes).astype(np.float32), random.integers(-2, 2, (rows, width))
            (y,) = session.run(None, {"x": x, "i": i})
            np.testing.assert_array_equal(y, x[tuple(i.T)])
            assert session.engine.program((x.shape, i.shape)) is not None, "it is evaluated on NumPy"
    x = np.zeros((3, 4, 5), np.float32)
    with pytest.raises(jitonnx.errors.Error, match=r"do not address|indices"):
        session.run(None, {"x": x, "i": np.zeros((2, 4), np.int64)})

"""Models in half precision through sessions: compiled as a whole, near onnxruntime, near NumPy's evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx.parser
import onnxruntime
import pytest

import jitonnx
from jitonnx.engine.interpreter import evaluate
from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowered, lower
from jitonnx.ir.dtypes import DType
from jitonnx.model import load
from jitonnx.plan.selection import takes_epilogue
from jitonnx.plan.storage_types import place_halves
from jitonnx.support.kernel_cache import KernelCache
from jitonnx.target.machine import Target
from jitonnx.tools.explain import explain
from tests.ops.interpret import interpret
from tests.session.half_models import ELEMENTS, MODELS, Builder, elementwise, feed, in_float32
from tests.targets import named, skip_unless_run_here

KINDS = ("float16", "bfloat16")
STEP = {"float16": 2.0**-10, "bfloat16": 2.0**-7}
"""How far apart the numbers of a type lie, from 1 on."""
each_model = pytest.mark.parametrize("name", MODELS)
each_kind = pytest.mark.parametrize("kind", KINDS)


def _assert_near(result: np.ndarray, expected: np.ndarray, kind: str) -> None:
    """They are within a few roundings of the largest number: sums are added up in another order and then rounded."""
    assert result.dtype == expected.dtype and result.shape == expected.shape
    wide, reference = result.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(wide, reference, rtol=0, atol=3 * STEP[kind] * np.abs(reference).max())


@each_kind
@each_model
def test_against_evaluation(name: str, kind: str) -> None:
    data, x = MODELS[name](kind), feed(name, kind)
    (result,) = jitonnx.InferenceSession(data).run(None, {"x": x})
    (expected,) = evaluate(load(data).graph, {"x": x})
    _assert_near(result, expected, kind)


@each_model
def test_against_onnxruntime(name: str) -> None:
    data, x = MODELS[name]("float16"), feed(name, "float16")
    (result,) = jitonnx.InferenceSession(data).run(None, {"x": x})
    (expected,) = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    _assert_near(result, expected, "float16")


@each_kind
@each_model
def test_nothing_is_left_to_numpy(name: str, kind: str) -> None:
    statements = lower(load(MODELS[name](kind)).graph).statements
    assert not [statement for statement in statements if isinstance(statement.computation, c.Host)]


def _error(result: np.ndarray, exact: np.ndarray) -> float:
    """The root of the mean square of the differences."""
    return float(np.sqrt(np.mean((result.astype(np.float64) - exact.astype(np.float64)) ** 2)))


@each_model
def test_no_less_exact_than_onnxruntime(name: str) -> None:
    """Both against the same numbers computed without rounding to 16 bits; what is given out they all round."""
    data = MODELS[name]("float16")
    errors = []
    for seed in range(4):
        x = feed(name, "float16", seed)
        wide = in_float32(data)
        (exact,) = evaluate(load(wide).graph, {"x": x.astype(np.float32)})
        (result,) = jitonnx.InferenceSession(data).run(None, {"x": x})
        (theirs,) = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})
        errors.append((_error(result, exact), _error(theirs, exact)))
    ours, others = np.sum(errors, axis=0)
    assert ours <= 1.01 * others


@each_kind
def test_elementwise_operators_are_exact(kind: str) -> None:
    """Rounded behind every operator, sums and products of bfloat16 have the bits that NumPy gives them; those of
    float16, rounded where they come to lie, the bits of onnxruntime."""
    data, x = elementwise(kind), feed("elementwise", kind)
    (result,) = jitonnx.InferenceSession(data).run(None, {"x": x})
    if kind == "float16":
        (expected,) = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    else:
        (expected,) = evaluate(load(data).graph, {"x": x})
    np.testing.assert_array_equal(result.view(np.uint16), expected.view(np.uint16))


@pytest.mark.parametrize("given_out", [True, False])
def test_a_value_has_one_number(given_out: bool) -> None:
    """What is given out is read as it is given out; what is not is not rounded."""
    b = Builder("float16")
    y = b("Add", b("MatMul", "x", b.weights(40, 8)), b.weights(8))
    z = b("Mul", y, y)
    model, x = onnx.load_from_string(b.model((5, 40), z)), feed("mlp", "float16")[:5]
    (plain,) = evaluate(load(in_float32(b.model((5, 40), y))).graph, {"x": x.astype(np.float32)})
    if given_out:
        model.graph.output.append(onnx.helper.make_tensor_value_info(y, onnx.TensorProto.FLOAT16, (5, 8)))
    result, *given = jitonnx.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    for number in given:
        np.testing.assert_allclose(number, plain.astype(np.float16), rtol=STEP["float16"])
    seen, unseen = [given[0]] if given else [plain], [plain] if given else [plain.astype(np.float16)]
    for numbers, is_read in ((*seen, True), (*unseen, False)):
        wide = numbers.astype(np.float32)
        same = np.isclose(result, (wide * wide).astype(np.float16), rtol=1e-9, atol=0)
        assert (same.mean() > 0.9) == is_read


def test_casts_of_the_model_round() -> None:
    """float32 cast to float16 and back has the numbers of float16, also in front of a product and behind one."""
    b = Builder("float32")
    x = b("Cast", b("Cast", "x", to=onnx.TensorProto.FLOAT16), to=onnx.TensorProto.FLOAT)
    x = b("MatMul", x, b.constant(np.eye(24, dtype=np.float32)))
    y = b("Cast", b("Cast", x, to=onnx.TensorProto.FLOAT16), to=onnx.TensorProto.FLOAT)
    x = feed("mixed", "float16")
    (result,) = jitonnx.InferenceSession(b.model((5, 24), y)).run(None, {"x": x})
    np.testing.assert_array_equal(result, x.astype(np.float16).astype(np.float32))


@pytest.mark.parametrize("level", [0, 99])
@pytest.mark.parametrize(
    ("nodes", "type", "expected"),
    [
        ("y = Round(h)", "float16", np.rint),
        ("s = Mul(h, h) y = Floor(s)", "float16", lambda h: np.floor(h * h)),
        ("s = Sqrt(h) y = Cast<to=6>(s)", "int32", lambda h: np.sqrt(h).astype(np.int32)),
        ("s = Add(h, h) r = Abs(s) y = Less(r, h)", "bool", lambda h: abs(h + h) < h),
        ("s = Add(h, h) t = IsInf(s) y = Not(t)", "bool", lambda h: ~np.isinf(h + h)),
        ("y = ArgMax<keepdims=0>(h)", "int64", np.argmax),
    ],
)
def test_what_decides_where_an_operator_jumps_is_rounded(nodes: str, type: str, expected, level: int) -> None:
    """Numbers of float32 that lie beside those at which the result changes once they are float16."""
    rank = "" if type == "int64" else "n"
    text = f"g (float[n] x) => ({type}[{rank}] y) {{ h = Cast<to=10>(x) {nodes} }}"
    model = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 20]> {text}')
    options = jitonnx.SessionOptions()
    options.graph_optimization_level = jitonnx.GraphOptimizationLevel(level)
    x = np.array([24.999, 24.9999, 2.4999, 2.5001, 1.41421, 2.23606, 3.9999, 0.4999999, 32751.9, 0], np.float32)
    (result,) = jitonnx.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result, expected(x.astype(np.float16)))


@pytest.mark.parametrize("type", ["int8", "uint8", "int32", "uint64", "double"])
def test_signs_are_converted(type: str) -> None:
    """A sign is a number of every type, but not one of float32."""
    nodes = "a = Sign(x) b = Cast<to=10>(a) y = Cast<to=1>(b)"
    text = f'<ir_version: 10, opset_import: ["": 13]> g ({type}[n] x) => (float[n] y) {{ {nodes} }}'
    x = np.array([5, 3, 0, 100, 1, 77, 2]).astype("float64" if type == "double" else type)
    session = jitonnx.InferenceSession(onnx.parser.parse_model(text).SerializeToString())
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.sign(x).astype(np.float32))


def test_gates_are_multiplied_into_weights() -> None:
    """As in float32: nothing is rounded between the gate and the product."""
    session = jitonnx.InferenceSession(MODELS["gated"]("float16"))
    labels = [kernel.label for kernel in explain(session, {"x": feed("gated", "float16").shape}).kernels]
    assert any(label.startswith("scale weights") for label in labels)


TARGETS = {"avx2": named("haswell"), "no f16c": replace(named("haswell"), features="-f16c")}


@pytest.mark.sampled(3)
@each_kind
@each_model
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_other_cpus(name: str, kind: str, target: Target, tmp_path: Path) -> None:
    skip_unless_run_here(target)
    """Vectors of AVX2, and conversions without F16C."""
    data, x = MODELS[name](kind), feed(name, kind)
    engine = Engine(load(data).graph, Settings(threads=1, target=target), KernelCache(tmp_path))
    (result,) = engine.run([x])
    (expected,) = evaluate(load(data).graph, {"x": x})
    _assert_near(result, expected, kind)


@each_model
def test_placing_changes_no_bits(name: str) -> None:
    """Values of bfloat16 kept as float32 are rounded as before: read on NumPy, the statements give the same."""
    lowered, x = lower(load(MODELS[name]("bfloat16")).graph), feed(name, "bfloat16")
    sizes = {"N": len(x)}
    before = interpret(lowered, {"x": x}, sizes)
    after = interpret(place_halves(lowered, takes_epilogue), {"x": x}, sizes)
    for one, other in zip(before, after, strict=True):
        assert np.asarray(one).dtype == np.asarray(other).dtype
        np.testing.assert_array_equal(one, other)


def _halves(lowered: Lowered) -> list[str]:
    return [
        type(statement.computation).__name__
        for statement in lowered.statements
        if statement.outputs[0].dtype in (DType.FLOAT16, DType.BFLOAT16)
    ]


def test_what_lies_as_16_bits() -> None:
    """Nothing between kernels that compute on float32; everything where nothing but elements and bytes are moved."""
    between = place_halves(lower(load(MODELS["block"]("float16")).graph), takes_epilogue)
    assert _halves(between) == ["Map"]  # the graph's output
    plain = lower(load(elementwise("bfloat16")).graph)
    assert _halves(place_halves(plain, takes_epilogue)) == _halves(plain)
    moved = place_halves(lower(load(elementwise("float16")).graph), takes_epilogue)
    assert _halves(moved) == ["Map", "Transpose", "Gather", "Concat", "Map"]  # elements between these stay in registers


@each_kind
def test_resized_images_are_rounded_in_planes(kind: str) -> None:
    """A resized image that becomes an output is made as that lies, and not transposed by who rounds it."""
    b = Builder(kind)
    pixels = b("Conv", "x", b.weights(5, 3, 1, 1))
    model = b.model((1, 3, 6, 7), b("Resize", pixels, "", "", b.ints(1, 5, 24, 28), mode="linear"))
    x = np.random.default_rng(0).standard_normal((1, 3, 6, 7)).astype(ELEMENTS[kind][1])
    session = jitonnx.InferenceSession(model)
    (result,) = session.run(None, {"x": x})
    _assert_near(result, evaluate(load(model).graph, {"x": x})[0], kind)
    assert "resize linear in planes" in [kernel.label for kernel in explain(session, {"x": x.shape}).kernels]


@each_kind
def test_saved_and_opened(kind: str, tmp_path: Path) -> None:
    data, x, path = MODELS["block"](kind), feed("block", kind), tmp_path / "block.jitonnx"
    session = jitonnx.InferenceSession(data)
    session.save(path)
    (expected,) = session.run(None, {"x": x})
    (result,) = jitonnx.load(path).run(None, {"x": x})
    assert result.dtype == ELEMENTS[kind][1]
    np.testing.assert_array_equal(result.view(np.uint16), expected.view(np.uint16))

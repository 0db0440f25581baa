"""Models in half precision through sessions: compiled as a whole, near onnxruntime, near NumPy's evaluation."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import jitonnx
from jitonnx.computation import computations as c
from jitonnx.computation.lowering import Lowered, lower
from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.explain import explain
from jitonnx.interpreter import evaluate
from jitonnx.ir.dtypes import DType
from jitonnx.model import load
from jitonnx.plan.halves import place_halves
from jitonnx.plan.selection import takes_epilogue
from jitonnx.runtime.cache import KernelCache
from jitonnx.target import Target
from tests.ops.interpret import interpret
from tests.session.half_models import ELEMENTS, MODELS, Builder, elementwise, feed
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


@each_kind
def test_elementwise_operators_are_exact(kind: str) -> None:
    """Rounded behind every operator, sums and products have the bits that NumPy gives them."""
    data, x = elementwise(kind), feed("elementwise", kind)
    (result,) = jitonnx.InferenceSession(data).run(None, {"x": x})
    (expected,) = evaluate(load(data).graph, {"x": x})
    np.testing.assert_array_equal(result.view(np.uint16), expected.view(np.uint16))


TARGETS = {"avx2": named("haswell"), "no f16c": replace(named("haswell"), features="-f16c")}


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


@each_kind
@each_model
def test_placing_changes_no_bits(name: str, kind: str) -> None:
    """Values kept as float32 are rounded as before: read on NumPy, the statements give the same."""
    lowered, x = lower(load(MODELS[name](kind)).graph), feed(name, kind)
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
    plain = lower(load(elementwise("float16")).graph)
    assert _halves(place_halves(plain, takes_epilogue)) == _halves(plain)


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
    (result,) = jitonnx.InferenceSession(path).run(None, {"x": x})
    assert result.dtype == ELEMENTS[kind][1]
    np.testing.assert_array_equal(result.view(np.uint16), expected.view(np.uint16))

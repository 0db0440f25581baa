"""Products and convolutions that differ only in what they ask for ahead, or cut off at, have one kernel."""

from __future__ import annotations

import numpy as np
import pytest

import jitonnx
from jitonnx.codegen.code import code_of
from jitonnx.ir.dtypes import DType
from jitonnx.kernels.gemm.spec import GemmBuffers, GemmGiven, GemmSpec
from jitonnx.plan.calls import KernelCall
from jitonnx.plan.kernel_deduplication import share_kernels
from jitonnx.plan.tensor import StridedTensor, dense_tensor
from jitonnx.tools.explain import as_text, explain
from tests.session.models import model, node, tensor

ROWS, DEPTH, COLUMNS = 37, 24, 50
CUTS = {"none": (None, None), "relu": (0.0, None), "six": (0.0, 6.0), "below": (None, 1.5), "clip": (-0.75, 2.0)}


def call(spec: GemmSpec) -> KernelCall:
    return KernelCall(
        spec,
        GemmBuffers.make([dense_tensor(name, (4, 4), DType.FLOAT, (0, 1)) for name in "abc"]),
        GemmGiven.make([0] * GemmGiven.WIDTH),
    )


def no_constant(array: np.ndarray) -> StridedTensor:
    raise AssertionError(f"{array} is made a constant")


def test_products_of_the_same_tiles_share_a_kernel() -> None:
    tiles = ((6, 4), (64,))
    calls = [
        call(GemmSpec(*tiles)),
        call(GemmSpec(*tiles, prefetch_distance=24)),
        call(GemmSpec(*tiles, paced_prefetch=True)),
    ]
    others = [call(GemmSpec((6, 2), (64,))), call(GemmSpec(*tiles, b_packed=False))]
    kept = [other.spec for other in others]
    share_kernels([*calls, *others], no_constant)
    assert {made.spec for made in calls} == {GemmSpec(*tiles, prefetch_distance=24, paced_prefetch=True)}
    assert [other.spec for other in others] == kept
    assert all(made.epilogue is None for made in calls)


@pytest.mark.parametrize("added", [False, True])
def test_epilogues_that_cut_off_elsewhere_share_a_kernel(added: bool) -> None:
    """One kernel for products whose results are not cut off, or at bounds of their own; NaN and signs of zeros stay."""
    weights = np.random.default_rng(1).standard_normal((len(CUTS), DEPTH, COLUMNS)).astype(np.float32)
    nodes, constants = [], {}
    for number, (name, (least, largest)) in enumerate(CUTS.items()):
        constants[f"w.{name}"] = weights[number]
        nodes.append(node("MatMul", [f"x.{name}", f"w.{name}"], [f"product.{name}"]))
        last = f"product.{name}"
        if added:
            nodes.append(node("Add", [last, "residual"], [f"sum.{name}"]))
            last = f"sum.{name}"
        for bound, value in (("least", least), ("largest", largest)):
            if value is not None:
                constants[f"{bound}.{name}"] = np.array(value, np.float32)
        given = [
            "" if value is None else f"{bound}.{name}" for bound, value in (("least", least), ("largest", largest))
        ]
        nodes.append(node("Relu", [last], [name]) if name == "relu" else node("Clip", [last, *given], [name]))
    inputs = [
        *(tensor(f"x.{name}", [ROWS, DEPTH]) for name in CUTS),
        *([tensor("residual", [ROWS, COLUMNS])] if added else []),
    ]
    session = jitonnx.InferenceSession(
        model(nodes, inputs, [tensor(name, [ROWS, COLUMNS]) for name in CUTS], constants)
    )
    compiled = session.engine.compiled
    assert compiled is not None
    assert len({code_of(call) for call in compiled.plan.calls}) == 1
    x = np.random.default_rng(2).standard_normal((ROWS, DEPTH)).astype(np.float32)
    x[0], x[1], x[2, 0] = 0.0, -0.0, np.nan
    feeds = {f"x.{name}": x for name in CUTS}
    if added:
        feeds["residual"] = np.random.default_rng(3).standard_normal((ROWS, COLUMNS)).astype(np.float32)
        feeds["residual"][0, ::2] = -0.0
    for w, (least, largest), result in zip(weights, CUTS.values(), session.run(None, feeds), strict=True):
        exact = x.astype(np.float64) @ w + (feeds["residual"] if added else 0)
        cut = np.minimum(np.maximum(exact, -np.inf if least is None else least), np.inf if largest is None else largest)
        np.testing.assert_allclose(result, cut, rtol=1e-5, atol=1e-5)
        assert np.isnan(result[2]).all()


def test_explain_tells_where_results_are_cut_off() -> None:
    weights = {name: np.ones((8, 16), np.float32) for name in ("v", "w")}
    nodes = [node("MatMul", ["x", "v"], ["y"]), node("MatMul", ["u", "w"], ["p"]), node("Relu", ["p"], ["z"])]
    outputs = [tensor("y", [4, 16]), tensor("z", [4, 16])]
    session = jitonnx.InferenceSession(model(nodes, [tensor("x", [4, 8]), tensor("u", [4, 8])], outputs, weights))
    assert "result = min(max(result, 0), inf)" in as_text(explain(session, {"x": (4, 8), "u": (4, 8)}), details=True)


def test_integers_of_other_zero_points_share_a_kernel() -> None:
    """Weights beyond int8 add a number times the sums of rows: an operand, and not part of the code."""
    rng = np.random.default_rng(3)
    constants = {f"w.{name}": rng.integers(0, 256, (DEPTH, COLUMNS)).astype(np.uint8) for name in ("low", "high")}
    constants |= {f"zero.{name}": np.array(zero, np.uint8) for name, zero in (("x", 7), ("low", 20), ("high", 99))}
    nodes = [node("MatMulInteger", ["x", f"w.{name}", "zero.x", f"zero.{name}"], [name]) for name in ("low", "high")]
    outputs = [tensor(name, (ROWS, COLUMNS), DType.INT32) for name in ("low", "high")]
    session = jitonnx.InferenceSession(model(nodes, [tensor("x", (ROWS, DEPTH), DType.UINT8)], outputs, constants))
    x = rng.integers(0, 256, (ROWS, DEPTH)).astype(np.uint8)
    for result, name in zip(session.run(None, {"x": x}), ("low", "high"), strict=True):
        weights = constants[f"w.{name}"].astype(np.int32) - int(constants[f"zero.{name}"])
        np.testing.assert_array_equal(result, (x.astype(np.int32) - 7) @ weights)
    compiled = session.engine.compiled
    assert compiled is not None
    assert len({code_of(call) for call in compiled.plan.calls if call.epilogue is not None}) == 1

"""GEMM with weights in 16 bits: which are stored so, and that products have the bits they have without."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from jitonnx.ir.computation.lowering import lower
from jitonnx.kernels.gemm.choose import stored_type
from jitonnx.kernels.gemm.kernel import build
from jitonnx.kernels.gemm.spec import GemmSpec
from jitonnx.model import load
from jitonnx.plan.make import make_plan
from jitonnx.target import tuning
from jitonnx.target.machine import Target, host
from tests.kernels.harness import Compiled
from tests.kernels.test_gemm import product
from tests.session.half_models import Builder
from tests.targets import named

TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
TARGETS = {"host": host(), "avx2": named("haswell"), "no f16c": replace(named("haswell"), features="-f16c")}


def weights(kind: str, *shape: int) -> np.ndarray:
    """Float32 that are all numbers of a 16-bit type."""
    return np.random.default_rng(0).standard_normal(shape).astype(TYPES[kind]).astype(np.float32)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_same_bits(target: Target, kind: str) -> None:
    """They are the same at the edges of tiles and panels, in a batch, with weights that lie transposed, and with panels
    that are widened for many rows, behind which rows of a are copied or not."""
    lanes = target.lanes(4)
    plain = GemmSpec((4, 2, 1), (3 * lanes, lanes))
    stored = replace(plain, b_stored=kind)
    widened = replace(stored, b_widened=True)
    specs = [
        plain,
        stored,
        widened,
        replace(widened, a_in_place=False),
        *(replace(s, depth=tuning.SUM_STEPS) for s in (stored, widened)),
    ]
    kernels = [Compiled(build(spec, lanes), target) for spec in specs]
    rng = np.random.default_rng(1)
    sizes = ((1, 1, 1), (1, 3 * lanes, 7), (2, 3 * lanes + 1, 5), (7, lanes - 1, 0), (5, 7 * lanes + 3, 19))
    for m, n, k in (
        *sizes,
        (tuning.GEMM_WIDENED_ROWS + 1, 7 * lanes + 3, 9),
        (tuning.GEMM_WIDENED_ROWS + 7, lanes - 1, 5),
        (40, 3, 0),
        (2, lanes + 1, 2 * tuning.SUM_STEPS + 3),
    ):
        a = rng.standard_normal((2, 3, m, k)).astype(np.float32)
        b = weights(kind, 2, 3, n, k).swapaxes(-1, -2)
        one, *others = (product(kernel, spec, a, b) for kernel, spec in zip(kernels, specs, strict=True))
        for other in others:
            np.testing.assert_array_equal(one, other, f"{m}x{n}x{k}")


def test_packed_in_half_the_memory() -> None:
    b = weights("float16", 40, 50)
    spec = GemmSpec((1,), (32, 16))
    assert replace(spec, b_stored="float16").pack_b(b).nbytes * 2 == spec.pack_b(b).nbytes


@pytest.mark.parametrize("kind", TYPES)
def test_stored_type(kind: str) -> None:
    b = weights(kind, 700, 500)
    assert stored_type(b, 1) == stored_type(b.T, 4) == kind
    assert stored_type(b, 64) == "" and stored_type(b[:50], 1) == "" and stored_type(b.astype(np.float64), 1) == ""
    b[-1, -1] = 1 + 2.0**-12
    assert stored_type(b, 1) == ""


@pytest.mark.parametrize(("rows", "stored"), [(1, True), ("N", True), (64, False), ("8*N", False)])
@pytest.mark.parametrize("kind", TYPES)
def test_chosen_for_few_rows(kind: str, rows: int | str, stored: bool) -> None:
    b, x, shape = Builder(kind), "x", (rows, 700)
    if rows == "8*N":
        x, shape = b("Reshape", x, b.ints(-1, 700)), ("N", 8, 700)
    graph = load(b.model(shape, b("MatMul", x, b.weights(700, 500)))).graph
    features = host().features.replace("+amx-bf16", "-amx-bf16").replace("+bf16", "-bf16")  # which multiply otherwise
    target = replace(host(), features=features)
    (spec,) = (call.spec for call in make_plan(lower(graph), target).calls if isinstance(call.spec, GemmSpec))
    assert spec.b_stored == (kind if stored else "")
    assert spec.b_widened == (stored and isinstance(rows, str))

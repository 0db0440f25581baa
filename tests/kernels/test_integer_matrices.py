"""Products of two computed matrices of bytes, on every CPU's way of summing them."""

import dataclasses
from typing import Any

import numpy as np
import pytest

from jitonnx.kernels.gemm.spec import GemmGiven
from jitonnx.kernels.integer_matrices.kernel import build
from jitonnx.kernels.integer_matrices.spec import IntegerMatricesSpec, choose_matrices
from tests.kernels.harness import Compiled, assembly
from tests.targets import named

TARGETS = ("host", "znver4", "cascadelake", "skylake-avx512", "haswell", "x86-64-v2")
SIZES = [
    (2, 7, 5, 9),
    (1, 1, 70, 45),
    (3, 40, 67, 33),
    (2, 13, 131, 65),
    (1, 33, 64, 128),
    (1, 3, 1, 1),
]
"""Matrices, m, k and n."""


def whole(random: np.random.Generator, kind: Any, *shape: int) -> np.ndarray:
    info = np.iinfo(kind)
    numbers = random.integers(info.min, info.max + 1, shape).astype(kind)
    numbers[:1, :1] = info.min if kind is np.int8 else info.max  # extremes, side by side
    return numbers


def run(
    spec: IntegerMatricesSpec, target: str, a: np.ndarray, b: np.ndarray, zeros: tuple[int, int], pieces: int = 2
) -> Any:
    """c of a [batch, m, k] and b [batch, k, n], which lies as the spec wants it."""
    (batch, m, k), n = a.shape, b.shape[-1]
    lies = np.ascontiguousarray(b.swapaxes(1, 2) if spec.by_column else b)
    c = np.full((batch, m, n + 3), 77, np.int32)
    given = GemmGiven(
        **{"m": m, "n": n, "k": k, "outer": 1, "inner": batch, "a_row": k, "a_column": 1, "c_row": n + 3},
        **{"b_row": 1 if spec.by_column else n, "b_column": k if spec.by_column else 1},
        **{"a_outer": 0, "b_outer": 0, "c_outer": 0},
        **{"a_inner": m * k, "b_inner": k * n, "c_inner": m * (n + 3)},
    )
    sizes = spec.complete(given)
    compiled = Compiled(build(spec, named(target).lanes(4)), named(target), spec.prescheduled)
    buffers = [a, np.array(zeros[0], a.dtype), lies, np.array(zeros[1], b.dtype), c]
    compiled(buffers, sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces)
    np.testing.assert_array_equal(c[..., n:], 77)
    return c[..., :n]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize(("of_a", "of_b"), [(np.uint8, np.uint8), (np.uint8, np.int8), (np.int8, np.uint8)])
def test_sums(target: str, by_column: bool, of_a: Any, of_b: Any) -> None:
    random = np.random.default_rng(5)
    zeros = tuple(int(whole(random, kind, 2, 2)[1, 1]) for kind in (of_a, of_b))
    for batch, m, k, n in SIZES:
        spec = choose_matrices(
            *(m, n, named(target)),
            signed=(of_a is np.int8, of_b is np.int8),
            shifted=(True, True),
            by_column=by_column,
            result="int32",
        )
        a, b = whole(random, of_a, batch, m, k), whole(random, of_b, batch, k, n)
        expected = (a.astype(np.int64) - zeros[0]) @ (b.astype(np.int64) - zeros[1])
        np.testing.assert_array_equal(run(spec, target, a, b, zeros), expected)


@pytest.mark.parametrize("target", TARGETS)
def test_without_zero_points(target: str) -> None:
    random = np.random.default_rng(6)
    a, b = whole(random, np.int8, 2, 9, 37), whole(random, np.int8, 2, 37, 21)
    for rows in (9, None):
        spec = choose_matrices(
            *(rows, 21, named(target)), signed=(True, True), shifted=(False, False), by_column=True, result="int32"
        )
        expected = a.astype(np.int64) @ b.astype(np.int64)
        np.testing.assert_array_equal(run(spec, target, a, b, (99, 99)), expected)


@pytest.mark.parametrize("target", ["host", "haswell"])
def test_words_for_cpus_without_dot_products(target: str) -> None:
    random = np.random.default_rng(7)
    a, b = whole(random, np.uint8, 1, 7, 33), whole(random, np.uint8, 1, 33, 18)
    for by_column in (False, True):
        spec = choose_matrices(
            *(7, 18, named(target)), signed=(False, False), shifted=(True, True), by_column=by_column, result="int32"
        )
        lanes = named(target).lanes(4)
        spec = dataclasses.replace(spec, multiply="words", rows=(6, 1), width=2 * lanes)
        expected = (a.astype(np.int64) - 3) @ (b.astype(np.int64) - 200)
        np.testing.assert_array_equal(run(spec, target, a, b, (3, 200)), expected)


@pytest.mark.parametrize(("m", "k", "n"), [(0, 5, 4), (4, 0, 5), (4, 5, 0)])
def test_empty(m: int, k: int, n: int) -> None:
    spec = choose_matrices(
        *(None, None, named("host")), signed=(False, False), shifted=(True, True), by_column=False, result="int32"
    )
    c = run(spec, "host", np.ones((2, m, k), np.uint8), np.ones((2, k, n), np.uint8), (3, 4))
    assert not c.any()


@pytest.mark.parametrize(("cpu", "instruction"), [("neoverse-v1", "smmla"), ("neoverse-n1", "sdot")])
def test_on_aarch64(cpu: str, instruction: str) -> None:
    target = named(cpu)
    spec = choose_matrices(
        *(None, None, target), signed=(False, False), shifted=(True, True), by_column=False, result="int32"
    )
    assert instruction in assembly(build(spec, target.lanes(4)), target)

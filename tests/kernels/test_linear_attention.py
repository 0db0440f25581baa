"""The kernel of linear attention against its definition in NumPy (float64): all rules, groups, tails, layouts."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from jitonnx.kernels.linear_attention.kernel import build
from jitonnx.kernels.linear_attention.spec import LinearAttentionSpec
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled
from tests.targets import named

WIDTHS = sorted({8, host().lanes(4)})
BATCH, STEPS, HEADS = 2, 3, 2


@functools.cache
def compiled(spec: LinearAttentionSpec, lanes: int) -> Compiled:
    return Compiled(build(spec, lanes), host() if lanes == host().lanes(4) else named("haswell"))


def strides(x: np.ndarray) -> list[int]:
    return [step // 4 for step in x.strides]


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (5, 31), (4, 32), (7, 33), (3, 70)])
@pytest.mark.parametrize("group", [1, 3, 5])
@pytest.mark.parametrize("kind", ["", "past", "gated", "delta", "past gated delta"])
def test_against_numpy(kind: str, group: int, rows: int, columns: int, lanes: int) -> None:
    random = np.random.default_rng(rows * columns)

    def normal(*shape: int) -> np.ndarray:
        return random.normal(size=shape).astype(np.float32)

    spec = LinearAttentionSpec(group, 0.3, "gated" in kind, "delta" in kind, "past" in kind)
    q, k, v = normal(BATCH, STEPS, HEADS * group, rows), normal(BATCH, STEPS, HEADS, rows), None
    v = normal(BATCH, HEADS, STEPS, columns).swapaxes(1, 2)  # heads outside of steps
    past = normal(BATCH, HEADS, rows, columns)
    factor = np.exp(-np.abs(normal(BATCH, STEPS, HEADS, rows))) if group > 1 else normal(BATCH, STEPS, HEADS, 1)
    beta = np.abs(normal(BATCH, STEPS, HEADS))
    y, present = np.full((BATCH, STEPS, HEADS * group, columns), 99, np.float32), np.full_like(past, 99)
    sizes = [BATCH, STEPS, HEADS, rows, columns, *strides(q)[:3], *strides(k)[:3], *strides(v)[:3]]
    sizes += [*strides(factor)[:3], int(factor.shape[3] > 1 or rows == 1), *strides(beta), *strides(y)[:3]]
    sizes = spec.given(sizes)
    buffers = [q, k, v, past, factor, beta, y, present]
    compiled(spec, lanes)(buffers, sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces=3)

    state = past.astype(float) if spec.past else np.zeros(past.shape)
    for t in range(STEPS):
        state = state * (factor[:, t, :, :, None] if spec.gated else 1)
        new = v[:, t].astype(float)
        if spec.delta:
            new = beta[:, t, :, None] * (new - np.einsum("bhk,bhkv->bhv", k[:, t], state))
        state = state + np.einsum("bhk,bhv->bhkv", k[:, t], new)
        expected = 0.3 * np.einsum("bhk,bhkv->bhv", q[:, t], np.repeat(state, group, 1))
        np.testing.assert_allclose(y[:, t], expected, 2e-4, 2e-4 * np.abs(expected).max())
    np.testing.assert_allclose(present, state, 2e-4, 2e-4 * np.abs(state).max())

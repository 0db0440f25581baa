"""Reductions by segments against NumPy: empty segments, odd widths, offsets that are wrong."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx.kernels.segments.kernel import build
from jitonnx.kernels.segments.spec import KINDS, SegmentsSpec
from jitonnx.ops.fused import ReduceSegments
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled
from tests.targets import named


@pytest.mark.parametrize("lanes", sorted({8, host().lanes(4)}))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_segments(kind: str, dtype: type, lanes: int) -> None:
    spec, random = SegmentsSpec(kind, np.dtype(dtype).name), np.random.default_rng(0)
    kernel = Compiled(build(spec, lanes), host() if lanes == host().lanes(4) else named("haswell"))

    def run(x: np.ndarray, offsets: list[int]) -> tuple[np.ndarray, int]:
        count, columns = len(offsets) - 1, x.shape[1]
        y, error = np.full(count * columns + 1, 99, dtype), np.zeros(1, np.int64)
        sizes = spec.complete(spec.given([len(x), count, columns]))
        kernel([x, np.int64(offsets), y, error], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces=2)
        assert y[-1] == 99
        return y[:-1].reshape(count, columns), int(error[0])

    for columns in (1, 7, 16, 33, 64, 131, 0):
        for offsets in ([0, 3, 3, 10, 10], [2, 5], [0, *range(1, 41)], [0, 0], [7, 7, 9], [4]):
            x = random.normal(size=(40, columns)).astype(dtype)
            y, error = run(x, offsets)
            expected = ReduceSegments(kind=kind).evaluate(x, np.int64(offsets))  # type: ignore[arg-type]
            np.testing.assert_allclose(y, expected, 1e-5 if dtype is np.float32 else 1e-12, 1e-6)
            assert not error
    x = random.normal(size=(10, 5)).astype(dtype)
    for wrong in ([0, 4, 2, 10], [-1, 3], [0, 11], [2**62, -(2**62)]):
        assert run(x, wrong)[1]
    x[3, 2] = np.nan
    assert np.isnan(run(x, [0, 10])[0][0, 2])


def test_wrong_specs() -> None:
    with pytest.raises(ValueError, match="element 'int32'"):
        SegmentsSpec("sum", "int32")
    with pytest.raises(ValueError, match="kind 'min'"):
        SegmentsSpec("min")

"""The kernel of determinants against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx.kernels.determinant.kernel import build
from jitonnx.kernels.determinant.spec import DeterminantSpec
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled
from tests.targets import named


@pytest.mark.parametrize("lanes", sorted({8, host().lanes(4)}))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sizes_and_batches(dtype: type, lanes: int) -> None:
    spec = DeterminantSpec(np.dtype(dtype).name)
    kernel = Compiled(build(spec, lanes), host() if lanes == host().lanes(4) else named("haswell"))
    for matrices, size in ((1, 0), (5, 1), (300, 2), (7, 3), (3, 15), (2, 16), (2, 17), (1, 40), (0, 3)):
        x = np.random.default_rng(size).normal(size=(matrices, size, size)).astype(dtype)
        y, sizes = np.full(matrices + 1, 99, dtype), spec.complete(spec.given([matrices, size]))
        kernel([x, y], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces=2)
        expected = np.linalg.det(x.astype(float))
        np.testing.assert_allclose(y[:-1], expected, 1e-3 if dtype is np.float32 else 1e-10)
        assert y[-1] == 99


def test_wrong_specs() -> None:
    with pytest.raises(ValueError, match="element 'int32'"):
        DeterminantSpec("int32")

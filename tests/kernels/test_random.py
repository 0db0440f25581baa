"""The kernels of random numbers against NumPy, bit for bit, and Philox against its known answers."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx.kernels.random.kernel import build
from jitonnx.kernels.random.spec import KINDS, NextSpec, RandomSpec
from jitonnx.support import philox
from jitonnx.target.machine import host
from tests.kernels.harness import Compiled
from tests.targets import named

KEY, NUMBER = 0x9E3779B97F4A7C15, (7 << 32) + 5
ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]
"""They are those of the authors' Random123."""


def test_known_answers() -> None:
    for counter, key, expected in ANSWERS:
        given = [[np.array([word], np.uint32) for word in words] for words in (key, counter)]
        assert [int(word[0]) for word in philox.words(philox.ON_NUMPY, *given)] == list(expected)


@pytest.mark.parametrize("lanes", sorted({4, 8, host().lanes(4)}))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", KINDS)
def test_the_bits_are_those_of_numpy_at_any_width_and_in_any_pieces(kind: str, dtype: type, lanes: int) -> None:
    spec = RandomSpec(kind, np.dtype(dtype).name)
    kernel = Compiled(build(spec, lanes), host() if lanes == host().lanes(4) else named("haswell"))
    drawn = np.array([KEY, NUMBER], np.uint64)
    factor, term, most = limits = np.array([3.7, -1.2, 2.0], dtype)
    for count in (0, 1, 15, 16, 31, 33, 63, 64, 65, 129, spec.task_elements - 1, spec.task_elements + 1, 50_001):
        y, sizes = np.full(count + 1, 99, dtype), spec.complete(spec.given([count]))
        kernel([drawn, limits, y], sizes, spec.tasks(sizes), pieces=3)
        expected = np.minimum(philox.evaluate(kind, KEY, NUMBER, count, dtype) * factor + term, most)
        np.testing.assert_array_equal(y[:-1], expected)
        assert y[-1] == 99


def test_draws_are_numbered() -> None:
    kernel = Compiled(build(NextSpec(), 16))
    state, drawn = np.array([-5, 41], np.int64), np.zeros(2, np.int64)
    for number in (41, 42):
        kernel([state, drawn], [2], 1)
        assert drawn.tolist() == [-5, number]
    assert state.tolist() == [-5, 43]


def test_wrong_specs() -> None:
    with pytest.raises(ValueError, match="kind 'poisson'"):
        RandomSpec("poisson")
    with pytest.raises(ValueError, match="element 'float16'"):
        RandomSpec("normal", "float16")

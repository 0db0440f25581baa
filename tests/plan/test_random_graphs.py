"""Random graphs, planned and compiled, against their evaluation node by node on NumPy; and each plan against its rules.

Failures print the graph as Python text (`random_graphs.Recipe`), which can be pasted and run.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.model.evaluate import evaluate
from jitonnx.runtime.cache import KernelCache
from tests.plan.random_graphs import Recipe, recipes
from tests.plan.random_steps import ELEMENTWISE, FLOATS, MIXED, MOVEMENT, ROWS, VISION

EXAMPLES = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""Few, as each has kernels to compile; `--hypothesis-seed` with `--hypothesis-profile` of your own tries more."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> KernelCache:
    return KernelCache(tmp_path_factory.mktemp("kernels"))


def compare(recipe: Recipe, cache: KernelCache, *sizes: int, rtol: float = 2e-4) -> None:
    """Outputs on one and on two threads: near those of NumPy, and the same bits. sizes: those of the variable axis."""
    engines = [Engine(recipe.build().graph, Settings(threads=threads), cache) for threads in (1, 2)]
    reference = recipe.build()
    for feeds in [recipe.feeds(size) for size in sizes] or [reference.feeds]:
        expected = evaluate(reference.graph, feeds)
        one, two = (engine.run([feeds[name] for name in feeds]) for engine in engines)
        for wanted, alone, shared in zip(expected, one, two, strict=True):
            assert alone.dtype == wanted.dtype and alone.shape == wanted.shape
            np.testing.assert_array_equal(alone, shared)
            _assert_near(alone, wanted, rtol)


def _assert_near(result: np.ndarray, expected: np.ndarray, rtol: float) -> None:
    """Equal; real numbers to within `rtol` of themselves or of the largest."""
    if result.dtype.kind != "f":
        np.testing.assert_array_equal(result, expected)
        return
    finite = np.abs(expected[np.isfinite(expected)])
    np.testing.assert_allclose(result, expected, rtol, rtol * finite.max(initial=1e-3))


@given(recipe=recipes(FLOATS))
@EXAMPLES
def test_floats(recipe: Recipe, cache: KernelCache) -> None:
    compare(recipe, cache)


@given(recipe=recipes(VISION))
@EXAMPLES
def test_vision(recipe: Recipe, cache: KernelCache) -> None:
    compare(recipe, cache)


@given(recipe=recipes(MIXED, integers=True))
@EXAMPLES
def test_integers(recipe: Recipe, cache: KernelCache) -> None:
    compare(recipe, cache)


@given(recipe=recipes((*ELEMENTWISE, *MOVEMENT, *ROWS), real="float64"))
@EXAMPLES
def test_doubles(recipe: Recipe, cache: KernelCache) -> None:
    compare(recipe, cache, rtol=1e-9)


@given(recipe=recipes(FLOATS, variable=True))
@EXAMPLES
def test_variable_sizes(recipe: Recipe, cache: KernelCache) -> None:
    compare(recipe, cache, 3, 1, 8, 3)


@given(recipe=recipes((*ELEMENTWISE, *MOVEMENT, *ROWS), empty=True))
@EXAMPLES
def test_no_elements(recipe: Recipe, cache: KernelCache) -> None:
    compare(recipe, cache)

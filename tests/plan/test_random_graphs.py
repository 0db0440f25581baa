"""Random graphs, planned and compiled, against their evaluation node by node on NumPy; and each plan against its rules.

Failures print the graph as Python text (`random_graphs.Recipe`), which can be pasted and run.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jitonnx.engine.interpreter import evaluate
from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.support.kernel_cache import KernelCache
from tests.plan.random_graphs import Recipe, recipes
from tests.plan.random_steps import ELEMENTWISE, FLOATS, MIXED, MOVEMENT, ROWS, VISION

SAME = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""The same examples in every run, and few of them, as each has kernels to compile."""
OTHERS = settings(SAME, max_examples=100, derandomize=False, print_blob=True)
"""Other examples in every run."""


class Kind(NamedTuple):
    """Graphs of one kind. sizes: those of the variable axis. rtol: to within which compiled results are NumPy's."""

    graphs: st.SearchStrategy[Recipe]
    sizes: tuple[int, ...] = ()
    rtol: float = 2e-4


KINDS = {
    "floats": Kind(recipes(FLOATS)),
    "vision": Kind(recipes(VISION)),
    "integers": Kind(recipes(MIXED, integers=True)),
    "doubles": Kind(recipes((*ELEMENTWISE, *MOVEMENT, *ROWS), real="float64"), rtol=1e-9),
    "variable sizes": Kind(recipes(FLOATS, variable=True), (3, 1, 8, 3)),
    "no elements": Kind(recipes((*ELEMENTWISE, *MOVEMENT, *ROWS), empty=True)),
}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> KernelCache:
    return KernelCache(tmp_path_factory.mktemp("kernels"))


def compare(recipe: Recipe, cache: KernelCache, sizes: tuple[int, ...], rtol: float) -> None:
    """Outputs on one and on two threads: near those of NumPy, and the same bits."""
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


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@SAME
def test_graphs(kind: str, data: st.DataObject, cache: KernelCache) -> None:
    graphs, sizes, rtol = KINDS[kind]
    compare(data.draw(graphs), cache, sizes, rtol)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@OTHERS
def test_other_graphs_in_every_run(kind: str, data: st.DataObject, cache: KernelCache) -> None:
    graphs, sizes, rtol = KINDS[kind]
    compare(data.draw(graphs), cache, sizes, rtol)

"""Every case of every table once more, compiled: what the engine gives against the evaluation on NumPy.

The tables are written for the declarations; here they hold the planner, the generated code and the kernels to the same
results, for every element type, version and awkward size that an operator's author thought of.
"""

import os
from pathlib import Path

import pytest

from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.model import evaluate, load
from jitonnx.runtime.cache import KernelCache
from tests.conftest import CACHE_VARIABLE
from tests.ops.harness import Case, assert_same, build
from tests.ops.tables import all_cases


@pytest.fixture(scope="module")
def cache() -> KernelCache:
    return KernelCache(Path(os.environ[CACHE_VARIABLE]))


@pytest.mark.parametrize("case", [case for case in all_cases() if case.lowered], ids=str)
def test_compiled(case: Case, cache: KernelCache) -> None:
    feeds = {f"x{i}": x for i, x in enumerate(case.inputs) if x is not None and i not in case.constants}
    expected = evaluate(load(build(case)).graph, feeds)
    graph = load(build(case)).graph
    inputs = [feeds[value.name] for value in graph.inputs]
    results = Engine(graph, Settings(threads=1), cache).run(inputs)
    for position, (result, value) in enumerate(zip(results, expected, strict=True)):
        assert_same(result, value, case, f"output {position}")

"""Cases with all sizes open, compiled, and fed other sizes: 0, 1 and 2 among them, alike where they were or not.

What a model with these very sizes gives on NumPy, the compiled one gives, whatever its plan had to assume of them. What
that model refuses may be refused, too, with an error that says so.
"""

import contextlib
import math
import os
import random
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from jitonnx import errors
from jitonnx.engine.interpreter import evaluate
from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.model import load
from jitonnx.ops.registry import registry
from jitonnx.support.kernel_cache import KernelCache
from tests.conftest import CACHE_VARIABLE
from tests.ops.harness import Case, assert_same, build
from tests.ops.tables import all_cases

SIZES = (0, 1, 1, 2, 2, 3, 4, 6, 7)
SAMPLED = 11
"""One in so many cases is run by default, all as slow tests."""


def open_inputs(case: Case) -> list[int]:
    return [k for k, x in enumerate(case.inputs) if x is not None and k not in case.constants]


def resized(case: Case, chance: random.Random) -> Case:
    """The case with other sizes of its inputs: mostly such that those which were equal still are."""
    alike = chance.random() < 0.7
    sizes: dict[int, int] = {}
    inputs = list(case.inputs)
    for k in open_inputs(case):
        x = case.inputs[k]
        shape = tuple(
            sizes.setdefault(size, chance.choice(SIZES)) if alike else chance.choice((size, *SIZES)) for size in x.shape
        )
        inputs[k] = np.resize(x, shape) if math.prod(shape) else np.zeros(shape, x.dtype)
    return replace(case, inputs=tuple(inputs))


def is_deterministic(case: Case) -> bool:
    declaration = registry.find(case.domain, case.operator)
    return declaration is not None and declaration.deterministic


def chosen() -> Iterator[object]:
    cases = [case for case in all_cases() if case.lowered and open_inputs(case) and is_deterministic(case)]
    for case in (one for one in cases if all(one.inputs[k].size for k in open_inputs(one))):
        number = zlib.crc32(str(case).encode())  # the same whatever other cases there are
        yield pytest.param(case, number, id=str(case), marks=[pytest.mark.slow] if number % SAMPLED else [])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("case", "number"), list(chosen()))
def test_other_sizes(case: Case, number: int) -> None:
    engine = Engine(load(build(case, "open")).graph, Settings(threads=1), KernelCache(Path(os.environ[CACHE_VARIABLE])))
    for seed in range(3):
        given = resized(case, random.Random(f"{number} {seed}"))
        inputs = [given.inputs[k] for k in open_inputs(given)]
        where = f"for {[x.shape for x in inputs]}"
        try:
            expected = evaluate(load(build(given)).graph, {f"x{k}": given.inputs[k] for k in open_inputs(given)})
        except (errors.Error, ArithmeticError, ValueError):
            with contextlib.suppress(errors.Error):
                engine.run(inputs)
            continue
        for position, (result, value) in enumerate(zip(engine.run(inputs), expected, strict=True)):
            assert_same(result, value, given, f"output {position} {where}")

"""ONNX's backend tests, all 2,033 of onnx 1.23, through `jitonnx.backend` and onnx's own runner, one by one.
By default every third: sessions of nearly all these models run in test_node_models.py, too.

The runner makes a session of each model as a file has it and compares with the stored outputs: element types, shapes,
and values within its own tolerance. What it stores for operators is made by NumPy when the cases are. So it is for
2,022 cases. In nine others the runner asks for what no backend can give, and two store what ONNX's text does not say:

- In test_dft_inverse and test_dft_inverse_opset19 the runner's tolerance is given (`ROUNDED`): what is stored has the
  rounding error of NumPy's transform in float32, where the sum is 0 and ours is 1e-15.
- In test_loop16_seq_none the runner asks for the length of an element of rank 0, and so raises TypeError whatever a
  backend gives. `_Runner` compares such elements as it does all others.
- The six of test_bernoulli store what NumPy's global generator drew when the cases were made, with or without a seed;
  ONNX calls them informational, and leaves them out where it tests its own reference. Compared with what is stored are
  types, shapes, and that there are zeros and ones alone; how often there are ones, with the input.
- Two of Resize (`ALIGNED`) are compared with onnxruntime.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.backend.test.runner import Runner

import jitonnx.backend
from tests.models.node_tests import ALIGNED, by_onnxruntime, node_tests
from tests.models.test_node_models import DRAWN, assert_drawn

CASES = 2033
"""How many there are, with those that onnx stores as files and the light models."""

ROUNDED = {name: {"atol": 1e-6} for name in ("test_dft_inverse", "test_dft_inverse_opset19")}
"""Here NumPy's transform in float32 gives 1.9e-7 where the sum is 0, as ours has it: more than the runner's 1e-7."""
DRAWS = 400
"""Runs of a case without a seed whose mean is compared with the probabilities it is given."""


class Serialised:
    """`jitonnx.backend`, given each model as the bytes of its file."""

    supports_device = staticmethod(jitonnx.backend.supports_device)

    @staticmethod
    def prepare(model: onnx.ModelProto, device: str, **_: Any) -> Any:
        return jitonnx.backend.prepare(model.SerializeToString(), device)


class _Runner(Runner):
    """The runner, which by itself cannot compare sequences with elements of rank 0: it asks for their length."""

    @classmethod
    def assert_similar_outputs(
        cls, ref_outputs: Sequence[Any], outputs: Sequence[Any], rtol: float, atol: float, model_dir: str | None = None
    ) -> None:
        if isinstance(ref_outputs, np.ndarray) and ref_outputs.ndim == 0:
            ref_outputs, outputs = [ref_outputs], [outputs]
        super().assert_similar_outputs(ref_outputs, outputs, rtol, atol, model_dir)


@cache
def backend_tests() -> dict[str, Callable[[Any], None]]:
    """The tests by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # making the cases overflows on purpose here and there
        classes = _Runner(Serialised, __name__, ROUNDED).test_cases.values()  # type: ignore[arg-type]
    return {
        name.removesuffix("_cpu"): function
        for case in classes
        for name, function in vars(case).items()
        if name.startswith("test_") and name.endswith("_cpu")
    }


def test_there_are_as_many_as_onnx_counts() -> None:
    assert len(backend_tests()) == CASES


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", sorted(backend_tests()))
def test_backend(name: str) -> None:
    if name in ALIGNED:
        test = node_tests()[name]
        for inputs, outputs in by_onnxruntime(test):
            results = Serialised.prepare(test.model, "CPU").run(inputs)
            np.testing.assert_allclose(results[0], outputs[0], rtol=1e-5, strict=True)
        return
    if not name.startswith(DRAWN):
        backend_tests()[name](None)
        return
    test = node_tests()[name]
    prepared = Serialised.prepare(test.model, "CPU")
    for inputs, outputs in test.data_sets:
        assert_drawn(prepared.run(list(inputs)), list(outputs))
        if "seed" not in name:
            # The function that ONNX spells the operator out in gives a one where the number drawn is the greater.
            likely = 1 - inputs[0] if name.endswith("_expanded") else inputs[0]
            means = np.mean([prepared.run(list(inputs))[0] for _ in range(DRAWS)], axis=0)
            assert (abs(means - likely) <= 5 * np.sqrt(likely * (1 - likely) / DRAWS)).all()


def test_the_backend_passes_as_users_run_it() -> None:
    """A class of onnx's tests, run by unittest: the interface as it is, without what stands above."""
    import unittest

    runner = Runner(jitonnx.backend, __name__).include("^test_(abs|relu|add|matmul_2d|expand_shape_model1)_cpu$")  # type: ignore[arg-type]
    outcome = unittest.TestResult()
    runner.test_suite.run(outcome)
    assert outcome.testsRun > len(outcome.skipped) and outcome.wasSuccessful(), outcome.errors + outcome.failures

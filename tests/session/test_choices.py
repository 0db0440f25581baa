"""Algorithms that a session may forbid or ask for."""

from __future__ import annotations

import numpy as np
import pytest

import jitonnx
from bench import zoo
from jitonnx.kernels.gemm.blas import BlasSpec


def open_zoo(name: str, key: str, value: str) -> jitonnx.InferenceSession:
    options = jitonnx.SessionOptions()
    options.add_session_config_entry(key, value)
    return jitonnx.InferenceSession(zoo.model(name).SerializeToString(), options)


def labels(session: jitonnx.InferenceSession) -> set[str]:
    """First words of the labels of a session's kernels."""
    compiled = session.engine.compiled
    assert compiled is not None
    return {call.label.split()[0] for call in compiled.plan.calls}


def test_winograd_can_be_forbidden() -> None:
    allowed, forbidden = (open_zoo("squeezenet1_1", "jitonnx.winograd", value) for value in "10")
    assert "Winograd" in labels(allowed)
    assert "Winograd" not in labels(forbidden)
    feeds = zoo.feeds("squeezenet1_1")
    (a,), (b,) = allowed.run(None, feeds), forbidden.run(None, feeds)
    np.testing.assert_allclose(a, b, atol=2e-5 * np.abs(b).max())


@pytest.mark.skipif(not BlasSpec().available, reason="no SciPy here, so no BLAS to call")
def test_blas_can_be_asked_for() -> None:
    session, own = (open_zoo("mlp_tiny", "jitonnx.gemm", value) for value in ("blas", "own"))
    assert "BLAS" in labels(session) and "gemm" not in labels(session)
    feeds = zoo.feeds("mlp_tiny")
    np.testing.assert_allclose(session.run(None, feeds)[0], own.run(None, feeds)[0], rtol=1e-5)


def test_unknown_choice_is_refused() -> None:
    with pytest.raises(jitonnx.errors.InvalidArgument, match=r"jitonnx\.gemm"):
        open_zoo("mlp_tiny", "jitonnx.gemm", "mkl")

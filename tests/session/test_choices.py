"""Algorithms that a session may forbid or ask for."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

import jitonnx
from bench import zoo
from jitonnx.kernels.gemm.blas import BlasSpec
from jitonnx.kernels.recurrent.spec import RecurrentSpec
from jitonnx.target.machine import host
from tests.targets import ON_X86_64


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


def test_fixed_point_can_be_forbidden() -> None:
    """Weights with one far above the others are never rounded, nor are those of a CPU that would gain nothing."""

    def run(weight: float | None = None, **entries: str) -> tuple[np.ndarray, bool]:
        model = zoo.model("gru_ctc")
        if weight is not None:
            recurrent = next(tensor for tensor in model.graph.initializer if tensor.name == "g.weight_hh_l0")
            values = numpy_helper.to_array(recurrent).copy()
            values[3, 7] = weight
            recurrent.CopyFrom(numpy_helper.from_array(values, recurrent.name))
        options = jitonnx.SessionOptions()
        for key, value in entries.items():
            options.add_session_config_entry(f"jitonnx.{key}", value)
        session = jitonnx.InferenceSession(model.SerializeToString(), options)
        (result,) = session.run(None, zoo.feeds("gru_ctc"))
        compiled = session.engine.compiled
        assert compiled is not None
        specs = [call.spec for call in compiled.plan.calls if isinstance(call.spec, RecurrentSpec)]
        return np.asarray(result), any(spec.fixed for spec in specs[:1])

    (allowed, fixed), (forbidden, unfixed) = run(), run(fixed24="0")
    assert fixed == (host().shifts_pairs and not host().waits_for_l3) and not unfixed
    np.testing.assert_allclose(allowed, forbidden, atol=2e-6 * np.abs(forbidden).max())
    assert not run(100.0)[1] and not (ON_X86_64 and run(cpu="haswell")[1])


@pytest.mark.skipif(not BlasSpec().available, reason="no SciPy here, so no BLAS to call")
def test_blas_can_be_asked_for() -> None:
    session, own = (open_zoo("mlp_tiny", "jitonnx.gemm", value) for value in ("blas", "own"))
    assert "BLAS" in labels(session) and "gemm" not in labels(session)
    feeds = zoo.feeds("mlp_tiny")
    np.testing.assert_allclose(session.run(None, feeds)[0], own.run(None, feeds)[0], rtol=1e-5)


def test_unknown_choice_is_refused() -> None:
    with pytest.raises(jitonnx.errors.InvalidArgument, match=r"jitonnx\.gemm"):
        open_zoo("mlp_tiny", "jitonnx.gemm", "mkl")

"""Two packages behind one interface: what a call gives with jitonnx, and what it gives with onnxruntime."""

from __future__ import annotations

import enum
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import onnxruntime

import jitonnx
import jitonnx.capi.onnxruntime_pybind11_state
from tests.session import models

Call = Callable[[ModuleType], Any]
"""Uses the package that it is given."""

_UNTOLD = {"object", "BaseException", "Exception"}


class Outcome(NamedTuple):
    """What a call gave: a value that can be compared, or an error."""

    value: Any
    error: Exception | None


def outcome(call: Call, package: ModuleType) -> Outcome:
    """What the call gives with this package."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return Outcome(plain(call(package)), None)
        except Exception as error:
            return Outcome(None, error)


def assert_alike(call: Call, says: str = "") -> None:
    """The call gives the same with both packages.

    says: of a call that fails with both: a part of both messages. Classes of errors have to have the same names as far
    as onnxruntime's are not `Exception` alone.
    """
    theirs, ours = outcome(call, onnxruntime), outcome(call, jitonnx)
    if theirs.error is None:
        assert ours.error is None, f"onnxruntime gives {theirs.value}, jitonnx raises {ours.error!r}"
        assert ours.value == theirs.value, f"onnxruntime gives {theirs.value}, jitonnx {ours.value}"
        return
    assert says, f"say what the error says: {theirs.error!r}"
    assert says in str(theirs.error), f"onnxruntime says {theirs.error!r}"
    assert ours.error is not None, f"onnxruntime raises {theirs.error!r}, jitonnx gives {ours.value}"
    assert says in str(ours.error), f"jitonnx says {ours.error!r}"
    missing = _classes(theirs.error) - _classes(ours.error)
    assert not missing, f"{ours.error!r} is none of {missing}, as onnxruntime's is"


def _classes(error: Exception) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__} - _UNTOLD


def plain(value: Any) -> Any:
    """A value that can be compared, of any that the packages give."""
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        return "array", array.dtype.str, array.shape, array.astype(object).tolist()
    if isinstance(value, enum.Enum) or hasattr(type(value), "__members__"):
        return type(value).__name__, int(value)
    if hasattr(value, "tensor_size_in_bytes"):
        return "OrtValue", value.data_type(), list(value.shape()), plain(value.numpy())
    if isinstance(value, list | tuple) or type(value).__name__ == "OrtValueVector":
        return [plain(entry) for entry in value]
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if hasattr(value, "type") and hasattr(value, "shape") and hasattr(value, "name"):
        return value.name, value.type, list(value.shape)
    return value


def session(package: ModuleType, model: bytes | None = None, **entries: Any) -> Any:
    """A session of the package, quiet, on the CPU; without a model that of `sum_and_product`."""
    options = package.SessionOptions()
    options.log_severity_level = 4
    for name, value in entries.items():
        setattr(options, name, value)
    return package.InferenceSession(model or sum_and_product(), options, providers=["CPUExecutionProvider"])


def sum_and_product() -> bytes:
    """s = a + b, p = a * b, for a and b [N, 3]."""
    nodes = [models.node("Add", ["a", "b"], ["s"]), models.node("Mul", ["a", "b"], ["p"])]
    return models.model(nodes, [models.tensor("a"), models.tensor("b")], [models.tensor("s"), models.tensor("p")])

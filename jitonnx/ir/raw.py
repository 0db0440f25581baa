"""A node as it stands in a model, before its operator is known: what `Operator.upgrade` works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jitonnx.ir.graph import Value
from jitonnx.ir.operator import Operator
from jitonnx.support.records import dataclass


@dataclass
class RawNode:
    """Operator type, version and attributes of a node, with its inputs as values."""

    operator: str
    domain: str
    version: int
    """The version of the operator that the model's operator set selects: one of the declaration's `versions`."""
    name: str
    attributes: dict[str, Any]
    """The values by name are int, float, str, tuples of them, NumPy arrays (tensors), types; graphs are not among
    them."""
    inputs: list[Value | None]
    outputs: list[str]
    add_constant: Callable[[np.ndarray], Value]
    """A new constant of the graph."""
    add: Callable[[Operator, list[Value | None]], Value]
    """A new node in front of this one, and its output."""

    def attribute_to_input(self, name: str, position: int, dtype: Any = np.int64, default: Any = None) -> None:
        """Move attribute `name` to input `position`, where newer versions take it; absent and no default: no input."""
        value = self.attributes.pop(name, default)
        while len(self.inputs) <= position:
            self.inputs.append(None)
        if value is not None:
            self.inputs[position] = self.add_constant(np.asarray(value, dtype))
        while self.inputs and self.inputs[-1] is None:
            self.inputs.pop()

    def drop(self, *names: str) -> None:
        """Forget attributes that carry no meaning any more (`consumed_inputs`, test modes)."""
        for name in names:
            self.attributes.pop(name, None)

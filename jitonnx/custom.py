"""What users write operators with.

    from jitonnx import custom
    from jitonnx.custom import e

    @jitonnx.register
    class Swoosh(custom.Elementwise):
        domain = "my.domain"
        inputs, outputs = ("X: T",), ("Y: T",)
        types = {"T": custom.FLOATS}

        alpha: float = 1.0

        def evaluate(self, x):
            return x * np.tanh(self.alpha * x)

        def scalar(self, x):
            return x * e.tanh(x * self.alpha)

docs/operators.md says what each part means.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any, TypeVar, overload

from jitonnx.codegen.functions.kernels import kernel
from jitonnx.codegen.functions.scalar import CompiledFunction, compiled, elementwise
from jitonnx.ir.bodies import Bodies
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator, SparseTensor, Tensor, internal
from jitonnx.ir.types import MapType, OptionalType, SequenceType, SparseTensorType, TensorType, Type
from jitonnx.ops.base import BOOLS, FLOATS, INTEGERS, NUMBERS, Elementwise
from jitonnx.ops.composite import Composite, Parts
from jitonnx.ops.registry import registry

__all__ = [
    "BOOLS",
    "FLOATS",
    "INTEGERS",
    "NUMBERS",
    "Bodies",
    "CompiledFunction",
    "Composite",
    "DType",
    "Elementwise",
    "InferenceContext",
    "InferenceError",
    "Lowering",
    "MapType",
    "Operator",
    "OptionalType",
    "Parts",
    "SequenceType",
    "SparseTensor",
    "SparseTensorType",
    "Tensor",
    "TensorType",
    "Type",
    "Value",
    "compiled",
    "e",
    "elementwise",
    "internal",
    "kernel",
    "register",
]

_D = TypeVar("_D", bound=Callable[..., Any])


@overload
def register(declaration: _D) -> _D: ...
@overload
def register(
    declaration: _D,
    *,
    domain: str,
    name: str | None = None,
    types: Collection[DType] = NUMBERS,
    result: DType | None = None,
) -> _D: ...
@overload
def register(
    *, domain: str, name: str | None = None, types: Collection[DType] = NUMBERS, result: DType | None = None
) -> Callable[[_D], _D]: ...


def register(declaration: Any = None, **described: Any) -> Any:
    """Let models of all sessions made from now on use an operator.

    declaration: a class derived from those of this module, or a function of numbers that Numba compiles, which becomes
    the elementwise operator that `elementwise` makes of it and of the other arguments. It is given back, so `register`
    is a decorator, without arguments or with all but the first.

    `SessionOptions.register_custom_ops` does so for some sessions only. ValueError for a domain and name that are taken
    already, TypeError for a declaration that lacks a part, ImportError for a function without Numba, which is imported
    where a function's translation is not in the kernel cache yet.
    """
    if declaration is None:
        return functools.partial(register, **described)
    is_class = isinstance(declaration, type)
    if is_class and described:
        raise TypeError(f"{declaration.__name__} is a class, which says {', '.join(described)} itself")
    if is_class or not callable(declaration):
        registry.add(declaration)
    elif "domain" not in described:
        raise TypeError(
            f"{declaration!r} is a function: its operator needs a domain, as in register(..., domain='mine')"
        )
    else:
        registry.add(elementwise(declaration, **described))
    return declaration

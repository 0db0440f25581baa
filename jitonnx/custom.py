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
import importlib
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar, overload

from jitonnx.codegen.functions.function_operator import FunctionOperator
from jitonnx.ops import registered
from jitonnx.support import fork_safety

if TYPE_CHECKING:
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

_PLACES = {
    "codegen.functions.kernels": "kernel",
    "codegen.functions.scalar": "CompiledFunction compiled elementwise",
    "ir.bodies": "Bodies",
    "ir.computation.lowering": "Lowering",
    "ir.dtypes": "DType",
    "ir.graph": "Value",
    "ir.inference": "InferenceContext",
    "ir.operator": "InferenceError Operator SparseTensor Tensor internal",
    "ir.types": "MapType OptionalType SequenceType SparseTensorType TensorType Type",
    "ops.base": "BOOLS FLOATS INTEGERS NUMBERS Elementwise",
    "ops.composite": "Composite Parts",
}
"""The module of each name, which is imported when one of its is first asked for: a start that finds its model compiled
needs few of them."""
_MODULE_OF = {name: f"jitonnx.{place}" for place, names in _PLACES.items() for name in names.split()}

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


def __getattr__(name: str) -> Any:
    if name != "e" and name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with fork_safety.critical:
        if name == "e":
            value: Any = importlib.import_module("jitonnx.ir.computation.expressions")
        else:
            value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


@overload
def register(declaration: _D) -> _D: ...
@overload
def register(
    declaration: _D,
    *,
    domain: str,
    name: str | None = None,
    types: Collection[DType] = ...,
    result: DType | None = None,
) -> _D: ...
@overload
def register(
    *, domain: str, name: str | None = None, types: Collection[DType] = ..., result: DType | None = None
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
        from jitonnx.ops.registry import registry

        registry.add(declaration)
    elif "domain" not in described:
        raise TypeError(
            f"{declaration!r} is a function: its operator needs a domain, as in register(..., domain='mine')"
        )
    else:
        registered.register(FunctionOperator(declaration, **described))
    return declaration

"""Elementwise operators by functions, as they are registered: looked at, but not made. Imports no operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from jitonnx.codegen.functions.installed import check_installed
from jitonnx.support.identity import identity

if TYPE_CHECKING:
    from jitonnx.ir.dtypes import DType
    from jitonnx.ops.base import Elementwise


class FunctionOperator:
    """An operator by a function of numbers. Arguments and errors are those of `scalar.elementwise`.

    inputs: the parameters without a default. defaults: the attributes. types: None for all numbers.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        domain: str,
        name: str | None = None,
        types: Collection[DType] | None = None,
        result: DType | None = None,
    ) -> None:
        check_installed()
        self.function = function
        plain = plain_function(function)
        self.domain, self.name, self.result = domain, name or plain.__name__, result
        self.types = None if types is None else frozenset(types)
        self.inputs, self.defaults = parameters(plain)
        if not self.inputs:
            raise TypeError(f"{plain.__name__} has no inputs: parameters without a default are inputs")

    def declaration(self) -> type[Elementwise]:
        """The operator's class."""
        from jitonnx.codegen.functions.scalar import declared

        return declared(self)

    def identity(self) -> str:
        """All that it is made of, as `support.identity` has it. Raises: Unknown."""
        types = None if self.types is None else sorted(self.types)
        made_of = (
            self.function.identity() if hasattr(self.function, "identity") else identity(plain_function(self.function))
        )
        return repr((made_of, self.domain, self.name, types, self.result))


def plain_function(function: Any) -> Any:
    """The function that was written, also of what `numba.njit` and `custom.compiled` have made of it."""
    function = getattr(function, "function", function)
    return getattr(function, "py_func", function)


def parameters(function: Callable[..., Any]) -> tuple[list[str], dict[str, int | float | bool]]:
    """The names of those without a default, and the others' defaults. TypeError for defaults that are no numbers."""
    given = inspect.signature(function).parameters.values()
    defaults = {one.name: one.default for one in given if one.default is not inspect.Parameter.empty}
    for attribute, value in defaults.items():
        if type(value) not in (int, float, bool):
            name = getattr(function, "__name__", function)
            raise TypeError(f"{attribute}={value!r} of {name}: an attribute is an int, a float or a bool")
    return [one.name for one in given if one.name not in defaults], defaults

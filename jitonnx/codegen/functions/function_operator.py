"""Users' functions as they are registered: looked at, and refused if Numba compiles none such. Imports no operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from types import FunctionType
from typing import TYPE_CHECKING, Any

from jitonnx.codegen.functions.installed import check_installed
from jitonnx.ir.dtypes import DType
from jitonnx.support.identity import identity

if TYPE_CHECKING:
    from jitonnx.ops.base import Elementwise

_ASYNCHRONOUS = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_NAMED = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


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
        self.domain, self.name = operator_name(plain, domain, name)
        self.types = None if types is None else element_types(plain, types)
        self.result = None if result is None else next(iter(element_types(plain, (result,))))
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
        made = (
            self.function.identity() if hasattr(self.function, "identity") else identity(plain_function(self.function))
        )
        return repr((made, self.domain, self.name, types, self.result))


def plain_function(function: Any) -> FunctionType:
    """The function that was written, also of what `numba.njit` and `custom.compiled` have made of it. TypeError for
    what Numba compiles no code of."""
    written = getattr(function, "py_func", getattr(function, "function", function))
    if not isinstance(written, FunctionType):
        raise TypeError(f"{function!r} is no function written in Python, by def or lambda, which Numba could compile")
    if written.__code__.co_flags & _ASYNCHRONOUS:
        raise TypeError(f"{written.__name__} is a generator or a coroutine: give a function that returns its result")
    return written


def operator_name(function: FunctionType, domain: Any, name: Any) -> tuple[str, str]:
    """The operator's domain and name. TypeError for what is no text, or for a lambda that is not given a name."""
    chosen = function.__name__ if name is None else name
    if not isinstance(domain, str) or not isinstance(chosen, str) or not chosen:
        raise TypeError(f"the operator of {function.__name__} needs texts as domain and name; got {domain!r}, {name!r}")
    if chosen == "<lambda>":
        raise TypeError("a lambda has no name that an operator could have: give name='...'")
    return domain, chosen


def element_types(function: FunctionType, types: Collection[Any]) -> frozenset[DType]:
    """What operators' `types` are. TypeError for none, and for others than custom.DType."""
    if isinstance(types, str) or not types or not all(isinstance(dtype, DType) for dtype in types):
        raise TypeError(f"types of {function.__name__}: {types!r} is given; members of custom.DType are needed")
    return frozenset(types)


def parameters(function: FunctionType) -> tuple[list[str], dict[str, int | float | bool]]:
    """The names of those without a default, and the others' defaults. TypeError for defaults that are no numbers that
    attributes can have, and for parameters of any number."""
    given = inspect.signature(function).parameters.values()
    defaults = {one.name: one.default for one in given if one.default is not inspect.Parameter.empty}
    for one in given:
        if one.kind not in _NAMED:
            raise TypeError(
                f"{one.name!r} of {function.__name__}: an operator's inputs and attributes each need a name"
            )
    for attribute, value in defaults.items():
        if type(value) not in (int, float, bool) or (type(value) is int and not -(2**63) <= value < 2**63):
            raise TypeError(
                f"{attribute}={value!r} of {function.__name__}: an attribute is an int, a float or a bool, of 64 bits"
            )
    return [one.name for one in given if one.name not in defaults], defaults

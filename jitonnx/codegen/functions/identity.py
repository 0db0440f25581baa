"""What the code that Numba makes of a function depends on, as text: of this, keys of kept translations are made.

A function is its bytecode with all that it names: constants, closure, defaults, global values, functions that Numba has
compiled, and those that these call. What cannot be told from its like by a text, `Unknown` refuses.
"""

from __future__ import annotations

import builtins
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

from jitonnx.support.versions import VERSION, versions

_VERSIONED = frozenset(("builtins", "cmath", "math", "numba", "numpy", "operator", "_operator"))
"""Packages whose contents are told by the versions that `surroundings` gives."""
_PLAIN = (type(None), type(...), bool, float, complex, str, bytes)


class Unknown(Exception):
    """A function depends on something of which nobody knows a text that tells it from others."""


def identity(function: Any) -> str:
    """All that a function's code depends on but types and `surroundings`. Raises: Unknown."""
    return repr(_Description().function(function))


def surroundings() -> str:
    """The versions of what compiles and of what runs, and Numba's settings. Imports no Numba. Raises: Unknown."""
    spec = find_spec("numba")
    try:
        with open(os.path.join(os.path.dirname((spec and spec.origin) or ""), "_version.py"), encoding="utf-8") as file:
            numba = file.read()
    except OSError as error:
        raise Unknown("Numba's version") from error
    settings = sorted((name, value) for name, value in os.environ.items() if name.startswith("NUMBA_"))
    return repr((VERSION, versions(), numba, sys.version, os.uname().machine, settings))


class _Description:
    """Texts, numbers and tuples of these. A function that calls itself is told by its number."""

    def __init__(self) -> None:
        self._begun: dict[int, int] = {}
        self._within: set[int] = set()
        """Modules whose attributes are being told: two may name each other."""

    def function(self, function: Any) -> Any:
        """Of a plain function, whose text names all that it reads."""
        if type(function) is not FunctionType:
            raise Unknown(f"{function!r}")
        if id(function) in self._begun:
            return "again", self._begun[id(function)]
        self._begun[id(function)] = len(self._begun)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        try:
            closure = tuple((name, self._value(cell.cell_contents, function.__code__)) for name, cell in cells)
        except ValueError as error:
            raise Unknown(f"a variable around {function.__name__} that is not set") from error
        defaults = (function.__defaults__, *(function.__kwdefaults__ or {}).items())
        named = tuple(self._globals(function))
        return function.__name__, self._code(function.__code__), closure, named, self._value(defaults)

    def _globals(self, function: FunctionType) -> Iterator[Any]:
        """What stands behind the names in a function: all that are global, though some may be meant as attributes."""
        for code in _codes(function.__code__):
            for name in code.co_names:
                if name in function.__globals__:
                    yield name, self._value(function.__globals__[name], code)
                elif hasattr(builtins, name):
                    yield name, "builtin"

    def _code(self, code: CodeType) -> Any:
        return (
            *(code.co_code, code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
            *(code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
            getattr(code, "co_exceptiontable", b""),  # since Python 3.11
            tuple(map(self._value, code.co_consts)),
        )

    def _value(self, value: Any, code: CodeType | None = None) -> Any:
        """code: that in which the value is read; of a module, the attributes count that it names."""
        kind = type(value)
        if kind in _PLAIN:
            return kind.__name__, repr(value)
        if kind is int:
            return "int", hex(value)
        if kind is tuple:
            return "tuple", tuple(self._value(each, code) for each in value)
        if kind is frozenset:
            return "frozenset", tuple(sorted(repr(self._value(each)) for each in value))
        if kind is CodeType:
            return "code", self._code(value)
        if isinstance(value, np.generic) or kind is np.ndarray:
            if value.dtype.isbuiltin != 1 or value.dtype.hasobject:
                raise Unknown(f"numbers of {value.dtype}")
            return kind.__name__, value.dtype.str, value.shape, value.tobytes()
        if kind is ModuleType:
            return self._module(value, code)
        if kind.__module__ == "numba.core.types.scalars":
            return "type", str(value)
        if kind.__module__.startswith("numba.") and hasattr(value, "py_func"):
            options = tuple(sorted((name, self._value(option)) for name, option in value.targetoptions.items()))
            return "compiled", options, self.function(value.py_func)
        return "named", _name(value)

    def _module(self, module: ModuleType, code: CodeType | None) -> Any:
        name = module.__name__
        if name.partition(".")[0] in _VERSIONED:
            return "module", name
        if code is None or id(module) in self._within:
            return "module", name, "again"
        self._within.add(id(module))
        read = (each for each in code.co_names if hasattr(module, each))
        found = tuple((each, self._value(getattr(module, each), code)) for each in read)
        self._within.remove(id(module))
        return "module", name, found


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _name(value: Any) -> str:
    """Where a function, class or universal function of a package of known version is found."""
    module = getattr(value, "__module__", None) or ("numpy" if isinstance(value, np.ufunc) else "")
    name = str(getattr(value, "__qualname__", None) or getattr(value, "__name__", ""))
    if module.partition(".")[0] in _VERSIONED and getattr(sys.modules.get(module), name, None) is value:
        return f"{module}.{name}"
    raise Unknown(f"{value!r}")

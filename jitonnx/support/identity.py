"""What tells functions and classes of users from others, as text: keys of what is kept of them are made of it.

`identity` is of a function that Numba compiles, `definition` of a declaration in Python, with all its methods. Either
is the bytecode with all that it names: constants, closure, defaults, global values, and the functions that it calls.
What cannot be told from its like by a text, `Unknown` refuses.
"""

from __future__ import annotations

import builtins
import enum
import opcode
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
_PURE = frozenset(("abc", "collections", "dataclasses", "enum", "functools", "itertools", "jitonnx", "re", "typing"))
"""Further ones for the methods of declarations, whose results hang on arguments alone. Keys that have a `definition`
have the stamps of our own sources, too."""
_READING = frozenset(
    (
        *("__builtins__", "__dict__", "__import__", "compile", "eval", "exec", "getattr", "globals", "input", "locals"),
        *("setattr", "vars", "DataSource", "fromfile", "fromregex", "genfromtxt", "load", "loadtxt", "memmap", "open"),
        "random",
    )
)
"""Names of Python and NumPy by which a method reads what its text does not name: files, random numbers, names that are
computed."""
_IMPORT, _EXTENDED = opcode.opmap["IMPORT_NAME"], opcode.opmap["EXTENDED_ARG"]
_PLAIN = (type(None), type(...), bool, float, complex, str, bytes)
_UNTOLD = frozenset(
    (
        *("__annotations_cache__", "__dataclass_fields__", "__dataclass_params__", "__dict__", "__doc__"),
        *("__firstlineno__", "__match_args__", "__module__", "__qualname__", "__static_attributes__", "__weakref__"),
    )
)
"""Members of a class that say nothing of what it does, or that others say."""
_MOST = 10_000
"""Values in one description: more are those of a package, not of a declaration."""


class Unknown(Exception):
    """A function depends on something of which nobody knows a text that tells it from others."""


def identity(function: Any) -> str:
    """All that a function's code depends on but types and `surroundings`. Raises: Unknown."""
    return repr(_Description().function(function))


def definition(declaration: Any) -> str:
    """All that a class depends on, or a function or value, in Python, but `surroundings`. Raises: Unknown.

    An object of ours may tell its own, by a method `identity`; and so may that which a class has as `__made_of__`, from
    which it was made.
    """
    try:
        return repr(_Definition().described(declaration))
    except RecursionError as error:
        raise Unknown(f"{declaration!r}, which is too deep") from error


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

    versioned = _VERSIONED

    def __init__(self) -> None:
        self._begun: dict[int, int] = {}
        self._within: set[int] = set()
        """Modules whose attributes are being told: two may name each other."""

    def function(self, function: Any) -> Any:
        """The identity of a plain function, whose text names all that it reads."""
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
            return "compiled", options, self._compiled(value.py_func)
        return self._other(value)

    def _compiled(self, function: Any) -> Any:
        """The identity of a function that Numba compiles."""
        return self.function(function)

    def _other(self, value: Any) -> Any:
        return "named", self._name(value)

    def _module(self, module: ModuleType, code: CodeType | None) -> Any:
        name = module.__name__
        if name.partition(".")[0] in self.versioned:
            return "module", name
        if code is None or id(module) in self._within:
            return "module", name, "again"
        self._within.add(id(module))
        read = (each for each in code.co_names if hasattr(module, each))
        found = tuple((each, self._value(getattr(module, each), code)) for each in read)
        self._within.remove(id(module))
        return "module", name, found

    def _name(self, value: Any) -> str:
        """The name under which a function, class or universal function of a package of known version is found."""
        module = getattr(value, "__module__", None) or ("numpy" if isinstance(value, np.ufunc) else "")
        name = str(getattr(value, "__qualname__", None) or getattr(value, "__name__", ""))
        if module.partition(".")[0] in self.versioned:
            found: Any = sys.modules.get(module)
            for part in name.split("."):
                found = getattr(found, part, None)
            if found is value:
                return f"{module}.{name}"
        raise Unknown(f"{value!r}")


class _Definition(_Description):
    """Also of classes, of functions that Python runs, and of lists and dictionaries, as they are now."""

    versioned = _VERSIONED | _PURE

    def __init__(self) -> None:
        super().__init__()
        self._told: list[Any] = []
        """What was told: as long as it is held here, nothing else is found at its place."""

    def described(self, value: Any) -> Any:
        return self._value(value)

    def _class(self, declaration: Any) -> Any:
        """Its bases and members."""
        if type(declaration) is not type:
            raise Unknown(f"{declaration!r}, a class of {type(declaration).__name__}")
        if id(declaration) in self._begun:
            return "again", self._begun[id(declaration)]
        self._begun[id(declaration)] = len(self._begun)
        members = {name: value for name, value in vars(declaration).items() if name not in _UNTOLD}
        annotations = repr(members.pop("__annotations__", None))
        told = tuple((name, self._value(value)) for name, value in sorted(members.items()))
        return declaration.__name__, tuple(map(self._value, declaration.__bases__)), annotations, told

    def function(self, function: Any) -> Any:
        for code in _codes(function.__code__) if type(function) is FunctionType else ():
            if _is_ours(function):
                continue
            if _READING & {*code.co_names}:
                raise Unknown(f"{function.__name__}, which names {', '.join(sorted(_READING & {*code.co_names}))}")
            for name in _imported(code):
                if name.partition(".")[0] not in self.versioned:
                    raise Unknown(f"{function.__name__}, which imports {name}")
        return super().function(function)

    def _globals(self, function: FunctionType) -> Iterator[Any]:
        return iter(()) if _is_ours(function) else super()._globals(function)

    def _compiled(self, function: Any) -> Any:
        return identity(function)

    def _value(self, value: Any, code: CodeType | None = None) -> Any:
        self._told.append(value)
        if len(self._told) > _MOST:
            raise Unknown(f"more than {_MOST} values")
        return super()._value(value, code)

    def _other(self, value: Any) -> Any:
        kind = type(value)
        if kind is FunctionType:
            return "function", self.function(value)
        if kind in (staticmethod, classmethod):
            return kind.__name__, self._value(value.__func__)
        if kind is property:
            return kind.__name__, tuple(map(self._value, (value.fget, value.fset, value.fdel)))
        if kind is list:
            return "list", tuple(map(self._value, value))
        if kind is set:
            return "set", self._value(frozenset(value))
        if kind is dict:
            return "dict", tuple((self._value(key), self._value(each)) for key, each in value.items())
        if isinstance(value, enum.Enum):
            return "enum", self._name(kind), value.name
        if isinstance(value, np.dtype) and value.isbuiltin == 1:
            return "dtype", value.str
        if hasattr(kind, "identity") and _root(kind) == "jitonnx":
            return "made", value.identity()
        if isinstance(value, type) and "__made_of__" in vars(value):
            return self._value(vars(value)["__made_of__"])
        if isinstance(value, type) and _root(value) not in self.versioned:
            return "class", self._class(value)
        return super()._other(value)


def _is_ours(function: FunctionType) -> bool:
    """Whether a function is one of jitonnx: then its closure alone is not told by our sources."""
    return _root(function) == "jitonnx"


def _root(value: Any) -> str:
    """The package in which something is defined."""
    return str(value.__module__).partition(".")[0]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code, and that of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _imported(code: CodeType) -> Iterator[str]:
    """The modules that code imports when it runs."""
    high = 0
    for operation, low in zip(code.co_code[::2], code.co_code[1::2], strict=True):
        argument = high | low
        high = argument << 8 if operation == _EXTENDED else 0
        if operation == _IMPORT:
            yield code.co_names[argument]

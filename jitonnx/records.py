"""Data classes whose methods are made when a class is first used. Imports `forks` alone of ours.

`dataclasses.dataclass` writes the source of each method and compiles it, 0.3 to 0.5 ms a class, and a start defines a
hundred classes of which a model needs thirty. `dataclass` here does the same, put off: the first instance of a class
(or the first look at its fields) makes the methods, all in one go, and from then on it is an ordinary data class.
One thing differs: a frozen class does not say so to `dataclasses`, so its subclasses have to be made here too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

from jitonnx import forks

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls=None, /, **options):
        """As `dataclasses.dataclass`, with its options init, repr, eq, frozen and kw_only."""
        if cls is None:
            return lambda cls: _put_off(cls, options)
        return _put_off(cls, options)


_FIELDS = "__dataclass_fields__"
_making = forks.WorkLock()


class _Pending:
    """Stands where a data class has its fields, and makes the class when somebody asks for them."""

    def __init__(self, cls: type, options: dict[str, Any], stubs: frozenset[str]) -> None:
        self._cls, self._options, self._stubs = cls, options, stubs

    def __get__(self, instance: object, owner: type) -> Any:
        with _making:
            self.make()
        return self._cls.__dict__[_FIELDS]

    def make(self) -> None:
        """Give the class its fields and methods, once. The caller holds `_making`."""
        cls = self._cls
        if cls.__dict__[_FIELDS] is not self:
            return
        from dataclasses import dataclass

        text = cls.__doc__
        cls.__doc__ = text or " "  # without one, the decorator writes it, for which it imports `inspect`
        only_fields = {name: value for name, value in self._options.items() if name not in ("eq", "frozen")}
        dataclass(**{**only_fields, "init": False, "repr": False, "eq": False})(cls)
        cls.__doc__ = text
        wanted = {name for name in _GENERATED if name in self._stubs}
        if "__hash__" in self._stubs and not self._options.get("frozen"):
            cls.__hash__ = None  # type: ignore[assignment]
            wanted.discard("__hash__")
        for name, method in _methods(cls, wanted, bool(self._options.get("frozen"))).items():
            setattr(cls, name, method)


_GENERATED = ("__eq__", "__hash__", "__init__")


def _methods(cls: type, wanted: Collection[str], frozen: bool) -> dict[str, Any]:
    """Those methods of a data class that are wanted, compiled as one text: most of the time goes by texts."""
    from dataclasses import MISSING, fields

    entries = fields(cls)  # type: ignore[arg-type]
    names: dict[str, Any] = {"_missing": MISSING}
    lines = []
    if "__init__" in wanted:
        body = []
        for entry in entries:
            value = entry.name
            if entry.default_factory is not MISSING:
                names[f"_factory_{entry.name}"] = entry.default_factory
                value = f"_factory_{entry.name}()" + (f" if {value} is _missing else {value}" if entry.init else "")
            if entry.init or entry.default_factory is not MISSING:
                place = f"_values[{entry.name!r}]" if frozen else f"self.{entry.name}"
                body.append(f" {place} = {value}")
        if hasattr(cls, "__post_init__"):
            body.append(" self.__post_init__()")
        lines += [f"def __init__({_parameters(entries, names)}):", " _values = self.__dict__", *body]
    mine, others = ("".join(f"{who}.{entry.name}, " for entry in entries if entry.compare) for who in ("self", "other"))
    if "__eq__" in wanted:
        lines += ["def __eq__(self, other):", " if other.__class__ is not self.__class__: return NotImplemented"]
        lines += [f" return ({mine}) == ({others})"]
    if "__hash__" in wanted:
        lines += ["def __hash__(self):", f" return hash(({mine}))"]
    exec("\n".join(lines), names)
    for name in wanted:
        names[name].__qualname__ = f"{cls.__qualname__}.{name}"
    return {name: names[name] for name in sorted(wanted)}


def _parameters(entries: Iterable[Any], names: dict[str, Any]) -> str:
    """The parameters of `__init__`; their defaults are put into `names`."""
    from dataclasses import MISSING

    given, by_name = ["self"], list[str]()
    for entry in entries:
        if entry.init:
            default = ""
            if entry.default is not MISSING:
                names[f"_default_{entry.name}"] = entry.default
                default = f"=_default_{entry.name}"
            elif entry.default_factory is not MISSING:
                default = "=_missing"
            (by_name if entry.kw_only else given).append(entry.name + default)
    return ", ".join([*given, *(["*", *by_name] if by_name else [])])


def _put_off(cls: type, options: dict[str, Any]) -> type:
    stubs: dict[str, Any] = {"__init__": _init} if options.get("init", True) else {}
    if options.get("repr", True):
        stubs["__repr__"] = _repr
    if options.get("eq", True):
        stubs |= {"__eq__": _eq, "__hash__": _hash}
    if options.get("frozen"):
        stubs |= {"__setattr__": _refuse_setting, "__delattr__": _refuse_deleting}
    stubs = {name: stub for name, stub in stubs.items() if name not in cls.__dict__}
    for name, stub in stubs.items():
        setattr(cls, name, stub)
    setattr(cls, _FIELDS, _Pending(cls, options, frozenset(stubs)))
    return cls


def _make(cls: type) -> None:
    """Make what is put off of a class and its bases, or wait for another thread that does."""
    with _making:
        for base in reversed(cls.__mro__):
            pending = base.__dict__.get(_FIELDS)
            if isinstance(pending, _Pending):
                pending.make()


def _init(self: Any, *arguments: Any, **named: Any) -> None:
    _make(type(self))
    self.__init__(*arguments, **named)


def _repr(self: Any) -> str:
    """As `dataclasses` writes it."""
    from dataclasses import fields

    shown = (entry.name for entry in fields(self) if entry.repr)
    return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"


def _eq(self: object, other: object) -> Any:
    _make(type(self))
    return type(self).__eq__(self, other)


def _hash(self: object) -> int:
    _make(type(self))
    return hash(self)


def _refuse_setting(self: object, name: str, value: object) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deleting(self: object, name: str) -> NoReturn:
    from dataclasses import FrozenInstanceError

    raise FrozenInstanceError(f"cannot delete field {name!r}")

"""Data classes and named tuples whose methods are made when a class is first used. Imports `forks` alone of ours.

`dataclasses.dataclass` writes the source of each method and compiles it, 0.3 to 0.5 ms a class, and a start defines a
hundred classes of which a model needs thirty. `dataclass` here does the same, put off: the first instance of a class
(or the first look at its fields) finds the fields. Most classes have a handful of instances, so their methods go from
field to field at first; when they have been called `_FEW` times they are compiled, all in one go, and from then on it
is an ordinary data class.
One thing differs: a frozen class does not say so to `dataclasses`, so its subclasses have to be made here too.

`NamedTuple` is that of `typing`, of which a start defines a hundred, too, at 0.1 ms each: there a class is made twice,
its annotations are looked at, and its constructor is compiled. Here that waits for `_FEW` instances, too.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any, NoReturn

from jitonnx.support import fork_safety

_FEW = 24
"""Calls of a class's methods before they are compiled, which takes as long as a hundred such calls."""


def _bound(
    names: Sequence[str], defaults: Mapping[str, Any], arguments: Sequence[Any], named: Mapping[str, Any]
) -> list[Any] | None:
    """The values of parameters, in their order; None for arguments that do not fit."""
    values, taken = list(arguments), 0
    for name in names[len(arguments) :]:
        if name in named:
            taken += 1
            values.append(named[name])
        elif name in defaults:
            values.append(defaults[name])
        else:
            return None
    return values if taken == len(named) and len(values) == len(names) else None


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
    from typing import NamedTuple as NamedTuple
else:
    from collections import _tuplegetter as _field_getter

    def dataclass(cls=None, /, **options):
        """`dataclasses.dataclass`, put off, with its options init, repr, eq, frozen and kw_only."""
        if cls is None:
            return lambda cls: _put_off(cls, options)
        return _put_off(cls, options)

    class _NamedTuple(tuple):
        """What all named tuples share. `_fields` has the names, `_field_defaults` the defaults of the last of them."""

        __slots__ = ()

        def __new__(cls, /, *arguments, **named):
            """Make one of the first instances. After these, or for arguments that do not fit, the class gets its
            constructor, which tells what is wrong with them."""
            values = _bound(cls._fields, cls._field_defaults, arguments, named) if next(cls._few, False) else None
            if values is not None:
                return tuple.__new__(cls, values)
            made = next(each for each in cls.__mro__ if "_fields" in each.__dict__)
            made.__new__ = staticmethod(_constructor(made))
            return made.__new__(cls, *arguments, **named)

        @classmethod
        def _make(cls, values):
            made = tuple.__new__(cls, values)
            if len(made) != len(cls._fields):
                raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
            return made

        def _replace(self, /, **named):
            made = self._make(map(named.pop, self._fields, self))
            if named:
                raise ValueError(f"Got unexpected field names: {list(named)!r}")
            return made

        __replace__ = _replace

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            shown = (f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
            return f"{type(self).__name__}({', '.join(shown)})"

        def __getnewargs__(self):
            return tuple(self)

    def _constructor(cls):
        names = ", ".join(cls._fields)
        scope = {"_new": tuple.__new__, "__name__": cls.__module__}
        made = eval(f"lambda _cls, {names}: _new(_cls, ({names},))", scope)
        made.__name__, made.__qualname__ = "__new__", f"{cls.__qualname__}.__new__"
        made.__defaults__ = tuple(cls._field_defaults.values())
        return made

    class _MakesNamedTuples(type):
        """Makes a class whose only base is `NamedTuple` one of named tuples; the class is an ordinary one then."""

        def __new__(mcs, name, bases, namespace):
            if bases == (tuple,):
                return super().__new__(mcs, name, bases, namespace)
            names = tuple(namespace.get("__annotations__", ()))
            defaults = {field: namespace[field] for field in names if field in namespace}
            if bases != (NamedTuple,) or not names or names[len(names) - len(defaults) :] != tuple(defaults):
                raise TypeError(f"{name} needs fields, those with defaults last, and NamedTuple as its only base")
            getters = {field: _field_getter(place, None) for place, field in enumerate(names)}
            own = {"__slots__": (), "_fields": names, "_field_defaults": defaults, "__match_args__": names}
            own["_few"] = repeat(True, _FEW)
            return type(name, (_NamedTuple,), {**namespace, **getters, **own})

    class NamedTuple(tuple, metaclass=_MakesNamedTuples):
        """`typing.NamedTuple`, put off, for classes of modules that do not evaluate annotations."""


_FIELDS = "__dataclass_fields__"
_making = fork_safety.WorkLock()


class _Pending:
    """Stands where a data class has its fields, and makes the class when somebody asks for them."""

    def __init__(self, cls: type, options: dict[str, Any], stubs: frozenset[str]) -> None:
        self._cls, self._options, self._stubs = cls, options, stubs

    def __get__(self, instance: object, owner: type) -> Any:
        with _making:
            self.make()
        return self._cls.__dict__[_FIELDS]

    def make(self) -> None:
        """Make the fields and methods of the class, once. The caller holds `_making`."""
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
        frozen = bool(self._options.get("frozen"))
        for name, method in _first_methods(cls, wanted, frozen=frozen, few=repeat(True, _FEW)).items():
            setattr(cls, name, method)


_GENERATED = ("__eq__", "__hash__", "__init__")


def _first_methods(cls: type, wanted: Collection[str], *, frozen: bool, few: Iterator[bool]) -> dict[str, Any]:
    """Those methods of a data class that are wanted, which go from field to field; after a few calls they give way."""
    from dataclasses import MISSING, fields

    entries = fields(cls)
    by_place = [entry.name for entry in entries if entry.init and not entry.kw_only]
    parameters = by_place + [entry.name for entry in entries if entry.init and entry.kw_only]
    factories = {entry.name: entry.default_factory for entry in entries if entry.default_factory is not MISSING}
    defaults: dict[str, Any] = {name: MISSING for name in factories}
    defaults |= {entry.name: entry.default for entry in entries if entry.default is not MISSING}
    compared = [entry.name for entry in entries if entry.compare]
    follows = hasattr(cls, "__post_init__")

    def compiled(name: str) -> Any:
        with _making:
            if cls.__dict__[name] is made[name]:
                for each, method in _compiled_methods(cls, wanted, frozen=frozen).items():
                    setattr(cls, each, method)
        return cls.__dict__[name]

    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        fits = len(arguments) <= len(by_place) and next(few, False)
        values = _bound(parameters, defaults, arguments, named) if fits else None
        if values is None:
            compiled("__init__")(self, *arguments, **named)
            return
        given = dict(zip(parameters, values, strict=True))
        for entry in entries:
            name = entry.name
            value = given.get(name, MISSING)
            if value is MISSING and name in factories:
                value = factories[name]()
            if value is not MISSING and frozen:
                self.__dict__[name] = value
            elif value is not MISSING:
                setattr(self, name, value)
        if follows:
            self.__post_init__()

    def __eq__(self: Any, other: Any) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        if not next(few, False):
            return compiled("__eq__")(self, other)
        return [getattr(self, name) for name in compared] == [getattr(other, name) for name in compared]

    def __hash__(self: Any) -> int:
        if not next(few, False):
            return compiled("__hash__")(self)  # type: ignore[no-any-return]
        return hash(tuple([getattr(self, name) for name in compared]))

    every: dict[str, Any] = {"__init__": __init__, "__eq__": __eq__, "__hash__": __hash__}
    made = {name: every[name] for name in sorted(wanted)}
    for name, method in made.items():
        method.__qualname__ = f"{cls.__qualname__}.{name}"
    return made


def _compiled_methods(cls: type, wanted: Collection[str], *, frozen: bool) -> dict[str, Any]:
    """The same methods, compiled as one text: most of the time goes by texts."""
    from dataclasses import MISSING, fields

    entries = fields(cls)
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
    """Write it as `dataclasses` does."""
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

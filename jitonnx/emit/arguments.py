"""The arguments of kernels by name: each spec declares those that its kernel takes, once, in this order.

    class GemmBuffers(Arguments):
        a: Buffer
        b: Buffer
        c: Buffer = result()

    class GemmGiven(Arguments):
        m: Size
        n: Size
        extents: Sizes = each(8, fill=1)

The planner fills a record with tensors and dimensions, by name: what is left out or unknown is an error there, and one
that type checkers see. A spec's methods read the record of a program's integers, and a kernel that of its pointers and
values (`Code.buffers`, `Code.sizes`). A subclass has the places of its base in front: so `complete` adds sizes. Names
that several records begin with are declared once, as a group:

    class Planes(Arguments, group=True):
        images: Size
        channels: Size

    class PoolGiven(Planes):
        kernel: Size

A record is a tuple, flat, of all values. It stands in the place of `typing.NamedTuple`, whose classes cost a start 0.2
ms for 20 names, which is twenty times as much, since text is compiled for each, and which cannot be extended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        """What type checkers are told, and nobody else."""
        return lambda cls: cls


Buffer: TypeAlias = Any
"""A tensor of a plan; a pointer in code."""
Size: TypeAlias = Any
"""An expression over the dimension variables in a plan; an integer of a program; a value in code."""
Sizes: TypeAlias = Any
"""It is a tuple of `Size`, as many as `each` says."""


class _Place:
    """What a declaration says of a name besides it. count: how many places it takes; None: one, which is no tuple;
    _ALL: those that are left."""

    def __init__(self, count: int | None = None, fill: object = None, *, result: bool = False) -> None:
        self.count, self.fill, self.result = count, fill, result


_ONE, _ALL = _Place(), -1


def result() -> Any:
    """Declares a buffer that the kernel writes."""
    return _Place(result=True)


def each(count: int, fill: object = None, *, result: bool = False) -> Any:
    """Declares `count` places under one name, a tuple; fewer values are followed by `fill` if that is given."""
    return _Place(count, fill, result=result)


def rest() -> Any:
    """Declares the last name as a tuple of all values that are left, however many."""
    return _Place(_ALL)


_Record = TypeVar("_Record", bound="Arguments")


@dataclass_transform(kw_only_default=True, field_specifiers=(result, each, rest))
class Arguments(tuple[Any, ...]):
    """A tuple of arguments whose places have names."""

    WIDTH: ClassVar[int] = 0
    """How many values there are, but for `rest`."""
    _open: ClassVar[bool] = False
    _group: ClassVar[bool] = True
    """Whether it stands for the names that its subclasses begin with, and not for what their `complete` is given."""
    _behind: ClassVar[dict[type[Arguments], tuple[dict[str, _Place], bool]]] = {}
    """The names behind those of each base class that was asked for, and whether each has one place."""
    _places: ClassVar[dict[str, tuple[int, _Place]]] = {}
    """Each name's first place, and what is declared of it."""

    def __init_subclass__(cls, *, group: bool = False) -> None:
        at, cls._places = cls.WIDTH, dict(cls._places)
        for name in cls.__annotations__:
            kind = cls.__dict__.get(name) or _ONE
            count = 1 if kind.count is None else max(kind.count, 0)
            where = at if kind.count is None else slice(at, None if kind.count == _ALL else at + count)
            setattr(cls, name, property(itemgetter(where)))
            cls._places[name], cls._open = (at, kind), kind.count == _ALL
            at += count
        cls.WIDTH, cls._behind, cls._group = at, {}, group

    if not TYPE_CHECKING:

        def __new__(cls, **given):
            return tuple.__new__(cls, cls._flat(Arguments, given))

    @classmethod
    def make(cls: type[_Record], values: Iterable[Any]) -> _Record:
        """The record of values in order."""
        record = tuple.__new__(cls, values)
        if len(record) != cls.WIDTH and not (cls._open and len(record) > cls.WIDTH):
            raise TypeError(f"Bug: {cls.__name__} has {cls.WIDTH} values, and not {len(record)}")
        return record

    @classmethod
    def following(cls: type[_Record], base: Arguments, **added: Any) -> _Record:
        """The record whose first values are those of `base`, of a base class; `added`: those behind them by name."""
        return tuple.__new__(cls, (*base, *cls._flat(type(base), added)))

    @classmethod
    def _flat(cls, base: type[Arguments], given: dict[str, Any]) -> list[Any]:
        """The values behind those of a base class, in order."""
        found = cls._behind.get(base)
        if found is None:
            names = {name: kind for name, (_, kind) in cls._places.items() if name not in base._places}
            found = cls._behind[base] = names, all(kind.count is None for kind in names.values())
        names, single = found
        if names.keys() != given.keys():
            wrong = [f"{name} is missing" for name in names.keys() - given.keys()]
            wrong += [f"there is no {name}" for name in given.keys() - names.keys()]
            raise TypeError(f"Bug: {cls.__name__}: {', '.join(sorted(wrong))}")
        if single:
            return [given[name] for name in names]
        flat: list[Any] = []
        for name, kind in names.items():
            if kind.count is None:
                flat.append(given[name])
                continue
            some: Sequence[Any] = given[name]
            if kind.count == _ALL:
                flat += some
                continue
            if len(some) > kind.count or (kind.fill is None and len(some) < kind.count):
                raise TypeError(f"Bug: {cls.__name__}.{name} has {kind.count} values, and not {len(some)}")
            flat += [*some, *[kind.fill] * (kind.count - len(some))]
        return flat

    def named(self) -> dict[str, Any]:
        """The values by name, in order: of `each` and `rest`, tuples."""
        return {name: getattr(self, name) for name in self._places}

    @classmethod
    def base(cls) -> type[Arguments]:
        """The record that this one adds places to: what the planner gives, where `complete` makes this of it."""
        above = cls.__base__
        return above if above is not None and issubclass(above, Arguments) and not above._group else cls

    @classmethod
    def place(cls, name: str) -> int:
        """The place in the tuple at which a name begins."""
        return cls._places[name][0]

    @classmethod
    def has(cls, name: str) -> bool:
        """Whether the record has the name."""
        return name in cls._places

    @classmethod
    def results(cls) -> list[int]:
        """The places of buffers that the kernel writes."""
        places = cls._places.values()
        return [at + number for at, kind in places if kind.result for number in range(kind.count or 1)]

    @classmethod
    def names(cls) -> list[str]:
        """A name for each place but those of `rest`: those of several, with their number."""
        return [
            name if kind.count is None else f"{name}[{number}]"
            for name, (_, kind) in cls._places.items()
            for number in range(1 if kind.count is None else max(kind.count, 0))
        ]


def by_name(names: str, values: Iterable[Any]) -> dict[str, Any]:
    """Values by the names of a text: `**by_name("x_row x_pixel", x.strides[1:])` gives them to a record."""
    return dict(zip(names.split(), values, strict=True))


def record(name: str, base: type[Arguments] = Arguments, **places: Any) -> type[Arguments]:
    """A class of records whose numbers of places only a spec tells: `record("Buffers", inputs=each(3))`."""
    return type(name, (base,), {**places, "__annotations__": dict.fromkeys(places, "Any")})

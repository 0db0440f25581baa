"""The arguments of kernels by name: each spec declares those that its kernel takes, once, in this order.

    class GemmBuffers(Arguments):
        a: Buffer
        b: Buffer
        c: Buffer = result()

    class GemmSizes(Arguments):
        m: Size
        n: Size
        extents: Sizes = each(8, fill=1)
        task_rows: Size = computed()

The planner fills a record with tensors and dimensions, by name: what is left out or unknown is an error there, and one
that type checkers see. Sizes that are computed lie behind the others; a record has none of them until a spec's
`complete` adds them (`completed`). A spec's methods read the record of a program's integers, and a kernel that of its
pointers and values (`Code.buffers`, `Code.sizes`). A subclass has the places of its base in front: names that several
records begin with are declared once.

    class Planes(Arguments):
        images: Size
        channels: Size

    class PoolSizes(Planes):
        kernel: Size

A record is a tuple, flat, of all values. It stands in the place of `typing.NamedTuple`, whose classes cost a start 0.2
ms for 20 names, which is twenty times as much, since text is compiled for each, and which cannot be extended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias, TypeVar

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

    def __init__(
        self, count: int | None = None, fill: object = None, *, result: bool = False, computed: bool = False
    ) -> None:
        self.count, self.fill, self.result, self.computed = count, fill, result, computed


_ONE, _ALL = _Place(), -1


def result() -> Any:
    """Declares a buffer that the kernel writes."""
    return _Place(result=True)


def each(count: int, fill: object = None, *, result: bool = False) -> Any:
    """Declares `count` places under one name, a tuple; fewer values are followed by `fill` if that is given."""
    return _Place(count, fill, result=result)


def computed(count: int | None = None, *, init: Literal[False] = False) -> Any:
    """Declares a size that `complete` computes of those that are given, or `count` of them, a tuple."""
    return _Place(count, computed=True)


def rest(*, init: Literal[False] = False) -> Any:
    """Declares the last name as a tuple of all values that are left, however many, which `complete` computes."""
    return _Place(_ALL, computed=True)


_Names: TypeAlias = "tuple[dict[str, _Place], bool]"
"""Names, and whether each has one place."""
_Record = TypeVar("_Record", bound="Arguments")


@dataclass_transform(kw_only_default=True, field_specifiers=(result, each, computed, rest))
class Arguments(tuple[Any, ...]):
    """A tuple of arguments whose places have names."""

    WIDTH: ClassVar[int] = 0
    """How many values there are, but for `rest`."""
    GIVEN: ClassVar[int] = 0
    """How many of them are given: the first ones."""
    _open: ClassVar[bool] = False
    _places: ClassVar[dict[str, tuple[int, _Place]]] = {}
    """Each name's first place, and what is declared of it."""
    _given: ClassVar[_Names] = {}, True
    _computed: ClassVar[_Names] = {}, True

    def __init_subclass__(cls) -> None:
        at, cls._places = cls.WIDTH, dict(cls._places)
        for name in cls.__annotations__:
            kind = cls.__dict__.get(name) or _ONE
            count = 1 if kind.count is None else max(kind.count, 0)
            where = at if kind.count is None else slice(at, None if kind.count == _ALL else at + count)
            setattr(cls, name, property(itemgetter(where)))
            cls._places[name], cls._open = (at, kind), kind.count == _ALL
            at += count
            if not kind.computed:
                cls.GIVEN = at
        cls.WIDTH = at
        cls._given, cls._computed = (
            (names, all(kind.count is None for kind in names.values()))
            for names in (
                {name: kind for name, (_, kind) in cls._places.items() if kind.computed == wanted}
                for wanted in (False, True)
            )
        )

    if not TYPE_CHECKING:

        def __new__(cls, **given):
            return tuple.__new__(cls, cls._flat(cls._given, given))

    @classmethod
    def make(cls: type[_Record], values: Iterable[Any]) -> _Record:
        """The record of values in order: of those that are given, or of all."""
        record = tuple.__new__(cls, values)
        if len(record) not in (cls.GIVEN, cls.WIDTH) and not (cls._open and len(record) > cls.WIDTH):
            raise TypeError(f"Bug: {cls.__name__} has {cls.WIDTH} values, and not {len(record)}")
        return record

    @property
    def is_given(self) -> bool:
        """Whether it has the values that are given, and no computed ones."""
        return len(self) == self.GIVEN

    @classmethod
    def following(cls: type[_Record], given: Arguments, **computed: Any) -> _Record:
        """The record of the given values, and of the computed ones by name."""
        return tuple.__new__(cls, (*given, *cls._flat(cls._computed, computed)))

    @classmethod
    def _flat(cls, declared: _Names, given: dict[str, Any]) -> list[Any]:
        """The values of some names, in order."""
        names, single = declared
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
        """The values that it has by name, in order: of `each` and `rest`, tuples."""
        return {name: getattr(self, name) for name in (self._given[0] if self.is_given else self._places)}

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

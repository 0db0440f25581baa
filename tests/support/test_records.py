"""Data classes put off: once used they are what `dataclasses.dataclass` makes, and before that nobody sees."""

import copy
import dataclasses
import inspect
import pickle
import threading
import typing
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar

import pytest

from jitonnx.support import records


def _family(decorate: Any) -> tuple[type, ...]:
    """A base, two subclasses of different options, and a class that writes methods of its own."""

    @decorate(frozen=True)
    class Base:
        limit: ClassVar[int] = 3
        first: int

        def doubled(self) -> int:
            return 2 * self.first

    @decorate(frozen=True)
    class Derived(Base):
        """Documented."""

        names: tuple[str, ...] = ()
        seen: list[int] = field(default_factory=list, compare=False)

        def __post_init__(self) -> None:
            if self.first > self.limit:
                raise ValueError("too large")

    @decorate(eq=False)
    class Mutable:
        a: int
        b: list[int] = field(default_factory=list)

    @decorate
    class Own:
        a: int

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return True

    return Base, Derived, Mutable, Own


ORIGINAL, LATER = _family(dataclasses.dataclass), _family(records.dataclass)


def _use_often(cls: Any, *arguments: Any) -> None:
    """Have the methods of a class compiled."""
    for _ in range(records._FEW + 1):
        cls(*arguments)


@pytest.mark.parametrize("often", [False, True])
@pytest.mark.parametrize("number", range(4))
def test_same_as_data_classes(number: int, often: bool) -> None:
    original, later = ORIGINAL[number], _family(records.dataclass)[number]
    if often:
        _use_often(later, 2)
    a, b = original(2), later(2)
    assert repr(a) == repr(b)
    assert [f.name for f in dataclasses.fields(a)] == [f.name for f in dataclasses.fields(b)]
    assert (original(2) == a) is (later(2) == b) and (original(1) == a) is (later(1) == b)
    assert (original.__hash__ is None) is (later.__hash__ is None)
    assert dataclasses.replace(b, **{dataclasses.fields(b)[0].name: 1}) is not b
    assert original.__match_args__ == later.__match_args__  # type: ignore[attr-defined]
    assert (original.__doc__ is None) is (later.__doc__ is None) or later.__doc__ is None
    assert set(vars(original)) == set(vars(later))


@pytest.mark.parametrize("often", [False, True])
def test_frozen(often: bool) -> None:
    _, derived, _, _ = _family(records.dataclass)
    if often:
        _use_often(derived, 1)
    made = derived(1, ("x",))
    with pytest.raises(FrozenInstanceError, match="first"):
        made.first = 2
    with pytest.raises(FrozenInstanceError):
        del made.first
    assert hash(made) == hash(derived(1, ("x",))) and made.doubled() == 2 and made.seen == []
    with pytest.raises(ValueError, match="too large"):
        derived(9)
    with pytest.raises(TypeError):
        derived()


def test_put_off_until_used() -> None:
    base, derived, mutable, own = _family(records.dataclass)
    for cls in (base, derived, mutable, own):
        assert isinstance(cls.__dict__["__dataclass_fields__"], records._Pending)
    derived(1)
    assert not isinstance(base.__dict__["__dataclass_fields__"], records._Pending)  # a subclass needs its base
    assert isinstance(mutable.__dict__["__dataclass_fields__"], records._Pending)
    assert dataclasses.is_dataclass(mutable) and [f.name for f in dataclasses.fields(mutable)] == ["a", "b"]


@pytest.mark.parametrize("often", [False, True])
def test_arguments(often: bool) -> None:
    """Arguments are bound as Python does it, in the plain methods and in the compiled ones."""

    @records.dataclass
    class Options:
        name: str
        sizes: list[int] = field(default_factory=list)
        level: int = field(default=3, kw_only=True)
        notes: list[str] = field(default_factory=list, init=False)

    if often:
        _use_often(Options, "a")
    made = Options("a", level=4)
    assert list(vars(made).items()) == [("name", "a"), ("sizes", []), ("level", 4), ("notes", [])]
    assert Options(sizes=[1], name="a").sizes == [1] and Options("a").sizes is not Options("a").sizes
    assert made == Options("a", [], level=4) != Options("a") and made != "a"
    for arguments, named, wrong in (
        ((), {}, "name"),
        (("a", [], 4), {}, "positional"),
        (("a",), {"name": "b"}, "multiple values"),
        (("a",), {"length": 1}, "unexpected"),
        (("a",), {"notes": []}, "unexpected"),
    ):
        with pytest.raises(TypeError, match=wrong):
            Options(*arguments, **named)  # type: ignore[arg-type]
    assert Options("a").level == 3


@records.dataclass(frozen=True)
class Plain:
    """Found by pickle."""

    a: int
    b: str = "b"


def test_pickled_before_first_use() -> None:
    """Instances that come without `__init__` have all methods too."""
    data = pickle.dumps(Plain(1))

    @records.dataclass(frozen=True)
    class Other:
        a: int
        b: str = "b"

    one, two = Other.__new__(Other), Other.__new__(Other)
    for made in (one, two):
        made.__dict__.update(a=1, b="b")
    assert one == two and hash(one) == hash(two) and repr(one).endswith("Other(a=1, b='b')")
    assert pickle.loads(data) == Plain(1) == copy.copy(Plain(1))


def test_first_used_by_many_threads() -> None:
    for _ in range(20):
        _, derived, _, _ = _family(records.dataclass)
        start = threading.Barrier(8)
        made: list[object] = []

        def use(derived: Any = derived, start: threading.Barrier = start, made: list[object] = made) -> None:
            start.wait()
            made.append(derived(1, ("x",)))

        threads = [threading.Thread(target=use) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(made) == 8 and len(set(made)) == 1


class _Tree(records.NamedTuple):
    """A node."""

    name: str
    left: "_Tree | None" = None
    sizes: tuple[int, ...] = (1, 2)

    @property
    def depth(self) -> int:
        return 1 + (self.left.depth if self.left is not None else 0)


class _Plain(typing.NamedTuple):
    """A node."""

    name: str
    left: "_Plain | None" = None
    sizes: tuple[int, ...] = (1, 2)


class _Compiled(records.NamedTuple):
    """A node."""

    name: str
    left: "_Compiled | None" = None
    sizes: tuple[int, ...] = (1, 2)


_use_often(_Compiled, "a")


@pytest.mark.parametrize("kind", [_Tree, _Compiled, _Plain])
def test_named_tuples_are_those_of_typing(kind: Any) -> None:
    leaf = kind("leaf")
    tree = kind("top", left=leaf, sizes=())
    assert tree == ("top", ("leaf", None, (1, 2)), ()) and hash(tree) == hash(tuple(tree))
    assert (tree.name, tree.left, tree.sizes) == tuple(tree) and tree._asdict()["left"] is leaf
    assert kind._make(["a", None, ()]) == tree._replace(name="a", left=None)
    assert repr(leaf) == f"{kind.__name__}(name='leaf', left=None, sizes=(1, 2))"
    assert pickle.loads(pickle.dumps(tree)) == copy.deepcopy(tree) == tree
    assert type(pickle.loads(pickle.dumps(tree))) is type(copy.copy(tree)) is type(tree) is kind
    assert kind.__match_args__ == kind._fields == ("name", "left", "sizes")
    assert kind._field_defaults == {"left": None, "sizes": (1, 2)} and kind.__doc__ == "A node."
    assert kind is _Tree or list(inspect.signature(kind).parameters) == list(kind._fields)
    assert isinstance(tree, tuple) and not hasattr(tree, "__dict__")
    match tree:
        case kind(name, kind() as inner):
            assert (name, inner) == ("top", leaf)
    for given in ((), ("a", None, (), 1)):
        with pytest.raises(TypeError):
            kind(*given)
    with pytest.raises(TypeError):
        kind("a", right=1)
    with pytest.raises(TypeError, match="Expected 3"):
        kind._make("ab")
    with pytest.raises(ValueError, match="right"):
        tree._replace(right=1)
    with pytest.raises(AttributeError):
        tree.name = "b"


def test_named_tuples_have_fields_with_defaults_last() -> None:
    with pytest.raises(TypeError, match="fields"):

        class _Empty(records.NamedTuple):
            pass

    with pytest.raises(TypeError, match="defaults last"):

        class _Late(records.NamedTuple):
            name: str = ""
            size: int

    class _Derived(_Tree):
        """It has the fields of its base."""

        def __new__(cls, name: str) -> "_Derived":
            return super().__new__(cls, name, None, (3,))

    assert _Derived("a") == ("a", None, (3,)) and type(_Derived("a")) is _Derived
    assert _Tree("top", _Tree("leaf")).depth == 2

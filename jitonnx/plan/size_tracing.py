"""Integers that note what is done with them: a function of sizes, run once, becomes a list of operations.

A comparison tells which way the function goes on, and becomes a condition of the list: it holds for other sizes for
which all comparisons turn out alike. What a list cannot say (true division, looking something up by a size) raises
`Untraceable`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import NoReturn, TypeAlias

from jitonnx.runtime.arithmetic import Operation

Number: TypeAlias = "int | TracedSize"

EMPTY_SECTION = 4
"""How many operations a `Section` of none has."""
_LIMIT = 1 << 63
# Plain integers: members of an enumeration are slower to put in tuples, to compare and to make arrays of.
_ADD, _SUBTRACT, _MULTIPLY, _DIVIDE, _MODULO, _LARGER, _SMALLER, _BELOW, _AND, _OR = map(int, list(Operation)[:10])
_NEED_BELOW, _NEED_NOT_BELOW, _NEED_EQUAL, _NEED_DIFFERENT, _STORE = map(int, list(Operation)[10:15])

_FUNCTIONS: dict[int, Callable[[int, int], int]] = {
    _ADD: operator.add,
    _SUBTRACT: operator.sub,
    _MULTIPLY: operator.mul,
    _DIVIDE: operator.floordiv,
    _MODULO: operator.mod,
    _LARGER: max,
    _SMALLER: min,
    _BELOW: lambda a, b: int(a < b),
    _AND: operator.and_,
    _OR: operator.or_,
}


class Untraceable(Exception):
    """Something is done with a recorded integer that a list of operations cannot say."""


class Registers:
    """The registers of numbers: those given, room for what is worked out in a section, and constants."""

    def __init__(self, given: int, room: int) -> None:
        self.first, self.room = given, room
        """The room for a section begins there, and takes so many numbers."""
        self.constants: dict[int, int] = {}

    def constant(self, value: int) -> int:
        """The register of a constant."""
        return self.constants.setdefault(value, self.first + self.room + len(self.constants))


class SizeTrace:
    """The operations of a section. Conditions have no target yet."""

    def __init__(self, registers: Registers) -> None:
        self._registers = registers
        self.operations: list[tuple[int, int, int, int]] = []
        self._known: dict[tuple[int, int, int], Number] = {}
        self._count = 0

    def given(self, register: int, value: int) -> TracedSize:
        """A number that lies in a register."""
        return TracedSize(self, register, value)

    def register(self, number: Number) -> int:
        """The register of a number."""
        if number.__class__ is TracedSize:
            return number.register
        place = self._registers.constants.get(number)  # type: ignore[arg-type]
        if place is not None:
            return place
        if not isinstance(number, int):
            raise Untraceable(f"a {type(number).__name__} is no integer")
        if not -_LIMIT <= number < _LIMIT:
            raise Untraceable("a number beyond 64 bits")
        return self._registers.constant(number)

    def apply(self, operation: int, a: Number, b: Number) -> Number:
        """The result of an operation, at least one of whose operands is recorded."""
        if a.__class__ is not TracedSize or b.__class__ is not TracedSize:
            plain = _simplified(operation, a, b)
            if plain is not None:
                return plain
        first, second = self.register(a), self.register(b)
        key = (operation, first, second)
        found = self._known.get(key)
        if found is None:
            value = _FUNCTIONS[operation](_value(a), _value(b))
            if not -_LIMIT <= value < _LIMIT or self._count == self._registers.room:
                raise Untraceable("numbers beyond 64 bits, or too many")
            place = self._registers.first + self._count
            found = self._known[key] = TracedSize(self, place, value)
            self._count += 1
            self.operations.append((operation, place, first, second))
        return found

    def need(self, operation: int, a: Number, b: Number) -> None:
        """Note a condition that holds."""
        key = (operation, self.register(a), self.register(b))
        if key not in self._known:
            self._known[key] = 1
            self.operations.append((operation, 0, *key[1:]))

    def store(self, target: int, number: Number) -> None:
        """Note that a number is a result."""
        self.operations.append((_STORE, target, self.register(number), 0))

    def move(self, target: int, number: Number) -> None:
        """Note that a number is put in a register."""
        self.operations.append((_ADD, target, self.register(number), self._registers.constant(0)))


def _value(number: Number) -> int:
    return number.value if number.__class__ is TracedSize else number  # type: ignore[return-value]


def _simplified(operation: int, a: Number, b: Number) -> Number | None:
    """What needs no operation; one of the operands is a plain integer."""
    if a.__class__ is TracedSize:
        if b == 0 and operation in (_ADD, _SUBTRACT):
            return a
        if b == 1 and operation in (_MULTIPLY, _DIVIDE, _MODULO):
            return 0 if operation == _MODULO else a
        return 0 if b == 0 and operation == _MULTIPLY else None
    if a == 0 and operation == _ADD:
        return b
    if operation == _MULTIPLY and (a == 0 or a == 1):
        return b if a else 0
    return None


def _traced(operation: int, *, turned: bool = False) -> Callable[[TracedSize, Number], Number]:
    if turned:
        return lambda b, a: b.recording.apply(operation, a, b)
    return lambda a, b: a.recording.apply(operation, a, b)


class TracedSize:
    """An integer, of which a recording notes what is done with it."""

    __slots__ = ("recording", "register", "value")

    def __init__(self, recording: SizeTrace, register: int, value: int) -> None:
        self.recording, self.register, self.value = recording, register, value

    __add__ = __radd__ = _traced(_ADD)
    __sub__, __rsub__ = _traced(_SUBTRACT), _traced(_SUBTRACT, turned=True)
    __mul__ = __rmul__ = _traced(_MULTIPLY)
    __floordiv__, __rfloordiv__ = _traced(_DIVIDE), _traced(_DIVIDE, turned=True)
    __mod__, __rmod__ = _traced(_MODULO), _traced(_MODULO, turned=True)
    __and__ = __rand__ = _traced(_AND)
    __or__ = __ror__ = _traced(_OR)
    larger, smaller, below = _traced(_LARGER), _traced(_SMALLER), _traced(_BELOW)
    """See `kernels.parts.sizes`."""

    def __divmod__(self, other: Number) -> tuple[Number, Number]:
        return self // other, self % other

    def __neg__(self) -> Number:
        return 0 - self

    def __pos__(self) -> Number:
        return self

    def __abs__(self) -> Number:
        return -self if self < 0 else self

    def _compared(self, a: Number, b: Number, *, if_below: bool) -> bool:
        """Whether a < b, or where not `if_below` whether a >= b."""
        holds = _value(a) < _value(b)
        self.recording.need(_NEED_BELOW if holds else _NEED_NOT_BELOW, a, b)
        return holds == if_below

    def __lt__(self, other: Number) -> bool:
        return self._compared(self, other, if_below=True)

    def __ge__(self, other: Number) -> bool:
        return self._compared(self, other, if_below=False)

    def __gt__(self, other: Number) -> bool:
        return self._compared(other, self, if_below=True)

    def __le__(self, other: Number) -> bool:
        return self._compared(other, self, if_below=False)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, int | TracedSize):
            return NotImplemented
        if other is self:
            return True
        same = self.value == _value(other)
        self.recording.need(_NEED_EQUAL if same else _NEED_DIFFERENT, self, other)
        return same

    def __ne__(self, other: object) -> bool:
        same = self.__eq__(other)
        return same if same is NotImplemented else not same

    def __bool__(self) -> bool:
        return self != 0

    def __index__(self) -> int:
        """The integer itself, for what it is the number of: a condition from then on."""
        self.recording.need(_NEED_EQUAL, self, self.value)
        return self.value

    def _refused(self, *_: object) -> NoReturn:
        raise Untraceable("an operation that is not known")

    __hash__ = __truediv__ = __rtruediv__ = __float__ = __int__ = _refused


def _written(operation: int, *, turned: bool = False) -> Callable[[Written, int | Written], Written]:
    if turned:
        return lambda b, a: b.section.apply(operation, a, b)
    return lambda a, b: a.section.apply(operation, a, b)


class Written:
    """An integer that is not known yet: what is done with it is written down, in registers from `first` on.

    Expressions over the dimension variables do no more than this.
    """

    __slots__ = ("register", "section")

    def __init__(self, section: Section, register: int) -> None:
        self.section, self.register = section, register

    __add__ = __radd__ = _written(_ADD)
    __mul__ = __rmul__ = _written(_MULTIPLY)
    __floordiv__, __rfloordiv__ = _written(_DIVIDE), _written(_DIVIDE, turned=True)
    larger = _written(_LARGER)
    """See `kernels.parts.sizes`."""


class Section:
    """Operations on registers that are written for numbers which are not known yet."""

    def __init__(self, registers: Registers) -> None:
        self._registers, self._count = registers, 0
        self._operations: list[tuple[int, int, int, int]] = []

    def apply(self, operation: int, a: int | Written, b: int | Written) -> Written:
        """The result of an operation. Untraceable if there is no room for it."""
        if self._count == self._registers.room:
            raise Untraceable("too many numbers")
        place = self._registers.first + self._count
        self._operations.append((operation, place, self._register(a), self._register(b)))
        self._count += 1
        return Written(self, place)

    def need_equal(self, a: int | Written, b: int | Written) -> None:
        """Note that two numbers have to be equal."""
        self._operations.append((_NEED_EQUAL, 0, self._register(a), self._register(b)))

    def put(self, register: int, number: int | Written) -> None:
        """Put a number in a register."""
        self._operations.append((_ADD, register, self._register(number), self._registers.constant(0)))

    def operations(self) -> list[tuple[int, int, int, int]]:
        """All of them, for `runtime.arithmetic.perform`, which misses something where a number is not as needed."""
        handler, end = len(self._operations) + 2, (int(Operation.END), 0, 0, 0)
        begin, miss = (int(Operation.HANDLER), handler, 0, 0), (int(Operation.MISS), 0, 0, 0)
        return [begin, *self._operations, end, miss, end]

    def _register(self, number: int | Written) -> int:
        return number.register if isinstance(number, Written) else self._registers.constant(number)

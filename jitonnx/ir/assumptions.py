"""What inference takes for granted about sizes that only a run tells: pairs of dimensions that are equal.

An operator either has no meaning for other sizes (`demand_equal`: the inner sizes of a matrix product), or it does
something else for them (`assume_equal`: broadcasting, where one of the sizes is 1). Both are noted with the graph.
Feeds that break a demand are an error, and feeds that break another assumption need a graph inferred for sizes like
theirs: `Assumptions.examples` are such sizes, and questions are answered as they are for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from math import gcd
from typing import TypeAlias

from jitonnx.ir.dims import (
    Atom,
    Dim,
    DimLike,
    Taken,
    atoms,
    evaluate,
    floor_divide,
    maximum,
    minimum,
    rebuilt,
    substitute,
    taking,
    variable,
    variables,
)

Pair: TypeAlias = tuple[DimLike, DimLike]


class Assumptions:
    """Pairs of dimensions that are taken to be equal, in the order in which they were noted.

    examples: values of the dimension variables for which what is assumed has to hold; without them the usual case is.
    """

    def __init__(self, examples: Mapping[str, int] | None = None) -> None:
        self.examples = examples
        self.settled: dict[DimLike, DimLike] = {}
        """Expressions that equal a number, and that number: inference puts it in their place."""
        self.taken: Taken | None = None
        """What quotients and maxima are taken for: expressions that they equal, in whose place these are built."""
        self._demanded_by: dict[Pair, str] = {}

    def __iter__(self) -> Iterator[Pair]:
        return iter(self._demanded_by)

    def __len__(self) -> int:
        return len(self._demanded_by)

    def __contains__(self, pair: object) -> bool:
        return pair in self._demanded_by

    def __repr__(self) -> str:
        return f"Assumptions({', '.join(f'{a} = {b}' for a, b in self)})"

    def demanded_by(self, pair: Pair) -> str:
        """The node that has no meaning unless the two are equal; "" where other sizes mean something, too."""
        return self._demanded_by.get(pair, "")

    def note(self, a: DimLike, b: DimLike, demanded_by: str = "") -> None:
        """Take two dimensions to be equal."""
        if not self._demanded_by.get((a, b)):
            self._demanded_by[a, b] = demanded_by

    @property
    def certain(self) -> bool:
        """Whether all that is noted is demanded, so that what was inferred holds for all sizes that can be fed."""
        return all(self._demanded_by.values())

    def apart(self) -> Assumptions:
        """Assumptions of their own, without a note, that answer as these do."""
        other = Assumptions(self.examples)
        other.settled, other.taken = self.settled, self.taken
        return other

    def hold(self, a: DimLike, b: DimLike) -> bool:
        """Whether two dimensions that are not known to differ are equal for the examples, if there are any."""
        if self.examples is None or not variables(a) | variables(b) <= self.examples.keys():
            return True
        return holds((a, b), self.examples)


def holds(pair: Pair, sizes: Mapping[str, int]) -> bool:
    """Whether the two are equal for values of the dimension variables; not where one of them divides by 0."""
    try:
        return evaluate(pair[0], sizes) == evaluate(pair[1], sizes)
    except ZeroDivisionError:
        return False


_Noting: TypeAlias = "tuple[Assumptions, Callable[[], str]]"
_current: ContextVar[_Noting | None] = ContextVar("assumptions", default=None)


def _nobody() -> str:
    return ""


@contextmanager
def noting(assumptions: Assumptions, node: Callable[[], str] = _nobody) -> Iterator[None]:
    """Within the block, what is assumed is noted. node: describes the one that is being inferred."""
    token = _current.set((assumptions, node))
    try:
        with taking(assumptions.taken):
            yield
    finally:
        _current.reset(token)


def current_apart() -> Assumptions:
    """Assumptions that answer as those do that are being noted."""
    current = _current.get()
    return Assumptions() if current is None else current[0].apart()


def assume_equal(a: DimLike, b: DimLike) -> bool:
    """Take two dimensions to be equal where that is not certain. False: they differ, and another way is taken."""
    return _decide(a, b, demanded=False)


def demand_equal(a: DimLike, b: DimLike) -> bool:
    """As `assume_equal`, for an operator that has no meaning for other sizes: False calls for an InferenceError."""
    return _decide(a, b, demanded=True)


def demand_divisible(size: DimLike, divisor: DimLike) -> bool:
    """As `demand_equal`: of a size that has to be a multiple of another."""
    if isinstance(size, int) and isinstance(divisor, int):
        return divisor != 0 and size % divisor == 0
    return demand_equal(floor_divide(size, divisor) * divisor, size)


def demand_some(size: DimLike) -> bool:
    """As `demand_equal`: of an axis that has to have elements."""
    return demand_equal(maximum(size, 1), size)


def demand_not_negative(size: DimLike) -> bool:
    """As `demand_equal`: of a size that a difference gives."""
    return demand_equal(maximum(size, 0), size)


def shown_equal(a: DimLike, b: DimLike) -> bool:
    """Whether the examples show two dimensions to be equal, which is noted then.

    For what is unusual: that they are not is no assumption of its own but follows from others.
    """
    current = _current.get()
    return current is not None and current[0].examples is not None and assume_equal(a, b)


def decide_order(a: DimLike, b: DimLike, equal_only: bool = False) -> int | None:
    """Which of two sizes is larger where that is not certain: -1, 0 or 1 as a < b, a = b or a > b; it is assumed so.

    equal_only: it does not matter which is larger, only whether they are equal. None without examples, of which there
    is no usual case here, and where inputs alone do not tell.
    """
    current = _current.get()
    names = variables(a) | variables(b)
    examples = None if current is None else current[0].examples
    if examples is None or not names <= examples.keys():
        return None
    order = (evaluate(a, examples) > evaluate(b, examples)) - (evaluate(a, examples) < evaluate(b, examples))
    if order == 0:
        return 0 if assume_equal(a, b) else None
    if equal_only:
        return order if assume_equal(minimum((a - b) * (a - b), 1), 1) else None
    larger, smaller = (a, b) if order > 0 else (b, a)
    return order if assume_equal(maximum(larger, smaller + 1), larger) else None


def told_by_run(name: str) -> bool:
    """Whether a variable stands for what only a run can tell: those of inputs are identifiers."""
    return not name.isidentifier()


def is_one(dim: DimLike) -> bool:
    """Whether a size is 1. One that is not certain to be is taken not to be, unless the examples say so."""
    if isinstance(dim, int):
        return dim == 1
    # A size that differs from 1 is either 0 or at least 2.
    return not assume_equal(minimum(dim, maximum(2 - dim, 0)), 0) and assume_equal(dim, 1)


def _decide(a: DimLike, b: DimLike, demanded: bool) -> bool:
    difference = a - b
    if isinstance(difference, int):
        return difference == 0
    if _never_zero(difference):
        return False
    current = _current.get()
    if current is None:
        return True
    assumptions, node = current
    if not assumptions.hold(a, b):
        return False
    assumptions.note(a, b, node() if demanded else "")
    return True


def _never_zero(dim: Dim) -> bool:
    """Whether a number divides all terms but the constant one, so that no integers make the sum 0."""
    divisor = gcd(*(coefficient for monomial, coefficient in dim.terms if monomial))
    return any(coefficient % divisor for monomial, coefficient in dim.terms if not monomial)


# ---------------------------------------------------------------- what follows


def solve(assumptions: Iterable[Pair], order: Iterable[str]) -> tuple[dict[str, DimLike], list[Pair]]:
    """Variables that equal a number or another variable under the assumptions, with what they equal; and those used.

    order: names of the variables; of two that are equal the one that comes later is the one that is solved for.
    """
    places = {name: place for place, name in enumerate(order)}
    values: dict[str, DimLike] = {}
    used = []
    for a, b in assumptions:
        if not variables(a) | variables(b) <= places.keys():  # only a run tells
            continue
        difference = substitute(a, values) - substitute(b, values)
        found = _solution(difference, places) if isinstance(difference, Dim) else None
        if found is not None:
            name, size = found
            values = {other: substitute(value, {name: size}) for other, value in values.items()}
            values[name] = size
            used.append((a, b))
    return values, used


def _solution(difference: Dim, places: Mapping[str, int]) -> tuple[str, DimLike] | None:
    """The variable that must have a certain value for `difference` to be 0, and that value: a number or a variable."""
    names = sorted(variables(difference), key=lambda name: places.get(name, -1))
    last = variable(names[-1])
    coefficient = next((c for monomial, c in difference.terms if Dim(((monomial, 1),)) == last), 0)
    rest = difference - coefficient * last
    if not coefficient or names[-1] not in places or names[-1] in variables(rest):
        return None
    if isinstance(rest, int):
        size = -rest // coefficient
        return (names[-1], size) if size * coefficient == -rest and size >= 0 else None
    other = variable(names[0])
    return (names[-1], other) if len(names) == 2 and rest == -coefficient * other else None


def replacements(assumptions: Iterable[Pair], names: Collection[str]) -> Taken | None:
    """What the assumptions say that quotients and maxima equal, which has none of these in it; None: they say nothing.

    So a feature map and a deeper one, enlarged to its size, have one size and lie in memory alike. names: of the
    variables that the inputs tell.
    """
    expressions: dict[Atom, DimLike] = {}
    for a, b in assumptions:
        if not variables(a) | variables(b) <= set(names):
            continue
        with taking(Taken(expressions)):
            difference = rebuilt(a) - rebuilt(b)
        found = _replacement(difference) if isinstance(difference, Dim) else None
        if found is not None:
            expressions = {**expressions, found[0]: found[1]}
            with taking(Taken(expressions)):
                expressions = {atom: rebuilt(dim) for atom, dim in expressions.items()}
    return Taken(expressions) if expressions else None


def _replacement(difference: Dim) -> tuple[Atom, DimLike] | None:
    """An atom, and what it must equal for `difference` to be 0: the last in the order of atoms that occurs but once."""
    for monomial, coefficient in reversed(difference.terms):
        if len(monomial) == 1 and abs(coefficient) == 1 and monomial[0].function != "variable":
            atom = monomial[0]
            rest = difference - coefficient * Dim(((monomial, 1),))
            if atom not in atoms([rest]):
                return atom, rest * -coefficient
    return None

"""What inference takes for granted about sizes that only a run tells: pairs of dimensions that are equal.

Operators ask for them through `jitonnx.ir.inference`. Feeds that break a demand are an error, and feeds that break
another assumption need a graph inferred for sizes like theirs: `Assumptions.examples` are such sizes, and questions are
answered as they are for them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from jitonnx.ir.dims import (
    Atom,
    Dim,
    DimLike,
    Taken,
    atoms,
    evaluate,
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
    demands_only: nothing but demands may be taken for granted, so that the graph is one for all sizes. What else would
    have to be assumed is left to the run.
    untold: names of values whose elements are no sizes, and so never become variables, nor do those of values that
    they are moved to: a run showed negative ones.
    ranks: by name, those of values of which nothing but a run tells the rank, as one showed them.
    """

    def __init__(
        self,
        examples: Mapping[str, int] | None = None,
        *,
        demands_only: bool = False,
        untold: frozenset[str] = frozenset(),
        ranks: Mapping[str, int] | None = None,
    ) -> None:
        self.examples, self.demands_only, self.untold, self.ranks = examples, demands_only, untold, ranks or {}
        self.substitutions: dict[DimLike, DimLike] = {}
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

    def rename(self, name: str, new: str) -> None:
        """A value is called otherwise from now on: its rank is known by that name, too."""
        if name in self.ranks:
            self.ranks = {**self.ranks, new: self.ranks[name]}

    @property
    def certain(self) -> bool:
        """Whether all that is noted is demanded, so that what was inferred holds for all sizes that can be fed."""
        return all(self._demanded_by.values())

    def apart(self) -> Assumptions:
        """Assumptions of their own, without a note, that answer as these do."""
        other = Assumptions(self.examples, demands_only=self.demands_only, untold=self.untold, ranks=self.ranks)
        other.substitutions, other.taken = self.substitutions, self.taken
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


def told_by_run(name: str) -> bool:
    """Whether a variable stands for what only a run can tell: those of inputs are identifiers."""
    return not name.isidentifier()


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


def contradictory(assumptions: Iterable[Pair], values: Mapping[str, DimLike]) -> bool:
    """Whether one of the pairs cannot be equal where variables have these values, which others of them demand."""
    differences = (substitute(a, values) - substitute(b, values) for a, b in assumptions)
    return any(isinstance(difference, int) and difference != 0 for difference in differences)


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

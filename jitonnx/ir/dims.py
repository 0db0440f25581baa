"""Dimensions: integers, or integer expressions over a model's dimension variables.

A dimension is an `int` wherever it is known, else a `Dim`: a polynomial over variables and over quotients, remainders,
maxima and minima that do not simplify. Equal expressions are equal objects in the sense of `==` and hash, whatever way
they were built, so `batch * seq * 384 // 384 == seq * batch`.

    batch, seq = variable("batch"), variable("seq")
    size = batch * seq * 12
    evaluate(size, {"batch": 2, "seq": 64})     # 1536
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal, TypeAlias, Union

DimLike: TypeAlias = Union[int, "Dim"]
_Monomial: TypeAlias = "tuple[_Atom, ...]"  # sorted; a power repeats its atom


class _Atom:
    """A variable, or a call of floordiv, mod, max or min whose arguments did not simplify."""

    __slots__ = ("_hash", "arguments", "function", "text")

    def __init__(self, function: str, arguments: tuple[DimLike | str, ...]) -> None:
        self.function, self.arguments = function, arguments
        self._hash = hash((function, arguments))
        if function == "variable":
            self.text = str(arguments[0])
        elif function in ("//", "%"):
            self.text = f"({arguments[0]}){function}({arguments[1]})"
        else:
            self.text = f"{function}({', '.join(map(str, arguments))})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Atom) and (self.function, self.arguments) == (other.function, other.arguments)

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: _Atom) -> bool:
        return self.text < other.text


class Dim:
    """An integer expression that is not a plain integer: a sum of integer multiples of monomials."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: tuple[tuple[_Monomial, int], ...]) -> None:
        self.terms = terms
        self._hash = hash(terms)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dim) and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: DimLike) -> DimLike:
        if not isinstance(other, int | Dim):
            return NotImplemented
        total = dict(self.terms)
        for monomial, coefficient in _terms(other):
            total[monomial] = total.get(monomial, 0) + coefficient
        return _from_terms(total)

    def __mul__(self, other: DimLike) -> DimLike:
        if not isinstance(other, int | Dim):
            return NotImplemented
        total: dict[_Monomial, int] = {}
        for left, a in self.terms:
            for right, b in _terms(other):
                monomial = tuple(sorted(left + right))
                total[monomial] = total.get(monomial, 0) + a * b
        return _from_terms(total)

    __radd__ = __add__
    __rmul__ = __mul__

    def __neg__(self) -> DimLike:
        return self * -1

    def __sub__(self, other: DimLike) -> DimLike:
        return self + -1 * other if isinstance(other, int | Dim) else NotImplemented

    def __rsub__(self, other: DimLike) -> DimLike:
        return -1 * self + other

    def __floordiv__(self, other: DimLike) -> DimLike:
        return floor_divide(self, other)

    def __rfloordiv__(self, other: DimLike) -> DimLike:
        return floor_divide(other, self)

    def __mod__(self, other: DimLike) -> DimLike:
        return modulo(self, other)

    def __rmod__(self, other: DimLike) -> DimLike:
        return modulo(other, self)

    def __str__(self) -> str:
        parts = []
        for monomial, coefficient in self.terms:
            factors = [str(coefficient)] if coefficient != 1 or not monomial else []
            parts.append("*".join(factors + [atom.text for atom in monomial]))
        return " + ".join(parts).replace("+ -", "- ")

    def __repr__(self) -> str:
        return f"Dim({self})"


def variable(name: str) -> Dim:
    """The dimension variable `name` (ONNX's dim_param)."""
    return Dim((((_Atom("variable", (name,)),), 1),))


def maximum(a: DimLike, b: DimLike) -> DimLike:
    """The larger of two dimensions."""
    return _extremum("max", a, b)


def minimum(a: DimLike, b: DimLike) -> DimLike:
    """The smaller of two dimensions."""
    return _extremum("min", a, b)


def floor_divide(a: DimLike, b: DimLike) -> DimLike:
    """a // b, exact where b divides every term of a. ZeroDivisionError for a constant 0."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if a == b:
        return 1
    exact = _divide_terms(a, b)
    return exact if exact is not None else _atom("//", (a, b))


def modulo(a: DimLike, b: DimLike) -> DimLike:
    """a % b."""
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    return 0 if _divide_terms(a, b) is not None else _atom("%", (a, b))


def ceil_divide(a: DimLike, b: DimLike) -> DimLike:
    """a / b rounded up."""
    return -(-a // b)


def exact_divide(a: DimLike, b: DimLike) -> DimLike | None:
    """a / b where b divides a for all values of the variables, else None."""
    if b == 0:
        return None
    quotient = floor_divide(a, b)
    return quotient if quotient * b == a else None


def product(dims: Iterable[DimLike]) -> DimLike:
    """The product of dimensions; 1 of none."""
    return math.prod(dims)  # type: ignore[arg-type]


def known(dims: Iterable[DimLike]) -> bool:
    """Whether all are plain integers."""
    return all(isinstance(dim, int) for dim in dims)


def matched_axes(before: Sequence[DimLike], behind: Sequence[DimLike]) -> list[tuple[list[int], list[int]]] | None:
    """The axes of two shapes of equally many elements in the smallest groups of equal sizes, in order.

    None where sizes are not comparable.
    """
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(before) or j < len(behind):
        start, other = i, j
        size: DimLike = 1
        size_behind: DimLike = 1
        while (i, j) == (start, other) or size != size_behind:
            step = _next_axis(size, size_behind, before[i:], behind[j:])
            if step is None:
                return None
            if step == "before":
                size, i = size * before[i], i + 1
            else:
                size_behind, j = size_behind * behind[j], j + 1
        groups.append((list(range(start, i)), list(range(other, j))))
    return groups


def _next_axis(
    size: DimLike, size_behind: DimLike, before: Sequence[DimLike], behind: Sequence[DimLike]
) -> Literal["before", "behind"] | None:
    """Which side of a group takes its next axis: the smaller one; None where that is not known, or none is left."""
    if size == size_behind:  # a group begins
        shorter = bool(before)
    elif isinstance(size, int) and isinstance(size_behind, int):
        shorter = size < size_behind
    elif exact_divide(size_behind, size) is not None:
        shorter = True
    elif exact_divide(size, size_behind) is not None:
        shorter = False
    else:
        return None
    if not (before if shorter else behind):
        return None
    return "before" if shorter else "behind"


def concrete(dim: DimLike) -> int | None:
    """A dimension that is a plain integer; None for an expression."""
    return dim if isinstance(dim, int) else None


def integers(dims: Iterable[DimLike]) -> tuple[int, ...]:
    """Dimensions that are all known, as plain integers. TypeError names one that is not."""
    result = []
    for dim in dims:
        if not isinstance(dim, int):
            raise TypeError(f"Bug: the size {dim} is not known before the run")
        result.append(dim)
    return tuple(result)


def variables(dim: DimLike) -> set[str]:
    """Names of the variables that occur in `dim`."""
    if isinstance(dim, int):
        return set()
    found: set[str] = set()
    for monomial, _ in dim.terms:
        for atom in monomial:
            if atom.function == "variable":
                found.add(str(atom.arguments[0]))
            else:
                for argument in atom.arguments:
                    found |= variables(argument)  # type: ignore[arg-type]
    return found


def evaluate(dim: DimLike, values: Mapping[str, int]) -> int:
    """`dim` for values of its variables. KeyError names a variable without a value."""
    if isinstance(dim, int):
        return dim
    total = 0
    for monomial, coefficient in dim.terms:
        for atom in monomial:
            coefficient *= _evaluate_atom(atom, values)
        total += coefficient
    return total


def substitute(dim: DimLike, values: Mapping[str, DimLike]) -> DimLike:
    """`dim` with some variables replaced by other dimensions."""
    if isinstance(dim, int):
        return dim
    total: DimLike = 0
    for monomial, coefficient in dim.terms:
        term: DimLike = coefficient
        for atom in monomial:
            if atom.function == "variable":
                factor: DimLike = values.get(str(atom.arguments[0]), _from_terms({(atom,): 1}))
            else:
                left, right = (substitute(argument, values) for argument in atom.arguments)  # type: ignore[arg-type]
                factor = _FUNCTIONS[atom.function](left, right)
            term = term * factor
        total = total + term
    return total


def python_source(dim: DimLike) -> str:
    """`dim` as a Python expression over its variables' names (dimension variables must be identifiers)."""
    if isinstance(dim, int):
        return repr(dim)
    parts = []
    for monomial, coefficient in dim.terms:
        factors = [repr(coefficient)]
        for atom in monomial:
            if atom.function == "variable":
                factors.append(str(atom.arguments[0]))
            else:
                left, right = (python_source(argument) for argument in atom.arguments)  # type: ignore[arg-type]
                factors.append(
                    f"(({left}){atom.function}({right}))"
                    if atom.function in ("//", "%")
                    else f"{atom.function}({left}, {right})"
                )
        parts.append("*".join(factors))
    return "(" + " + ".join(parts) + ")"


def _terms(dim: DimLike) -> tuple[tuple[_Monomial, int], ...]:
    return dim.terms if isinstance(dim, Dim) else ((((), int(dim)),) if dim else ())


def _from_terms(terms: Mapping[_Monomial, int]) -> DimLike:
    left = tuple(
        sorted(((m, c) for m, c in terms.items() if c), key=lambda term: ([atom.text for atom in term[0]], term[1]))
    )
    if not left:
        return 0
    if len(left) == 1 and not left[0][0]:
        return left[0][1]
    return Dim(left)


def _atom(function: str, arguments: tuple[DimLike, ...]) -> Dim:
    return Dim((((_Atom(function, arguments),), 1),))


def _extremum(name: str, a: DimLike, b: DimLike) -> DimLike:
    difference = a - b
    if isinstance(difference, int):  # also where both are the same expression
        return a if (difference >= 0) == (name == "max") else b
    return _atom(name, tuple(sorted((a, b), key=str)))


def _divide_terms(a: DimLike, b: DimLike) -> DimLike | None:
    """a / b where b is one term that divides every term of a, else None."""
    divisor = _terms(b)
    if len(divisor) != 1:
        return None
    (atoms, coefficient), quotient = divisor[0], {}
    for monomial, value in _terms(a):
        rest = list(monomial)
        for atom in atoms:
            if atom not in rest:
                return None
            rest.remove(atom)
        if value % coefficient:
            return None
        quotient[tuple(rest)] = value // coefficient
    return _from_terms(quotient)


def _evaluate_atom(atom: _Atom, values: Mapping[str, int]) -> int:
    if atom.function == "variable":
        return values[str(atom.arguments[0])]
    left, right = (evaluate(argument, values) for argument in atom.arguments)  # type: ignore[arg-type]
    return int(_FUNCTIONS[atom.function](left, right))  # type: ignore[arg-type]


_FUNCTIONS: dict[str, Callable[[DimLike, DimLike], DimLike]] = {
    "//": floor_divide,
    "%": modulo,
    "max": maximum,
    "min": minimum,
}

"""Dimensions: integers, or integer expressions over a model's dimension variables.

A dimension is an `int` wherever it is known, else a `Dim`: a polynomial over variables and over what does not simplify,
quotients rounded down and maxima with 0. Variables are sizes of inputs, so they are not negative.

Expressions are kept in a normal form, so that sizes which exporters write in several ways are equal objects in the
sense of `==` and hash:

    batch, seq = variable("batch"), variable("seq")
    batch * seq * 384 // 384 == seq * batch
    (8 * seq - 24) // (seq - 3) == 8                         # polynomials are divided
    -(-seq // 2) == (seq + 1) // 2                           # quotients of one sign, remainders reduced
    ((seq + 1) // 2 + 1) // 2 == (seq + 3) // 4              # one quotient for several
    minimum(seq, 3) + maximum(seq - 3, 0) == seq             # all extrema are maxima with 0
    evaluate(batch * seq * 12, {"batch": 2, "seq": 64})      # 1536

Where this needs to know a sign, `jitonnx.ir.bounds` proves it.
"""

from __future__ import annotations

import math
from binascii import crc32
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Literal, TypeAlias, Union

from jitonnx.ir.errors import InferenceError

DimLike: TypeAlias = Union[int, "Dim"]
Monomial: TypeAlias = "tuple[Atom, ...]"  # sorted; a power repeats its atom
_Terms: TypeAlias = "dict[Monomial, int]"

_KINDS = {"variable": 0, "//": 1, "max": 2}
"""The order of atoms."""

_TEXT = 240
"""Characters of an atom's text."""

MOST_TERMS, _MOST_FACTORS, _MOST_NESTED = 256, 64, 256
"""Terms of an expression, factors of a term, and quotients and maxima within one another. Models have a tenth of
that; one that squares a size again and again would take all time and memory."""

_MOST_TIMES = 1 << 48
"""How many times a variable a size can be: more bytes than any machine addresses. What a model multiplies beyond that
is no size but numbers, a hash, whose products wrap round."""

_REMEMBERED = 1 << 14
"""How many quotients and maxima are kept: layers of a model have the same."""


class UnwieldyError(InferenceError):
    """An expression that is too large to work with."""


class Atom:
    """A variable; or a quotient, `//`, or a maximum with 0, `max`, that did not simplify."""

    __slots__ = ("_hash", "arguments", "function", "nested", "place", "text")

    def __init__(self, function: str, arguments: tuple[DimLike | str, ...]) -> None:
        self.function, self.arguments = function, arguments
        self._hash = hash((function, arguments))
        self.nested = 0
        if function == "variable":
            self.text = str(arguments[0])
            self.place = (0, self.text)
            return
        parts = (atom for argument in arguments if isinstance(argument, Dim) for m, _ in argument.terms for atom in m)
        self.nested = 1 + max((atom.nested for atom in parts), default=0)
        if self.nested > _MOST_NESTED:
            raise UnwieldyError(f"a size is made of more than {_MOST_NESTED} divisions and maxima within one another")
        if function == "//":
            self.text = _shortened("//".join(_in_brackets(argument) for argument in arguments))
        else:
            self.text = _shortened(f"max({', '.join(map(str, arguments))})")
        self.place = (_KINDS[function], self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Atom) and (self.function, self.arguments) == (other.function, other.arguments)

    def __hash__(self) -> int:
        return self._hash

    def __lt__(self, other: Atom) -> bool:
        return self.place < other.place

    def __repr__(self) -> str:
        return f"Atom({self.text})"


class Dim:
    """An integer expression that is not a plain integer: a sum of integer multiples of monomials, the largest first."""

    __slots__ = ("_hash", "terms")

    def __init__(self, terms: tuple[tuple[Monomial, int], ...]) -> None:
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
        total: _Terms = {}
        for left, a in self.terms:
            for right, b in _terms(other):
                monomial = tuple(sorted(left + right)) if left and right else left or right
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
        maxima = [(m, c) for m, c in self.terms if any(atom.function == "max" for atom in m)]
        if len(maxima) == 1 and len(maxima[0][0]) == 1 and abs(maxima[0][1]) == 1:
            # rest - max(x, 0) is min(rest, rest - x), and rest + max(x, 0) is max(rest, rest + x).
            monomial, sign = maxima[0]
            rest = self + _from_terms({monomial: -sign})
            return f"{'max' if sign > 0 else 'min'}({rest}, {rest + sign * _operands(monomial[0])[0]})"
        parts = []
        for monomial, coefficient in self.terms:
            factors = [str(coefficient)] if abs(coefficient) != 1 or not monomial else []
            alone = not factors and len(monomial) == 1
            factors += [atom.text if alone or atom.function != "//" else f"({atom.text})" for atom in monomial]
            text = "*".join(factors)
            parts.append(f"-{text}" if coefficient == -1 and monomial else text)
        return " + ".join(parts).replace("+ -", "- ")

    def __repr__(self) -> str:
        return f"Dim({self})"


class Taken:
    """Expressions that quotients and maxima are taken for, as what is assumed of sizes says; told by identity."""

    __slots__ = ("expressions",)

    def __init__(self, expressions: Mapping[Atom, DimLike]) -> None:
        self.expressions = expressions


_taken: ContextVar[Taken | None] = ContextVar("taken", default=None)


@contextmanager
def taking(taken: Taken | None) -> Iterator[None]:
    """A block in which expressions are built with what their atoms are taken for."""
    token = _taken.set(taken)
    try:
        yield
    finally:
        _taken.reset(token)


def rebuilt(dim: DimLike) -> DimLike:
    """`dim` with what its atoms are taken for here."""
    return substitute(dim, {})


def variable(name: str) -> Dim:
    """The dimension variable `name` (ONNX's dim_param)."""
    return Dim((((Atom("variable", (name,)),), 1),))


def maximum(a: DimLike, b: DimLike) -> DimLike:
    """The larger of two dimensions."""
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else b + _not_below_zero(a - b)


def minimum(a: DimLike, b: DimLike) -> DimLike:
    """The smaller of two dimensions."""
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else a - _not_below_zero(a - b)


@lru_cache(_REMEMBERED)
def within(dim: DimLike, largest: DimLike) -> DimLike:
    """A dimension, but no more than the largest, and no less than 0.

    Of expressions it is one term, and not asked is whether it is within anyway: that is for sizes of which there are
    many and that nobody compares, as finding a sign may take milliseconds.
    """
    if isinstance(dim, int) and isinstance(largest, int):
        return max(0, min(dim, largest))
    above = dim - largest
    smaller = dim - (_of_atom(Atom("max", (above, 0))) if isinstance(above, Dim) else max(above, 0))
    return _of_atom(Atom("max", (smaller, 0))) if isinstance(smaller, Dim) else max(smaller, 0)


def applied(function: str, a: DimLike, b: DimLike) -> DimLike:
    """The quotient ("//") or maximum ("max") of dimensions as it stands, if it is no integer: for one that was in its
    simplest form when it was written down, as finding that may take milliseconds. KeyError for another function.
    """
    if isinstance(a, int) and isinstance(b, int):
        return FUNCTIONS[function](a, b)
    if function not in FUNCTIONS or (function == "//" and b == 0):
        raise KeyError(function)
    return _of_atom(Atom(function, (a, b)))


def floor_divide(a: DimLike, b: DimLike) -> DimLike:
    """a / b rounded down. ZeroDivisionError for a constant 0.

    A divisor that is an expression is taken not to be 0, as dividing by it is an error then.
    """
    return _quotient(a, b, _taken.get())


@lru_cache(_REMEMBERED)
def _quotient(a: DimLike, b: DimLike, taken: Taken | None) -> DimLike:
    """a // b. taken: what atoms are taken for, which `_made` looks up."""
    if isinstance(b, int):
        if isinstance(a, int) or b in (0, 1, -1):
            return a // b if isinstance(a, int) else a * (1 // b)
        return _divide_by_number(a, b) if b > 0 else _divide_by_number(-1 * a, -b)  # type: ignore[arg-type]
    return _divide_by_expression(a, b)


def modulo(a: DimLike, b: DimLike) -> DimLike:
    """a % b."""
    return a % b if isinstance(a, int) and isinstance(b, int) else a - b * floor_divide(a, b)


def ceil_divide(a: DimLike, b: DimLike) -> DimLike:
    """a / b rounded up."""
    return -1 * floor_divide(-1 * a, b)


def exact_divide(a: DimLike, b: DimLike) -> DimLike | None:
    """a / b where b divides a for all values of the variables, else None."""
    if b == 0:
        return None
    quotient = floor_divide(a, b)
    return quotient if quotient * b == a else None


def terms_of(dim: DimLike) -> int:
    """How many terms a size is the sum of; 1 of a number."""
    return len(dim.terms) if isinstance(dim, Dim) else 1


def product(dims: Iterable[DimLike]) -> DimLike:
    """The product of dimensions; 1 of none."""
    return math.prod(dims)


def known(dims: Iterable[DimLike]) -> bool:
    """Whether all are plain integers."""
    return all(isinstance(dim, int) for dim in dims)


def not_negative(dim: DimLike, positive: Iterable[DimLike] = ()) -> bool:
    """Whether `dim` is surely at least 0, for all values of its variables. positive: sizes known to be at least 1."""
    if isinstance(dim, int):
        return dim >= 0
    from jitonnx.ir.bounds import is_not_negative  # most models have no expression of an unknown sign

    return is_not_negative(dim, frozenset(size for size in positive if isinstance(size, Dim)))


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


USUAL_SIZE = 320
"""What sizes that only a run tells are taken for where it is weighed what is cheaper: an image's, a sequence's."""


COMMON_SIZES = (224, USUAL_SIZE)
"""Sizes that variables often have, of images: a choice should cost little for each. Larger ones are not among them, as
what suits them costs small images more than the other way round."""


def usual(dim: DimLike, size: int = USUAL_SIZE) -> int:
    """A dimension for variables of a usual size; 1 at least."""
    try:
        return max(1, evaluate(dim, dict.fromkeys(variables(dim), size)))
    except ZeroDivisionError:
        return size


def atoms(dims: Iterable[DimLike]) -> list[Atom]:
    """All atoms that occur in dimensions, each once and behind those that it is made of."""
    found: dict[Atom, None] = {}
    for dim in dims:
        _find_atoms(dim, found)
    return list(found)


def _find_atoms(dim: DimLike, found: dict[Atom, None]) -> None:
    for monomial, _ in _terms(dim):
        for atom in monomial:
            if atom not in found:
                for operand in () if atom.function == "variable" else _operands(atom):
                    _find_atoms(operand, found)
                found[atom] = None


def variables(dim: DimLike) -> set[str]:
    """Names of the variables that occur in `dim`."""
    return {atom.text for atom in atoms([dim]) if atom.function == "variable"}


def evaluate(dim: DimLike, values: Mapping[str, int]) -> int:
    """`dim` for values of its variables. KeyError names a variable without a value."""
    known: dict[Atom, int] = {}
    for atom in atoms([dim]):
        if atom.function == "variable":
            known[atom] = values[atom.text]
        else:
            a, b = (_replaced(operand, known) for operand in _operands(atom))
            known[atom] = a // b if atom.function == "//" else max(a, b)  # type: ignore[type-var,assignment]
    return _replaced(dim, known)  # type: ignore[return-value]


def substitute(dim: DimLike, values: Mapping[str, DimLike]) -> DimLike:
    """`dim` with some variables replaced by other dimensions."""
    known: dict[Atom, DimLike] = {}
    for atom in atoms([dim]):
        if atom.function == "variable":
            known[atom] = values.get(atom.text, _of_atom(atom))
        else:
            a, b = (_replaced(operand, known) for operand in _operands(atom))
            known[atom] = FUNCTIONS[atom.function](a, b)
    return _replaced(dim, known)


def _replaced(dim: DimLike, by: Mapping[Atom, DimLike]) -> DimLike:
    """The sum of a dimension's terms with something for each atom."""
    return sum((math.prod([by[atom] for atom in monomial], start=c) for monomial, c in _terms(dim)), 0)


def python_source(dim: DimLike, names: Mapping[Atom, str]) -> str:
    """`dim` as a Python expression over names of the atoms in its terms."""
    parts = ["*".join([repr(c), *(names[atom] for atom in monomial)]) for monomial, c in _terms(dim)]
    return f"({' + '.join(parts)})" if parts else "0"


def atom_source(atom: Atom, names: Mapping[Atom, str]) -> str:
    """A quotient or maximum as a Python expression over names of the atoms that it is made of."""
    left, right = (python_source(operand, names) for operand in _operands(atom))
    return f"{left}//{right}" if atom.function == "//" else f"max({left}, {right})"


# ---------------------------------------------------------------- the normal form


def _terms(dim: DimLike) -> tuple[tuple[Monomial, int], ...]:
    return dim.terms if isinstance(dim, Dim) else ((((), int(dim)),) if dim else ())


def _from_terms(terms: Mapping[Monomial, int]) -> DimLike:
    left = [(monomial, coefficient) for monomial, coefficient in terms.items() if coefficient]
    if not left:
        return 0
    if len(left) == 1:
        (monomial, coefficient), *_ = left
        _check_size(1, monomial, coefficient)
        return Dim(tuple(left)) if monomial else coefficient
    for monomial, coefficient in left:
        for place, atom in enumerate(monomial):
            if (half := _other_half(atom)) is not None:
                others = monomial[:place] + monomial[place + 1 :]
                if terms.get(tuple(sorted((*others, half)))):  # x // 2 + (x + 1) // 2 == x
                    rest = _from_terms({**terms, monomial: 0})
                    return rest + _from_terms({others: coefficient}) * (_operands(half)[0] - _of_atom(half))
    left.sort(key=_descending)
    for monomial, coefficient in left:
        _check_size(len(left), monomial, coefficient)
    return Dim(tuple(left))


def _check_size(terms: int, monomial: Monomial, coefficient: int) -> None:
    """UnwieldyError for an expression of so many terms, one of them given, that is too large."""
    if len(monomial) > _MOST_FACTORS or terms > MOST_TERMS:
        raise UnwieldyError(
            f"a size is an expression of {terms} terms, of up to {len(monomial)} factors; "
            f"{MOST_TERMS} and {_MOST_FACTORS} are allowed"
        )
    if monomial and abs(coefficient) > _MOST_TIMES:
        raise UnwieldyError("a size is a multiple of a dimension variable that is beyond all memory")


def _descending(term: tuple[Monomial, int]) -> tuple[int, list[tuple[int, str]]]:
    """Sort key: terms by degree, the highest first, then by atoms. Multiplying all by a monomial keeps their order."""
    return -len(term[0]), [atom.place for atom in term[0]]


def _other_half(atom: Atom) -> Atom | None:
    """x // 2 for (x + 1) // 2."""
    if atom.function != "//" or atom.arguments[1] != 2:
        return None
    x, _ = _operands(atom)
    assert isinstance(x, Dim)
    return None if x.terms[-1][0] else Atom("//", (x - x.terms[-1][1], 2))


def _operands(atom: Atom) -> tuple[DimLike, ...]:
    """What a quotient or maximum is made of."""
    return atom.arguments  # type: ignore[return-value]


def _made(atom: Atom) -> DimLike:
    """A new quotient or maximum: the atom, or what it is taken for."""
    taken = _taken.get()
    found = None if taken is None else taken.expressions.get(atom)
    return _of_atom(atom) if found is None else found


def _of_atom(atom: Atom) -> Dim:
    return Dim((((atom,), 1),))


def _in_brackets(operand: DimLike | str) -> str:
    """The text of an operand of a quotient."""
    text = str(operand)
    return f"({text})" if isinstance(operand, Dim) and not text.isidentifier() else text


def _shortened(text: str) -> str:
    """The text of an atom: that of a large one, which may have the same part many times, is cut, and stays its own."""
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}...{crc32(text.encode()):08x}"


def _divide_by_number(a: Dim, n: int) -> DimLike:
    """a // n for n > 1."""
    if a.terms[0][1] < 0:
        return -1 - floor_divide(-1 - a, n)
    quotients = [(m[0], c) for m, c in a.terms if len(m) == 1 and m[0].function == "//"]
    inner = [(atom, c) for atom, c in quotients if isinstance(atom.arguments[1], int)]
    if len(inner) == 1 and abs(inner[0][1]) == 1:
        (atom, sign), (x, k) = inner[0], _operands(inner[0][0])
        beside = a - sign * _of_atom(atom)
        # (x // k + y) // n == (x + k * y) // (k * n), and likewise with the opposite sign.
        if sign > 0:
            return floor_divide(x + k * beside, k * n)
        return -1 - floor_divide(x - k * (beside + 1), k * n)
    whole: _Terms = {}
    rest: _Terms = {}
    for monomial, coefficient in a.terms:
        whole[monomial] = _nearest(coefficient, n) if monomial else coefficient // n
        rest[monomial] = coefficient - n * whole[monomial]
    if any(whole.values()):
        return _from_terms(whole) + floor_divide(_from_terms(rest), n)
    divisor = math.gcd(n, *(coefficient for monomial, coefficient in a.terms if monomial))
    if divisor > 1:
        return floor_divide(_from_terms({m: coefficient // divisor for m, coefficient in a.terms}), n // divisor)
    if not_negative(a) and not_negative(n - 1 - a):
        return 0
    return _made(Atom("//", (a, n)))


def _divide_by_expression(a: DimLike, b: Dim) -> DimLike:
    """a // b where b is not 0."""
    if b.terms[0][1] < 0:
        return floor_divide(-1 * a, -b)
    quotient, rest = _long_division(a, b)
    if quotient != 0:
        return quotient + floor_divide(rest, b)
    if a == 0:
        return 0
    common = _common_factor([*_terms(a), *b.terms])
    if common != 1:
        return floor_divide(_long_division(a, common)[0], _long_division(b, common)[0])
    own = _common_factor(b.terms)
    if own != 1 and own != b:
        beside, _ = _long_division(b, own)
        quotient, rest = _long_division(a, beside)
        if rest == 0:
            return floor_divide(quotient, own)
    if not_negative(b):
        if _terms(a)[0][1] < 0:
            return -1 - floor_divide(-1 - a, b)
        if not_negative(a) and not_negative(b - 1 - a):
            return 0
        if isinstance(a, Dim) and len(a.terms) == 1 and a.terms[0][1] == 1 and len(a.terms[0][0]) == 1:
            (atom,) = a.terms[0][0]
            if atom.function == "//" and isinstance(atom.arguments[1], int):
                x, k = _operands(atom)
                return floor_divide(x, k * b)
    return _made(Atom("//", (a, b)))


def _nearest(coefficient: int, n: int) -> int:
    """The quotient that leaves a rest in (-n / 2, n / 2]."""
    return (2 * coefficient + n - 1) // (2 * n)


def _long_division(a: DimLike, b: DimLike) -> tuple[DimLike, DimLike]:
    """(q, r) with a == q * b + r, where r has no multiples of b's largest term. b's largest term is positive."""
    (largest, divisor), *_ = _terms(b)
    rest, quotient, done = dict(_terms(a)), {}, set()
    while left := [(m, c) for m, c in rest.items() if m not in done and c]:
        monomial, coefficient = min(left, key=_descending)
        done.add(monomial)
        beside = _without(monomial, largest)
        times = 0 if beside is None else _nearest(coefficient, divisor)
        if beside is not None and times:
            quotient[beside] = times
            for other, c in _terms(b):
                place = tuple(sorted(other + beside))
                rest[place] = rest.get(place, 0) - times * c
    return _from_terms(quotient), _from_terms(rest)


def _without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    """A monomial divided by another; None if that does not divide it."""
    rest = list(monomial)
    for atom in factors:
        if atom not in rest:
            return None
        rest.remove(atom)
    return tuple(rest)


def _common_factor(terms: Sequence[tuple[Monomial, int]]) -> DimLike:
    """The largest monomial, with a positive coefficient, that divides all of some terms."""
    shared = list(terms[0][0])
    for monomial, _ in terms:
        left = list(monomial)
        for atom in list(shared):
            if atom in left:
                left.remove(atom)
            else:
                shared.remove(atom)
    return _from_terms({tuple(shared): math.gcd(*(coefficient for _, coefficient in terms))})


def _not_below_zero(x: DimLike) -> DimLike:
    """max(x, 0)."""
    return _clipped(x, _taken.get())


@lru_cache(_REMEMBERED)
def _clipped(x: DimLike, taken: Taken | None) -> DimLike:
    """max(x, 0). taken: as of `_quotient`."""
    if isinstance(x, int):
        return max(x, 0)
    if not_negative(x):
        return x
    if not_negative(-x):
        return 0
    if x.terms[0][1] < 0:
        return x + _not_below_zero(-x)
    factor = _common_factor(x.terms)
    if factor != 1 and factor != x and not_negative(factor):
        return factor * _not_below_zero(_long_division(x, factor)[0])
    maxima = [term for term in x.terms if any(atom.function == "max" for atom in term[0])]
    if len(maxima) == 1 and maxima[0][0][-1].function == "max":
        ((*others, atom), coefficient), y = maxima[0], _operands(maxima[0][0][-1])[0]
        times = _from_terms({tuple(others): abs(coefficient)})
        beside = x - _from_terms({maxima[0][0]: coefficient})
        if not_negative(times) and atom not in others:
            if coefficient > 0 and isinstance(beside, int):  # max(max(y, 0) - n, 0) == max(y - n, 0)
                return _not_below_zero(times * y + beside)
            if coefficient < 0 and isinstance(beside - times * y, int):  # x is min(beside, that, which is >= 0)
                return _not_below_zero(beside) - _not_below_zero(times * y)
    return _made(Atom("max", (x, 0)))


FUNCTIONS: dict[str, Callable[[DimLike, DimLike], DimLike]] = {"//": floor_divide, "max": maximum}
"""What an atom that is not a variable stands for, of its two arguments."""

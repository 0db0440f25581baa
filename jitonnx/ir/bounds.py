"""Signs of dimensions: whether an expression is at least 0, whatever the sizes are.

The answer is a proof or "not known". Monomials are taken for unknowns of a system of linear inequalities: what is known
of quotients (x - n + 1 <= n * (x // n) <= x) and of maxima, and the opposite of the claim. If that has no solution,
which Fourier and Motzkin's elimination finds out, the claim holds. Most claims that do not hold are refuted by a few
numbers before.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import TypeAlias

from jitonnx.ir.dims import Atom, Dim, DimLike, Monomial, evaluate, variables

_Form: TypeAlias = "dict[Monomial, int]"
"""A sum of multiples of monomials; () is 1."""

_SAMPLES = ((0,), (1,), (2,), (3,), (7, 64), (64, 7, 1), (1, 1000), (1000, 1), (5, 12, 224), (0, 9), (9, 0), (31,))
"""Sizes that are tried, in turn for each variable."""
_MAXIMA = 4
"""The number of maxima of which both cases are looked at."""
_MONOMIALS, _INEQUALITIES = 24, 120
"""No proof is looked for in larger systems."""


@lru_cache(1 << 14)
def is_not_negative(dim: Dim, positive: frozenset[Dim]) -> bool:
    """Whether `dim` >= 0 for all values of its variables, which are >= 0, for which all of `positive` are >= 1."""
    if all(c >= 0 and all(atom.function != "//" for atom in m) for m, c in dim.terms):
        return True
    if _refuted(dim, positive):
        return False
    known = [_plus(_form(size), {(): -1}) for size in positive]
    maxima: dict[Atom, None] = {}
    facts = known + list(_facts(_form(dim), known, maxima))
    sizes = {atom for size in positive for atom in _only_atom(size)}
    facts += [{monomial: 1, (): -1} for form in facts for monomial in form if monomial and sizes.issuperset(monomial)]
    claim_fails = _plus(_scaled(_form(dim), -1), {(): -1})
    return _contradict_in_all_cases([claim_fails, *facts], list(maxima)[:_MAXIMA])


def _refuted(dim: Dim, positive: frozenset[Dim]) -> bool:
    names = sorted(variables(dim).union(*map(variables, positive)))
    for sample in _SAMPLES:
        sizes = {name: sample[i % len(sample)] for i, name in enumerate(names)}
        try:
            if evaluate(dim, sizes) < 0 and all(evaluate(size, sizes) >= 1 for size in positive):
                return True
        except ZeroDivisionError:  # sizes that no feed has
            continue
    return False


def _only_atom(dim: Dim) -> Monomial:
    """The atom that a dimension is; () if it is a sum or product."""
    (monomial, coefficient), *others = dim.terms
    return monomial if coefficient == 1 and len(monomial) == 1 and not others else ()


# ---------------------------------------------------------------- what is known of monomials


def _facts(claim: _Form, known: Iterable[_Form], maxima: dict[Atom, None]) -> Iterator[_Form]:
    """Forms that are >= 0, about the monomials of a claim and those that these bring in. Fills `maxima`."""
    seen = dict.fromkeys(monomial for form in (claim, *known) for monomial in form)
    todo = list(seen)
    while todo and len(seen) <= _MONOMIALS:
        monomial = todo.pop()
        if monomial and all(map(_atom_not_negative, monomial)):
            yield {monomial: 1}
        for place, atom in enumerate(monomial):
            beside = monomial[:place] + monomial[place + 1 :]
            if atom.function == "variable" or not all(map(_atom_not_negative, beside)):
                continue
            if atom.function == "max":
                maxima[atom] = None
            for form in _about(atom):
                fact = _times(form, beside)
                yield fact
                for other in fact:
                    if other not in seen:
                        seen[other] = None
                        todo.append(other)


def _about(atom: Atom) -> Iterator[_Form]:
    """Forms that are >= 0 for a quotient by a positive divisor, or a maximum with 0."""
    x, y = map(_form, atom.arguments)  # type: ignore[arg-type]
    if atom.function == "max":
        yield _plus({(atom,): 1}, _scaled(x, -1))
        return
    divisor = atom.arguments[1]
    if isinstance(divisor, int) or is_not_negative(divisor, frozenset()):
        product = _times(y, (atom,))
        yield _plus(x, _scaled(product, -1))
        yield _plus(_plus(product, _scaled(x, -1)), _plus(y, {(): -1}))


def _atom_not_negative(atom: Atom) -> bool:
    return atom.function != "//" or all(
        operand >= 0 if isinstance(operand, int) else is_not_negative(operand, frozenset())
        for operand in atom.arguments
    )


def _contradict_in_all_cases(forms: list[_Form], maxima: list[Atom]) -> bool:
    """Whether forms cannot all be >= 0, whichever of its two arguments each maximum is."""
    if _contradict(forms):
        return True
    if not maxima:
        return False
    atom, *others = maxima
    x = _form(atom.arguments[0])  # type: ignore[arg-type]
    below, above = [_scaled(x, -1)], [x]
    for monomial in {monomial for form in forms for monomial in form if atom in monomial}:
        place = monomial.index(atom)
        beside = monomial[:place] + monomial[place + 1 :]
        if all(map(_atom_not_negative, beside)):
            below.append({monomial: -1})
            above.append(_plus(_times(x, beside), {monomial: -1}))
    return all(_contradict_in_all_cases([*forms, *case], others) for case in (below, above))


# ---------------------------------------------------------------- linear inequalities


def _contradict(forms: Iterable[_Form]) -> bool:
    """Whether forms cannot all be >= 0, whatever real numbers their monomials are."""
    left = {frozenset(form.items()): form for form in map(_reduced, forms)}
    while True:
        if any(not any(form) and form.get((), 0) < 0 for form in left.values()):  # a negative number alone
            return True
        ways: dict[Monomial, tuple[int, int]] = {}
        for form in left.values():
            for monomial, coefficient in form.items():
                if monomial:
                    ups, downs = ways.get(monomial, (0, 0))
                    ways[monomial] = (ups + (coefficient > 0), downs + (coefficient < 0))
        if not ways or len(left) > _INEQUALITIES:
            return False
        chosen = min(ways, key=lambda monomial: math.prod(ways[monomial]))
        rest = {key: form for key, form in left.items() if chosen not in form}
        above = [form for form in left.values() if form.get(chosen, 0) > 0]
        below = [form for form in left.values() if form.get(chosen, 0) < 0]
        for one in above:
            for other in below:
                form = _reduced(_plus(_scaled(one, -other[chosen]), _scaled(other, one[chosen])))
                if form:
                    rest[frozenset(form.items())] = form
        left = rest


def _form(dim: DimLike) -> _Form:
    return dict(dim.terms) if isinstance(dim, Dim) else {(): dim} if dim else {}


def _plus(a: Mapping[Monomial, int], b: Mapping[Monomial, int]) -> _Form:
    total = dict(a)
    for monomial, coefficient in b.items():
        total[monomial] = total.get(monomial, 0) + coefficient
    return {monomial: coefficient for monomial, coefficient in total.items() if coefficient}


def _scaled(form: Mapping[Monomial, int], by: int) -> _Form:
    return {monomial: coefficient * by for monomial, coefficient in form.items()}


def _times(form: Mapping[Monomial, int], by: Monomial) -> _Form:
    return {tuple(sorted(monomial + by)): coefficient for monomial, coefficient in form.items()}


def _reduced(form: _Form) -> _Form:
    """The same inequality in small numbers: monomials are integers, so its constant is rounded down."""
    divisor = math.gcd(*(coefficient for monomial, coefficient in form.items() if monomial))
    if divisor <= 1:
        return form
    reduced = {monomial: coefficient // divisor for monomial, coefficient in form.items()}
    return {monomial: coefficient for monomial, coefficient in reduced.items() if coefficient}

"""Names and sizes in exported code: identifiers for what models call their values, and sizes as Python says them."""

from __future__ import annotations

import builtins
import json
import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from jitonnx.ir.dims import Atom, Dim, DimLike

_LONGEST = 48
"""Characters of a name that is made of a model's; these may be paths."""


class Names:
    """Identifiers, each given once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    def of(self, wish: str) -> str:
        """A name that reads like a text, and that nothing has yet."""
        stem = identifier(wish)
        name, number = stem, self._next.get(stem, 2)
        while name in self._taken:
            name, number = f"{stem}_{number}", number + 1
        self._next[stem] = number
        self._taken.add(name)
        return name


def identifier(text: str) -> str:
    """A Python identifier that reads like the end of a text."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "value"
    if len(name) > _LONGEST:
        name = name[-_LONGEST:].partition("_")[2] or name[-_LONGEST:]
    if name[0].isdigit():
        name = f"v_{name}"
    return f"{name}_" if keyword.iskeyword(name) or hasattr(builtins, name) else name


def size_text(dim: DimLike, name: Callable[[str], str]) -> str:
    """A size as a Python expression. name: what a dimension variable is called."""
    if not isinstance(dim, Dim):
        return str(int(dim))
    maxima = [(m, sign) for m, sign in dim.terms if len(m) == 1 and m[0].function == "max" and abs(sign) == 1]
    if len(maxima) == 1 and len(dim.terms) > 1:  # n - max(n - 512, 0) is min(n, 512)
        (term, sign), *_ = maxima
        rest = dim + -sign * Dim(((term, 1),))
        a, b = (size_text(one, name) for one in (rest, rest + sign * term[0].arguments[0]))  # type: ignore[operator]
        return f"{'max' if sign > 0 else 'min'}({a}, {b})"
    text = ""
    for monomial, coefficient in dim.terms:
        factors = [] if abs(coefficient) == 1 and monomial else [str(abs(coefficient))]
        factors += [_atom_text(atom, name) for atom in monomial]
        if len(factors) > 1:
            factors = [
                f"({factor})" if "//" in factor and not factor.startswith("max(") else factor for factor in factors
            ]
        product = " * ".join(factors)
        if coefficient < 0 and len(factors) == 1 and "//" in product:
            product = f"({product})"
        between = ("-" if coefficient < 0 else "") if not text else " - " if coefficient < 0 else " + "
        text += f"{between}{product}"
    return text


def _atom_text(atom: Atom, name: Callable[[str], str]) -> str:
    if atom.function == "variable":
        return name(str(atom.arguments[0]))
    a, b = (size_text(part, name) for part in atom.arguments)  # type: ignore[arg-type]
    if atom.function == "max":
        return f"max({a}, {b})"
    return " // ".join(part if part.isidentifier() or part.isdecimal() else f"({part})" for part in (a, b))


def literal(value: Any, name: Callable[[str], str]) -> str:
    """A field of a computation, a record by its class's name, or an element of a constant, as a Python expression."""
    if isinstance(value, Dim):
        return size_text(value, name)
    if isinstance(value, tuple):
        parts = [literal(one, name) for one in value]
        return f"{type(value).__name__}({', '.join(parts)})" if hasattr(value, "_fields") else tuple_text(parts)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, float | np.floating):
        if not np.isfinite(value):
            return "np.nan" if np.isnan(value) else f"{'-' * bool(value < 0)}np.inf"
        return str(value)  # of NumPy's the shortest that is read as the same
    return repr(value.item() if isinstance(value, np.generic) else value)


def tuple_text(parts: Sequence[str]) -> str:
    """Expressions as a tuple."""
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"

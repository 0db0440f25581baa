"""The text of Python functions as it is written: lines, blocks, names, amounts that are numbers or names."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

Amount: TypeAlias = int | str
"""An extent, a stride or a place: a number where it is known, else the text of an expression."""


class Uncovered(Exception):
    """A computation holds something for which no Numba kernel is written; the text names it."""


class Writer:
    """The lines of a function's body, and the names that are taken in it."""

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self.lines: list[str] = []
        self._depth = 1
        self._taken = {*taken, "np", "begin", "end"}
        self._texts: list[dict[str, str]] = [{}]

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    @contextmanager
    def block(self, header: str) -> Iterator[None]:
        """The lines of a block behind its header."""
        self.line(header)
        self._depth += 1
        self._texts.append({})
        yield
        self._texts.pop()
        self._depth -= 1

    def fresh(self, wish: str) -> str:
        """A name that nothing has yet: the one wished for, or one like it."""
        name, number = identifier(wish), 2
        while name in self._taken:
            name, number = f"{identifier(wish)}_{number}", number + 1
        self._taken.add(name)
        return name

    def named(self, wish: str, text: str) -> str:
        """The name of a variable that has the value of an expression; equal ones in blocks around are the same one."""
        for known in self._texts:
            if text in known:
                return known[text]
        name = self.fresh(wish)
        self.line(f"{name} = {text}")
        self._texts[-1][text] = name
        return name


def identifier(text: str) -> str:
    """A Python identifier that reads like a text."""
    name = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or "value"
    if name[0].isdigit() or keyword.iskeyword(name) or hasattr(builtins, name):
        name = f"v_{name}" if name[0].isdigit() else f"{name}_"
    return name


def brackets(text: str) -> str:
    """The text, in brackets unless it is a name, a number or a call."""
    depth = 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == " " and depth == 0:
            return f"({text})"
    return f"({text})" if text.startswith("-") else text


def times(a: Amount, b: Amount) -> Amount:
    if isinstance(a, int) and isinstance(b, int):
        return a * b
    if 0 in (a, b):
        return 0
    for number, other in ((a, b), (b, a)):
        if number in (1, -1):
            return other if number == 1 else f"-{brackets(str(other))}"
    return f"{brackets(str(a))} * {brackets(str(b))}"


def plus(*amounts: Amount) -> Amount:
    """The sum: numbers together, at the end."""
    number = sum(amount for amount in amounts if isinstance(amount, int))
    terms = [amount for amount in amounts if isinstance(amount, str)]
    if not terms:
        return number
    text = terms[0] + "".join(f" - {term[1:]}" if term.startswith("-") else f" + {term}" for term in terms[1:])
    return text if not number else f"{text} + {number}" if number > 0 else f"{text} - {-number}"


def quotient_up(a: Amount, b: Amount) -> Amount:
    """a / b of what is not negative, rounded up."""
    if isinstance(a, int) and isinstance(b, int):
        return -(-a // b)
    return a if b == 1 else f"({a} + {brackets(str(b))} - 1) // {brackets(str(b))}"


def least(a: Amount, b: Amount) -> Amount:
    return min(a, b) if isinstance(a, int) and isinstance(b, int) else f"min({a}, {b})"


def most(a: Amount, b: Amount) -> Amount:
    return max(a, b) if isinstance(a, int) and isinstance(b, int) else f"max({a}, {b})"


def split(code: Writer, index: str, extents: list[tuple[str, Amount]]) -> list[Amount]:
    """The coordinates, by their wished names, of what is number `index` of a box of these extents, the last fastest."""
    place: list[Amount] = []
    rest: Amount = index
    for number, (wish, extent) in reversed(list(enumerate(extents))):
        if extent == 1:
            place.append(0)
        elif number == 0 or all(above == 1 for _, above in extents[:number]):
            place.append(rest if rest == index else code.named(wish, str(rest)))
            rest = 0
        else:
            place.append(code.named(wish, f"{brackets(str(rest))} % {brackets(str(extent))}"))
            rest = f"{brackets(str(rest))} // {brackets(str(extent))}"
    return place[::-1]

"""Regular expressions in RE2's syntax as expressions of Python's `re` that match the same texts.

RE2 and `re` agree on most of their syntax, and a full match does not depend on which of several ways to match comes
first, so what differs is rewritten piece by piece: classes of characters are ASCII's, `$` is the very end, a brace
that does not count is itself, `\\Q...\\E` quotes, flags may change in the middle. What only `re` has (references to
groups, looking ahead and behind) is refused as RE2 refuses it. So are `\\pN` and `\\C`, the flag U and what RE2's
limits forbid. `re` goes back where RE2 does not: a pattern with nested repetitions may take long on a text that it does
not match.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NoReturn

CLASSES = {
    "d": "0-9",
    "w": "0-9A-Za-z_",
    "s": "\\t\\n\\f\\r ",
    "D": "\\x00-/:-\\U0010ffff",
    "W": "\\x00-/:-@\\[-\\^`\\{-\\U0010ffff",
    "S": "\\x00-\\x08\\x0b\\x0e-\\x1f!-\\U0010ffff",
}
"""What `\\d` and the like stand for inside of brackets."""
POSIX = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": "\\x00-\\x7f",
    "blank": "\\t ",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": "!-/:-@\\[-`\\{-~",
    "space": "\\t\\n\\v\\f\\r ",
    "upper": "A-Z",
    "word": "0-9A-Za-z_",
    "^alnum": "\\x00-/:-@\\[-`\\{-\\U0010ffff",
    "^alpha": "\\x00-@\\[-`\\{-\\U0010ffff",
    "^ascii": "\\x80-\\U0010ffff",
    "^blank": "\\x00-\\x08\\x0a-\\x1f!-\\U0010ffff",
    "^cntrl": " -~\\x80-\\U0010ffff",
    "^digit": "\\x00-/:-\\U0010ffff",
    "^graph": "\\x00- \\x7f-\\U0010ffff",
    "^lower": "\\x00-`\\{-\\U0010ffff",
    "^print": "\\x00-\\x1f\\x7f-\\U0010ffff",
    "^punct": "\\x00- 0-9A-Za-z\\x7f-\\U0010ffff",
    "^space": "\\x00-\\x08\\x0e-\\x1f!-\\U0010ffff",
    "^upper": "\\x00-@\\[-\\U0010ffff",
    "^word": "\\x00-/:-@\\[-\\^`\\{-\\U0010ffff",
}
"""The named classes of brackets, `[[:alpha:]]`, and what they leave out, `[[:^alpha:]]`."""
CONTROLS = {"a": 7, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}
MOST_REPETITIONS = 1000

_COUNT = re.compile(r"\{(\d+)(,(\d*))?\}", re.ASCII)
_GROUP = re.compile(r"\(\?(?:P?<(?P<name>\w+)>|(?P<flags>[a-zA-Z]*(?:-[a-zA-Z]+)?)(?P<end>[:)]))", re.ASCII)


def compiled(pattern: str) -> re.Pattern[str]:
    """The expression of `re` for a pattern in RE2's syntax. ValueError for what is not, or has no counterpart."""
    text = _Translation(pattern).text()
    try:
        return re.compile(text)
    except (re.error, OverflowError) as error:
        raise ValueError(f"pattern {pattern!r} is no regular expression in RE2's syntax: {error}") from error


class _Translation:
    """One pass over a pattern."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.place = pattern, 0
        self.multiline = False
        self.middle: list[str] = []
        """The flags set in the middle of the innermost group, which hold to its end: openings of groups of `re`."""
        self.groups: list[tuple[bool, list[str]]] = []
        """The open groups have here what `multiline` and `middle` were outside."""
        self.repeated = False
        """Whether a repetition has just been read, which may not be repeated at once."""

    def text(self) -> str:
        parts = []
        handlers: dict[str, Callable[[], str]] = {
            "\\": self._escape,
            "[": self._brackets,
            "(": self._open,
            ")": self._close,
            "|": self._or,
            "{": self._brace,
            "$": self._end,
        }
        while self.place < len(self.pattern):
            here = self.pattern[self.place]
            if here in "*+?" or (here == "{" and _COUNT.match(self.pattern, self.place)):
                parts.append(self._repetition())
                continue
            self.repeated = False
            if here in handlers:
                parts.append(handlers[here]())
            else:
                self.place += 1
                parts.append(here if here in ".^" else re.escape(here))
        if self.groups:
            self._refuse("a group is not closed")
        return "".join(parts) + ")" * len(self.middle)

    def _refuse(self, why: str) -> NoReturn:
        raise ValueError(f"pattern {self.pattern!r} is no regular expression in RE2's syntax that can be run: {why}")

    def _repetition(self) -> str:
        if self.repeated:
            self._refuse("a repetition is repeated")
        self.repeated = True
        count = _COUNT.match(self.pattern, self.place)
        found = count.group() if count else self.pattern[self.place]
        if count:
            lower, upper = int(count[1]), int(count[3] or count[1])
            if max(lower, upper) > MOST_REPETITIONS or upper < lower:
                self._refuse(f"{found} repeats more than {MOST_REPETITIONS} times, or less often than it has to")
        self.place += len(found)
        if self.pattern.startswith("?", self.place):  # the shortest match, which a full match does not tell apart
            self.place += 1
            found += "?"
        return found

    def _brace(self) -> str:
        self.place += 1
        return "\\{"

    def _end(self) -> str:
        self.place += 1
        return "$" if self.multiline else "\\Z"

    def _or(self) -> str:
        self.place += 1
        return f"{')' * len(self.middle)}|{''.join(self.middle)}"

    def _open(self) -> str:
        if not self.pattern.startswith("(?", self.place):
            self.place += 1
            self._enter()
            return "("
        found = _GROUP.match(self.pattern, self.place)
        if found is None:
            self._refuse(f"{self.pattern[self.place : self.place + 4]!r} begins no group that RE2 knows")
        self.place = found.end()
        if found["name"]:
            self._enter()
            return f"(?P<{found['name']}>"
        on, _, off = found["flags"].partition("-")
        if set(on + off) - set("ims"):
            self._refuse(f"the flags {found['flags']!r}; i, m and s can be set")
        flags = ("".join(sorted(set(on) - set(off)))) + (f"-{''.join(sorted(set(off)))}" if off else "")
        opening = f"(?{flags}:"
        multiline = "m" not in off and ("m" in on or self.multiline)
        if found["end"] == ":":
            self._enter()
            self.multiline = multiline
            return opening
        self.middle, self.multiline = [*self.middle, opening], multiline
        return opening

    def _enter(self) -> None:
        self.groups.append((self.multiline, self.middle))
        self.middle = []

    def _close(self) -> str:
        if not self.groups:
            self._refuse("a group is closed that is not open")
        self.place += 1
        closing = ")" * (len(self.middle) + 1)
        self.multiline, self.middle = self.groups.pop()
        return closing

    def _escape(self) -> str:
        """A backslash outside of brackets, and what it escapes."""
        after = self.pattern[self.place + 1 : self.place + 2]
        if after in CLASSES:
            self.place += 2
            return f"[{CLASSES[after]}]"
        if after and after in "bB":
            self.place += 2
            return f"(?a:\\{after})"
        if after in ("A", "z"):
            self.place += 2
            return "\\A" if after == "A" else "\\Z"
        if after == "Q":
            end = self.pattern.find("\\E", self.place)
            quoted = self.pattern[self.place + 2 : end if end >= 0 else len(self.pattern)]
            self.place = end + 2 if end >= 0 else len(self.pattern)
            return re.escape(quoted)
        return re.escape(chr(self._character()))

    def _character(self) -> int:
        """The code point that an escape stands for; behind it afterwards."""
        rest = self.pattern[self.place + 1 :]
        for form, base in (
            (r"x\{([0-9A-Fa-f]+)\}", 16),
            (r"x([0-9A-Fa-f]{2})", 16),
            (r"(0[0-7]{0,2}|[1-7][0-7]{1,2})", 8),
        ):
            found = re.match(form, rest)
            if found and int(found[1], base) <= 0x10FFFF:
                self.place += 1 + found.end()
                return int(found[1], base)
        after = rest[:1]
        if after in CONTROLS:
            self.place += 2
            return CONTROLS[after]
        if not after or not after.isascii() or after.isalnum():
            self._refuse(f"the escape \\{after}")
        self.place += 2
        return ord(after)

    def _brackets(self) -> str:
        """A set of characters, written out for `re`, in whose sets some characters are kept for the future."""
        begin = self.place
        self.place += 1
        negative = self.pattern.startswith("^", self.place)
        self.place += negative
        parts: list[str] = []
        while not (self.pattern.startswith("]", self.place) and parts):
            if self.place >= len(self.pattern):
                self._refuse(f"the brackets {self.pattern[begin:]!r} are not closed")
            parts.append(self._element())
        self.place += 1
        return f"[{'^' if negative else ''}{''.join(parts)}]"

    def _element(self) -> str:
        named = re.compile(r"\[:(\^?\w+):\]").match(self.pattern, self.place)
        if named:
            if named[1] not in POSIX:
                self._refuse(f"the class {named.group()}")
            self.place = named.end()
            return POSIX[named[1]]
        if self.pattern.startswith("\\", self.place) and self.pattern[self.place + 1 : self.place + 2] in CLASSES:
            self.place += 2
            return CLASSES[self.pattern[self.place - 1]]
        first = self._single()
        if not self.pattern.startswith("-", self.place) or self.pattern.startswith("-]", self.place):
            return _in_set(first)
        self.place += 1
        last = self._single()
        if last < first:
            self._refuse(f"the range {chr(first)!r} to {chr(last)!r}")
        return f"{_in_set(first)}-{_in_set(last)}"

    def _single(self) -> int:
        if self.place >= len(self.pattern):
            self._refuse("brackets are not closed")
        if self.pattern[self.place] == "\\":
            return self._character()
        self.place += 1
        return ord(self.pattern[self.place - 1])


def _in_set(code: int) -> str:
    """A character as it stands inside of brackets."""
    return chr(code) if chr(code).isalnum() else f"\\U{code:08x}"

"""Regular expressions in RE2's syntax, matched in time that grows with the text alone.

A pattern becomes a tree, the tree a nondeterministic automaton, and that is run on all its states at once: the sets of
states that a text leads to are made when they are first met, and kept with the character that leads from one to
another (`_Machine`). So a text costs a step a character, as in RE2, however a pattern repeats what repeats. What one
character has to be (a class, `.`, a letter of either case) is asked of Python's `re`, which agrees with RE2 about it.
Patterns are those of strangers' models, so their size is bounded (`MOST_NODES`, `MOST_REPETITIONS`, `MOST_NESTED`).

Our own, as `re` backtracks, for times that grow exponentially with a text, and the package google-re2 is not on every
machine. Where it can be imported it matches, in native code; which patterns are refused is said here alone, so that no
model is right or refused by what is installed. Patterns for which `re` never goes back, as of most tokenizers of words,
are left to it (`PlainExpression`).

What only backtracking can do (references to groups, looking ahead and behind) is refused as RE2 refuses it. So are
`\\pN` and `\\C`, the flag U and what RE2's limits forbid.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any, NamedTuple, NoReturn, Protocol, TypeAlias

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

MOST_NESTED = 100
"""Groups in each other, which functions that call themselves follow."""
MOST_NODES = 100_000
"""Places of an automaton, in which a piece that is counted stands as often as it may occur."""
_MOST_PLAIN = 8
"""Characters that a match of a pattern has to have which `re` is asked for, at the most: it may look at so many in vain
at each place of a text."""
_MOST_KEPT = 1 << 18
"""Places in the sets that a machine keeps, after which it begins anew."""

_COUNT = re.compile(r"\{(\d+)(,(\d*))?\}", re.ASCII)
_GROUP = re.compile(r"\(\?(?:P?<(?P<name>\w+)>|(?P<flags>[a-zA-Z]*(?:-[a-zA-Z]+)?)(?P<end>[:)]))", re.ASCII)


@functools.lru_cache(64)
def compiled(pattern: str) -> Expression:
    """The expression for a pattern in RE2's syntax. ValueError for what is not, or is too large."""
    tree = _Parser(pattern).tree()
    plain = _plain(tree)
    if plain is not None:
        return PlainExpression(plain)
    own, library = Automaton(tree), library_found()
    if library is None:
        return own
    options = library.Options()
    options.log_errors = False
    try:
        return LibraryExpression(library.compile(pattern, options))
    except library.error:  # it takes more memory than the library's bound
        return own


def library_found() -> Any:
    """The module of google-re2; None where it is not installed."""
    try:
        import re2
    except ImportError:
        return None
    return re2


class Expression(Protocol):
    """A compiled pattern."""

    def fullmatch(self, text: str) -> bool:
        """Whether the text as a whole matches."""
        ...

    def found(self, text: str) -> list[str]:
        """What matches, from left to right, as of `spans`."""
        ...

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """The begin and end of each match, from left to right: the first that there is behind the one before, and of
        those that begin there the one that the pattern prefers."""
        ...


class PlainExpression:
    """Python's, of a pattern that it matches as RE2 does and in time that grows with the text alone (`_plain`)."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern

    def fullmatch(self, text: str) -> bool:
        """See `Expression`."""
        return self._pattern.fullmatch(text) is not None

    def found(self, text: str) -> list[str]:
        """See `Expression`."""
        return self._pattern.findall(text)  # it has no groups

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """See `Expression`."""
        return map(re.Match.span, self._pattern.finditer(text))


class LibraryExpression:
    """google-re2's."""

    def __init__(self, pattern: Any) -> None:
        self._pattern = pattern

    def fullmatch(self, text: str) -> bool:
        """See `Expression`."""
        return self._pattern.fullmatch(text) is not None

    def found(self, text: str) -> list[str]:
        """See `Expression`."""
        return [text[start:end] for start, end in self.spans(text)]

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """See `Expression`."""
        before = None
        for match in self._pattern.finditer(text):  # gives an empty match at the end twice
            if match.span() != before:
                yield match.span()
            before = match.span()


class Automaton:
    """Our own."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._whole = _Machine(tree)

    def fullmatch(self, text: str) -> bool:
        """See `Expression`."""
        state = self._whole.start("")
        for char in text:
            _, behind = state.moves.get(char) or self._whole.move(state, char)
            if behind is None:
                return False
            state = behind
        return self._whole.move(state, "")[0]

    def found(self, text: str) -> list[str]:
        """See `Expression`."""
        return [text[start:end] for start, end in self.spans(text)]

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """See `Expression`."""
        starts, (_, forward) = self._starts(text), self._searching
        begin = 0
        while begin <= len(text):
            if not starts[begin]:
                begin += 1
                continue
            end, place = begin, begin
            state: _State | None = forward.start(text[begin - 1 : begin])
            while state is not None:
                matches, state = forward.move(state, text[place : place + 1])
                end = place if matches else end
                place += 1
            yield begin, end
            begin = end if end > begin else begin + 1

    @functools.cached_property
    def _searching(self) -> tuple[_Machine, _Machine]:
        """What finds where matches begin, from a text's end on, and what finds where one ends."""
        return _Machine(self._tree, backward=True, anywhere=True), _Machine(self._tree, prefers=True)

    def _starts(self, text: str) -> list[bool]:
        """Whether a match begins in front of each character, and at the end."""
        machine, found = self._searching[0], [False] * (len(text) + 1)
        state: _State | None = machine.start("")
        for place in range(len(text), -1, -1):
            assert state is not None, "Bug: a match may begin anywhere"
            found[place], state = machine.move(state, text[place - 1 : place] if place else "")
        return found


# ------------------------------------------------------------------------------------------------------------ automata


class Character(NamedTuple):
    """One character that an expression of `re` matches."""

    test: re.Pattern[str]


class Edge(NamedTuple):
    """A condition on the characters on both sides: "start", "end", "line start", "line end", "word edge", "no edge"."""

    kind: str


class Sequence(NamedTuple):
    """One after another; none: the empty text."""

    parts: tuple[Tree, ...]


class Choice(NamedTuple):
    """One of several, the first preferred."""

    parts: tuple[Tree, ...]


class Repeat(NamedTuple):
    """Repetition, `least` to `most` (None: any number) times, as often as possible, or as seldom where it is `lazy`."""

    part: Tree
    least: int
    most: int | None
    lazy: bool


Tree: TypeAlias = "Character | Edge | Sequence | Choice | Repeat"

_MATCH = 0
"""The place where an automaton has matched."""


def _plain(tree: Tree) -> re.Pattern[str] | None:
    """The tree for `re` where that does not have to go back: a few characters, of which the last may be repeated."""
    parts = tree.parts if isinstance(tree, Sequence) else (tree,)
    *before, last = parts or (tree,)
    repeated = last if isinstance(last, Repeat) else Repeat(last, 1, 1, lazy=False)
    characters = [*before, repeated.part]
    if repeated.lazy or not 1 <= repeated.least <= _MOST_PLAIN or len(parts) > _MOST_PLAIN:
        return None
    tests = [one.test for one in characters if isinstance(one, Character)]
    flags = {test.flags for test in tests}
    if len(tests) < len(characters) or len(flags) != 1 or flags.copy().pop() & re.IGNORECASE:
        return None
    count = f"{{{repeated.least},{'' if repeated.most is None else repeated.most}}}"
    return re.compile("".join(test.pattern for test in tests) + count, flags.pop())


class _State:
    """Places of an automaton in the order of preference, behind a character of some kind, and what each leads to."""

    __slots__ = ("kind", "moves", "places")

    def __init__(self, places: tuple[int, ...], kind: str) -> None:
        self.places, self.kind = places, kind
        self.moves: dict[str, tuple[bool, _State | None]] = {}
        """What the next character does, "" at the end: whether there is a match in front of it, and the state behind
        it."""


class _Machine:
    """An automaton, run on all its places at once.

    backward: reads texts from their end. anywhere: a match may begin at each character. prefers: what is preferred less
    than a match goes.
    """

    def __init__(self, tree: Tree, *, backward: bool = False, anywhere: bool = False, prefers: bool = False) -> None:
        self._backward, self._anywhere, self._prefers = backward, anywhere, prefers
        self._nodes: list[tuple[Character | Edge | None, tuple[int, ...]]] = [(None, ())]
        """What a place asks for, and the places behind it. The first is `_MATCH`."""
        self._first = self._place(tree, _MATCH)
        self._states: dict[tuple[tuple[int, ...], str], _State] = {}
        self._kept = 0

    def start(self, before: str) -> _State:
        """The state in which a text begins, behind a character, or ""."""
        return self._state((self._first,), _kind(before))

    def move(self, state: _State, char: str) -> tuple[bool, _State | None]:
        """What a character leads to, or "" for the end, as of `_State.moves`; no state where nothing can match."""
        found = state.moves.get(char)
        if found is None:
            found = state.moves[char] = self._moved(state, char)
        return found

    def _moved(self, state: _State, char: str) -> tuple[bool, _State | None]:
        kind = _kind(char)
        here = self._reached(state.places, *((kind, state.kind) if self._backward else (state.kind, kind)))
        matches = _MATCH in here
        if matches and self._prefers:
            here = here[: here.index(_MATCH)]
        places: list[int] = []
        if char:
            for place in here:
                asked, behind = self._nodes[place]
                if isinstance(asked, Character) and asked.test.match(char):
                    places += behind
            if self._anywhere:
                places.append(self._first)
        return matches, self._state(tuple(dict.fromkeys(places)), kind) if places else None

    def _state(self, places: tuple[int, ...], kind: str) -> _State:
        state = self._states.get((places, kind))
        if state is None:
            if self._kept > _MOST_KEPT:
                self._states, self._kept = {}, 0
            state = self._states[places, kind] = _State(places, kind)
            self._kept += len(places) + 16
        return state

    def _reached(self, places: tuple[int, ...], left: str, right: str) -> list[int]:
        """The places that ask for a character, and the match, that can be reached between characters of such kinds."""
        found, seen, waiting = [], set(), list(reversed(places))
        while waiting:
            place = waiting.pop()
            if place in seen:
                continue
            seen.add(place)
            asked, behind = self._nodes[place]
            if isinstance(asked, Character) or place == _MATCH:
                found.append(place)
            elif asked is None or _holds(asked, left, right):
                waiting += reversed(behind)
        return found

    def _new(self, asked: Character | Edge | None, behind: tuple[int, ...]) -> int:
        if len(self._nodes) >= MOST_NODES:
            raise ValueError(f"the pattern is too large: with what it counts, it has more than {MOST_NODES} places")
        self._nodes.append((asked, behind))
        return len(self._nodes) - 1

    def _place(self, tree: Tree, behind: int) -> int:
        """The place where a tree begins that is followed by a place."""
        if isinstance(tree, Character | Edge):
            return self._new(tree, (behind,))
        if isinstance(tree, Sequence):
            for part in tree.parts if self._backward else reversed(tree.parts):
                behind = self._place(part, behind)
            return behind
        if isinstance(tree, Choice):
            return self._new(None, tuple(self._place(part, behind) for part in tree.parts))
        least = tree.least
        if tree.most is None:
            again = self._new(None, ())
            inside = self._place(tree.part, again)
            self._nodes[again] = None, (behind, inside) if tree.lazy else (inside, behind)
            behind = inside if least else again
            least -= least > 0
        else:
            end = behind
            for _ in range(tree.most - least):
                inside = self._place(tree.part, behind)
                behind = self._new(None, (end, inside) if tree.lazy else (inside, end))
        for _ in range(least):
            behind = self._place(tree.part, behind)
        return behind


def _kind(char: str) -> str:
    """What conditions ask of a character: "" for none, a newline, "w" for a letter of words, "-" for others."""
    if char in ("", "\n"):
        return char
    return "w" if char == "_" or (char.isascii() and char.isalnum()) else "-"


def _holds(edge: Edge, left: str, right: str) -> bool:
    if edge.kind.endswith("edge"):
        return ((left == "w") != (right == "w")) == (edge.kind == "word edge")
    side = left if edge.kind.endswith("start") else right
    return side == "" or (side == "\n" and edge.kind.startswith("line"))


# ------------------------------------------------------------------------------------------------------------- patterns


class _Group:
    """A group that is being read: its choices so far, the last of them unfinished, and the flags around it."""

    def __init__(self, flags: frozenset[str]) -> None:
        self.flags = flags
        self.choices: list[list[Tree]] = [[]]

    def tree(self) -> Tree:
        choices = [parts[0] if len(parts) == 1 else Sequence(tuple(parts)) for parts in self.choices]
        return choices[0] if len(choices) == 1 else Choice(tuple(choices))


class _Parser:
    """One pass over a pattern."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.place = pattern, 0
        self.flags: frozenset[str] = frozenset()
        self.groups = [_Group(self.flags)]
        self.repeated = False
        """Whether a repetition has just been read, which may not be repeated at once."""

    def tree(self) -> Tree:
        handlers = {
            "\\": self._escape,
            "[": self._brackets,
            "(": self._open,
            ")": self._close,
            "|": self._or,
        }
        while self.place < len(self.pattern):
            here = self.pattern[self.place]
            if here in "*+?" or (here == "{" and _COUNT.match(self.pattern, self.place)):
                self._repetition()
                continue
            self.repeated = False
            if here in handlers:
                handlers[here]()
                continue
            self.place += 1
            if here == "^":
                self._add(Edge("line start" if "m" in self.flags else "start"))
            elif here == "$":
                self._add(Edge("line end" if "m" in self.flags else "end"))
            else:
                self._add(self._test("." if here == "." else re.escape(here)))
        if len(self.groups) > 1:
            self._refuse("a group is not closed")
        return self.groups[0].tree()

    def _refuse(self, why: str) -> NoReturn:
        raise ValueError(f"pattern {self.pattern!r} is no regular expression in RE2's syntax that can be run: {why}")

    def _add(self, tree: Tree) -> None:
        self.groups[-1].choices[-1].append(tree)

    def _test(self, text: str) -> Character:
        """One character, as an expression of `re`, under the flags that hold here."""
        flags = (re.IGNORECASE if "i" in self.flags else 0) | (re.DOTALL if "s" in self.flags else 0)
        return Character(re.compile(text, flags))

    def _repetition(self) -> None:
        if self.repeated:
            self._refuse("a repetition is repeated")
        parts = self.groups[-1].choices[-1]
        if not parts:
            self._refuse(f"there is nothing that {self.pattern[self.place]} could repeat")
        self.repeated = True
        count = _COUNT.match(self.pattern, self.place)
        found = count.group() if count else self.pattern[self.place]
        least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}.get(found, (0, None))
        if count:
            least = int(count[1])
            most = (int(count[3]) if count[3] else None) if count[2] else least
            if max(least, most or 0) > MOST_REPETITIONS or (most is not None and most < least):
                self._refuse(f"{found} repeats more than {MOST_REPETITIONS} times, or less often than it has to")
        self.place += len(found)
        lazy = self.pattern.startswith("?", self.place)
        self.place += lazy
        parts.append(Repeat(parts.pop(), least, most, lazy))
        if count and _counted(parts[-1]) > MOST_REPETITIONS:
            self._refuse(f"{found} and what it repeats repeat more than {MOST_REPETITIONS} times")

    def _or(self) -> None:
        self.place += 1
        self.groups[-1].choices.append([])

    def _open(self) -> None:
        flags = self.flags
        if not self.pattern.startswith("(?", self.place):
            self.place += 1
        else:
            found = _GROUP.match(self.pattern, self.place)
            if found is None:
                self._refuse(f"{self.pattern[self.place : self.place + 4]!r} begins no group that RE2 knows")
            self.place = found.end()
            if not found["name"]:
                on, _, off = found["flags"].partition("-")
                if set(on + off) - set("ims"):
                    self._refuse(f"the flags {found['flags']!r}; i, m and s can be set")
                flags = (flags | set(on)) - set(off)
                if found["end"] == ")":
                    self.flags = flags
                    return
        if len(self.groups) > MOST_NESTED:
            self._refuse(f"more than {MOST_NESTED} groups are in each other")
        self.groups.append(_Group(self.flags))
        self.flags = flags

    def _close(self) -> None:
        if len(self.groups) == 1:
            self._refuse("a group is closed that is not open")
        self.place += 1
        group = self.groups.pop()
        self.flags = group.flags
        self._add(group.tree())

    def _escape(self) -> None:
        """A backslash outside of brackets, and what it escapes."""
        after = self.pattern[self.place + 1 : self.place + 2]
        edges = {"b": "word edge", "B": "no edge", "A": "start", "z": "end"}
        if after in CLASSES:
            self.place += 2
            self._add(self._test(f"[{CLASSES[after]}]"))
        elif after in edges:
            self.place += 2
            self._add(Edge(edges[after]))
        elif after == "Q":
            end = self.pattern.find("\\E", self.place)
            quoted = self.pattern[self.place + 2 : end if end >= 0 else len(self.pattern)]
            self.place = end + 2 if end >= 0 else len(self.pattern)
            for char in quoted:
                self._add(self._test(re.escape(char)))
        else:
            self._add(self._test(re.escape(chr(self._character()))))

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

    def _brackets(self) -> None:
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
        self._add(self._test(f"[{'^' if negative else ''}{''.join(parts)}]"))

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


def _counted(tree: Tree) -> int:
    """How often the innermost part is repeated by counts in each other, as RE2 bounds it."""
    if isinstance(tree, Repeat):
        count = max(tree.least, tree.most or 0)
        return max(1, count) * _counted(tree.part)
    return max(map(_counted, tree.parts), default=1) if isinstance(tree, Sequence | Choice) else 1

"""Choices between ways to compute the same thing: by estimated cost, or as measuring on this machine has settled them.

What chooses a kernel gives its candidates with what each is estimated to cost to `cheapest`, which takes the one that
costs least. While a model is tuned (`jitonnx.engine.tuning`), the choices of a plan are noted, so that the others can
be tried, and what was measured to be faster is taken from then on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from typing import TypeVar

from jitonnx.support.records import NamedTuple

CANDIDATES = 5
"""Ways to do the same thing that are measured at most."""
WORTH_TRYING = 2.0
"""Ways that are estimated to cost so many times the least are not measured."""

_Candidate = TypeVar("_Candidate")


class Problem(NamedTuple):
    """What is chosen for, the same wherever a plan has it. kind: of choice, as "GEMM tile". sizes: what it goes by."""

    kind: str
    sizes: str

    def __str__(self) -> str:
        return f"{self.kind} for {self.sizes}"


class Measured(NamedTuple):
    """What measuring has settled. taken: the candidate, by its text; estimated: that of the least estimated cost.
    reason: the times that were measured, in words."""

    problem: Problem
    taken: str
    estimated: str = ""
    reason: str = ""


class Choice(NamedTuple):
    """One choice of a plan. costs: estimates by candidate, the least first, over the least. taken: one of them."""

    problem: Problem
    costs: Mapping[str, float]
    taken: str
    reason: str = ""

    @property
    def is_usual(self) -> bool:
        """Whether the candidate of the least estimated cost is taken."""
        return self.taken == next(iter(self.costs))


class ChoiceLog:
    """The choices of one plan as they are made. settled: what measuring has said of some, by problem."""

    def __init__(self, settled: Mapping[Problem, Measured]) -> None:
        self.settled = settled
        self._made: list[Choice] = []

    def note(self, choice: Choice) -> None:
        """Add a choice."""
        self._made.append(choice)

    def taken(self) -> tuple[Choice, ...]:
        """The choices that were made since this was asked last."""
        made, self._made = self._made, []
        return tuple(made)


_noted: ContextVar[ChoiceLog | None] = ContextVar("jitonnx_choices", default=None)


@contextlib.contextmanager
def choosing(settled: Mapping[Problem, Measured] | None) -> Iterator[None]:
    """Choices within are noted, and those that are settled go by what was measured; nothing of that for None."""
    if settled is None:
        yield
        return
    token = _noted.set(ChoiceLog(settled))
    try:
        yield
    finally:
        _noted.reset(token)


def is_tuned() -> bool:
    """Whether choices may be settled by measuring, so that ways are worth counting that are not usual for a CPU."""
    return _noted.get() is not None


def made_choices() -> tuple[Choice, ...]:
    """The choices since this was asked last; none where they are not noted."""
    noted = _noted.get()
    return () if noted is None else noted.taken()


def cheapest(
    kind: str,
    sizes: Callable[[], str],
    costs: Mapping[_Candidate, float],
    text: Callable[[_Candidate], str],
    alike: Callable[[_Candidate], Hashable] = lambda candidate: candidate,
) -> _Candidate:
    """The candidate of the least cost; where measuring has settled the choice, the one that was fastest.

    kind, sizes: the problem, as `Problem` has it. text: what a candidate is called in explanations, and kept under.
    alike: of candidates for which it gives the same, only the cheapest is worth measuring.
    """
    least = min(costs, key=costs.__getitem__)
    noted = _noted.get()
    if noted is None:
        return least
    problem = Problem(kind, sizes())
    tried: dict[Hashable, _Candidate] = {}
    for candidate in sorted(costs, key=costs.__getitem__):
        if costs[candidate] <= WORTH_TRYING * costs[least] or not costs[least]:
            tried.setdefault(alike(candidate), candidate)
    named = {text(candidate): candidate for candidate in list(tried.values())[:CANDIDATES]}
    settled = noted.settled.get(problem)
    taken = settled.taken if settled is not None and settled.taken in named else text(least)
    reason = settled.reason if settled is not None and taken == settled.taken else ""
    estimates = {name: costs[candidate] / (costs[least] or 1) for name, candidate in named.items()}
    noted.note(Choice(problem, estimates, taken, reason))
    return named[taken]

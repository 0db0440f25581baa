"""What the rewrites did to a graph, and what they left alone and why: the source of `jitonnx explain`."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import field

from jitonnx.support.records import dataclass


class Reason(enum.Enum):
    """Why a rewrite that knew the shape of what it saw left it alone."""

    OTHER_USES = "an intermediate result is read elsewhere too"
    NOT_CONSTANT = "an operand would have to be constant"
    UNKNOWN_SHAPE = "sizes would have to be known before the run"
    SHAPE = "shapes do not fit"
    DTYPE = "not for this element type"
    ATTRIBUTE = "an attribute has a value that the result cannot express"
    NOT_EXACT = "results would differ by more than rounding"
    NOT_FINITE = "the constant would leave the range of its type"
    UNDECIDED = "depends on values or sizes that only a run knows"
    TOO_LARGE = "the constant would take far more memory than what it is made of"
    TOO_SMALL = "too little is written to read and write everything"
    REFUSED = "the operator refuses these constants"
    FAILED = "jitonnx failed to make it"


@dataclass(frozen=True)
class Applied:
    """One rewrite that was made."""

    rewrite: str
    origin: tuple[str, ...]
    """Names of the model's nodes that took part."""
    before: str
    after: str


@dataclass(frozen=True)
class Declined:
    """One rewrite that was not made."""

    rewrite: str
    origin: tuple[str, ...]
    reason: Reason
    detail: str

    def __str__(self) -> str:
        return f"{self.rewrite}: {self.reason.value}{f' ({self.detail})' if self.detail else ''}"


@dataclass
class Report:
    """What `optimize` did to one graph. Subgraphs add to the report of the graph that holds them."""

    level: int
    nodes_before: int = 0
    nodes_after: int = 0
    seconds: float = 0.0
    applied: list[Applied] = field(default_factory=list)
    _declined: dict[tuple[str, tuple[str, ...]], Declined] = field(default_factory=dict)

    @property
    def declined(self) -> list[Declined]:
        """What was declined to the end: a rewrite that declined at first and was made later is not among it."""
        done = {(entry.rewrite, name) for entry in self.applied for name in entry.origin}
        return [
            entry
            for entry in self._declined.values()
            if not any((entry.rewrite, name) in done for name in entry.origin)
        ]

    @property
    def counts(self) -> Counter[str]:
        """How often each rewrite was made."""
        return Counter(entry.rewrite for entry in self.applied)

    def note_applied(self, rewrite: str, origin: tuple[str, ...], before: str, after: str) -> None:
        """Record a rewrite: what stood there, what stands there now."""
        self.applied.append(Applied(rewrite, origin, before, after))

    def note_declined(self, rewrite: str, origin: tuple[str, ...], reason: Reason, detail: str) -> None:
        """Record why a rewrite was not made; the newest reason counts."""
        self._declined[rewrite, origin] = Declined(rewrite, origin, reason, detail)

    def of(self, name: str) -> list[Applied | Declined]:
        """Everything about the model's node `name`."""
        entries: list[Applied | Declined] = [*self.applied, *self.declined]
        return [entry for entry in entries if name in entry.origin]

    def __str__(self) -> str:
        made = ", ".join(f"{rewrite} {count}" for rewrite, count in self.counts.most_common())
        size = f"{self.nodes_before} nodes became {self.nodes_after}"
        return f"{size} in {self.seconds * 1e3:.0f} ms: {made or 'no rewrite'}"

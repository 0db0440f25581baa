"""What the checker has to say of a model: findings, each of a rule, with a place and a hint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from typing import Any

from jitonnx import errors
from jitonnx.errors import Error
from jitonnx.model.checker.rules import RULES
from jitonnx.support.records import NamedTuple, dataclass

KEPT = 1000
"""Findings that a report holds at most; further ones are counted."""
_SHOWN = 200
"""Characters of a name that a text shows at most."""


class Place(NamedTuple):
    """A place in a model."""

    graph: str = ""
    """The way to the graph or function: "graph 'g'", "graph 'g' / If node 3 'n' / then_branch", "function my.domain:F";
    "" for the model itself."""
    number: int | None = None
    """The node's position in its graph."""
    node: str = ""
    """The node's name, if it has one."""
    operator: str = ""
    outputs: tuple[str, ...] = ()
    """The names of the node's outputs."""
    value: str | None = None
    """The name of a value, initializer or attribute."""

    def __str__(self) -> str:
        parts = [self.graph or "the model"]
        if self.number is not None:
            name = f" {quoted(self.node)}" if self.node else ""
            outputs = f" (outputs: {', '.join(map(quoted, self.outputs))})" if self.outputs else ""
            parts.append(f"node {self.number}, {shown(self.operator) or 'without operator'}{name}{outputs}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Finding:
    """A rule of ONNX that a model breaks."""

    rule: str
    """Its name in `jitonnx.model.checker.rules`."""
    text: str
    """What is wrong, in one sentence without a full stop."""
    place: Place
    hint: str = ""
    """What to do about it."""

    @property
    def severity(self) -> str:
        """ "error" or "warning"."""
        return RULES[self.rule].severity

    @property
    def refused(self) -> bool:
        """Whether a session refuses such a model, too."""
        return RULES[self.rule].refused

    def error(self) -> Error:
        """What a session raises."""
        return RULES[self.rule].error(self.sentence())

    def sentence(self) -> str:
        """Text, place and hint in one line."""
        hint = f"; {self.hint}" if self.hint else ""
        return f"{self.text}. In {self.place}{hint}"

    def as_json(self) -> dict[str, Any]:
        """The same as machines read it: see docs/checker.md."""
        place = self.place
        return {
            "severity": self.severity,
            "rule": self.rule,
            "text": self.text,
            "hint": self.hint,
            "graph": place.graph,
            "node": place.node,
            "index": place.number,
            "operator": place.operator,
            "value": place.value,
            "refused": self.refused,
        }


@dataclass
class Report:
    """All that was found in a model."""

    findings: list[Finding] = field(default_factory=list)
    """They stand in the order in which they were found, `KEPT` at most."""
    counts: Counter[str] = field(default_factory=Counter)
    """How often each rule was broken, findings that were not kept included."""

    def add(self, finding: Finding) -> None:
        """Take a finding in."""
        self.counts[finding.rule] += 1
        if len(self.findings) < KEPT:
            self.findings.append(finding)

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return sum(count for rule, count in self.counts.items() if RULES[rule].severity == "error")

    @property
    def warnings(self) -> int:
        """How many findings are warnings."""
        return sum(count for rule, count in self.counts.items() if RULES[rule].severity == "warning")

    @property
    def refused(self) -> bool:
        """Whether a session refuses the model."""
        return any(RULES[rule].refused for rule in self.counts)

    def __iter__(self) -> Iterator[Finding]:
        return iter(self.findings)

    def __len__(self) -> int:
        return sum(self.counts.values())

    def broken(self, *families: str) -> bool:
        """Whether a rule of a family ("names", …) is broken that a session insists on."""
        return any(RULES[rule].refused and rule.partition(".")[0] in families for rule in self.counts)

    def raise_first(self) -> None:
        """Raise the gravest finding that a session refuses, which is that of the first such rule, if there is any."""
        if not self.refused:
            return
        order = list(RULES)
        rule = min((rule for rule in self.counts if RULES[rule].refused), key=order.index)
        if rule.startswith("operators."):
            self._raise_operators()
        first = next((finding for finding in self.findings if finding.rule == rule), None)
        if first is None:  # it came behind those that are kept
            raise RULES[rule].error(f"{RULES[rule].text}: {self.counts[rule]} times")
        raise first.error()

    def _raise_operators(self) -> None:
        """Name all operators that cannot be run, not only the first."""
        found = [finding for finding in self.findings if finding.rule.startswith("operators.") and finding.refused]
        counts: Counter[str] = Counter()
        first: dict[str, Place] = {}
        for each in found:
            text = f"{each.text}; {each.hint}" if each.hint else each.text
            counts[text] += 1
            first.setdefault(text, each.place)
        lines = "".join(
            f"\n  {text} ({count} node{'s' * (count > 1)}), first in {first[text]}"
            for text, count in sorted(counts.items())
        )
        raised = {RULES[finding.rule].error for finding in found}
        gravest = next(error for error in (errors.InvalidGraph, errors.Fail, errors.NotImplemented) if error in raised)
        lacking = gravest is errors.NotImplemented
        text = "Could not find an implementation for operators of the model" if lacking else "This is an invalid model"
        raise gravest(f"{text}. Operators that jitonnx cannot run:{lines}")


def shown(text: str) -> str:
    """A name as texts show it: its beginning, if it is long."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}… ({len(text)} characters)"


def quoted(text: str) -> str:
    """A name in quotes."""
    return repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}… ({len(text)} characters)"

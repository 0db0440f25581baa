"""Arithmetic on sizes that specs do without branches where they can.

Sizes may be recorded integers (`jitonnx.plan.size_tracing`), which note what is done with them, so that native code
does it for other sizes. A comparison then holds for those sizes only for which it turns out alike; these functions hold
for all.
"""

from __future__ import annotations

from typing import Any


def larger(a: Any, b: Any, *others: Any) -> Any:
    """The largest of sizes."""
    if others:
        return larger(larger(a, b), *others)
    if isinstance(a, int):
        return max(a, b) if isinstance(b, int) else b.larger(a)
    return a.larger(b)


def smaller(a: Any, b: Any, *others: Any) -> Any:
    """The smallest of sizes."""
    if others:
        return smaller(smaller(a, b), *others)
    if isinstance(a, int):
        return min(a, b) if isinstance(b, int) else b.smaller(a)
    return a.smaller(b)


def below(a: Any, b: int) -> Any:
    """1 if a < b, else 0."""
    return int(a < b) if isinstance(a, int) else a.below(b)

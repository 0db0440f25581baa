"""Names: what comes closest to one that nobody defines, and which are not written as ONNX asks."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from jitonnx.model.checker.report import quoted

if TYPE_CHECKING:
    from jitonnx.model.checker.walk import Body, Walk
    from jitonnx.proto import GraphProto

_LONGEST = 100
"""Characters of a name for which a close one is looked for: comparing takes time as the product of the lengths."""
_CANDIDATES = 2000
"""Names that one is compared with at most."""


def suggestion(name: str, names: Iterable[str], ask: str = "did the exporter mean", cutoff: float = 0.6) -> str:
    """A hint at the name that comes closest to a wrong one; "" if there is none."""
    if len(name) > _LONGEST:
        return ""
    import difflib

    near = (each for each in names if each and abs(len(each) - len(name)) <= 3)
    close = difflib.get_close_matches(name, list(islice(near, _CANDIDATES)), 1, cutoff)
    return f"{ask} {close[0]!r}?" if close else ""


def is_identifier(name: str) -> bool:
    """Whether a name is an identifier as in C90."""
    return name.isidentifier() and name.isascii()


def check_identifiers(walk: Walk, proto: GraphProto, body: Body) -> None:
    """Report once a graph's names that are not identifiers as in C90, which most exporters write."""
    names = dict.fromkeys(name for node in proto.node for name in (*node.output, node.name))
    names |= dict.fromkeys(info.name for info in proto.input)
    names |= dict.fromkeys(tensor.name for tensor in proto.initializer)
    wrong = [name for name in names if name and not is_identifier(name)]
    if wrong:
        others = f", and {len(wrong) - 1} others" if len(wrong) > 1 else ""
        text = f"the name {quoted(wrong[0])} is not an identifier as in C{others}"
        hint = "ONNX asks for letters, digits and underscores, with no digit in front; jitonnx takes any name"
        walk.add("names.identifier", text, body.place(value=wrong[0]), hint)

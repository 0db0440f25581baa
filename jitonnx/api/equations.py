"""Scalar expressions as lines that people can read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from jitonnx.ir.computation.expressions import Expr, children_first

_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==",
          "ne": "!="}  # fmt: skip
_LONGEST = 90
"""Characters of one line, about: longer parts become lines of their own."""


def equations(root: Expr, target: str, names: Mapping[int, str]) -> list[str]:
    """`target = ...` in lines of bearable length; parts that are used twice have a line of their own.

    names: what to call the operands.

    >>> x = operand(0, DType.FLOAT)
    >>> equations(x / (1.0 + exp(-x)), "y", {0: "x"})
    ['y = x / (1.0 + exp(-x))']
    """
    nodes = children_first(root)
    uses = Counter(argument for node in nodes for argument in node.arguments)
    texts: dict[Expr, str] = {}
    lines: list[str] = []
    for node in nodes:
        text = _text(node, texts, names)
        if node is not root and node.arguments and (uses[node] > 1 or len(text) > _LONGEST):
            name = f"v{len(lines)}"
            lines.append(f"{name} = {text}")
            text = name
        texts[node] = text
    return [*lines, f"{target} = {texts[root]}"]


def _text(node: Expr, texts: Mapping[Expr, str], names: Mapping[int, str]) -> str:
    if node.op == "operand":
        return names.get(node.value, f"x{node.value}")
    if node.op == "constant":
        return repr(node.value) if not node.dtype.is_float else f"{node.value:.6g}"
    if node.op == "index":
        return f"index[{node.value}]"
    arguments = [texts[argument] for argument in node.arguments]
    if node.op in _INFIX:
        left, right = map(_in_brackets, arguments)
        return f"{left} {_INFIX[node.op]} {right}"
    if node.op == "neg":
        return f"-{_in_brackets(arguments[0])}"
    if node.op == "cast":
        return f"{node.dtype.text}({arguments[0]})"
    return f"{node.op}({', '.join(arguments)})"


def _in_brackets(text: str) -> str:
    """The text, in brackets unless it is a name, a number or a call."""
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == " " and depth == 0:
            return f"({text})"
    return text

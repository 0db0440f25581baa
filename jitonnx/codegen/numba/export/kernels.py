"""A region as the source of one Numba function over arrays: a loop for each axis, and the scalars inside.

Sizes are those of the arrays, so one function serves all regions that compute the same of arrays of the same ranks,
and open sizes as well as fixed ones. Axes that are known to have one element have no loop.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from contextlib import ExitStack

from jitonnx.codegen.numba.expression import loaded, stored, write_expressions
from jitonnx.codegen.numba.writing import Writer
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import HALVES, DType
from jitonnx.ir.graph import Value
from jitonnx.support.records import NamedTuple

_AXES = "ijklmnop"


class Operand(NamedTuple):
    """What a kernel knows of an array: its type, and for each axis whether it has one element."""

    dtype: DType
    ones: tuple[bool, ...]


class Region(NamedTuple):
    """A computation of one result, element by element; equal ones are one function."""

    expr: e.Expr
    operands: tuple[Operand, ...]
    result: Operand


def region_of(expr: e.Expr, operands: Sequence[Value], result: Value) -> Region:
    """The region of an expression over operands that broadcast to the result's shape."""
    known = [Operand(value.dtype, tuple(dim == 1 for dim in value.shape)) for value in (*operands, result)]
    return Region(expr, tuple(known[:-1]), known[-1])


def write_kernel(
    region: Region, name: str, arguments: Sequence[str], stands_for: Sequence[str], taken: frozenset[str]
) -> str:
    """The source of the function. Its arguments are the operands' arrays and that of the result, which it writes.

    arguments: what to call the arrays' elements. stands_for: what the docstring says, a line each. taken: names of
    functions that it may call. Raises: Uncovered with what has no source.
    """
    code = Writer(taken)
    name = code.fresh(name)
    elements = [code.fresh(wish) for wish in arguments]
    arrays = [code.fresh(f"{element}_data") for element in elements]
    rank = len(region.result.ones)
    axes = [code.fresh(_AXES[axis] if axis < len(_AXES) else f"i{axis}") for axis in range(rank)]
    code.lines += _docstring(region, arrays, stands_for)
    with ExitStack() as stack:
        used = e.operands(region.expr)
        unread = {number: operand for number, operand in enumerate(region.operands) if number in used}
        for axis in range(rank + 1):
            for number, operand in list(unread.items()):  # each is read in the outermost loop that tells its place
                missing = rank - len(operand.ones)
                if all(one for place, one in enumerate(operand.ones) if place + missing >= axis):
                    element = _element(arrays[number], operand, axes[missing:])
                    code.line(f"{elements[number]} = {_loaded(element, operand.dtype)}")
                    del unread[number]
            if axis < rank and not region.result.ones[axis]:
                stack.enter_context(code.block(f"for {axes[axis]} in range({arrays[-1]}.shape[{axis}]):"))

        def leaf(node: e.Expr) -> str:
            number: int = node.value
            if node.op == "operand":
                return elements[number]
            return "np.int64(0)" if region.result.ones[number] else f"np.int64({axes[number]})"

        (text,) = write_expressions(code, [region.expr], leaf)
        if text != elements[-1]:
            code.line(f"{elements[-1]} = {text}")
        element = _element(arrays[-1], region.result, axes)
        code.line(f"{element} = {_stored(elements[-1], region.result.dtype)}")
    return "\n".join([f"def {name}({', '.join(arrays)}):", *code.lines]) + "\n"


def _element(array: str, operand: Operand, axes: Sequence[str]) -> str:
    places = ["0" if one else axis for one, axis in zip(operand.ones, axes, strict=True)]
    return f"{array}[{', '.join(places) or '()'}]"


def _loaded(element: str, dtype: DType) -> str:
    return loaded(element, dtype) if dtype in HALVES else element


def _stored(value: str, dtype: DType) -> str:
    return stored(value, dtype) if dtype in HALVES else value


def _docstring(region: Region, arrays: Sequence[str], stands_for: Sequence[str]) -> list[str]:
    operations = [node.op for node in e.children_first(region.expr) if node.arguments]
    what = ", ".join(dict.fromkeys(operations)) or "the elements as they are"
    lines = [line for text in stands_for[:-1] for line in textwrap.wrap(f"{text};", 110)]
    lines += [*textwrap.wrap(f"{stands_for[-1]}: {what}.", 110), ""]
    for array, operand in zip(arrays, [*region.operands, region.result], strict=True):
        bits = ", its bits" if operand.dtype in HALVES else ""
        shape = ", ".join("1" if one else ":" for one in operand.ones)
        lines.append(f"{array}: {'written, ' if array == arrays[-1] else ''}{operand.dtype.text}[{shape}]{bits}")
    text = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
    return textwrap.indent(f'"""{text}\n"""', "    ", lambda line: bool(line.strip())).split("\n")

"""Outlines of plans as what JSON holds, in artifacts, and back. Imports nothing that compiles.

A plan is an object of these members; all that names a number does so by its position in `numbers`.

    expressions  sums of terms [coefficient, factor, …]; a factor is a dimension variable's name, or [function, left,
                 right] of expressions before it
    numbers      positions in `expressions`
    inputs, outputs   [name, dtype, sizes]
    arena        [bytes, first call, last call] of each intermediate result
    constants    the position of an array; [dtype, shape, elements], whose elements are numbers; or [maker, fields,
                 part, sizes], one of the arrays that a class of `plan/tables.py` makes
    specs        [family, class, fields] of the kernel library's `spec` modules, in which alone they are looked up
    calls        [spec, sizes, sizes of stages, operands, label]; an operand is three numbers: space, index, offset
    assumptions  pairs that have to be equal, one after the other
    bounds       [operand, call, bytes, itemsize, sizes, strides] of operands whose place in their memory is looked at
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeAlias

from jitonnx.ir import dims
from jitonnx.ir.dims import Dim, DimLike
from jitonnx.kernels.spec import KernelSpec
from jitonnx.plan.arena import Lifetime
from jitonnx.plan.parametric_program import (
    ArenaBuffer,
    Array,
    Bound,
    Computed,
    Constant,
    ConstantNumbers,
    OperandPlace,
    ParametricProgram,
    PlanTensor,
    ProgramCall,
)
from jitonnx.runtime.artifact import dtype_named
from jitonnx.runtime.program import SPACES

if TYPE_CHECKING:
    from jitonnx.plan.tables import Maker

Message: TypeAlias = "dict[str, Any]"

_CODES = {space: code for code, space in enumerate(SPACES)}


class ParametricProgramError(ValueError):
    """A message that is no plan of ours."""


def to_message(outline: ParametricProgram) -> tuple[Message, list[Array]]:
    """The message, and the arrays that its constants name by position."""
    arrays: list[Array] = []
    expressions = Expressions()
    constants: list[Any] = []
    for constant in outline.constants:
        if isinstance(constant, ConstantNumbers):
            constants.append((constant.dtype.name, constant.shape, constant.elements))
        elif isinstance(constant, Computed):
            constants.append((*_record(constant.maker), constant.part, constant.sizes))
        else:
            constants.append(len(arrays))
            arrays.append(constant)
    specs: dict[KernelSpec, int] = {}
    calls = [
        (
            specs.setdefault(call.spec, len(specs)),
            call.sizes,
            call.stage_sizes,
            [part for space, index, offset in call.operands for part in (_CODES[space], index, offset)],
            call.label,
        )
        for call in outline.calls
    ]
    message = {
        "numbers": [expressions.add(number) for number in outline.numbers],
        "expressions": expressions.rows,
        "inputs": [_tensor_row(tensor) for tensor in outline.inputs],
        "outputs": [_tensor_row(tensor) for tensor in outline.outputs],
        "arena": [(buffer.bytes, buffer.life.first, buffer.life.last) for buffer in outline.arena],
        "constants": constants,
        "specs": [_spec_row(spec) for spec in specs],
        "calls": calls,
        "assumptions": [row for pair in outline.assumptions for row in pair],
        "bounds": outline.bounds,
    }
    return message, arrays


def from_message(message: Message, arrays: Sequence[Array]) -> ParametricProgram:
    """The outline. `arrays`: those that its constants name. ParametricProgramError for a message that `to_message`
    never made."""
    try:
        return _outline(message, arrays)
    except (IndexError, KeyError, ValueError, TypeError, ArithmeticError, AttributeError, ImportError) as error:
        raise ParametricProgramError(
            f"it holds a plan that cannot be read ({type(error).__name__}: {error})"
        ) from error


def _outline(message: Message, arrays: Sequence[Array]) -> ParametricProgram:
    known = expressions(message["expressions"])
    specs = [_spec(*spec) for spec in message["specs"]]
    pairs = iter(message["assumptions"])
    return ParametricProgram(
        [_tensor(*tensor) for tensor in message["inputs"]],
        [_tensor(*tensor) for tensor in message["outputs"]],
        [
            ProgramCall(specs[spec], tuple(sizes), tuple(stage_sizes), _operands(operands), label)
            for spec, sizes, stage_sizes, operands, label in message["calls"]
        ],
        [ArenaBuffer(size, Lifetime(first, last)) for size, first, last in message["arena"]],
        [_constant(constant, arrays) for constant in message["constants"]],
        list(zip(pairs, pairs, strict=True)),
        [
            Bound(operand, call, size, itemsize, tuple(shape), tuple(strides))
            for operand, call, size, itemsize, shape, strides in message["bounds"]
        ],
        [known[place] for place in message["numbers"]],
    )


class Expressions:
    """A table of expressions: each once, behind those that it is made of."""

    def __init__(self) -> None:
        self.rows: list[Any] = []
        self._places: dict[DimLike, int] = {}

    def add(self, dim: DimLike) -> int:
        """The place of an expression."""
        if dim in self._places:
            return self._places[dim]
        # An integer is a product of nothing.
        terms = dim.terms if isinstance(dim, Dim) else (((), dim),)
        row = [(int(coefficient), *map(self._factor, monomial)) for monomial, coefficient in terms]
        self.rows.append(row)
        place = self._places[dim] = len(self._places)
        return place

    def _factor(self, atom: dims.Atom) -> Any:
        if atom.function == "variable":
            return str(atom.arguments[0])
        left, right = (self.add(argument) for argument in atom.arguments)  # type: ignore[arg-type]
        return atom.function, left, right


def expressions(rows: Sequence[Any]) -> list[DimLike]:
    """The expressions of a table, in order. IndexError, KeyError, TypeError or ValueError for what is none."""
    known: list[DimLike] = []
    for terms in rows:
        total: DimLike = 0
        for coefficient, *factors in terms:
            value: DimLike = coefficient
            for factor in factors:
                value = value * _factor(factor, known)
            total = total + value
        known.append(total)
    return known


def _factor(factor: Any, known: Sequence[DimLike]) -> DimLike:
    if isinstance(factor, str):
        return dims.variable(factor)
    function, left, right = factor
    return dims.applied(function, known[left], known[right])


def _operands(numbers: Sequence[int]) -> tuple[OperandPlace, ...]:
    each = iter(numbers)
    return tuple(
        OperandPlace(SPACES[space], index, offset) for space, index, offset in zip(each, each, each, strict=True)
    )


def _constant(constant: Any, arrays: Sequence[Array]) -> Constant:
    if isinstance(constant, int):
        return arrays[constant]
    if len(constant) == 4:
        maker, given, part, sizes = constant
        return Computed(_maker(maker, given), part, tuple(sizes))
    dtype, shape, elements = constant
    return ConstantNumbers(dtype_named(dtype), tuple(shape), tuple(elements))


def _tensor_row(tensor: PlanTensor) -> tuple[str, str, tuple[int, ...]]:
    return tensor.name, tensor.dtype.name, tensor.shape


def _tensor(name: str, dtype: str, shape: Sequence[int]) -> PlanTensor:
    return PlanTensor(name, dtype_named(dtype), tuple(shape))


def _spec_row(spec: KernelSpec) -> tuple[str, str, dict[str, Any]]:
    found = _spec_class(spec.family, type(spec).__name__)
    assert found is type(spec), f"Bug: {type(spec).__name__} is not in the module `spec` of its family"
    return spec.family, *_record(spec)


def _record(record: KernelSpec | Maker) -> tuple[str, dict[str, Any]]:
    """The class and the fields of a data class of plain values."""
    return type(record).__name__, {entry.name: _checked(getattr(record, entry.name)) for entry in fields(record)}


def _spec(family: str, name: str, given: Message) -> KernelSpec:
    return _spec_class(family, name)(**_fields(given))


def _maker(name: str, given: Message) -> Maker:
    """What makes a constant. ValueError for a name that is none of ours."""
    from jitonnx.plan.tables import MAKERS

    if name not in MAKERS:
        raise ValueError(f"nothing called {name} makes constants")
    return MAKERS[name](**_fields(given))


def _fields(given: Message) -> dict[str, Any]:
    return {name: _plain(value) for name, value in given.items()}


def _spec_class(family: str, name: str) -> type[KernelSpec]:
    """A class of the kernel library. ValueError for other names."""
    found = getattr(importlib.import_module(f"jitonnx.kernels.{family}.spec"), name) if family.isidentifier() else None
    if not isinstance(found, type) or not issubclass(found, KernelSpec):
        raise ValueError(f"the kernel library has no spec {family}.{name}")
    return found


def _checked(value: Any) -> Any:
    """A plain value: None, a truth value, a number, a text, or a tuple of such."""
    if isinstance(value, tuple):
        return tuple(map(_checked, value))
    assert value is None or isinstance(value, bool | int | float | str), (
        f"Bug: a kernel's spec holds {value!r}, which is no plain value"
    )
    return value


def _plain(value: Any) -> Any:
    """A plain value as it was before JSON, which knows lists alone."""
    return tuple(map(_plain, value)) if isinstance(value, list) else value

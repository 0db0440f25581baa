"""Outlines of plans as protobuf messages (`Plan` in proto/artifact.proto), and back. Imports nothing that compiles.

Kernel specs are written as the name of their class and its fields, and only classes of the kernel library's `spec`
modules are looked up.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from jitonnx.ir import dims
from jitonnx.ir.dims import Dim, DimLike
from jitonnx.kernels.spec import KernelSpec
from jitonnx.plan.memory import Lifetime
from jitonnx.plan.outline import ArenaBuffer, Array, Call, Computed, Constant, Contents, Operand, Outline, PlanTensor
from jitonnx.runtime.program import SPACES

if TYPE_CHECKING:
    from jitonnx.plan.tables import Maker
    from jitonnx.proto import artifact_pb2 as pb

_CODES = {space: code for code, space in enumerate(SPACES)}
_FUNCTIONS: dict[str, Callable[[DimLike, DimLike], DimLike]] = {
    "//": dims.floor_divide,
    "%": dims.modulo,
    "max": dims.maximum,
    "min": dims.minimum,
}


class OutlineError(ValueError):
    """A message that is no plan of ours."""


def to_message(outline: Outline) -> tuple[pb.Plan, list[Array]]:
    """The message, and the arrays that its constants name by position."""
    from jitonnx.proto import artifact_pb2 as pb

    message, arrays = pb.Plan(), list[Array]()
    expressions = _Expressions(message)
    message.numbers.extend([expressions.add(number) for number in outline.numbers])
    message.inputs.extend([_tensor_message(tensor) for tensor in outline.inputs])
    message.outputs.extend([_tensor_message(tensor) for tensor in outline.outputs])
    for buffer in outline.arena:
        message.arena.add(bytes=buffer.bytes, first=buffer.life.first, last=buffer.life.last)
    for constant in outline.constants:
        row = message.constants.add()
        if isinstance(constant, Contents):
            row.contents.dtype = constant.dtype.name
            row.contents.shape.extend(constant.shape)
            row.contents.elements.extend(constant.elements)
        elif isinstance(constant, Computed):
            row.computed.maker.CopyFrom(_record_message("", constant.maker))
            row.computed.part = constant.part
            row.computed.sizes.extend(constant.sizes)
        else:
            row.array = len(arrays)
            arrays.append(constant)
    specs: dict[KernelSpec, int] = {}
    for call in outline.calls:
        message.calls.add(
            spec=specs.setdefault(call.spec, len(specs)),
            sizes=call.sizes,
            stage_sizes=call.stage_sizes,
            operands=[part for space, index, offset in call.operands for part in (_CODES[space], index, offset)],
            label=call.label,
        )
    message.specs.extend([_spec_message(spec) for spec in specs])
    message.assumptions.extend([row for pair in outline.assumptions for row in pair])
    return message, arrays


def from_message(message: pb.Plan, arrays: Sequence[Array]) -> Outline:
    """The outline. `arrays`: those that its constants name. OutlineError for a message that `to_message` never made."""
    try:
        return _outline(message, arrays)
    except (IndexError, KeyError, ValueError, TypeError, ArithmeticError, AttributeError, ImportError) as error:
        raise OutlineError(f"it holds a plan that cannot be read ({type(error).__name__}: {error})") from error


def _outline(message: pb.Plan, arrays: Sequence[Array]) -> Outline:
    expressions: list[DimLike] = []
    for expression in message.expressions:
        expressions.append(_expression(expression, expressions))
    specs = [_spec(spec) for spec in message.specs]
    pairs = iter(message.assumptions)
    outline = Outline(
        [_tensor(tensor) for tensor in message.inputs],
        [_tensor(tensor) for tensor in message.outputs],
        [
            Call(specs[call.spec], tuple(call.sizes), tuple(call.stage_sizes), _operands(call), call.label)
            for call in message.calls
        ],
        [ArenaBuffer(buffer.bytes, Lifetime(buffer.first, buffer.last)) for buffer in message.arena],
        [_constant(constant, arrays) for constant in message.constants],
        list(zip(pairs, pairs, strict=True)),
        [expressions[place] for place in message.numbers],
    )
    return outline


class _Expressions:
    """The table of a message's expressions: each once, behind those that it is made of."""

    def __init__(self, message: pb.Plan) -> None:
        self._message = message
        self._places: dict[DimLike, int] = {}

    def add(self, dim: DimLike) -> int:
        """The place of an expression."""
        if dim in self._places:
            return self._places[dim]
        from jitonnx.proto import artifact_pb2 as pb

        expression = pb.Expression()
        # An integer is a product of nothing.
        for monomial, coefficient in dim.terms if isinstance(dim, Dim) else (((), dim),):
            term = expression.terms.add(coefficient=coefficient)
            for atom in monomial:
                factor = term.factors.add()
                if atom.function == "variable":
                    factor.variable = str(atom.arguments[0])
                else:
                    left, right = (self.add(argument) for argument in atom.arguments)  # type: ignore[arg-type]
                    factor.operation.function = atom.function
                    factor.operation.left, factor.operation.right = left, right
        self._message.expressions.append(expression)
        place = self._places[dim] = len(self._places)
        return place


def _expression(expression: pb.Expression, known: Sequence[DimLike]) -> DimLike:
    total: DimLike = 0
    for term in expression.terms:
        value: DimLike = term.coefficient
        for factor in term.factors:
            value = value * _factor(factor, known)
        total = total + value
    return total


def _factor(factor: pb.Factor, known: Sequence[DimLike]) -> DimLike:
    if factor.WhichOneof("value") == "variable":
        return dims.variable(factor.variable)
    operation = factor.operation
    return _FUNCTIONS[operation.function](known[operation.left], known[operation.right])


def _operands(call: pb.Call) -> tuple[Operand, ...]:
    numbers = iter(call.operands)
    return tuple(
        Operand(SPACES[space], index, offset) for space, index, offset in zip(numbers, numbers, numbers, strict=True)
    )


def _constant(constant: pb.PlanConstant, arrays: Sequence[Array]) -> Constant:
    if constant.WhichOneof("value") == "array":
        return arrays[constant.array]
    if constant.WhichOneof("value") == "computed":
        computed = constant.computed
        return Computed(_maker(computed.maker), computed.part, tuple(computed.sizes))
    contents = constant.contents
    return Contents(np.dtype(contents.dtype), tuple(contents.shape), tuple(contents.elements))


def _tensor_message(tensor: PlanTensor) -> pb.PlanTensor:
    from jitonnx.proto import artifact_pb2 as pb

    return pb.PlanTensor(name=tensor.name, dtype=tensor.dtype.name, shape=tensor.shape)


def _tensor(tensor: pb.PlanTensor) -> PlanTensor:
    return PlanTensor(tensor.name, np.dtype(tensor.dtype), tuple(tensor.shape))


def _spec_message(spec: KernelSpec) -> pb.Spec:
    found = _spec_class(spec.family, type(spec).__name__)
    assert found is type(spec), f"Bug: {type(spec).__name__} is not in the module `spec` of its family"
    return _record_message(spec.family, spec)


def _record_message(family: str, record: KernelSpec | Maker) -> pb.Spec:
    """A data class of plain values."""
    from jitonnx.proto import artifact_pb2 as pb

    message = pb.Spec(family=family, name=type(record).__name__)
    for entry in fields(record):
        message.fields.add(name=entry.name, value=_plain_message(getattr(record, entry.name)))
    return message


def _spec(message: pb.Spec) -> KernelSpec:
    return _spec_class(message.family, message.name)(**_fields(message))


def _maker(message: pb.Spec) -> Maker:
    """What makes a constant. ValueError for a name that is none of ours."""
    from jitonnx.plan.tables import MAKERS

    if message.name not in MAKERS:
        raise ValueError(f"nothing called {message.name} makes constants")
    return MAKERS[message.name](**_fields(message))


def _fields(message: pb.Spec) -> dict[str, Any]:
    return {field.name: _plain(field.value) for field in message.fields}


def _spec_class(family: str, name: str) -> type[KernelSpec]:
    """A class of the kernel library. ValueError for other names."""
    found = getattr(importlib.import_module(f"jitonnx.kernels.{family}.spec"), name) if family.isidentifier() else None
    if not isinstance(found, type) or not issubclass(found, KernelSpec):
        raise ValueError(f"the kernel library has no spec {family}.{name}")
    return found


def _plain_message(value: object) -> pb.Plain:
    from jitonnx.proto import artifact_pb2 as pb

    if isinstance(value, bool):  # before integers, which booleans are
        return pb.Plain(truth=value)
    if isinstance(value, int):
        return pb.Plain(integer=value)
    if isinstance(value, float):
        return pb.Plain(number=value)
    if isinstance(value, str):
        return pb.Plain(text=value)
    if isinstance(value, tuple):
        return pb.Plain(items=pb.Plains(items=map(_plain_message, value)))
    assert value is None, f"Bug: a kernel's spec holds {value!r}, which is no plain value"
    return pb.Plain()


def _plain(message: pb.Plain) -> Any:
    kind = message.WhichOneof("value")
    if kind is None:
        return None
    return tuple(map(_plain, message.items.items)) if kind == "items" else getattr(message, kind)

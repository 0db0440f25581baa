"""What operators there are, as data under onnxruntime's names: signatures, and what has an implementation here.

`get_all_operator_schema` tells the signatures of every version that is known, `get_all_opkernel_def` the types and
versions of those that run. Texts that describe, files and lines are not kept, and are empty.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, ClassVar

from jitonnx import errors
from jitonnx.api.enumerations import Enumeration
from jitonnx.api.providers import CPU

if TYPE_CHECKING:
    from jitonnx.ir.schema import Parameter, Schema

_ENDLESS = 2**31 - 1
"""The number for a count or a version that has no end."""


class AttrType(Enumeration):
    """Kinds of attributes."""

    FLOAT = 1
    INT = 2
    STRING = 3
    TENSOR = 4
    SPARSE_TENSOR = 11
    GRAPH = 5
    FLOATS = 6
    INTS = 7
    STRINGS = 8
    TENSORS = 9
    SPARSE_TENSORS = 12
    GRAPHS = 10
    TYPE_PROTO = 13


class SupportType(Enumeration):
    """Whether an operator is there to stay."""

    COMMON = 0
    EXPERIMENTAL = 1


class FormalParameterOption(Enumeration):
    """How many values stand for an input or output."""

    Single = 0
    Optional = 1
    Variadic = 2


class Attribute:
    """An attribute of an operator."""

    description = ""
    _default_value = b""

    def __init__(self, name: str, kind: str, required: bool) -> None:
        self.name, self.required = name, required
        self.type = AttrType[kind or "INT"]


class FormalParameter:
    """An input or output of an operator."""

    description = ""

    def __init__(self, parameter: Parameter) -> None:
        self.name, self.typeStr, self.isHomogeneous = parameter.name, parameter.type, parameter.homogeneous
        self.types = set(_texts(parameter))
        self.option = FormalParameterOption.Single
        if parameter.variadic:
            self.option = FormalParameterOption.Variadic
        elif parameter.optional:
            self.option = FormalParameterOption.Optional


class TypeConstraintParam:
    """A type variable of an operator, and the types that it may stand for."""

    description = ""

    def __init__(self, name: str, types: list[str]) -> None:
        self.type_param_str, self.allowed_type_strs = name, types


class OpSchema:
    """A version of an operator. Made by `get_all_operator_schema` alone."""

    AttrType: ClassVar = AttrType
    Attribute: ClassVar = Attribute
    FormalParameter: ClassVar = FormalParameter
    FormalParameterOption: ClassVar = FormalParameterOption
    SupportType: ClassVar = SupportType
    TypeConstraintParam: ClassVar = TypeConstraintParam

    doc, file, line = "", "", 0
    support_level = SupportType.COMMON
    has_type_and_shape_inference_function = True

    def __init__(self, schema: Schema) -> None:
        self.domain, self.name, self.since_version = schema.domain, schema.name, schema.version
        self.deprecated = schema.deprecated
        self.inputs, self.outputs = ([FormalParameter(one) for one in all] for all in (schema.inputs, schema.outputs))
        self.attributes = {name: Attribute(name, *told) for name, told in schema.attributes.items()}
        variables = {one.type: _texts(one) for one in (*schema.inputs, *schema.outputs) if "(" not in one.type}
        self.type_constraints = [TypeConstraintParam(*each) for each in variables.items()]
        self.min_input, self.max_input = _counts(schema.inputs)
        self.min_output, self.max_output = _counts(schema.outputs)

    @staticmethod
    def is_infinite(count: int) -> bool:
        """Whether a most is none."""
        return count == _ENDLESS


class KernelDef:
    """What an operator's implementation takes, of the versions from the first to the last of `version_range`."""

    provider = CPU

    def __init__(self, schema: Schema, last: int) -> None:
        self.op_name, self.domain = schema.name, schema.domain
        self.version_range = (schema.version, last)
        self.type_constraints = {
            one.type: _texts(one) for one in (*schema.inputs, *schema.outputs) if "(" not in one.type
        }


def get_all_operator_schema() -> list[OpSchema]:
    """The signatures of all operators' versions that are known, implemented or not."""
    from jitonnx.ir.schema import lines_in, schemas_in, schemas_of
    from jitonnx.ops.registry import FOLDERS, registry

    found: list[Schema] = []
    for domain, folder in FOLDERS.items():
        place = f"jitonnx.ops.{folder}"
        found += (schema for name in lines_in(place) for schema in schemas_in(place, domain, name))
    for own in registry.domains():
        if own.name not in FOLDERS:
            found += (schema for declaration in own for schema in schemas_of(declaration))
    return [OpSchema(schema) for schema in found]


def get_all_opkernel_def() -> list[KernelDef]:
    """The versions of operators that run. (In onnxruntime there is one for each implementation of some types.)"""
    from jitonnx.ir.schema import schemas_of
    from jitonnx.ops.registry import registry

    kernels = []
    for declaration in registry:
        versions = schemas_of(declaration)
        lasts = [*(schema.version - 1 for schema in versions[1:]), _ENDLESS]
        kernels += [KernelDef(schema, last) for schema, last in zip(versions, lasts, strict=False)]
    return kernels


def get_registered_ep_kernel_defs(ep_name: str) -> list[KernelDef]:
    """Fail: no execution provider comes from a library."""
    raise errors.Fail(
        f"No devices found for EP '{ep_name}'. Ensure the plugin EP library is registered via "
        "register_execution_provider_library()."
    )


def _texts(parameter: Parameter) -> list[str]:
    return sorted(kind if isinstance(kind, str) else f"tensor({kind.text})" for kind in parameter.kinds)


def _counts(parameters: tuple[Parameter, ...]) -> tuple[int, int]:
    """The least and the most values that a node gives."""
    if parameters and parameters[-1].variadic:
        return len(parameters) - 1 + parameters[-1].least, _ENDLESS
    trailing = itertools.takewhile(lambda one: one.optional, reversed(parameters))
    return len(parameters) - sum(1 for _ in trailing), len(parameters)

"""Each operator accepts exactly the types that ONNX's schema lists for a version and an input.

For each version of each operator of ONNX a model of one node is made for every combination of types that its type
variables allow, and has to load; and for every input one of a type that is not listed, which has to be refused by name.
The nodes are those of the families' tables of cases with their inputs in other types. Operators on sequences, maps and
optionals, and those that run graphs, have no such tables: `OTHERS` says what their nodes need beside inputs.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest
from onnx import TypeProto, helper, numpy_helper

from jitonnx import errors
from jitonnx.ir.dtypes import DType
from jitonnx.ir.schema import versions_of
from jitonnx.model import load
from jitonnx.ops.registry import FOLDERS, registry
from tests.ops.coverage import as_type, schemas
from tests.ops.harness import Case
from tests.ops.tables import all_cases

MOST = 40
"""Combinations of types of one version that are tried by default: each type once, and as many more."""
UNLISTED = (
    "tensor(string)",
    "tensor(bool)",
    "tensor(complex64)",
    "tensor(float)",
    "tensor(int64)",
    "seq(tensor(float))",
)
"""Types of which the first that an input does not list is the one that it has to refuse."""
DTYPES = {f"tensor({dtype.text})": dtype for dtype in DType}


class Form(NamedTuple):
    """A node whose inputs' types are left open."""

    shapes: tuple[tuple[int, ...] | None, ...]
    """The shapes of the tensors that the inputs are, or are made of; None where they are unknown."""
    attributes: Callable[[Sequence[str]], Mapping[str, Any]]
    """The attributes, given the type of each input, "" for one that is left out."""
    left_out: tuple[int, ...] = ()
    constants: Mapping[int, np.ndarray] = {}
    """Inputs that are initializers."""
    outputs: int = 1


def type_proto(text: str, shape: Sequence[int] | None = None) -> TypeProto:
    """A type in ONNX's words as a message; the tensors in it of this shape."""
    kind, inner = text[:-1].split("(", 1)
    if kind == "tensor":
        return helper.make_tensor_type_proto(DTYPES[text], shape)
    if kind == "map":
        key, value = inner.split(",")
        return helper.make_map_type_proto(DTYPES[f"tensor({key})"], type_proto(value.strip(), []))
    make = {"seq": helper.make_sequence_type_proto, "optional": helper.make_optional_type_proto}[kind]
    return make(type_proto(inner, shape))


def body(given: Sequence[tuple[str, TypeProto]], results: Sequence[str]) -> onnx.GraphProto:
    """A graph that gives some of its inputs."""
    types = {name: helper.make_value_info(name, type) for name, type in given}
    return helper.make_graph([], "body", list(types.values()), [types[name] for name in results])


def of_loop(types: Sequence[str]) -> dict[str, Any]:
    step = [("n", type_proto("tensor(int64)", [])), ("go", type_proto("tensor(bool)", []))]
    return {"body": body([*step, ("v", type_proto(types[2]))], ["go", "v"])}


def of_scan(types: Sequence[str]) -> dict[str, Any]:
    return {"body": body([("v", type_proto(types[-1], [3]))], ["v"]), "num_scan_inputs": 1}


def of_map(types: Sequence[str]) -> dict[str, Any]:
    inner = [text[4:-1] if text.startswith("seq(") else text for text in types]
    return {"body": body([(f"e{at}", type_proto(text)) for at, text in enumerate(inner)], ["e0"])}


def branches(types: Sequence[str]) -> dict[str, Any]:
    value = helper.make_tensor("c", DType.FLOAT, [1], [1.0])
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["c"], value=value)], "branch", [], [onnx.ValueInfoProto(name="c")]
    )
    return {"then_branch": graph, "else_branch": graph}


def of_vocabulary(types: Sequence[str]) -> dict[str, Any]:
    return {"string_vocabulary": ["a"]} if types[0].startswith("map(string") else {"int64_vocabulary": [1]}


def plain(**attributes: Any) -> Callable[[Sequence[str]], Mapping[str, Any]]:
    return lambda types: attributes


OTHERS: Mapping[tuple[Any, ...], Sequence[Form]] = {
    ("", "ConcatFromSequence"): [Form((None,), plain(axis=0))],
    ("", "Constant"): [Form((), plain(value=helper.make_tensor("value", DType.FLOAT, [1], [1.0])))],
    ("", "If"): [Form(((),), branches)],
    ("", "Loop"): [Form(((), (), None), of_loop)],
    ("", "NonMaxSuppression"): [Form(((1, 5, 4), (1, 1, 5), (), (), ()), plain())],
    ("", "Optional"): [Form((None,), plain())],
    ("", "OptionalGetElement"): [Form((None,), plain())],
    ("", "OptionalHasElement"): [Form((None,), plain())],
    ("", "Scan"): [Form(((2, 3),), of_scan)],
    ("", "Scan", 8): [Form(((1,), (1, 2, 3)), of_scan)],
    ("", "SequenceAt"): [Form((None, ()), plain())],
    ("", "SequenceConstruct"): [Form(((2,),), plain())],
    ("", "SequenceEmpty"): [Form((), plain())],
    ("", "SequenceErase"): [Form((None, ()), plain())],
    ("", "SequenceInsert"): [Form((None, (2,), ()), plain())],
    ("", "SequenceLength"): [Form((None,), plain())],
    ("", "SequenceMap"): [Form((None, None), of_map)],
    ("", "SplitToSequence"): [Form(((4, 2), ()), plain())],
    ("ai.onnx.ml", "CastMap"): [Form((None,), plain())],
    ("ai.onnx.ml", "DictVectorizer"): [Form((None,), of_vocabulary)],
    ("ai.onnx.ml", "ZipMap"): [Form(((2, 3),), plain(classlabels_int64s=[1, 2, 3]))],
    ("ai.onnx.preview", "FlexAttention"): [Form(((1, 2, 3, 8), (1, 2, 4, 8), (1, 2, 4, 8)), plain())],
}


@cache
def forms() -> Mapping[tuple[str, str, int], list[Form]]:
    """The forms of each version of each operator that has a table of cases; those with most inputs first."""
    found: dict[tuple[str, str, int], list[Form]] = defaultdict(list)
    for one in all_cases():
        versions = versions_of(registry.find(one.domain, one.operator))  # type: ignore[arg-type]
        found[one.domain, one.operator, max(v for v in versions if v <= one.opset)].append(_form(one))
    for several in found.values():
        several.sort(key=lambda form: len(form.left_out) - len(form.shapes))
    return found


def _form(case: Case) -> Form:
    attributes = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in case.attributes.items()}
    absent = tuple(at for at, x in enumerate(case.inputs) if x is None)
    constants = {at: x for at in case.constants if (x := case.inputs[at]) is not None}
    shapes = tuple(() if x is None else x.shape for x in case.inputs)
    if case.operator == "BitCast":  # to a type of as many bits
        return Form(shapes, lambda types: {"to": DTYPES[types[0]]}, absent, constants, case.outputs)
    return Form(shapes, plain(**attributes), absent, constants, case.outputs)


def build(form: Form, domain: str, operator: str, version: int, types: Sequence[str]) -> onnx.ModelProto:
    """A model of the node, its inputs of these types."""
    names = ["" if at in form.left_out else f"x{at}" for at in range(len(form.shapes))]
    node = helper.make_node(
        operator,
        names,
        [f"y{at}" for at in range(form.outputs)],
        name="node",
        domain=domain,
        **form.attributes(types),
    )
    given = [at for at, name in enumerate(names) if name and at not in form.constants]
    graph = helper.make_graph(
        [node],
        "types",
        [helper.make_value_info(names[at], type_proto(types[at], form.shapes[at])) for at in given],
        [onnx.ValueInfoProto(name=name) for name in node.output],
        [numpy_helper.from_array(as_type(x, DTYPES[types[at]]), names[at]) for at, x in form.constants.items()],
    )
    opsets = [helper.make_opsetid(domain, version), *([helper.make_opsetid("", 26)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=13)


def parameters(schema: Any, count: int) -> list[Any]:
    """The schema's input behind each of so many inputs of a node."""
    return [schema.inputs[min(at, len(schema.inputs) - 1)] for at in range(count)]


def fits(form: Form, schema: Any, chosen: Mapping[str, str]) -> list[str] | None:
    """The types of a form's inputs if the schema's type variables stand for these; None where one is not among them."""
    types = []
    for at, entry in enumerate(parameters(schema, len(form.shapes))):
        type = chosen.get(entry.type_str) or min(entry.types)
        types.append("" if at in form.left_out else type)
    used = {entry.type_str for entry, type in zip(parameters(schema, len(types)), types, strict=True) if type}
    return types if used >= chosen.keys() else None


def combinations(schema: Any, most: int | None) -> Iterator[dict[str, str]]:
    """What the type variables of the inputs may stand for together: all, or each type at least once.

    What SequenceInsert inserts is of the sequence's type, which its schema cannot say.
    """
    variables = {entry.type_str: sorted(entry.types) for entry in schema.inputs if len(entry.types) > 1}
    every = list(itertools.product(*variables.values()))
    longest = max(map(len, variables.values()), default=1)
    if most is not None and len(every) > max(most, longest):
        few = [tuple(types[at % len(types)] for types in variables.values()) for at in range(longest)]
        every = few + every[:: len(every) // (most - min(most - 1, longest))]
    for types in every:
        chosen = dict(zip(variables, types, strict=True))
        if schema.name != "SequenceInsert" or chosen["S"] == f"seq({chosen['T']})":
            yield chosen


def known_forms(schema: Any) -> Sequence[Form]:
    """The forms of a version of an operator."""
    place = (schema.domain, schema.name)
    others = OTHERS.get((*place, schema.since_version)) or OTHERS.get(place, ())
    return (*others, *forms().get((*place, schema.since_version), ()))


def first_error(schema: Any, chosen: Mapping[str, str]) -> str | None:
    """Why no form of the version loads if its variables stand for these types; None if one does."""
    found = "no case has all inputs"
    for form in known_forms(schema):
        types = fits(form, schema, chosen)
        if types is None:
            continue
        try:
            load(build(form, schema.domain, schema.name, schema.since_version, types).SerializeToString())
        except errors.Error as error:
            found = str(error)
        else:
            return None
    return found


SCHEMAS = [
    schema
    for (domain, _), versions in sorted(schemas().items())
    if domain in FOLDERS
    for schema in versions.values()
    if not schema.deprecated and schema.name != "Gradient"  # which has no types, but those of the graph around it
]
every_version = pytest.mark.parametrize(
    "schema", SCHEMAS, ids=lambda schema: f"{schema.domain or 'ai.onnx'}:{schema.name}-{schema.since_version}"
)


@pytest.mark.sampled(2)
@every_version
def test_every_type_that_is_listed_is_taken(schema: Any) -> None:
    refused = {}
    for chosen in combinations(schema, MOST):
        if (why := first_error(schema, chosen)) is not None:
            refused[tuple(chosen.items())] = why
    assert not refused


@every_version
def test_a_type_that_is_not_listed_is_refused(schema: Any) -> None:
    for entry in schema.inputs:
        unlisted = next((text for text in UNLISTED if text not in entry.types), None)
        if unlisted is None:
            continue
        given = with_type(schema, entry, unlisted)
        assert given is not None, f"no case has the input {entry.name}"
        model, name = given
        with pytest.raises(errors.Error, match=rf"'{name}' is of type .*; allowed are ") as caught:
            load(model.SerializeToString())
        for text in (f"({schema.name}) in node (node)", f"for {entry.name} of version {schema.since_version}"):
            assert text in str(caught.value)


def with_type(schema: Any, entry: Any, type: str) -> tuple[onnx.ModelProto, str] | None:
    """A model in which one of the schema's inputs has a type, and that input's name; None if no case has that input."""
    for form in known_forms(schema):
        types = fits(form, schema, {})
        for at, parameter in enumerate(parameters(schema, len(form.shapes))):
            if types and parameter.name == entry.name and at not in form.left_out:
                types[at] = type
                rest = {place: x for place, x in form.constants.items() if place != at}
                model = build(form._replace(constants=rest), schema.domain, schema.name, schema.since_version, types)
                return model, f"x{at}"
    return None

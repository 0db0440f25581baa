"""The rules that a model is held to: how grave it is to break one, and whether a session refuses such a model.

The order is that in which a session tells of them: what stands further up is what onnxruntime would complain of first.
A rule that onnx's checker enforces but that says nothing of what a model computes (the order in which nodes are written
down, a name of the graph) is an error of `jitonnx check`, while a session runs the model, as onnxruntime does.
"""

from __future__ import annotations

from jitonnx import errors
from jitonnx.errors import Error, Fail, InvalidArgument, InvalidGraph
from jitonnx.support.records import NamedTuple


class Rule(NamedTuple):
    """A rule."""

    text: str
    """What breaks it."""
    error: type[Error]
    """What a session raises."""
    severity: str = "error"
    refused: bool = True
    """Whether a session refuses a model that breaks it."""


def _warning(text: str) -> Rule:
    return Rule(text, Fail, "warning", refused=False)


def _of_form(text: str) -> Rule:
    return Rule(text, Fail, "error", refused=False)


RULES: dict[str, Rule] = {
    "model.graph": Rule("the model has no graph", InvalidArgument),
    "model.ir-version": Rule("the IR version is absent, not positive, or newer than those that are known", Fail),
    "model.opsets": Rule("no operator set is imported, or one of a version that does not exist", Fail),
    "model.opsets-early": _of_form("operator sets are imported in an IR version that has none"),
    "model.opset-twice": _warning("an operator set is imported twice"),
    "model.opset-unknown": _warning("an operator set is imported that is not registered, and that no node uses"),
    "model.domain": _warning("the model has no domain"),
    "model.metadata": _of_form("two metadata properties have one key"),
    "model.newer-field": _warning("a field is used that this IR version does not have"),
    "functions.twice": Rule("two functions have one domain, name and overload", Fail),
    "functions.name": Rule("a function has no name", InvalidGraph),
    "functions.signature": Rule("a function has two inputs, outputs or attributes of one name", InvalidGraph),
    "functions.recursion": Rule("functions call one another in a circle", InvalidGraph),
    "functions.size": Rule("calls within calls make too many nodes, or are too deep", Fail),
    "functions.opsets": Rule("a function lacks an operator set", InvalidGraph),
    "functions.versions": _of_form("an operator differs between the operator sets of a function and of the model"),
    "operators.name": Rule("a node has no operator", InvalidGraph),
    "operators.domain": Rule("the operator set of a node's domain is not imported", InvalidGraph),
    "operators.version": Rule("an operator does not exist in the imported version", InvalidGraph),
    "operators.deprecated": _of_form("an operator was dropped in the imported version, and came back later"),
    "operators.unknown": Rule("nobody knows the operator", InvalidGraph),
    "operators.foreign": Rule("an operator of another domain is not registered", Fail, "warning"),
    "operators.body": Rule(
        "an operator is declared by a document, without a function, and not registered",
        errors.NotImplemented,
        "warning",
    ),
    "operators.experimental": _warning("an operator is experimental"),
    "functions.output": Rule("a function gives an output that nobody defines", InvalidGraph),
    "graphs.name": _of_form("a graph has no name"),
    "names.empty": Rule("a value has no name", Fail),
    "names.twice": Rule("a value is defined twice", Fail),
    "names.constants-twice": _of_form("two Constants of the model's graph define one value: the last counts"),
    "names.undefined": Rule("a name is read that nobody defines", InvalidArgument),
    "names.output": Rule("an output of a graph or function is a name that nobody defines", Fail),
    "names.node-twice": Rule("two nodes have one name", InvalidGraph),
    "names.identifier": _warning("a name is not an identifier as in C"),
    "order.cycle": Rule("nodes wait for one another in a circle", Fail),
    "order.unsorted": _of_form("a node stands in front of one whose output it reads"),
    "functions.call": Rule("a call does not fit its function", InvalidGraph),
    "attributes.name": Rule("an attribute has no name", InvalidGraph),
    "attributes.twice": Rule("a node has two attributes of one name", InvalidGraph),
    "attributes.type": Rule("an attribute has no type, or one that does not exist", InvalidGraph),
    "attributes.value": Rule("the value of an attribute is not where its type says, or there are two", InvalidGraph),
    "attributes.reference": Rule("a reference to an attribute stands where there is none", InvalidGraph),
    "signature.attributes": Rule("the attributes of a node are not those of its operator", InvalidGraph),
    "signature.counts": Rule("a node has another number of inputs or outputs than its operator", InvalidGraph),
    "tensors.type": Rule("a tensor has an element type that does not exist", errors.NotImplemented),
    "tensors.type-missing": Rule("a tensor has no element type", Fail),
    "tensors.dims": Rule("a tensor has a negative dimension", Fail),
    "tensors.fields": Rule("a tensor's elements are in several places, or not where its type says", Fail),
    "tensors.count": Rule("a tensor has another number of elements than its shape says", Fail),
    "tensors.text": Rule("a string is not UTF-8", Fail),
    "tensors.segment": Rule("a tensor is a segment of another", errors.NotImplemented),
    "initializers.name": Rule("an initializer has no name", Fail),
    "initializers.declared": Rule("an initializer contradicts the input of its name", Fail),
    "initializers.default": _of_form("an input of a graph that a node runs has a default"),
    "initializers.input": _of_form("before IR version 4 each initializer is an input"),
    "external.entries": Rule("external data has two entries of one name", Fail),
    "external.location": Rule("external data has no location that may be read", Fail),
    "external.range": Rule("external data is not in the file", Fail),
    "external.checksum": Rule("the SHA-1 digest of a file is another", Fail, "error", refused=False),
    "sparse.values": Rule("the values of a sparse tensor are no list", Fail),
    "sparse.indices": Rule("the indices of a sparse tensor are not one for each value, or not in range", Fail),
    "sparse.order": _of_form("the indices of a sparse tensor do not ascend, or one is there twice: the last counts"),
    "sparse.dims": Rule("a sparse tensor has no dimensions, or a negative one", Fail),
    "sparse.empty": _of_form("a sparse tensor has a dimension of size 0"),
    "sparse.constant": _of_form("the `value` of a Constant is a sparse tensor; it is `sparse_value`, or a tensor"),
    "types.missing": _of_form("an input or output of the model has no type or no shape"),
    "types.input": Rule("an input of the model has no type or no element type", Fail),
    "types.kind": Rule("a type that ONNX does not have", Fail),
    "types.mismatch": Rule("types contradict one another", Fail),
    "shapes.negative": _warning("a declared size is negative"),
    "shapes.variable": _warning("the name of a dimension is not an identifier as in C"),
    "shapes.mismatch": _warning("a declared shape contradicts the one that was inferred"),
    "values.twice": _warning("two entries of value_info are of one value"),
    "values.unknown": _warning("an entry of value_info is of no value of the graph"),
    "training.binding": Rule("a training binding names what does not exist", Fail, "error", refused=False),
    "training.twice": Rule("two training bindings of one state variable", Fail, "error", refused=False),
    "graphs.outputs": Rule("the model's graph has no outputs", Fail),
    "build": Rule("a node cannot be built", InvalidGraph),
}
"""The rules by name: a family, a dot, and what the rule is about."""

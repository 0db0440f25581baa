"""What ONNX's documents ask of those who read models, in our words, and what jitonnx does about it.

A test that shows it bears `@pytest.mark.conformance(NAME, ...)`, with the names of its rows.
`python -m tests.conformance` makes docs/conformance.md of both.
"""

from __future__ import annotations

from typing import NamedTuple


class Row(NamedTuple):
    """A sentence of a document."""

    sentence: str
    """What it asks, in our words."""
    answer: str
    """What jitonnx does."""


REFUSED = "Otherwise refused."
FORM = "Otherwise an error of `jitonnx check`; a session runs the model, as its meaning is plain."
WARNED = "Otherwise a warning of `jitonnx check`; accepted."
DONE = "It is so."

ROWS: dict[str, dict[str, Row]] = {
    "IR: versions": {
        "ir-versions": Row("IR versions are those of the enumeration in onnx.proto.", f"1 to 14. {REFUSED}"),
        "ir-version-present": Row("Every model has an IR version.", "Absent, 0 or negative: refused."),
        "fields-by-version": Row(
            "A field exists from some IR version on.", "An older version: a warning of `jitonnx check`; accepted."
        ),
        "types-by-version": Row(
            "An element type exists from some IR version on.",
            "An older version: a warning of `jitonnx check`; accepted.",
        ),
        "ir-before-opsets": Row(
            "Before IR version 3 there are no operator sets.", "Version 1 of the standard operators is meant."
        ),
        "model-version": Row(
            "The model's own version is a number of 64 bits, which may pack a SemVer.",
            "`get_modelmeta().version` has it as it is, `jitonnx.versioning.semver_of` the SemVer.",
        ),
    },
    "IR: models": {
        "metadata": Row(
            "A model says who made it, which version it is, and more, for people and tools.",
            "`jitonnx info MODEL` and `jitonnx.tools.info.describe` tell all of it, `get_modelmeta` what onnxruntime "
            "tells.",
        ),
        "metadata-keys": Row("Keys of metadata properties are distinct.", FORM),
        "model-domain": Row("A model names its domain.", WARNED),
        "graph-present": Row("A model has a graph.", REFUSED),
        "stateless": Row("Inference is a function without state: equal inputs give equal outputs.", "Bit by bit."),
        "training-ignored": Row("Who only infers may ignore what is there for training.", "A session ignores it."),
    },
    "IR: operator sets": {
        "opsets-named": Row("A model names the operator sets that it relies on.", REFUSED),
        "opsets-supported": Row(
            "All operators of a set are supported, or the model is rejected.",
            "A model is refused for each operator that jitonnx lacks, with a list of all of them.",
        ),
        "operators-declared": Row("Each operator is declared by an imported set.", REFUSED),
        "extensions": Row(
            "Implementations may add operators by sets of their own.", "`jitonnx.register`, for any domain."
        ),
        "opset-documents": Row(
            "An operator set is defined in a document of its own, an OperatorSetProto with a magic, a domain, a "
            "version and operators.",
            "`jitonnx.opsets.read` and `write`; `jitonnx.register_opset` makes the domain usable. A document that "
            "breaks a rule is refused.",
        ),
        "opset-resolution": Row(
            "An operator is of the version of its set in which it was introduced last.",
            "The newest that is not above the import, also of documents that are registered.",
        ),
        "opset-newer": Row(
            "Who cannot support an imported operator set rejects the model.",
            "A newer version than those that are registered is refused, and so is each node of a domain that nobody "
            "registered; both say what is. A domain that no node uses is a warning of `jitonnx check`.",
        ),
        "opset-status": Row(
            "Operators are experimental, or stable and do not change.",
            "Experimental ones warn. A document in which a stable one is another than in one that is registered is "
            "refused.",
        ),
        "opset-implementations": Row(
            "A function may be inlined by who has no implementation of its own.",
            "What is written in Python goes first, else the function; an operator with neither is refused by name.",
        ),
        "default-domain": Row("The empty domain and ai.onnx are the same.", DONE),
        "same-domain-twice": Row(
            "Of a domain that is imported twice the highest version counts.", "It does; `jitonnx check` warns."
        ),
    },
    "IR: graphs": {
        "acyclic": Row("A graph has no circles.", f"{REFUSED} The circle is shown."),
        "topological": Row("Nodes are in topological order.", FORM),
        "graph-name": Row("A graph has a name.", FORM),
        "main-types": Row(
            "The main graph declares names and types of inputs and outputs.",
            "Inputs: refused. Outputs: an error of `jitonnx check`, and a session runs the model.",
        ),
        "main-shapes": Row("Inputs and outputs of the main graph have a shape, so that their rank is known.", FORM),
        "nested-names": Row("Nested graphs name their inputs and outputs.", REFUSED),
        "nested-types": Row("Nested graphs may leave types out.", "Types are inferred."),
        "output-values": Row("A graph output has the value of the node output of its name.", DONE),
        "outputs-exist": Row("What a graph gives is defined in it.", REFUSED),
        "initializer-default": Row(
            "An initializer of an input's name is the input's default.",
            "It may be fed or left out (from IR version 4 on).",
        ),
        "initializer-constant": Row("An initializer of no input's name is a constant.", "It cannot be fed."),
        "initializer-order": Row("The order of initializers says nothing.", DONE),
        "initializer-type": Row("A default is of its input's type and shape.", REFUSED),
        "initializer-inputs": Row("Before IR version 4 every initializer is an input.", FORM),
        "initializer-nested": Row("From IR version 4 on no value is initializer and input of a nested graph.", FORM),
        "doc-strings": Row("Graphs may have documentation, in Markdown.", "It is handed on as it is."),
    },
    "IR: names": {
        "c90": Row("Names are identifiers as in C90.", f"{WARNED} Any name works."),
        "one-definition": Row(
            "A value is defined once.",
            f"{REFUSED} Of Constants the last counts, as in onnxruntime, and `jitonnx check` reports an error.",
        ),
        "inputs-unique": Row("Two inputs have two names.", REFUSED),
        "initializers-unique": Row("Two initializers have two names.", REFUSED),
        "initializer-name": Row("An initializer has a name.", REFUSED),
        "nodes-unique": Row(
            "Two nodes have two names.", f"{REFUSED} Constants are left out of that, as by onnxruntime."
        ),
        "node-name-optional": Row("A node may have no name.", "Errors say its place and outputs."),
        "ssa": Row("Names of node outputs are unique within a graph (SSA).", REFUSED),
        "ssa-nested": Row(
            "An output of a nested node has another name than the values that are visible there.", REFUSED
        ),
        "names-defined": Row("A node reads names that are defined.", f"{REFUSED} The closest name is shown."),
        "nested-captures": Row(
            "Nested graphs may read values of the graphs around them: inputs, initializers, node outputs.", DONE
        ),
    },
    "IR: nodes": {
        "node-operator": Row("A node names its operator.", REFUSED),
        "node-outputs": Row("A node has one output at least.", REFUSED),
        "signature-inputs": Row("The number of inputs is that of the operator's signature.", REFUSED),
        "signature-outputs": Row("The number of outputs is that of the operator's signature.", REFUSED),
        "signature-types": Row("The types of inputs are those of the operator's signature.", REFUSED),
        "signature-bound": Row("Inputs of one type variable are of one type.", REFUSED),
        "signature-attributes": Row("The attributes are those of the operator's signature.", REFUSED),
        "signature-kinds": Row("The attributes have the types of the operator's signature.", REFUSED),
        "signature-required": Row("Attributes that are required are there.", REFUSED),
        "variadic": Row("Variadic inputs are as many as the operator's minimal arity, or more.", REFUSED),
        "variadic-outputs": Row("Variadic outputs are as many as the operator gives.", REFUSED),
        "optional-trailing": Row("Trailing optional inputs and outputs may be left out.", DONE),
        "optional-empty": Row("Other optional inputs are left out by an empty name.", DONE),
        "optional-outputs": Row("Optional outputs are left out by an empty name, and need not be computed.", DONE),
        "required-inputs": Row("An input that is not optional is not left out.", REFUSED),
    },
    "IR: attributes": {
        "attribute-name": Row("An attribute has a name.", REFUSED),
        "attribute-unique": Row("Names of attributes are unique in a node.", REFUSED),
        "attribute-type": Row("An attribute has a type (from IR version 2 on).", REFUSED),
        "attribute-one-value": Row("An attribute has one of the fields that carry values.", REFUSED),
        "attribute-field": Row("Its type tells which field that is.", REFUSED),
        "attribute-empty-list": Row("A list may be empty.", DONE),
        "attribute-kinds": Row("Attributes are numbers, text, tensors, graphs, types, and lists of them.", DONE),
        "attribute-references": Row("References to attributes stand in functions.", "Elsewhere: refused."),
    },
    "IR: tensors": {
        "tensor-type": Row("A tensor has an element type.", REFUSED),
        "tensor-types": Row("Elements are numbers, text or Boolean, of the types in onnx.proto.", DONE),
        "tensor-one-field": Row("The elements are in one place: one typed field, raw_data, or another file.", REFUSED),
        "tensor-typed-field": Row("The element type tells the typed field.", REFUSED),
        "tensor-count": Row("There are as many elements as the sizes say.", REFUSED),
        "tensor-sizes": Row("Sizes are not negative.", REFUSED),
        "tensor-raw": Row(
            "raw_data is little-endian, of fixed width, and not of strings.", "It is read so; strings are refused."
        ),
        "tensor-bits": Row(
            "16-bit floats in int32_data are there as bits; elements of 4 and 2 bits are packed, "
            "the first in the lowest bits.",
            DONE,
        ),
        "utf-8": Row("Strings are UTF-8.", REFUSED),
        "empty-tensors": Row("A size may be 0.", DONE),
    },
    "IR: external data": {
        "external-location": Row(
            "External data has a location, relative to the model's file.",
            "Refused without one, and outside of the model's folder.",
        ),
        "external-alone": Row("A tensor with external data has no value fields.", REFUSED),
        "external-range": Row(
            "Offset and length are optional numbers of bytes.", "Read so; what lies outside of the file is refused."
        ),
        "external-shared": Row("A file may hold several tensors.", DONE),
        "external-digest": Row(
            "A SHA-1 digest may be given.", '`jitonnx check` compares it, and a session with `jitonnx.verify` = "1".'
        ),
    },
    "IR: sparse tensors": {
        "sparse-values": Row("Values are a list, of as many elements as there are indices.", REFUSED),
        "sparse-indices": Row("Indices are int64: a list into the flat tensor, or a list of coordinates.", REFUSED),
        "sparse-ascending": Row("Indices ascend and are unique.", FORM),
        "sparse-range": Row("Indices are in range.", REFUSED),
        "sparse-sizes": Row(
            "There is a dimension at least, and sizes are positive.",
            "Otherwise refused; but for a size of 0, an error of `jitonnx check`, which a session takes.",
        ),
        "sparse-rest": Row("What no index names is 0.", DONE),
    },
    "IR: types and shapes": {
        "value-types": Row("Inputs and outputs are tensors, sparse tensors, sequences, maps and optionals.", DONE),
        "map-keys": Row("Keys of a map are integers or text.", REFUSED),
        "element-types": Row("Sequences, maps and optionals have an element type.", REFUSED),
        "declared-types": Row("A value is of the type that is declared for it.", REFUSED),
        "declared-shapes": Row(
            "A value has the shape that is declared for it.",
            f"{WARNED} A session warns of outputs, once; strict, it refuses them.",
        ),
        "scalars": Row("[] is the shape of a scalar, and another thing than no shape.", DONE),
        "any-shape": Row("Without a shape a value may have any.", DONE),
        "sizes": Row("A size is a number or a dimension variable.", DONE),
        "open-sizes": Row("A size with neither is unknown, and unrelated to others.", DONE),
        "variables": Row(
            "A dimension variable has one value across the graph.",
            "A feed that contradicts it is warned of, once, as is an output; in strict mode they are refused.",
        ),
        "variable-names": Row("Dimension variables are identifiers as in C90.", f"{WARNED} Any name works."),
        "rank": Row("The number of sizes is the rank.", "A feed of another rank is refused."),
        "value-info": Row("value_info is of values of the graph, each once.", WARNED),
    },
    "IR: functions": {
        "function-calls": Row("A node may call a function of the model.", "It is inlined."),
        "function-keys": Row("Domain, name and overload of a function are unique.", REFUSED),
        "function-name": Row("A function has a name.", REFUSED),
        "function-opsets": Row(
            "A function imports the operator sets of its nodes itself.",
            f"{REFUSED} They may be of other versions than the model's.",
        ),
        "function-versions": Row("Operators are of one version in a function and in the model.", FORM),
        "function-domain": Row("Who calls a function imports its domain.", REFUSED),
        "function-recursion": Row("Functions do not call themselves.", f"{REFUSED} Also if nobody calls them."),
        "function-parameters": Row("Names of parameters and attributes of a function are unique.", REFUSED),
        "function-ssa": Row("The body of a function is in SSA form.", REFUSED),
        "function-outputs": Row("A function defines its outputs.", REFUSED),
        "function-attributes": Row(
            "A call gives attributes that the function declares, of the type that its body asks for.", REFUSED
        ),
        "graph-references": Row(
            "Attributes of functions may be graphs, which nodes of the body refer to.",
            "A graph reads the values of the place where it is written, also by way of further functions and bodies.",
        ),
        "function-defaults": Row("Attributes may have defaults.", DONE),
        "function-optional": Row("A call may leave out trailing inputs and outputs.", DONE),
        "function-overloads": Row("Functions of one name are told apart by their overload.", DONE),
    },
    "IR: training": {
        "training-keys": Row(
            "A binding's key is an initializer.",
            "Otherwise an error of `jitonnx check`, and no `TrainingSession`; an inference session does not look.",
        ),
        "training-values": Row(
            "A binding's value is an output of its graph.", "Otherwise an error of `jitonnx check`."
        ),
        "training-unique": Row("Keys of bindings are unique.", "Otherwise an error of `jitonnx check`."),
        "training-omitted": Row(
            "Initialization may be left out if nothing is bound to it.", "An error of `jitonnx check` otherwise."
        ),
        "training-initialization": Row(
            "The outputs of an initialization are assigned to initializers as its bindings say.",
            "`TrainingSession.initialize` does so for all training infos, in order.",
        ),
        "training-step": Row(
            "A step runs the inference graph with the algorithm's graph behind it, which may read its values.",
            "`TrainingSession.step` runs the two as one graph, compiled once.",
        ),
        "training-updates": Row(
            "The outputs of a step are assigned to initializers of the model or the algorithm as its bindings say.",
            "All at once when the step has succeeded; one that fails changes nothing.",
        ),
        "training-several": Row(
            "A model may have several training infos, over the same state.",
            "`step` takes which; state is shared by name.",
        ),
        "training-state": Row(
            "Initializers that bindings name are the state of the model.",
            "`TrainingSession.save` writes them where they were, so that training goes on, and inference has them.",
        ),
    },
    "Versioning": {
        "robust": Row(
            "Readers are robust where fields are missing.", "Fields that say nothing of the computation may be absent."
        ),
        "newest-opset": Row(
            "A backend declares the newest operator set that it knows, and rejects models beyond it.", REFUSED
        ),
        "opset-positive": Row("Versions of operator sets begin with 1.", REFUSED),
        "mapping": Row(
            "For every version it knows, a backend maps names to implementations.",
            "`jitonnx.versioning.operator_versions`: the database is shipped, and tested against onnx.defs.",
        ),
        "meaning-by-version": Row("The recorded version gives an operator its meaning.", DONE),
        "not-yet": Row("An operator is not there before its first version.", REFUSED),
        "dropped": Row("An operator that was dropped is not there any more.", REFUSED),
        "semver": Row(
            "A version may pack a SemVer in 64 bits (the IR specification), or in 32 (the versioning rules).",
            "`jitonnx.versioning.pack_semver` and `unpack_semver`, both layouts.",
        ),
        "signature-breaking": Row(
            "An incompatible type, a new input without default, an output that is gone: a new major version.",
            "`jitonnx diff OLD NEW` tells so ([versioning.md](versioning.md)).",
        ),
        "signature-compatible": Row(
            "A wider type, a new input with a default: a new minor version.",
            "`jitonnx diff OLD NEW` tells so.",
        ),
        "unknown-namespace": Row(
            "A model that uses an unknown namespace is rejected.",
            "A session refuses it; `jitonnx check` warns, as it may be right.",
        ),
    },
}

"""Models that break one rule each, by a generator over all rules: what `onnx.checker` or onnxruntime refuses.

`structural()` breaks the rules of the IR at every place where some sound models can break them; `signatures()` breaks
the signature of every operator in every way that its schema tells of; `values()` gives operators what contradicts
itself.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, defs, helper, numpy_helper
from onnx.backend.test.case.node import collect_testcases

from jitonnx.ir.schema import LENIENT
from tests.model.models import model_of, tensor_input

DOMAIN = "local"
IR_VERSION = 10


class Broken(NamedTuple):
    """A model and what is broken in it."""

    name: str
    model: ModelProto


def node(operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> NodeProto:
    return helper.make_node(operator, inputs, outputs, name=f"make_{outputs[0] if outputs else operator}", **attributes)


def initializer(name: str, *shape: int, dtype: Any = np.float32) -> TensorProto:
    return numpy_helper.from_array(np.ones(shape, dtype), name)


# ---------------------------------------------------------------------------------------------- sound models


def plain() -> ModelProto:
    """A few nodes with attributes of several kinds and initializers."""
    nodes = [
        node("Add", ["x", "w"], ["a"]),
        node("LeakyRelu", ["a"], ["b"], alpha=0.5),
        node("Transpose", ["b"], ["c"], perm=[1, 0]),
        node("Constant", [], ["k"], value=initializer("k", 3, 2)),
        node("Concat", ["c", "k"], ["d"], axis=0),
        node("Cast", ["d"], ["y"], to=TensorProto.FLOAT),
    ]
    return model_of(nodes, ["x"], [tensor_input("y", (6, 2))], [initializer("w", 2, 3)])


def nested() -> ModelProto:
    """An If whose branches read the graph around them, with constants of their own."""

    def branch(name: str) -> GraphProto:
        inner = [node("Add", ["x", f"{name}_w"], [f"{name}_a"]), node("Mul", [f"{name}_a", "h"], [f"{name}_y"])]
        return helper.make_graph(inner, name, [], [tensor_input(f"{name}_y")], [initializer(f"{name}_w", 2, 3)])

    nodes = [
        node("Relu", ["x"], ["h"]),
        node("If", ["c"], ["z"], then_branch=branch("then"), else_branch=branch("else")),
        node("LeakyRelu", ["z"], ["y"], alpha=0.5),
    ]
    return model_of(nodes, ["x", tensor_input("c", (), TensorProto.BOOL)], ["y"])


def looped() -> ModelProto:
    """A Loop with a carried value and a scan output."""
    body = helper.make_graph(
        [
            node("Add", ["v", "x"], ["v2"]),
            node("Identity", ["go"], ["go2"]),
            node("LeakyRelu", ["v2"], ["s"], alpha=0.1),
        ],
        "body",
        [
            tensor_input("i", (), TensorProto.INT64),
            tensor_input("go", (), TensorProto.BOOL),
            tensor_input("v"),
        ],
        [tensor_input("go2", (), TensorProto.BOOL), tensor_input("v2"), tensor_input("s")],
    )
    nodes = [
        node("Constant", [], ["n"], value=numpy_helper.from_array(np.array(3, np.int64))),
        node("Loop", ["n", "", "x"], ["y", "all"], body=body),
    ]
    return model_of(nodes, ["x"], ["y", tensor_input("all", (3, 2, 3))])


def called() -> ModelProto:
    """Functions that call one another, with attributes and defaults."""
    inner = helper.make_function(
        DOMAIN, "Inner", ["a"], ["b"], [node("LeakyRelu", ["a"], ["b"])], [helper.make_opsetid("", 20)], ["alpha"]
    )
    reference = inner.node[0].attribute.add(name="alpha", type=AttributeProto.FLOAT)
    reference.ref_attr_name = "alpha"
    outer_nodes = [
        helper.make_node("Inner", ["p"], ["q"], domain=DOMAIN, name="call", alpha=0.5),
        node("Add", ["q", "r"], ["s"]),
    ]
    outer = helper.make_function(
        DOMAIN,
        "Outer",
        ["p", "r"],
        ["s"],
        outer_nodes,
        [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, 1)],
    )
    nodes = [helper.make_node("Outer", ["x", "w"], ["y"], domain=DOMAIN, name="main_call")]
    return model_of(nodes, ["x"], ["y"], [initializer("w", 2, 3)], functions=[inner, outer], domains=[(DOMAIN, 1)])


def sparse() -> ModelProto:
    """A sparse initializer."""
    values = numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")
    indices = numpy_helper.from_array(np.array([[0, 1], [1, 0], [1, 2]], np.int64), "w_indices")
    held = helper.make_sparse_tensor(values, indices, (2, 3))
    return model_of([node("Add", ["x", "w"], ["y"])], ["x"], ["y"], sparse=[held])


def typed() -> ModelProto:
    """Initializers of many element types in typed fields, some of them packed."""
    kinds = {
        TensorProto.FLOAT: [1.0, 2.0],
        TensorProto.DOUBLE: [1.0, 2.0],
        TensorProto.INT64: [1, 2],
        TensorProto.INT32: [1, 2],
        TensorProto.UINT8: [1, 2],
        TensorProto.UINT64: [1, 2],
        TensorProto.BOOL: [True, False],
        TensorProto.FLOAT16: [1.0, 2.0],
        TensorProto.STRING: [b"a", b"b"],
    }
    tensors = [helper.make_tensor(f"t{kind}", kind, (2,), values) for kind, values in kinds.items()]
    nodes = [node("Identity", [f"t{kind}"], [f"y{kind}"]) for kind in kinds]
    outputs = [tensor_input(f"y{kind}", (2,), kind) for kind in kinds]
    return model_of(nodes, [], outputs, tensors)


SOUND: dict[str, Callable[[], ModelProto]] = {
    made.__name__: made for made in (plain, nested, looped, called, sparse, typed)
}

# ---------------------------------------------------------------------------------------------- places in a model


def graphs_of(model: ModelProto) -> list[GraphProto]:
    """The model's graph and all below it."""
    found, waiting = [], [model.graph]
    while waiting:
        graph = waiting.pop()
        found.append(graph)
        waiting += [attribute.g for each in graph.node for attribute in each.attribute if attribute.HasField("g")]
    return found


def bodies_of(model: ModelProto) -> list[Any]:
    """All graphs and functions."""
    return [*graphs_of(model), *model.functions]


def nodes_of(model: ModelProto) -> list[NodeProto]:
    return [each for body in bodies_of(model) for each in body.node]


def attributes_of(model: ModelProto) -> list[AttributeProto]:
    return [attribute for each in nodes_of(model) for attribute in each.attribute]


def tensors_of(model: ModelProto) -> list[TensorProto]:
    inner = [attribute.t for attribute in attributes_of(model) if attribute.HasField("t")]
    return [tensor for graph in graphs_of(model) for tensor in graph.initializer] + inner


# ---------------------------------------------------------------------------------------------- rules of the IR

Mutation = Callable[[Any], object]


def _set(field: str, value: Any) -> Mutation:
    return lambda message: setattr(message, field, value)


def _clear(field: str) -> Mutation:
    return lambda message: message.ClearField(field)


def _copy(field: str) -> Mutation:
    """Put the first entry of a list behind the last one again."""

    def change(message: Any) -> None:
        entries = getattr(message, field)
        entries.append(entries[0])

    return change


def _first(field: str, value: str) -> Mutation:
    def change(message: Any) -> None:
        getattr(message, field)[0] = value

    return change


def _append(field: str, value: str) -> Mutation:
    return lambda message: getattr(message, field).append(value)


def _swap_value(attribute: AttributeProto) -> None:
    """Put another value beside an attribute's own."""
    if attribute.type == AttributeProto.INT:
        attribute.f = 1.0
    else:
        attribute.i = 1


def _other_type(attribute: AttributeProto) -> None:
    attribute.type = AttributeProto.INTS if attribute.type != AttributeProto.INTS else AttributeProto.FLOAT


def _other_field(tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.DOUBLE:
        tensor.float_data.append(1)
    else:
        tensor.double_data.append(1)


def _cycle(body: Any) -> None:
    body.node.append(helper.make_node("Neg", ["round_b"], ["round_a"], name="round_1"))
    body.node.append(helper.make_node("Neg", ["round_a"], ["round_b"], name="round_2"))


def _name_twice(body: Any) -> None:
    body.node.append(helper.make_node("Neg", [body.node[-1].output[0]], ["further"], name=body.node[-1].name))


MODEL: dict[str, Mutation] = {
    "no IR version": _clear("ir_version"),
    "an IR version of 0": _set("ir_version", 0),
    "a negative IR version": _set("ir_version", -1),
    "an IR version of tomorrow": _set("ir_version", 1000),
    "no graph": _clear("graph"),
    "no operator sets": _clear("opset_import"),
    "an operator set of tomorrow": lambda model: setattr(model.opset_import[0], "version", 1000),
    "an operator set of version 0": lambda model: setattr(model.opset_import[0], "version", 0),
    "a negative operator set": lambda model: setattr(model.opset_import[0], "version", -3),
}
GRAPH: dict[str, Mutation] = {
    "an input twice": _copy("input"),
    "an initializer twice": _copy("initializer"),
    "an input without a name": lambda graph: setattr(graph.input[0], "name", ""),
    "an output that nobody makes": lambda graph: setattr(graph.output[0], "name", "nobody"),
    "an output without a name": lambda graph: setattr(graph.output[0], "name", ""),
    "an initializer without a name": lambda graph: setattr(graph.initializer[0], "name", ""),
    "an input of an unknown element type": lambda graph: setattr(graph.input[0].type.tensor_type, "elem_type", 99),
    "an output of another element type": lambda graph: setattr(graph.output[0].type.tensor_type, "elem_type", 7),
}
BODY: dict[str, Mutation] = {
    "a circle": _cycle,
    "a node that reads itself": lambda body: body.node.append(helper.make_node("Neg", ["own"], ["own"])),
    "a node twice": lambda body: body.node.append(body.node[-1]),
    "two nodes of one name": _name_twice,
    "a name that nobody defines": lambda body: body.node.append(helper.make_node("Neg", ["nobody"], ["further"])),
    "an unknown operator": lambda body: body.node.append(helper.make_node("Foo", ["x"], ["further"])),
    "an unknown domain": lambda body: body.node.append(helper.make_node("Foo", ["x"], ["further"], domain="d.e.f")),
    "an operator that was dropped": lambda body: body.node.append(
        helper.make_node("Upsample", [body.node[0].output[0]], ["further"], scales=[1.0])
    ),
}
NODE: dict[str, Mutation] = {
    "no operator": _set("op_type", ""),
    "another operator": _set("op_type", "NoSuchOperator"),
    "another domain": _set("domain", "d.e.f"),
    "an output that is an input": lambda each: each.output.__setitem__(0, each.input[0]),
    "an input that nobody defines": _first("input", "nobody at all"),
    "many inputs": lambda each: each.input.extend([each.input[0]] * 20) if each.op_type != "Concat" else 1 / 0,
    "many outputs": lambda each: each.output.extend(f"more_{place}" for place in range(20)),
    "an attribute that it does not have": lambda each: each.attribute.append(helper.make_attribute("slope_", 1.0)),
    "an attribute twice": _copy("attribute"),
    "an output of one name twice": lambda each: each.output.append(each.output[0]),
    "no outputs": _clear("output"),
    "an absent input": _first("input", ""),
}
ATTRIBUTE: dict[str, Mutation] = {
    "no name": _set("name", ""),
    "no type": _clear("type"),
    "another type": _other_type,
    "two values": _swap_value,
    "another name": _set("name", "unheard_of"),
}
TENSOR: dict[str, Mutation] = {
    "no element type": _clear("data_type"),
    "an unknown element type": _set("data_type", 99),
    "a negative size": lambda tensor: tensor.dims.__setitem__(0, -1),
    "a larger size": lambda tensor: tensor.dims.__setitem__(0, tensor.dims[0] + 1),
    "a further dimension": lambda tensor: tensor.dims.append(7),
    "elements in a second field": _other_field,
    "raw data beside a typed field": lambda tensor: (
        setattr(tensor, "raw_data", b"\0" * 8) if not tensor.HasField("raw_data") else tensor.float_data.append(1)
    ),
    "external data beside values": lambda tensor: (
        setattr(tensor, "data_location", TensorProto.EXTERNAL),
        tensor.external_data.add(key="location", value="nowhere.bin"),
    ),
    "external data without a location": lambda tensor: (
        [tensor.ClearField(field) for field in ("raw_data", "float_data", "int64_data", "int32_data", "double_data")],
        setattr(tensor, "data_location", TensorProto.EXTERNAL),
    ),
}
FUNCTION: dict[str, Mutation] = {
    "no name": _set("name", ""),
    "two inputs of one name": _copy("input"),
    "two attributes of one name": lambda each: each.attribute.extend(["further", "further"]),
    "no operator sets": _clear("opset_import"),
    "an operator set of tomorrow": lambda each: setattr(each.opset_import[0], "version", 1000),
    "an output that nobody makes": _first("output", "nobody"),
    "a call of itself": lambda each: each.node.append(
        helper.make_node(each.name, [each.input[0]] * len(each.input), ["own"], domain=DOMAIN, name="recursive")
    ),
}
SPARSE: dict[str, Mutation] = {
    "an index that is too large": lambda each: _indices(each, [[0, 1], [1, 0], [1, 3]]),
    "a negative index": lambda each: _indices(each, [[-1, 1], [1, 0], [1, 2]]),
    "an index too few": lambda each: _indices(each, [[0, 1], [1, 0]]),
    "indices of rank 3": lambda each: _indices(each, [[[0, 1]], [[1, 0]], [[1, 2]]]),
    "a flat index that is too large": lambda each: _indices(each, [1, 3, 6]),
    "a negative flat index": lambda each: _indices(each, [-1, 3, 5]),
    "indices of int32": lambda each: each.indices.CopyFrom(
        numpy_helper.from_array(np.array([1, 3, 5], np.int32), "indices")
    ),
    "a negative size": lambda each: each.dims.__setitem__(0, -2),
    "no sizes": _clear("dims"),
    "values of rank 2": lambda each: each.values.dims.insert(0, 1),
    "too few values": lambda each: each.values.CopyFrom(numpy_helper.from_array(np.array([1, 2], np.float32), "w")),
    "no name": lambda each: setattr(each.values, "name", ""),
    "no indices": _clear("indices"),
    "no values": _clear("values"),
}


def _indices(each: onnx.SparseTensorProto, indices: Any) -> None:
    each.indices.CopyFrom(numpy_helper.from_array(np.array(indices, np.int64), "w_indices"))


PLACES: Sequence[tuple[str, Callable[[ModelProto], Sequence[Any]], dict[str, Mutation]]] = (
    ("model", lambda model: [model], MODEL),
    ("graph", graphs_of, GRAPH),
    ("body", bodies_of, BODY),
    ("node", nodes_of, NODE),
    ("attribute", attributes_of, ATTRIBUTE),
    ("tensor", tensors_of, TENSOR),
    ("function", lambda model: model.functions, FUNCTION),
    ("sparse tensor", lambda model: model.graph.sparse_initializer, SPARSE),
)


SOUND_NEVERTHELESS = {
    "looped, node 1: an absent input",  # the first one of a Loop is optional
    "called, model 0: the standard operators not imported",  # only its functions use them
}


def structural() -> Iterator[Broken]:
    """Every rule of the IR, broken at every place of the sound models where it can be."""
    for base, make in SOUND.items():
        for what, places, mutations in PLACES:
            for rule, mutate in mutations.items():
                for place in range(len(places(make()))):
                    model = make()
                    try:
                        mutate(places(model)[place])
                    except (IndexError, ZeroDivisionError):
                        continue  # there is none of what the rule is about
                    name = f"{base}, {what} {place}: {rule}"
                    if name not in SOUND_NEVERTHELESS:
                        yield Broken(name, model)


# ---------------------------------------------------------------------------------------------- signatures


@cache
def cases() -> dict[tuple[str, str], ModelProto]:
    """A sound model of one node for every operator, from ONNX's own cases."""
    found: dict[tuple[str, str], ModelProto] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        collected = collect_testcases("")
    for case in collected:
        graph = case.model.graph
        if len(graph.node) == 1 and not case.model.functions:
            found.setdefault((graph.node[0].domain, graph.node[0].op_type), case.model)
    return found


def signatures() -> Iterator[Broken]:
    """Every operator with a signature that is not its own."""
    for (domain, operator), sound in sorted(cases().items()):
        version = max(entry.version for entry in sound.opset_import if entry.domain == domain)
        schema = defs.get_schema(operator, version, domain)
        for rule, mutate in _signature_rules(schema, sound):
            model = ModelProto()
            model.CopyFrom(sound)
            mutate(model.graph.node[0], model.graph)
            yield Broken(f"{operator}: {rule}", model)


def _signature_rules(schema: Any, sound: ModelProto) -> Iterator[tuple[str, Callable[[NodeProto, GraphProto], object]]]:
    given = sound.graph.node[0]
    if schema.domain or schema.name not in LENIENT:
        yield "an unknown attribute", lambda each, _: each.attribute.append(helper.make_attribute("unheard_of", 1))
    if schema.max_input < 1000:
        count = schema.max_input + 1
        yield "too many inputs", lambda each, _: each.input.extend([each.input[0] if each.input else "a"] * count)
    if schema.max_output < 1000:
        further = [f"further_{place}" for place in range(schema.max_output + 1)]
        yield "too many outputs", lambda each, _: each.output.extend(further)
    if schema.min_input and schema.inputs[0].option != defs.OpSchema.FormalParameterOption.Optional:
        yield "no inputs", lambda each, _: each.ClearField("input")
    for name, attribute in schema.attributes.items():
        if attribute.required and any(each.name == name for each in given.attribute):
            yield f"{name} left out", lambda each, _, name=name: _without(each, name)
            break
    if given.attribute:
        yield "an attribute of another kind", lambda each, _: _of_another_kind(each.attribute[0])
        yield "an attribute twice", lambda each, _: each.attribute.append(each.attribute[0])
    wrong = _wrong_type(schema, sound)
    if wrong:
        place, kind = wrong
        yield (
            "an input of a type that it does not take",
            lambda _, graph: setattr(graph.input[place].type.tensor_type, "elem_type", kind),
        )


def _without(each: NodeProto, name: str) -> None:
    kept = [attribute for attribute in each.attribute if attribute.name != name]
    del each.attribute[:]
    each.attribute.extend(kept)


def _of_another_kind(attribute: AttributeProto) -> None:
    name, kind = attribute.name, attribute.type
    attribute.Clear()
    other = [1.5, 2.5] if kind == AttributeProto.INT else 3
    attribute.CopyFrom(helper.make_attribute(name, other if kind != AttributeProto.INT else [1.5, 2.5]))


def _wrong_type(schema: Any, sound: ModelProto) -> tuple[int, int] | None:
    """The place of an input, and an element type that it cannot have; None where it takes all of them."""
    names = [info.name for info in sound.graph.input]
    for parameter, name in zip(schema.inputs, sound.graph.node[0].input, strict=False):
        if name in names and sound.graph.input[names.index(name)].type.HasField("tensor_type"):
            for kind in (TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.BOOL):
                if f"tensor({helper.tensor_dtype_to_string(kind).split('.')[-1].lower()})" not in parameter.types:
                    return names.index(name), kind
    return None


# ---------------------------------------------------------------------------------------------- values


def values() -> Iterator[Broken]:
    """Sizes and contents that an operator does not take."""

    def i64(values: int | list[int]) -> np.ndarray:
        return np.array(values, np.int64)

    def one(
        name: str, operator: str, shapes: dict[str, Any], constants: dict[str, Any] | None = None, **attributes: Any
    ):
        arrays = {key: np.asarray(value) for key, value in (constants or {}).items()}
        outputs = attributes.pop("outputs", ["y"])
        names = attributes.pop("order", None) or [*shapes, *arrays]
        inputs = [tensor_input(key, *given) if given and isinstance(given[0], tuple) else tensor_input(key, given)
                  for key, given in shapes.items()]  # fmt: skip
        held = [numpy_helper.from_array(array, key) for key, array in arrays.items()]
        infos = [onnx.ValueInfoProto(name=key) for key in outputs if key]
        made = node(operator, names, outputs, **attributes)
        return Broken(f"{operator}: {name}", model_of([made], inputs, infos, held, opset=20))

    yield one(
        "mean of another length", "BatchNormalization", {"x": (1, 3, 2), "s": (3,), "b": (3,), "m": (2,), "v": (3,)}
    )
    yield one(
        "scale of another length", "BatchNormalization", {"x": (1, 3, 2), "s": (4,), "b": (3,), "m": (3,), "v": (3,)}
    )
    yield one("a short bias", "Conv", {"x": (1, 3, 8, 8), "w": (4, 3, 3, 3), "b": (3,)})
    yield one("other channels", "Conv", {"x": (1, 3, 8, 8), "w": (4, 5, 3, 3)})
    yield one("a filter of another rank", "Conv", {"x": (1, 3, 8, 8), "w": (4, 3, 3)})
    yield one("a kernel_shape of another rank", "Conv", {"x": (1, 3, 8, 8), "w": (4, 3, 3, 3)}, kernel_shape=[3])
    yield one("strides of another rank", "Conv", {"x": (1, 3, 8, 8), "w": (4, 3, 3, 3)}, strides=[1, 1, 1])
    yield one("pads of another rank", "Conv", {"x": (1, 3, 8, 8), "w": (4, 3, 3, 3)}, pads=[1, 1])
    yield one("short updates", "ScatterND", {"x": (4, 3), "i": ((2, 1), 7), "u": (1, 3)})
    yield one("indices that are too long", "ScatterND", {"x": (4, 3), "i": ((2, 3), 7), "u": (2,)})
    yield one("indices that are too long", "GatherND", {"x": (4, 3), "i": ((2, 3), 7)})
    yield one("a hidden_size that contradicts the weights", "LSTM", {"x": (5, 2, 3), "w": (1, 16, 3), "r": (1, 16, 4)},
              hidden_size=5, outputs=["y", "h"])  # fmt: skip
    yield one(
        "recurrent weights of another size", "GRU", {"x": (5, 2, 3), "w": (1, 12, 3), "r": (1, 12, 5)}, hidden_size=4
    )
    yield one("weights of another size", "RNN", {"x": (5, 2, 3), "w": (1, 4, 2), "r": (1, 4, 4)}, hidden_size=4)
    yield one(
        "negative sizes", "Resize", {"x": (1, 1, 4, 4)}, {"sizes": i64([1, 1, -2, 4])}, order=["x", "", "", "sizes"]
    )
    yield one("negative parts", "Split", {"x": (4, 3)}, {"parts": i64([5, -1])}, outputs=["y", "z"])
    yield one("parts that do not add up", "Split", {"x": (4, 3)}, {"parts": i64([1, 2])}, outputs=["y", "z"])
    yield one("more parts than outputs", "Split", {"x": (4, 3)}, {"parts": i64([1, 1, 2])}, outputs=["y", "z"])
    yield one("an axis that there is not", "Split", {"x": (4, 3)}, axis=5, num_outputs=2, outputs=["y", "z"])
    yield one("a block that does not divide", "SpaceToDepth", {"x": (1, 2, 5, 4)}, blocksize=2)
    yield one("channels that do not divide", "DepthToSpace", {"x": (1, 6, 4, 4)}, blocksize=2)
    yield one("a perm that repeats", "Transpose", {"x": (2, 3)}, perm=[0, 0])
    yield one("a perm out of range", "Transpose", {"x": (2, 3)}, perm=[0, 2])
    yield one("a short perm", "Transpose", {"x": (2, 3, 4)}, perm=[1, 0])
    yield one("an axis that there is not", "Concat", {"a": (2, 3), "b": (2, 3)}, axis=4)
    yield one("sizes that differ", "Concat", {"a": (2, 3), "b": (4, 5)}, axis=0)
    yield one("ranks that differ", "Concat", {"a": (2, 3), "b": (2, 3, 1)}, axis=0)
    yield one("an axis that there is not", "Softmax", {"x": (2, 3)}, axis=4)
    yield one("an axis that there is not", "Gather", {"x": (2, 3), "i": ((2,), 7)}, axis=3)
    yield one("an axis that there is not", "Flatten", {"x": (2, 3)}, axis=4)
    yield one("sizes that do not fit", "MatMul", {"a": (2, 3), "b": (4, 5)})
    yield one("a scalar", "MatMul", {"a": (), "b": (4, 5)})
    yield one("sizes that do not fit", "Gemm", {"a": (2, 3), "b": (4, 5)})
    yield one("sizes that do not fit, transposed", "Gemm", {"a": (2, 3), "b": (3, 5)}, transB=1)
    yield one("three dimensions", "Gemm", {"a": (2, 3, 4), "b": (4, 5)})
    yield one("sizes that do not broadcast", "Add", {"a": (2, 3), "b": (4, 3)})
    yield one("sizes that do not broadcast", "Where", {"c": ((2, 3), 9), "a": (4, 3), "b": (2, 3)})
    yield one("another number of elements", "Reshape", {"x": (2, 3)}, {"shape": i64([4, 2])})
    yield one("two open sizes", "Reshape", {"x": (2, 3)}, {"shape": i64([-1, -1])})
    yield one("a size below -1", "Reshape", {"x": (2, 3)}, {"shape": i64([-2, 3])})
    yield one("a shape of int32", "Reshape", {"x": (2, 3)}, {"shape": np.array([3, 2], np.int32)})
    yield one("a shape of int32", "Expand", {"x": (2, 3)}, {"shape": np.array([2, 3], np.int32)})
    yield one("sizes that do not broadcast", "Expand", {"x": (2, 3)}, {"shape": i64([4, 3])})
    yield one("repeats of int32", "Tile", {"x": (2, 3)}, {"repeats": np.array([1, 2], np.int32)})
    yield one("repeats of another length", "Tile", {"x": (2, 3)}, {"repeats": i64([1, 2, 3])})
    yield one("k of int32", "TopK", {"x": (2, 3)}, {"k": np.array([2], np.int32)}, outputs=["y", "i"])
    yield one("a k that is too large", "TopK", {"x": (2, 3)}, {"k": i64([5])}, outputs=["y", "i"])
    yield one("an axis that there is not", "TopK", {"x": (2, 3)}, {"k": i64([1])}, axis=5, outputs=["y", "i"])
    yield one("axes of int32", "Unsqueeze", {"x": (2, 3)}, {"axes": np.array([0], np.int32)})
    yield one("an axis twice", "Unsqueeze", {"x": (2, 3)}, {"axes": i64([0, 0])})
    yield one("an axis that there is not", "Unsqueeze", {"x": (2, 3)}, {"axes": i64([7])})
    yield one("a size that is not 1", "Squeeze", {"x": (2, 3)}, {"axes": i64([0])})
    yield one("an axis that there is not", "Squeeze", {"x": (2, 3)}, {"axes": i64([7])})
    yield one("axes of int32", "ReduceSum", {"x": (2, 3)}, {"axes": np.array([0], np.int32)})
    yield one("an axis that there is not", "ReduceSum", {"x": (2, 3)}, {"axes": i64([4])})
    yield one("an axis that there is not", "ReduceMean", {"x": (2, 3)}, {"axes": i64([-4])})
    yield one("an axis that there is not", "ArgMax", {"x": (2, 3)}, axis=3)
    yield one("an axis that there is not", "LayerNormalization", {"x": (2, 3), "s": (3,)}, axis=4)
    yield one("an axis that there is not", "GatherElements", {"x": (2, 3), "i": ((2, 3), 7)}, axis=4)
    yield one("ranks that differ", "GatherElements", {"x": (2, 3), "i": ((2,), 7)})
    yield one("ranks that differ", "ScatterElements", {"x": (2, 3), "i": ((2,), 7), "u": (2,)})
    yield one("signed integers", "BitShift", {"a": ((2,), 6), "b": ((2,), 6)}, direction="LEFT")
    yield one("a direction that there is not", "BitShift", {"a": ((2,), 2), "b": ((2,), 2)}, direction="UP")
    yield one("a negative depth", "OneHot", {"x": ((2,), 7)}, {"d": i64(-3), "v": np.array([0, 1], np.float32)})
    yield one(
        "values of another length", "OneHot", {"x": ((2,), 7)}, {"d": i64(3), "v": np.array([0, 1, 2], np.float32)}
    )
    yield one("a step of 0", "Range", {}, {"a": i64(0), "b": i64(5), "c": i64(0)})
    yield one("a vector", "Range", {"a": ((2,), 7), "b": ((), 7), "c": ((), 7)})
    yield one("a kernel_shape of another rank", "MaxPool", {"x": (1, 1, 8, 8)}, kernel_shape=[2])
    yield one("strides of another rank", "AveragePool", {"x": (1, 1, 8, 8)}, kernel_shape=[2, 2], strides=[1])
    yield one("pads of another length", "Pad", {"x": (2, 3)}, {"pads": i64([1, 1])})
    yield one("a mode that there is not", "Pad", {"x": (2, 3)}, {"pads": i64([0, 0, 1, 1])}, mode="somehow")
    yield one("starts and ends of several lengths", "Slice", {"x": (4, 3)}, {"s": i64([0, 0]), "e": i64([1])})
    yield one("a step of 0", "Slice", {"x": (4, 3)}, {"s": i64([0]), "e": i64([1]), "a": i64([0]), "t": i64([0])})
    yield one("an equation that does not fit", "Einsum", {"a": (2, 3), "b": (4, 5)}, equation="ij,jk->ik")
    yield one("an equation of other ranks", "Einsum", {"a": (2, 3)}, equation="ijk->i")
    yield one("an output that no input has", "Einsum", {"a": (2, 3)}, equation="ij->ik")
    yield one("a negative size", "ConstantOfShape", {}, {"shape": i64([2, -3])})
    yield one("a rank of 1", "Trilu", {"x": (3,)})
    yield one("a rank of 1", "Det", {"x": (3,)})
    yield one("a matrix that is not square", "Det", {"x": (3, 4)})
    yield one("an element type that there is not", "Cast", {"x": (2, 3)}, to=99)
    yield one("an element type that there is not", "RandomNormal", {}, shape=[2], dtype=99)
    yield one("channels that do not divide", "GroupNormalization", {"x": (1, 5, 4), "s": (2,), "b": (2,)}, num_groups=2)
    yield one(
        "scales of another length",
        "Resize",
        {"x": (1, 1, 4, 4)},
        {"scales": np.array([1, 1], np.float32)},
        order=["x", "", "scales"],
    )
    yield one("a mode that there is not", "Resize", {"x": (1, 1, 4, 4)}, {"scales": np.array([1, 1, 2, 2], np.float32)},
              order=["x", "", "scales"], mode="somehow")  # fmt: skip
    yield one(
        "a condition of two elements",
        "If",
        {"c": ((2,), 9)},
        then_branch=_constant_graph(),
        else_branch=_constant_graph(),
    )
    yield one("no else_branch", "If", {"c": ((), 9)}, then_branch=_constant_graph())
    yield one(
        "branches of several types",
        "If",
        {"c": ((), 9)},
        then_branch=_constant_graph(),
        else_branch=_constant_graph(np.int64),
    )
    yield one(
        "branches of several lengths",
        "If",
        {"c": ((), 9)},
        then_branch=_constant_graph(),
        else_branch=_constant_graph(twice=True),
    )
    yield one("a body of too few inputs", "Loop", {"n": ((), 7), "c": ((), 9), "v": (2,)}, body=_constant_graph())


def _constant_graph(dtype: Any = np.float32, twice: bool = False) -> GraphProto:
    outputs = ["r", "r2"] if twice else ["r"]
    nodes = [node("Constant", [], [name], value=numpy_helper.from_array(np.ones(2, dtype))) for name in outputs]
    return helper.make_graph(nodes, "inner", [], [onnx.ValueInfoProto(name=name) for name in outputs])


def broken() -> Iterator[Broken]:
    """All of them."""
    yield from structural()
    yield from signatures()
    yield from values()

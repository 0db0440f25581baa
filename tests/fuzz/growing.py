"""Typed random graphs that grow by values: each node is evaluated, for every set of sizes, as it is added.

A step of `tests.fuzz.steps` picks earlier values, and adds a node or a few. What no oracle evaluates is left out again
(`Left`), so that a grown graph always has expected results. Sizes are fixed, or open and another in each of three sets
of feeds. Everything follows from a seed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

Array = Any

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = ("float32", "float64", "float16", "bfloat16")
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
NUMBERS = FLOATS + INTEGERS
TYPES = (*NUMBERS, "bool")
TOLERANCES = {"float32": 2e-4, "float64": 1e-7, "float16": 2e-2, "bfloat16": 0.12}
LARGEST = 40_000
"""Elements of a value."""
SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33)
FUSION_SIZES = (1, 2, 3, 7, 8, 11, 13, 15, 16, 17, 31, 32, 33, 37, 61, 63, 64, 65, 97, 127, 128, 129)

ONNXRUNTIME_DECIDES = {
    "AveragePool": "the reference miscounts ceil_mode and pads",
    "BatchNormalization": "the reference takes statistics of the input before opset 14",
    "ConvTranspose": "the reference lets SAME pad by negative numbers",
    "DynamicQuantizeLinear": "the reference's scale of zeros is 1/255, onnxruntime's is 1",
    "GlobalMaxPool": "the reference drops axes",
    "GridSample": "the reference clamps coordinates, not taps, of cubic points over the border",
    "If": "the reference evaluates captured values by name, and takes those of the wrong graph",
    "LogSoftmax": "the reference takes logarithms of what is 0 as a float32",
    "Loop": "as If",
    "LRN": "the reference sums other channels than those around",
    "LpNormalization": "the reference sums signed elements where p is 1",
    "LpPool": "as AveragePool",
    "MaxPool": "as AveragePool",
    "ReduceLogSumExp": "the reference subtracts the largest element where that is infinite",
    "Resize": "the reference aligns corners of sizes that are not rounded",
    "Scan": "as If",
    "Slice": "the reference misses elements where a negative step begins before the start",
}
"""Operators of which onnxruntime gives what the text says, and onnx's reference does not, with the reason."""
WIDENED = {
    *("Conv", "ConvTranspose", "CumSum", "Einsum", "Gemm", "MatMul", "Mean", "Sum"),
    *("LayerNormalization", "LogSoftmax", "LpNormalization", "RMSNormalization", "Softmax"),
    *("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd", "ReduceSum"),
    "ReduceSumSquare",
}
"""Operators that sum. Of 16-bit floats the reference rounds every partial sum, which no operator's text asks for."""


class Left(Exception):
    """A step cannot be taken here, or no oracle evaluates it."""


def type_of(array: Array) -> str:
    """The element type's name, one of TYPES. Left for others."""
    name = "bfloat16" if array.dtype == BFLOAT16 else array.dtype.name
    if name not in TYPES:
        raise Left(name)
    return name


def numpy_type(name: str) -> np.dtype[Any]:
    """NumPy's type of an element type."""
    return BFLOAT16 if name == "bfloat16" else np.dtype(name)


def onnx_type(name: str) -> int:
    """ONNX's number of an element type."""
    return TensorProto.BFLOAT16 if name == "bfloat16" else helper.np_dtype_to_tensor_dtype(np.dtype(name))


@dataclass(eq=False)
class Value:
    """A value of a growing graph, as it is in each set of feeds."""

    name: str
    arrays: list[Array]
    exact: bool
    """Whether every correct implementation gives the same bits, so that it may be compared, rounded or sorted by."""
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        self.type = type_of(self.arrays[0])
        self.tolerance = max(self.tolerance, TOLERANCES.get(self.type, 0.0))

    @property
    def rank(self) -> int:
        return self.arrays[0].ndim

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [array.shape for array in self.arrays]

    @property
    def size(self) -> int:
        return max(array.size for array in self.arrays)

    def settled(self, *axes: int) -> bool:
        """Whether these axes have the same size in all sets."""
        return all(len({shape[axis] for shape in self.shapes}) == 1 for axis in axes)

    def least(self) -> list[int]:
        """The smallest size of each axis."""
        return [min(sizes) for sizes in zip(*self.shapes, strict=True)] if self.rank else []

    def within(self, low: float, high: float) -> bool:
        """Whether all elements are finite and in a range."""
        for array in self.arrays:
            wide = np.asarray(array, np.float64)
            if wide.size and not (np.isfinite(wide).all() and low <= wide.min() and wide.max() <= high):
                return False
        return True

    def far_from(self, multiple: float, margin: float = 1e-3) -> bool:
        """Whether no element is near a multiple of a number, where rounding would decide."""
        for array in self.arrays:
            wide = np.asarray(array, np.float64) / multiple
            wide = wide[np.isfinite(wide)]
            if wide.size and (np.abs(wide - np.rint(wide)) < margin * np.maximum(1, np.abs(wide))).any():
                return False
        return True


@dataclass(frozen=True)
class Model:
    """A model with feeds, and what is expected of each output in each set; None where the oracles are asked later."""

    proto: onnx.ModelProto
    feeds: list[dict[str, Array]]
    expected: list[dict[str, Array]] | None
    tolerances: dict[str, float] = field(default_factory=dict)

    @property
    def outputs(self) -> list[str]:
        return [value.name for value in self.proto.graph.output]

    @property
    def data(self) -> bytes:
        return self.proto.SerializeToString()


class Growing:
    """A graph under construction. A body under construction is one, too, and shares its random numbers and names."""

    def __init__(
        self, seed: int, *, types: Sequence[str] = (), sets: int = 3, sizes: Sequence[int] = SIZES, opset: int = 0
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.types = list(types) or ["float32"] * 10 + [t for t in TYPES if t != "float32"] + ["int64", "int32"]
        self.sets, self.sizes = sets, list(sizes)
        self.opset = opset or int(self.rng.integers(13, 26))
        self.special = bool(self.rng.random() < 0.12)
        """Whether there are NaN, infinities, and numbers that overflow or are denormal."""
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self.values: list[Value] = []
        self.inputs: list[tuple[str, str, list[int | str]]] = []
        self.open: dict[str, list[int]] = {}
        self.around: list[Value] = []
        """Of a body: the values of the graphs around it, which its nodes may read."""
        self._names = [0]

    def body(self, given: Iterable[Value]) -> Growing:
        """A graph that a node of this one will run, which sees these values; `absorb` ends it."""
        inner = copy.copy(self)
        inner.nodes, inner.constants, inner.inputs, inner.values = [], [], [], list(given)
        inner.around = [*self.around, *self.values]
        return inner

    def absorb(self, inner: Growing) -> None:
        """Take over the inputs that a body asked for: they are inputs of the whole graph."""
        names = {name for name, _, _ in inner.inputs}
        self.inputs += inner.inputs
        self.values += [value for value in inner.values if value.name in names]

    # ------------------------------------------------------------ drawing

    def name(self, stem: str = "v") -> str:
        self._names[0] += 1
        return f"{stem}{self._names[0]}"

    def chance(self, probability: float) -> bool:
        return bool(self.rng.random() < probability)

    def choose(self, choices: Sequence[Any]) -> Any:
        if not len(choices):
            raise Left("nothing to choose from")
        return choices[int(self.rng.integers(len(choices)))]

    def number(self, low: int, high: int) -> int:
        """A whole number, `high` included."""
        return int(self.rng.integers(low, high + 1))

    def type(self, allowed: Sequence[str] = TYPES) -> str:
        return self.choose([name for name in self.types if name in allowed])

    def data(self, shape: Sequence[int], type: str) -> Array:
        """Random elements: small whole numbers, eighths, normal ones; now and then the whole range of integers."""
        rng, shape = self.rng, tuple(shape)
        if type == "bool":
            return np.asarray(rng.random(shape) < 0.5)
        if type in FLOATS:
            kinds: list[Callable[[], Array]] = [
                lambda: rng.integers(-16, 17, shape) / 8,
                lambda: rng.standard_normal(shape),
                lambda: rng.random(shape),
                lambda: rng.standard_normal(shape) * 4,
                lambda: rng.integers(-3, 4, shape),
            ]
            array = np.array(self.choose(kinds)(), np.float64)
            if self.special and array.size and self.chance(0.5):
                places = rng.integers(0, array.size, max(1, array.size // 6))
                odd = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1e30, 1e-40]
                array.reshape(-1)[places] = rng.choice(odd, len(places))
            with np.errstate(all="ignore"):
                return array.astype(numpy_type(type))
        limits = np.iinfo(type)
        if self.chance(0.15):
            return np.asarray(rng.integers(limits.min, limits.max, shape, dtype=type, endpoint=True))
        return np.asarray(rng.integers(max(-5, limits.min), min(12, limits.max), shape)).astype(type)

    def dimension(self) -> tuple[int | str, list[int]]:
        """A size, or the name of an open one, and what it is in each set."""
        if self.sets > 1 and self.chance(0.5):
            if self.open and self.chance(0.7):
                name = self.choose(list(self.open))
            else:
                name = f"d{len(self.open)}"
                self.open[name] = [self.size(0.1) for _ in range(self.sets)]
            return name, self.open[name]
        size = self.size(0.03)
        return size, [size] * self.sets

    def size(self, empty: float) -> int:
        """A size, which is 0 with at most this probability."""
        return int(self.choose(self.sizes if self.chance(empty) else [size for size in self.sizes if size]))

    def input(self, type: str = "", rank: int | None = None) -> Value:
        """A new input of the graph."""
        type = type or self.type()
        if rank is None:
            rank = int(self.rng.choice(6, p=[0.05, 0.15, 0.3, 0.3, 0.15, 0.05]))
        dims = [self.dimension() for _ in range(rank)]
        while any(np.prod([sizes[i] for _, sizes in dims], dtype=float) > 6000 for i in range(self.sets)):
            dims[self.number(0, rank - 1)] = (2, [2] * self.sets)
        arrays = [self.data([sizes[i] for _, sizes in dims], type) for i in range(self.sets)]
        return self.fed(arrays, [dim for dim, _ in dims])

    def fed(self, arrays: Sequence[Array], dims: Sequence[int | str]) -> Value:
        """A new input of the graph with these arrays."""
        value = Value(self.name("x"), list(arrays), True)
        self.inputs.append((value.name, value.type, list(dims)))
        self.values.append(value)
        return value

    def constant(self, array: Array) -> Value:
        """An initializer. Steps do not pick it again."""
        array = np.asarray(array)
        value = Value(self.name("c"), [array] * self.sets, True)
        tensor = TensorProto(name=value.name, data_type=onnx_type(value.type), dims=array.shape)
        tensor.raw_data = np.ascontiguousarray(array).tobytes()
        self.constants.append(tensor)
        return value

    def integers(self, *numbers: int) -> Value:
        """A constant of int64."""
        return self.constant(np.array(numbers, np.int64))

    def pick(
        self,
        types: Sequence[str] = TYPES,
        least: int = 0,
        most: int = 9,
        *,
        exact: bool = False,
        largest: int = 20_000,
        some: bool = False,
        fit: Callable[[Value], bool] = lambda value: True,
    ) -> Value:
        """An earlier value, of these types and ranks; new ones more often. some: of elements in every set."""
        found = [
            value
            for value in self.values
            if value.type in types
            and least <= value.rank <= most
            and value.size <= largest
            and (value.exact or not exact)
            and not (some and any(array.size == 0 for array in value.arrays))
            and fit(value)
        ]
        if not found:
            raise Left("no such value")
        weights = np.arange(1, len(found) + 1) ** 1.2
        return found[int(self.rng.choice(len(found), p=weights / weights.sum()))]

    def beside(self, value: Value, type: str = "") -> Value:
        """A second operand that broadcasts with a value: an earlier one, an input, or a constant."""
        type, draw = type or value.type, self.rng.random()
        if draw < 0.45:
            fitting = [v for v in self.values if v.type == type and v.size <= 20_000 and _broadcast(v, value)]
            if fitting:
                return self.choose(fitting)
        kept = self.number(0, value.rank) if self.chance(0.5) else value.rank
        axes = range(value.rank - kept, value.rank)
        shape = [1 if self.chance(0.3) or not value.settled(axis) else value.shapes[0][axis] for axis in axes]
        if draw < 0.75:
            return self.constant(self.data(shape, type))
        return self.fed([self.data(shape, type) for _ in range(self.sets)], shape)

    def axis(self, value: Value) -> int:
        """An axis, at times counted from behind."""
        if not value.rank:
            raise Left("a scalar")
        axis = self.number(0, value.rank - 1)
        return axis - value.rank if self.chance(0.4) else axis

    def axes(self, value: Value) -> list[int]:
        """Some axes, at least one, in any order."""
        if not value.rank:
            raise Left("a scalar")
        chosen = self.rng.permutation(value.rank)[: self.number(1, value.rank)]
        return [int(axis) - (value.rank if self.chance(0.3) else 0) for axis in chosen]

    # ------------------------------------------------------------ growing

    def add(
        self, operator: str, *inputs: Value | None, outputs: int = 1, exact: bool | None = None, **attributes: Any
    ) -> Value:
        """A node's first output; see `add_all`."""
        return self.add_all(operator, *inputs, outputs=outputs, exact=exact, **attributes)[0]

    def add_all(
        self, operator: str, *inputs: Value | None, outputs: int = 1, exact: bool | None = None, **attributes: Any
    ) -> list[Value]:
        """A node's outputs. exact: whether they are where the inputs are; None: where no arithmetic is done.

        Left where no oracle evaluates it, or its results are too large or differ in rank between sets.
        """
        given = list(inputs)
        while given and given[-1] is None:
            given.pop()
        names = [self.name() for _ in range(outputs)]
        node = helper.make_node(operator, ["" if v is None else v.name for v in given], names, **attributes)
        read = set(reads(node))
        sources = [v for v in (*self.around, *self.values) if v.name in read]
        sources += [v for v in given if v is not None and v not in sources]
        results = [evaluate_node(node, {v.name: v.arrays[i] for v in sources}, self.opset) for i in range(self.sets)]
        floats = [v for v in sources if v.type in FLOATS]
        tolerance = max((v.tolerance for v in floats if not (v.exact and operator == "Cast")), default=0.0)
        made = []
        for name, arrays in zip(names, zip(*results, strict=True), strict=True):
            kinds = {(type_of(array), array.ndim) for array in arrays}
            if len(kinds) > 1 or any(array.size > LARGEST for array in arrays):
                raise Left("a rank that depends on data, or too large")
            settled = all(v.exact for v in floats)
            made.append(Value(name, list(arrays), settled and exact is not False, tolerance))
        self.nodes.append(node)
        self.values += made
        return made

    def grow(self, steps: Sequence[Callable[[Growing], object]], weights: Sequence[float], count: int) -> None:
        """Take random steps until there are `count` nodes, or none fits any more."""
        shares = np.array(weights, float) / sum(weights)
        for _ in range(count * 5):
            if len(self.nodes) >= count:
                break
            marks = [(part, len(part)) for part in (self.nodes, self.constants, self.values, self.inputs)]
            try:
                steps[int(self.rng.choice(len(steps), p=shares))](self)
            except Left:
                for part, length in marks:
                    del part[length:]  # type: ignore[attr-defined]

    def made(self) -> list[Value]:
        """The values that nodes give."""
        names = {name for node in self.nodes for name in node.output}
        return [value for value in self.values if value.name in names]

    def finish(self) -> Model:
        """The model of what is not read, and some of what is. Left if there is nothing."""
        used = {name for node in self.nodes for name in reads(node)}
        outputs = [value for value in self.made() if value.name not in used or self.chance(0.08)]
        if not outputs:
            raise Left("no outputs")
        return self.model(outputs)

    def model(self, outputs: Sequence[Value], cut: Sequence[Value] = ()) -> Model:
        """The model that gives these values, from the inputs or from values that are cut off and fed."""
        cuts = {value.name for value in cut}
        nodes = pruned(self.nodes, [v.name for v in outputs], cuts)
        made = {name for node in nodes for name in node.output}
        needed = ({name for node in nodes for name in reads(node)} | {v.name for v in outputs}) - made
        inputs = [(name, type, dims) for name, type, dims in self.inputs if name in needed]
        inputs += [(v.name, v.type, self._dims(v)) for v in cut if v.name in needed]
        graph = helper.make_graph(
            nodes,
            "fuzzed",
            [helper.make_tensor_value_info(name, onnx_type(type), dims) for name, type, dims in inputs],
            [helper.make_tensor_value_info(v.name, onnx_type(v.type), [None] * v.rank) for v in outputs],
            [tensor for tensor in self.constants if tensor.name in needed],
        )
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=10)
        fed = {name for name, _, _ in inputs}
        return Model(
            proto,
            [{v.name: v.arrays[i] for v in self.values if v.name in fed} for i in range(self.sets)],
            [{v.name: v.arrays[i] for v in outputs} for i in range(self.sets)],
            {v.name: v.tolerance for v in outputs},
        )

    def _dims(self, value: Value) -> list[int | str]:
        """Sizes, and names for those that are not the same in all sets."""
        dims: list[int | str] = []
        for sizes in zip(*value.shapes, strict=True):
            if len(set(sizes)) == 1:
                dims.append(sizes[0])
                continue
            named = next((name for name, known in self.open.items() if tuple(known) == sizes), f"s{len(self.open)}")
            self.open.setdefault(named, list(sizes))
            dims.append(named)
        return dims


def _broadcast(a: Value, b: Value) -> bool:
    try:
        return all(np.prod(np.broadcast_shapes(x, y)) <= LARGEST for x, y in zip(a.shapes, b.shapes, strict=True))
    except ValueError:
        return False


def reads(node: onnx.NodeProto) -> list[str]:
    """The names that a node reads, also in its bodies."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            body = attribute.g
            own = {name for inner in body.node for name in inner.output}
            own |= {value.name for value in (*body.input, *body.initializer)}
            within = [name for inner in body.node for name in reads(inner)] + [value.name for value in body.output]
            names += [name for name in within if name not in own]
    return names


def pruned(nodes: Sequence[onnx.NodeProto], outputs: Iterable[str], cut: Iterable[str] = ()) -> list[onnx.NodeProto]:
    """The nodes that outputs need, not looking behind what is cut off."""
    needed, kept, cuts = set(outputs), [], set(cut)
    for node in reversed(nodes):
        if any(name in needed and name not in cuts for name in node.output):
            kept.append(node)
            needed.update(reads(node))
    return kept[::-1]


def run_onnxruntime(model: bytes, feeds: dict[str, Array]) -> list[Array]:
    """What onnxruntime gives, in one thread. Left with its words where it refuses."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        return [np.asarray(array) for array in session.run(None, feeds)]
    except Exception as error:  # its errors share no class
        raise Left(str(error)) from error


def run_reference(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """What onnx's reference gives. Left where it fails, which it does in every way."""
    try:
        with np.errstate(all="ignore"):
            return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, feeds)]
    except Exception as error:
        raise Left(str(error)) from error


def evaluate_node(node: onnx.NodeProto, feeds: dict[str, Array], opset: int) -> list[Array]:
    """What an oracle gives for one node. Left if none does."""
    names = list(dict.fromkeys(reads(node)))
    given = {name: feeds[name] for name in names}
    halves = {name for name, array in given.items() if type_of(array) in ("float16", "bfloat16")}
    narrow = next((given[name].dtype for name in halves), None) if node.op_type in WIDENED else None
    if narrow is not None:
        given = {name: array.astype(np.float32) if name in halves else array for name, array in given.items()}
    infos = [helper.make_tensor_value_info(n, onnx_type(type_of(a)), list(a.shape)) for n, a in given.items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "one", infos, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    if node.op_type == "Slice" and BFLOAT16 in {array.dtype for array in given.values()}:  # of other numbers of 16 bits
        moved = {name: array.view(np.int16) if array.dtype == BFLOAT16 else array for name, array in given.items()}
        return [array.view(BFLOAT16) for array in evaluate_node(node, moved, opset)]
    if node.op_type in ONNXRUNTIME_DECIDES and BFLOAT16 not in {array.dtype for array in given.values()}:
        results = run_onnxruntime(model.SerializeToString(), given)
    else:
        results = run_reference(model, given)
        if node.op_type == "Loop" and len(node.output) > len(node.input) - 2:
            raise Left("the reference joins rows that are to be stacked")
    if narrow is not None:
        with np.errstate(all="ignore"):
            results = [a.astype(narrow) if a.dtype == np.float32 else a for a in results]
    return results


def tensor(array: Array, name: str) -> TensorProto:
    """An initializer of any type that NumPy has."""
    return numpy_helper.from_array(np.asarray(array), name)

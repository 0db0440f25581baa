"""The one helper behind every operator's table of cases.

A case is a node: operator, operator set, inputs, attributes. `check` makes a model of it, loads it, and compares

- what the graph gives on NumPy with an oracle: a value written into the case, else onnxruntime, else the reference
  evaluator of the onnx package (in this order, the first that has the operator and its types);
- the types that inference gave, for fixed and for symbolic input sizes, with what came out;
- what the operator's lowering computes, read on NumPy (see `interpret`), with its evaluation;
- and what the engine computes, with the evaluation: so the tables, which are written for the declarations, hold the
  planner, the generated code and the kernels to the same results.

    CASES = [*each_version("Relu", X), case("Gelu", 20, X, approximate="tanh")]

    @pytest.mark.parametrize("case", CASES, ids=str)
    def test_activation(case):
        check(case)
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from jitonnx import errors
from jitonnx.engine.interpreter import bind, bind_dimensions, evaluate
from jitonnx.engine.pipeline import Engine, Settings
from jitonnx.ir import dims
from jitonnx.ir.assumptions import Assumptions, holds
from jitonnx.ir.computation.lowering import lower
from jitonnx.ir.dtypes import of_numpy
from jitonnx.ir.extract import solved, specialise
from jitonnx.ir.graph import Graph
from jitonnx.ir.schema import versions_of
from jitonnx.model import load
from jitonnx.ops.base import is_narrow
from jitonnx.ops.registry import registry
from jitonnx.plan.parametric_program import Sizing
from jitonnx.support.kernel_cache import KernelCache
from tests.ops.interpret import interpret

Array = Any

NEWEST_OPSET_OF_ONNXRUNTIME = 26
NEWEST_IR_OF_ONNXRUNTIME = 13


@dataclass(frozen=True, eq=False)
class Case:
    """One node and how to judge it. Make it with `case` or `each_version`."""

    operator: str
    opset: int
    inputs: tuple[Array, ...]
    """Arrays; None for an optional input left out."""
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    constants: tuple[int, ...] = ()
    """Positions of inputs that are initializers: what shapes depend on (axes, shapes, pads, …)."""
    expected: tuple[Array, ...] | None = None
    """The outputs, where no oracle has them right."""
    rtol: float = 1e-5
    atol: float = 1e-6
    domain: str = ""
    lowered: bool = True
    """Whether what the lowering computes can be compared (random operators give something else each time)."""
    widen: bool = True
    """Whether float16 and bfloat16 mean: compute in float32 and round (not so for conversions)."""
    by_reference: bool = False
    """Whether onnx's reference decides, where onnxruntime differs from it."""
    note: str = ""

    def __str__(self) -> str:
        inputs = ",".join("-" if x is None else f"{x.dtype}{list(x.shape)}" for x in self.inputs)
        short = {k: v for k, v in self.attributes.items() if not isinstance(v, np.ndarray) and len(str(v)) < 80}
        attributes = ",".join(f"{k}={v}" for k, v in short.items())
        parts = (f"{self.operator}-{self.opset}", inputs, attributes, self.note)
        return " ".join(part for part in parts if part).replace(" ", "")


def case(operator: str, opset: int, *inputs: Array, **options: Any) -> Case:
    """A case; options that are fields of Case are those, all others are attributes of the node."""
    own = {name: options.pop(name) for name in list(options) if name in Case.__dataclass_fields__ and name != "inputs"}
    if (expected := own.get("expected")) is not None and not isinstance(expected, tuple):
        own["expected"] = (expected,)
    arrays = tuple(x if x is None else np.asarray(x) for x in inputs)
    return Case(operator, opset, arrays, attributes={**own.pop("attributes", {}), **options}, **own)


def each_version(
    operator: str, *inputs: Array, since: int = 1, until: int = 99, domain: str = "", **options: Any
) -> list[Case]:
    """The same case for every version of the operator from `since` to `until`."""
    versions = versions_of(registry.find(domain, operator))  # type: ignore[arg-type]
    return [
        case(operator, version, *inputs, domain=domain, **options) for version in versions if since <= version <= until
    ]


def retyped(template: Case, *dtypes: Any) -> list[Case]:
    """The case with all its inputs (but those in `constants`) converted to each of the types."""
    return [
        replace(
            template,
            inputs=tuple(
                x if x is None or position in template.constants else x.astype(dtype)
                for position, x in enumerate(template.inputs)
            ),
        )
        for dtype in dtypes
    ]


def has_onnxruntime(version: str) -> bool:
    """Whether the onnxruntime that is installed is of this version ("1.32", "1.32.0") or a newer one."""
    installed, wanted = (tuple(map(int, each.split(".")[:2])) for each in (onnxruntime.__version__, version))
    return installed >= wanted


def needs_onnxruntime(version: str) -> pytest.MarkDecorator:
    """A mark that leaves tests out where an older onnxruntime is installed, which lacks the operators."""
    return pytest.mark.skipif(not has_onnxruntime(version), reason=f"onnxruntime {version} is needed")


# ---------------------------------------------------------------------------------------------- judging


def check(case: Case) -> None:
    """AssertionError unless evaluation, inference, lowering, the oracle and a compiled run agree on the case."""
    feeds = {f"x{i}": x for i, x in enumerate(case.inputs) if x is not None and i not in case.constants}
    before = {name: x.copy() for name, x in feeds.items()}
    model = load(build(case))
    results = evaluate(model.graph, feeds)
    for name, x in feeds.items():
        assert x.tobytes() == before[name].tobytes() or x.dtype == object, f"input {name} was written to"
    for position, (result, expected) in enumerate(zip(results, oracle(case, feeds), strict=True)):
        assert_same(result, expected, case, f"output {position}")
    symbolic, opened = (load(build(case, sizes)).graph for sizes in ("alike", "open"))
    like = Assumptions(bind_dimensions(opened, [feeds[value.name] for value in opened.inputs]))
    exact = solved(specialise(opened, [value.type for value in opened.inputs], like))
    assert exact.bindings or assumptions_hold(exact, feeds), "a graph for open sizes like these does not hold for them"
    for graph in (model.graph, symbolic, opened, exact):
        if not assumptions_hold(graph, feeds):
            continue
        check_types(graph, feeds, results)
        if case.lowered:
            check_lowering(graph, feeds, results, case)
    if case.lowered:
        engine = Engine(model.graph, Settings(threads=1), _kernel_cache())
        compiled = engine.run([feeds[value.name] for value in model.graph.inputs])
        for position, (result, expected) in enumerate(zip(compiled, results, strict=True)):
            assert_same(result, expected, case, f"compiled output {position}")


@cache
def _kernel_cache() -> KernelCache:
    return KernelCache()


def check_refused(case: Case, text: str) -> None:
    """AssertionError unless loading the case's model fails, with words that name the node and match `text`."""
    with pytest.raises(errors.Error, match=text) as caught:
        load(build(case))
    assert re.search(rf"{case.operator} (node )?'node'", str(caught.value))


def ints(*values: int) -> Array:
    """A vector of int64: axes, shapes, positions."""
    return np.array(values, np.int64)


def assert_same(result: Array, expected: Array, case: Case, what: str) -> None:
    """Same type, same shape, and values within the case's tolerance (the type's own, if that is coarser)."""
    result, expected = np.asarray(result), np.asarray(expected)
    assert of_numpy(result.dtype) is of_numpy(expected.dtype), f"{what}: {result.dtype}, expected {expected.dtype}"
    assert result.shape == expected.shape, f"{what}: shape {result.shape}, expected {expected.shape}"
    if not of_numpy(expected.dtype).is_float and expected.dtype.kind not in "fc":
        np.testing.assert_array_equal(result, expected, err_msg=what)
        return
    rtol = max(case.rtol, {2: 1e-2, 1: 0.1}.get(expected.dtype.itemsize, 0))
    wide = np.complex128 if expected.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(
        result.astype(wide), expected.astype(wide), rtol, max(case.atol, rtol * 1e-2), equal_nan=True, err_msg=what
    )


def assumptions_hold(graph: Graph, feeds: Mapping[str, np.ndarray]) -> bool:
    """Whether a graph made for variable sizes may be used for these feeds."""
    measured = [binding.value for binding in graph.bindings.values() if binding.element]
    if any((feeds[value.name] < 0).any() for value in graph.inputs if value in measured):
        return False
    shapes = graph.given_shapes or [value.shape for value in graph.inputs]
    if Sizing(shapes, ()).bound(tuple(feeds[value.name].shape for value in graph.inputs)) is None:
        return False
    sizes = sizes_of(graph, feeds, shapes=shapes)
    told = [pair for pair in graph.assumptions if dims.variables(pair[0]) | dims.variables(pair[1]) <= sizes.keys()]
    return all(holds(pair, sizes) for pair in told)


def check_types(graph: Graph, feeds: Mapping[str, np.ndarray], results: Sequence[np.ndarray]) -> None:
    """What inference says about the outputs holds for what came out; where it says nothing it had to see data."""
    sizes = sizes_of(graph, feeds, results)
    for value, result in zip(graph.outputs, results, strict=True):
        if value.type.dtype is None:
            continue
        assert value.dtype is of_numpy(result.dtype), f"{value} is {result.dtype}"
        if value.type.shape is not None:
            if not set().union(*map(dims.variables, value.type.shape)) <= sizes.keys():
                continue  # they follow from what is computed on the way
            inferred = tuple(dims.evaluate(dim, sizes) for dim in value.type.shape)
            assert inferred == result.shape, f"{value} has the shape {result.shape}"


def sizes_of(
    graph: Graph, feeds: Mapping[str, np.ndarray], results: Sequence[Any] = (), shapes: Sequence[Any] | None = None
) -> dict[str, int]:
    """Values of a graph's variables, as far as its inputs and outputs tell them."""
    arrays = {value: feeds[value.name] for value in graph.inputs} | dict(zip(graph.outputs, results, strict=False))
    given = [feeds[value.name] for value in graph.inputs]
    sizes = bind_dimensions(graph, given)
    sizes |= Sizing(shapes or (), ()).bound(tuple(x.shape for x in given)) or {}
    for name, binding in graph.bindings.items():
        if binding.value in arrays:
            bind(sizes, [(name, binding)], arrays[binding.value])
    return sizes


def check_lowering(graph: Graph, feeds: Mapping[str, np.ndarray], results: Sequence[np.ndarray], case: Case) -> None:
    """The lowering, read on NumPy, computes the same. Where the type of a result depends on data there is none."""
    if any(value.type.dtype is None or value.type.shape is None for node in graph for value in node.outputs):
        return
    if any(binding.value not in graph.inputs for binding in graph.bindings.values()):
        return  # only a run of the engine tells the sizes of what these give
    computed = interpret(lower(graph), feeds, sizes_of(graph, feeds))
    for position, (result, expected) in enumerate(zip(computed, results, strict=True)):
        assert_same(result, expected, case, f"lowered output {position}")


# ---------------------------------------------------------------------------------------------- models


def build(case: Case, sizes: str = "") -> onnx.ModelProto:
    """The case as a model. sizes: "alike", those above 1 are variables, one for each size; "open", all are unknown."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(case.inputs)]
    outputs = [f"y{i}" for i in range(case.outputs)]
    attributes = {k: numpy_helper.from_array(v) if isinstance(v, np.ndarray) else v for k, v in case.attributes.items()}
    node = helper.make_node(case.operator, names, outputs, name="node", domain=case.domain, **attributes)
    graph = helper.make_graph(
        [node],
        "case",
        [
            helper.make_tensor_value_info(f"x{i}", _element_type(x), _declared(x.shape, sizes))
            for i, x in enumerate(case.inputs)
            if x is not None and i not in case.constants
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [_initializer(case.inputs[i], f"x{i}") for i in case.constants if case.inputs[i] is not None],
    )
    opsets = [helper.make_opsetid(case.domain, case.opset)]
    if case.domain:
        opsets.append(helper.make_opsetid("", NEWEST_OPSET_OF_ONNXRUNTIME))
    return helper.make_model(graph, opset_imports=opsets, ir_version=NEWEST_IR_OF_ONNXRUNTIME)


def _declared(shape: tuple[int, ...], sizes: str) -> list[int | str | None]:
    if sizes == "open":
        return [None] * len(shape)
    return [f"n{size}" if sizes == "alike" and size > 1 else size for size in shape]


def _element_type(x: np.ndarray) -> int:
    return TensorProto.STRING if x.dtype == object else helper.np_dtype_to_tensor_dtype(x.dtype)


def _initializer(x: np.ndarray, name: str) -> TensorProto:
    return numpy_helper.from_array(x, name)


# ---------------------------------------------------------------------------------------------- oracles


def oracle(case: Case, feeds: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
    """The outputs that are right."""
    if case.expected is not None:
        return case.expected
    narrow = next((x.dtype for x in feeds.values() if x.dtype != object and is_narrow(x.dtype)), None)
    if narrow is not None and case.widen:
        # Computed in float32 and rounded once: oracles that round after each of their steps are less exact than this.
        wide = {name: x.astype(np.float32) if x.dtype == narrow else x for name, x in feeds.items()}
        inputs = tuple(x if x is None or x.dtype != narrow else x.astype(np.float32) for x in case.inputs)
        results = oracle(replace(case, inputs=inputs), wide)
        return [x.astype(narrow) if x.dtype == np.float32 else x for x in results]
    model = build(case)
    asked = case.opset <= NEWEST_OPSET_OF_ONNXRUNTIME and not case.by_reference
    results = run_onnxruntime(model, feeds) if asked else None
    return run_reference(model, feeds) if results is None else results


@cache
def _onnxruntime_errors() -> tuple[type[BaseException], ...]:
    state = onnxruntime.capi.onnxruntime_pybind11_state
    names = ("Fail", "InvalidArgument", "InvalidGraph", "NotImplemented", "RuntimeException")
    return (*(getattr(state, name) for name in names), RuntimeError)


def run_onnxruntime(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Sequence[np.ndarray] | None:
    """onnxruntime's outputs; None where it lacks the operator's version or a type."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    typed = onnx.ModelProto.FromString(model.SerializeToString())
    try:
        session = onnxruntime.InferenceSession(typed.SerializeToString(), options, ["CPUExecutionProvider"])
        return session.run(None, dict(feeds))
    except _onnxruntime_errors():
        return None


def run_reference(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]:
    """The outputs of the onnx package's reference evaluator."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outputs: Sequence[np.ndarray] = ReferenceEvaluator(model).run(None, dict(feeds))
        return outputs

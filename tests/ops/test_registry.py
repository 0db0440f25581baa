"""Every declaration against ONNX's schemas, and against the tables of cases: nothing declared is left untested."""

import importlib
import inspect
import sys
from collections import defaultdict
from dataclasses import MISSING, Field, fields
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, defs, helper
from onnxruntime.capi import onnxruntime_pybind11_state as pybind_state

from jitonnx import InferenceSession
from jitonnx.api.environment import INTERFACE_VERSION
from jitonnx.ir.attributes import KINDS, kind_of
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.graph import GraphError
from jitonnx.ir.operator import Operator
from jitonnx.ir.schema import schemas_in, versions_of
from jitonnx.ops.base import FLOATS, Elementwise
from jitonnx.ops.composite import Composite
from jitonnx.ops.generate import is_contributed
from jitonnx.ops.registry import COUNTS, ELEMENT_TYPES, FOLDERS, _parse_attributes, canonical, registry
from tests.models.node_tests import node_tests
from tests.ops.harness import has_onnxruntime
from tests.ops.ml.test_maps import MAP_OPERATORS
from tests.ops.tables import all_cases
from tests.session.test_control_flow import CONTROL_FLOW

OPERATORS = sorted(
    (one for one in registry if one.domain in FOLDERS), key=lambda declaration: (declaration.domain, declaration.name)
)
IDS = [":".join(filter(None, (declaration.domain, declaration.name))) for declaration in OPERATORS]
EVALUATED = {
    *("ImageDecoder", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"),
    *("Bernoulli", "StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch", "TfIdfVectorizer"),
    *("BifurcationDetector", "DynamicTimeWarping", "Tokenizer"),
}
"""What the host evaluates, as there is nothing to compile."""
every_operator = pytest.mark.parametrize("declaration", OPERATORS, ids=IDS)


@cache
def schemas() -> dict[tuple[str, str], dict[int, Any]]:
    """All of ONNX's schemas: by domain and name, by version."""
    found: dict[tuple[str, str], dict[int, Any]] = defaultdict(dict)
    for schema in defs.get_all_schemas_with_history():
        found[schema.domain, schema.name][schema.since_version] = schema
    for schema in pybind_state.get_all_operator_schema():  # of the same form, and the same names
        if schema.domain == "com.microsoft" or is_contributed(schema):
            found[schema.domain, schema.name][schema.since_version] = schema
    return found


def newest(declaration: type[Operator]) -> Any:
    """The schema of the newest version."""
    if declaration.domain == "com.microsoft" and not has_onnxruntime(INTERFACE_VERSION):
        pytest.skip(f"signatures of com.microsoft are those of onnxruntime {INTERFACE_VERSION}")
    return schemas()[declaration.domain, declaration.name][versions_of(declaration)[-1]]


def attributes(declaration: type[Operator]) -> dict[str, Any]:
    """The fields of a declaration that are attributes in ONNX."""
    return {entry.name: entry for entry in fields(declaration) if not entry.metadata.get("internal")}


def test_domains_reach_the_newest_operator_sets_of_onnx() -> None:
    released = {domain: newest for domain, (_, newest) in defs.C.schema_version_map().items()}
    ours = {domain.name: domain.newest for domain in registry.domains() if domain.name in FOLDERS}
    assert {domain: released.get(domain, 1) for domain in ours} == ours  # com.microsoft has no releases: version 1


@pytest.mark.parametrize("place", FOLDERS.values())
def test_families_declare_what_their_folder_says(place: str) -> None:
    folder = importlib.import_module(f"jitonnx.ops.{place}")
    assert folder.__file__ is not None
    for family, names in folder.FAMILIES.items():
        assert _declared(importlib.import_module(f"{folder.__name__}.{family}")) == sorted(names.split()), family
    modules = [path.stem for path in Path(folder.__file__).parent.glob("*.py") if path.stem != "__init__"]
    declaring = {name for name in modules if _declared(importlib.import_module(f"{folder.__name__}.{name}"))}
    assert declaring == set(folder.FAMILIES)


def _declared(module: ModuleType) -> list[str]:
    """The names of the operators of a domain of models that a module declares."""
    classes = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, Operator)]
    own = [one for one in classes if one.__module__ == module.__name__]
    place = module.__name__.rpartition(".")[0]
    return sorted(one.name for one in own if schemas_in(place, canonical(one.domain), one.name))


@every_operator
def test_versions_are_those_of_onnx(declaration: type[Operator]) -> None:
    newest(declaration)
    known = sorted(schemas()[declaration.domain, declaration.name].items())
    if known[-1][1].deprecated:  # the version in which ONNX dropped the operator
        known.pop()
    assert versions_of(declaration) == tuple(version for version, _ in known)


def default_value(attribute: Any) -> AttributeProto:
    """What an attribute of a schema is by default; without a name if nothing."""
    if isinstance(attribute, defs.OpSchema.Attribute):
        return attribute.default_value
    return AttributeProto.FromString(attribute._default_value)


@every_operator
def test_attributes_are_those_of_onnx(declaration: type[Operator]) -> None:
    schema, declared = newest(declaration), attributes(declaration)
    assert set(declared) | {name.removesuffix("?") for name in declaration.bodies} == set(schema.attributes)
    for name, entry in declared.items():
        given = schema.attributes[name]
        assert (entry.default is MISSING) == given.required, name
        default = default_value(given)
        if default.name and entry.default is not None:  # None: worked out from other attributes
            expected = helper.get_attribute_value(default)
            expected = expected.decode() if isinstance(expected, bytes) else expected
            expected = tuple(expected) if isinstance(expected, list) else expected
            close = pytest.approx(expected) if isinstance(expected, float) else expected
            assert entry.default == close, name


@every_operator
def test_declaration_has_all_its_parts(declaration: type[Operator]) -> None:
    assert declaration.__doc__ and not declaration.__doc__.startswith(f"{declaration.name}("), "no docstring"
    if issubclass(declaration, Composite):
        assert declaration.compose is not Composite.compose
        assert_as_many_parameters_as_inputs(declaration, declaration.compose)
        return
    infer = "infer_bodies" if declaration.bodies else "infer"
    parts = [
        infer,
        "evaluate",
        *(
            ["body_inputs"]
            if declaration.bodies
            else []
            if on_host(declaration) or declaration.name in EVALUATED
            else ["lower"]
        ),
    ]
    for part in parts:
        assert getattr(declaration, part) is not getattr(Operator, part), f"no {part}"
    assert_as_many_parameters_as_inputs(declaration, getattr(declaration, infer))


def assert_as_many_parameters_as_inputs(declaration: type[Operator], method: Any) -> None:
    """Compare the parameters behind the operator itself and the context, the bodies, or what gets the nodes."""
    parameters = list(inspect.signature(method).parameters.values())[2:]
    if not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        assert len(parameters) == len(newest(declaration).inputs)


def on_host(declaration: type[Operator]) -> bool:
    """Whether all that an operator reads or gives is no tensor, so that no native code has a part in it."""
    schema = newest(declaration)
    return any(
        text.startswith(("seq(", "map(", "sparse_tensor("))
        for entry in (*schema.inputs, *schema.outputs)
        for text in entry.types
    )


@cache
def covered() -> set[tuple[str, str, int]]:
    """Domain, name and version of every operator in a table of cases."""
    found = set()
    for case in all_cases():
        versions = versions_of(registry.find(case.domain, case.operator))
        found.add((case.domain, case.operator, max(v for v in versions if v <= case.opset)))
    for test in node_tests().values():  # operators on sequences and such that run graphs: ONNX's own models test these
        opsets = {entry.domain: entry.version for entry in test.model.opset_import}
        for node in test.model.graph.node:
            declaration = registry.find(node.domain, node.op_type)
            if declaration is not None and (declaration.bodies or on_host(declaration)):
                known = [v for v in versions_of(declaration) if v <= opsets.get(node.domain, 0)]
                found.add((node.domain, node.op_type, max(known, default=0)))
    found |= {("ai.onnx.ml", name, 1) for name in MAP_OPERATORS}
    elsewhere = {
        "test_decoder_attention": ("SparseAttention",),
        "test_search": ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"),
        "test_sparse": ("SparseToDenseMatMul",),
    }
    found |= {("com.microsoft", name, 1) for names in elsewhere.values() for name in names}
    for name, opset in CONTROL_FLOW:
        found.add(("", name, max(v for v in versions_of(registry.find("", name)) if v <= opset)))
    return found


@every_operator
def test_every_version_has_a_case(declaration: type[Operator]) -> None:
    missing = [v for v in versions_of(declaration) if (declaration.domain, declaration.name, v) not in covered()]
    assert not missing, f"no case for {declaration.name} of version {missing}"


@pytest.mark.parametrize("value", [0, -1, -(1 << 63)])
def test_counts_are_at_least_1(value: int) -> None:
    """Of every operator, at load, by the names of node and attribute; not where a default stands for absence."""
    seen = set()
    for declaration in OPERATORS:
        for entry in fields(declaration):  # type: ignore[arg-type]
            if entry.name not in COUNTS or entry.default == value:
                continue
            seen.add(entry.name)
            given: Any = (1, value) if kind_of(entry.type) == KINDS["tuple[int, ...]"] else value
            others = {one.name: _any(one) for one in fields(declaration) if one.default is MISSING}  # type: ignore[arg-type]
            node = SimpleNamespace(operator=declaration.name, attributes={**others, entry.name: given})
            with pytest.raises(GraphError, match=rf"a node: the attribute {entry.name} is .*; at least 1 is needed"):
                _parse_attributes(declaration, node, "a node")  # type: ignore[arg-type]
    assert seen == COUNTS or value == 0


@pytest.mark.parametrize("value", [-1, 1000, 1 << 62])
def test_element_types_are_known(value: int) -> None:
    seen = set()
    for declaration in OPERATORS:
        for entry in fields(declaration):  # type: ignore[arg-type]
            if entry.name not in ELEMENT_TYPES or kind_of(entry.type) != KINDS["int"]:
                continue
            seen.add(entry.name)
            others = {one.name: _any(one) for one in fields(declaration) if one.default is MISSING}  # type: ignore[arg-type]
            node = SimpleNamespace(operator=declaration.name, attributes={**others, entry.name: value})
            with pytest.raises(GraphError, match=rf"a node: the attribute {entry.name} is {value}, which is no"):
                _parse_attributes(declaration, node, "a node")  # type: ignore[arg-type]
    assert seen == ELEMENT_TYPES.keys()


def _any(entry: Field[Any]) -> Any:
    kind = kind_of(entry.type)
    assert kind is not None
    return {"INT": 1, "FLOAT": 1.0, "STRING": "", "INTS": (1, 1)}[kind.name]


def test_a_built_in_operator_that_no_schema_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is declared as docs/operators.md says; what FAMILIES promises and no module keeps is an error that says so."""
    family = ModuleType("jitonnx.ops.microsoft.of_a_test")

    class Doubled(Elementwise):
        """x + x, times `factor`."""

        __module__ = family.__name__
        domain = "com.microsoft"
        inputs, outputs = ("X: T",), ("Y: T",)
        types: ClassVar[Any] = {"T": FLOATS}

        factor: float = 1.0

        def scalar(self, x: e.Expr) -> e.Expr:
            return (x + x) * self.factor

        def evaluate(self, x: np.ndarray) -> np.ndarray:
            return (x + x) * x.dtype.type(self.factor)

    vars(family)["Doubled"] = Doubled
    monkeypatch.setitem(sys.modules, family.__name__, family)
    domain = registry.domain("com.microsoft")
    assert domain is not None
    for name in ("Doubled", "Tripled"):
        monkeypatch.setitem(domain._operators, name, family.__name__)
    text = '<ir_version: 8, opset_import: ["": 17, "m": 1]> g (float[N] x) => (float[N] y) { y = m.%s(x) }'
    models = {
        name: onnx.parser.parse_model(text.replace('"m"', '"com.microsoft"').replace("m.%s", f"com.microsoft.{call}"))
        for name, call in (("Doubled", "Doubled <factor = 3.0>"), ("Tripled", "Tripled"))
    }
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(InferenceSession(models["Doubled"].SerializeToString()).run(None, {"x": x})[0], 6 * x)
    with pytest.raises(LookupError, match="FAMILIES promises Tripled"):
        InferenceSession(models["Tripled"].SerializeToString())
    with pytest.raises(Exception, match="Doubled:1"):
        InferenceSession(
            onnx.helper.make_model(
                onnx.helper.make_graph(
                    [onnx.helper.make_node("Doubled", ["x", "x"], ["y"], domain="com.microsoft")],
                    "g",
                    list(models["Doubled"].graph.input),
                    list(models["Doubled"].graph.output),
                ),
                opset_imports=[onnx.helper.make_opsetid("com.microsoft", 1)],
                ir_version=8,
            ).SerializeToString()
        )

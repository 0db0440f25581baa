"""Operator-set documents: read, written, registered, and which operator of them a model means."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.onnx_operators_ml_pb2 import OperatorSetProto

import jitonnx
from jitonnx import InferenceSession, custom, errors, opsets
from jitonnx.model.checker import check_model
from jitonnx.ops.registry import Registry, registry
from jitonnx.tools.cli import main
from tests.model.models import X, model_of

DOMAIN = "org.example"


def function(
    name: str, *nodes: onnx.NodeProto, inputs: Sequence[str] = ("a",), version: int = 1, **options: Any
) -> onnx.FunctionProto:
    """A function with the output b, which imports version `version` of its own domain."""
    imports = [helper.make_opsetid("", 20), helper.make_opsetid(DOMAIN, version)]
    return helper.make_function(DOMAIN, name, inputs, ["b"], nodes, imports, **options)


def scaled(factor: float) -> onnx.FunctionProto:
    """Scaled, by a factor."""
    constant = helper.make_node("Constant", [], ["c"], value_float=float(factor))
    return function("Scaled", constant, helper.make_node("Mul", ["a", "c"], ["b"]))


def document(
    version: int = 1,
    functions: Sequence[onnx.FunctionProto] = (),
    operators: Sequence[tuple[str, int, str]] | None = None,
    domain: str = DOMAIN,
    **fields: Any,
) -> OperatorSetProto:
    """A document. operators: name, since_version and status; by default the functions, stable and new."""
    given = [(each.name, version, "STABLE") for each in functions] if operators is None else operators
    proto = OperatorSetProto(
        **{"magic": "ONNXOPSET", "ir_version": 10, "domain": domain, "opset_version": version, **fields}
    )
    for name, since, status in given:
        proto.operator.add(op_type=name, since_version=since, status=status)
    proto.functions.extend(functions)
    return proto


def using(name: str, version: int = 1, **attributes: Any) -> bytes:
    """A model y = name(x)."""
    node = helper.make_node(name, ["x"], ["y"], name="n", domain=DOMAIN, **attributes)
    return model_of([node], ["x"], ["y"], domains=[(DOMAIN, version)]).SerializeToString()


def ran(data: bytes) -> np.ndarray:
    (y,) = InferenceSession(data).run(None, {"x": X})
    return y


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """What a test registers is gone behind it."""
    domains = dict(registry._domains)
    yield
    registry._domains = domains
    registry._signatures.clear()


@pytest.mark.conformance("opset-documents")
def test_a_registered_domain_is_used(tmp_path: Path) -> None:
    with pytest.raises(errors.Fail, match=r"org.example.*the domains that are registered are ai.onnx"):
        InferenceSession(using("Scaled"))
    path = tmp_path / "set.onnxopset"
    path.write_bytes(document(1, [scaled(3)]).SerializeToString())
    done = jitonnx.register_opset(path)
    assert done == (DOMAIN, 1, ("Scaled",), ())
    assert jitonnx.register_opset(path.read_bytes()) == done
    np.testing.assert_array_equal(ran(using("Scaled")), 3 * X)
    assert not [each for each in check_model(using("Scaled")) if each.rule.startswith("operators")]


@pytest.mark.conformance("opset-documents")
def test_read_and_written(tmp_path: Path) -> None:
    """Documents are those of the onnx package, field for field."""
    given = document(3, [scaled(2)], [("Scaled", 2, "STABLE"), ("Other", 1, "EXPERIMENTAL")], doc_string="d",
                     ir_version_prerelease="p", ir_build_metadata="m")  # fmt: skip
    path = tmp_path / "set.onnxopset"
    opsets.write(given, path)
    assert OperatorSetProto.FromString(path.read_bytes()) == given
    made = opsets.read(path)
    assert OperatorSetProto.FromString(made.SerializeToString()) == given
    assert (made.magic, made.operator[0].since_version, made.operator[0].status) == ("ONNXOPSET", 2, 1)
    with pytest.raises(errors.NoSuchFile):
        opsets.read(tmp_path / "none")
    with pytest.raises(errors.Fail, match="no op_type"):
        opsets.write(document(1, operators=[("", 1, "STABLE")]), tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_calls_in_functions_in_bodies_and_with_attributes() -> None:
    leaky = helper.make_node("LeakyRelu", ["a"], ["b"])
    leaky.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    inner = function("Leaky", leaky, attributes=["slope"])
    twice = function("Twice", helper.make_node("Scaled", ["a"], ["h"], domain=DOMAIN),
                     helper.make_node("Leaky", ["h"], ["b"], domain=DOMAIN, slope=0.5))  # fmt: skip
    jitonnx.register_opset(document(1, [scaled(2), inner, twice]))
    local = helper.make_function("local", "F", ["p"], ["q"], [helper.make_node("Twice", ["p"], ["q"], domain=DOMAIN)],
                                 [helper.make_opsetid(DOMAIN, 1)])  # fmt: skip
    then = helper.make_graph(
        [helper.make_node("F", ["x"], ["t"], domain="local")], "t", [], [onnx.ValueInfoProto(name="t")]
    )
    other = helper.make_graph([helper.make_node("Leaky", ["x"], ["e"], domain=DOMAIN, slope=0.25)], "e", [],
                              [onnx.ValueInfoProto(name="e")])  # fmt: skip
    choice = helper.make_node("If", ["flag"], ["y"], then_branch=then, else_branch=other)
    flag = helper.make_tensor_value_info("flag", onnx.TensorProto.BOOL, [])
    model = model_of([choice], ["x", flag], ["y"], functions=[local], domains=[(DOMAIN, 1), ("local", 1)])
    session = InferenceSession(model.SerializeToString())
    for given, expected in ((True, np.where(X < 0, X, 2 * X)), (False, np.where(X < 0, X / 4, X))):
        np.testing.assert_array_equal(session.run(None, {"x": X, "flag": np.array(given)})[0], expected)
    with pytest.raises(errors.InvalidGraph, match="Unrecognized attribute: steep"):
        InferenceSession(using("Leaky", steep=1.0))
    with pytest.raises(errors.InvalidGraph, match="Expected: 'FLOAT', actual: 'INT'"):
        InferenceSession(using("Leaky", slope=1))


@pytest.mark.conformance("opset-resolution")
def test_the_newest_version_that_is_not_above_the_import() -> None:
    plain = function("Plain", helper.make_node("Neg", ["a"], ["b"]))
    first = document(2, [scaled(2), plain], [("Scaled", 1, "STABLE"), ("Plain", 2, "STABLE")])
    last = document(5, [scaled(5)], [("Scaled", 4, "STABLE")])
    for one in (last, first):
        jitonnx.register_opset(one)
    for version, factor in ((1, 2), (2, 2), (3, 2), (4, 5), (5, 5)):
        np.testing.assert_array_equal(ran(using("Scaled", version)), factor * X)
    for version in (2, 3, 4):
        np.testing.assert_array_equal(ran(using("Plain", version)), -X)
    with pytest.raises(errors.InvalidGraph, match="Plain with domain_version of 1; it exists since 2"):
        InferenceSession(using("Plain", 1))
    with pytest.raises(
        errors.InvalidGraph, match="Plain is deprecated in domain_version of 5; it was removed in version 5"
    ):
        InferenceSession(using("Plain", 5))
    with pytest.raises(errors.Fail, match=r"Plaid.*did you mean 'Plain'.*registered are Plain, Scaled"):
        InferenceSession(using("Plaid", 2))


@pytest.mark.conformance("opset-newer")
def test_a_newer_version_than_those_that_are_registered() -> None:
    for version in (1, 3):
        jitonnx.register_opset(document(version, [scaled(2)], [("Scaled", 1, "STABLE")]))
    with pytest.raises(errors.Fail, match=r"operator set 4 of domain 'org.example' is unknown: registered are 1, 3"):
        InferenceSession(using("Scaled", 4))


@pytest.mark.conformance("opset-newer")
def test_a_domain_that_nobody_registered() -> None:
    """It is refused where a node uses it; a model that only imports it says nothing that is not known."""
    data = model_of([helper.make_node("Neg", ["x"], ["y"])], ["x"], ["y"], domains=[("org.other", 7)])
    (found,) = (each for each in check_model(data) if each.rule == "model.opset-unknown")
    assert found.severity == "warning" and "org.other" in found.text and "ai.onnx" in found.hint
    np.testing.assert_array_equal(ran(data.SerializeToString()), -X)


@pytest.mark.conformance("opset-status")
def test_experimental_operators_warn() -> None:
    jitonnx.register_opset(document(1, [scaled(2)], [("Scaled", 1, "EXPERIMENTAL")]))
    with pytest.warns(UserWarning, match=r"org.example:Scaled\(1\) is experimental"):
        np.testing.assert_array_equal(ran(using("Scaled")), 2 * X)
    assert "operators.experimental" in {each.rule for each in check_model(using("Scaled"))}
    jitonnx.register_opset(document(2, [scaled(4)], [("Scaled", 1, "STABLE")]))  # what is experimental may change
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(ran(using("Scaled", 2)), 4 * X)


@pytest.mark.conformance("opset-status")
def test_stable_operators_do_not_change() -> None:
    jitonnx.register_opset(document(1, [scaled(2)], [("Scaled", 1, "STABLE")]))
    with pytest.raises(errors.Fail, match="Scaled, stable since 1, is another function in set 2 than in set 1"):
        jitonnx.register_opset(document(2, [scaled(3)], [("Scaled", 1, "STABLE")]))
    with pytest.raises(errors.Fail, match="another document of this domain and version"):
        jitonnx.register_opset(document(1, [scaled(3)]))
    with pytest.raises(errors.Fail, match="Plain has been there since 1, but set 1, which is registered, does not"):
        jitonnx.register_opset(document(2, [function("Plain")], [("Plain", 1, "STABLE")]))
    np.testing.assert_array_equal(ran(using("Scaled", 1)), 2 * X)


@pytest.mark.conformance("opset-implementations")
def test_operators_without_a_function_are_written_in_python() -> None:
    needy = function("Needy", helper.make_node("Swept", ["a"], ["b"], domain=DOMAIN))
    done = jitonnx.register_opset(document(1, [needy], [("Swept", 1, "STABLE"), ("Needy", 1, "STABLE")]))
    assert done.missing == ("Swept",)
    with pytest.raises(
        errors.NotImplemented, match=r"org.example:Swept\(1\) is declared by its operator set without a"
    ):
        InferenceSession(using("Swept"))
    with pytest.raises(errors.NotImplemented, match=r"Needy\(1\) needs org.example:Swept\(1\)"):
        InferenceSession(using("Needy"))

    class Swept(custom.Elementwise):
        domain = DOMAIN
        inputs, outputs = ("X",), ("Y",)

        def evaluate(self, x: np.ndarray) -> np.ndarray:
            return x * 7

        def scalar(self, x: custom.e.Expr) -> custom.e.Expr:
            return x * 7

    jitonnx.register(Swept)
    np.testing.assert_array_equal(ran(using("Swept")), 7 * X)
    np.testing.assert_array_equal(ran(using("Needy")), 7 * X)
    jitonnx.register_opset(document(2, (), [("Swept", 2, "STABLE")]))  # another operator, which nobody wrote
    with pytest.raises(errors.NotImplemented, match=r"org.example:Swept\(2\) is declared"):
        InferenceSession(using("Swept", 2))
    np.testing.assert_array_equal(ran(using("Swept", 1)), 7 * X)


@pytest.mark.conformance("opset-implementations")
def test_what_is_written_in_python_goes_before_the_function() -> None:
    jitonnx.register_opset(document(1, [scaled(2)]))

    class Scaled(custom.Operator):
        domain = DOMAIN
        inputs, outputs = ("X",), ("Y",)

        def infer(self, context: Any, x: Any) -> Any:
            return x.type

        def evaluate(self, x: np.ndarray) -> np.ndarray:
            return x * 100

    jitonnx.register(Scaled)
    np.testing.assert_array_equal(ran(using("Scaled")), 100 * X)


BROKEN = {
    "no operator-set document": document(magic="ONNXMODEL"),
    "its magic is ''": document(magic=""),
    "the IR version is 0": document(ir_version=0),
    "the IR version is 99": document(ir_version=99),
    "names no domain": document(domain=""),
    "comes with jitonnx": document(domain="ai.onnx.ml"),
    "versions begin with 1": document(0),
    "since_version 2; it is a number from 1 to 1": document(1, operators=[("A", 2, "STABLE")]),
    "since_version 0": document(1, operators=[("A", 0, "STABLE")]),
    r"'A\(1\)' is declared twice": document(1, operators=[("A", 1, "STABLE"), ("A", 1, "STABLE")]),
    "'Scaled' is declared twice": document(1, [scaled(1), scaled(2)], [("Scaled", 1, "STABLE")]),
    "has an overload": document(1, [function("F", overload="o")]),
    "'F' is of domain 'elsewhere'": document(1, [helper.make_function("elsewhere", "F", ["a"], ["a"], [], [])]),
    "imports no operator set": document(1, [helper.make_function(DOMAIN, "F", ["a"], ["a"], [], [])]),
    "two inputs of the name 'a'": document(
        1, [function("F", helper.make_node("Neg", ["a"], ["b"]), inputs=["a", "a"])]
    ),
    "defines no value for its output 'b'": document(1, [function("F")]),
    "No Op registered for Negg": document(1, [function("F", helper.make_node("Negg", ["a"], ["b"]))]),
    "G.-1. is not a registered": document(1, [function("F", helper.make_node("G", ["a"], ["b"], domain=DOMAIN))]),
    "operator set 2 of domain 'org.example' is unknown": document(1, [function("F", inputs=["b"], version=2)]),
    "calls itself: F -> F": document(1, [function("F", helper.make_node("F", ["a"], ["b"], domain=DOMAIN))]),
}


@pytest.mark.conformance("opset-documents")
@pytest.mark.parametrize("text", BROKEN)
def test_documents_that_are_not_sound(text: str) -> None:
    before = registry.domain(DOMAIN)
    with pytest.raises(errors.Error, match=text):
        jitonnx.register_opset(BROKEN[text])
    assert registry.domain(DOMAIN) is before


def test_other_files_and_big_functions() -> None:
    with pytest.raises(errors.InvalidProtobuf, match="this is no operator-set document"):
        jitonnx.register_opset(b"\xff\xff\xff")
    with pytest.raises(errors.Fail, match="magic"):
        jitonnx.register_opset(using("Scaled"))
    twice = [
        function(f"F{n}", *(helper.make_node(f"F{n + 1}", ["a"], [out], domain=DOMAIN) for out in ("h", "b")))
        for n in range(30)
    ]
    last = function("F30", helper.make_node("Neg", ["a"], ["b"]))
    with pytest.raises(errors.Fail, match=r"the function F\d+ stands for 1048577 nodes or more"):
        jitonnx.register_opset(document(1, [*twice, last]))


def test_a_document_between_others_makes_no_circle() -> None:
    """F of version 3 calls that of version 2: the one since 1, unless another document has one since 2."""
    neg = helper.make_node("Neg", ["a"], ["b"])
    call = helper.make_node("F", ["a"], ["b"], domain=DOMAIN)
    jitonnx.register_opset(document(1, [function("F", neg)]))
    jitonnx.register_opset(document(3, [function("F", call, version=2)]))
    np.testing.assert_array_equal(ran(using("F", 3)), -X)
    with pytest.raises(errors.InvalidGraph, match="calls itself: F -> F"):
        jitonnx.register_opset(document(2, [function("F", call, version=2)]))
    np.testing.assert_array_equal(ran(using("F", 2)), -X)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path := tmp_path / "set.onnxopset").write_bytes(document(1, [scaled(3)]).SerializeToString())
    (model := tmp_path / "model.onnx").write_bytes(using("Scaled"))
    assert main(["check", str(model)]) == 0 and "is not a registered function/op" in capsys.readouterr().out
    assert main(["run", str(model)]) == 1 and "org.example:Scaled" in capsys.readouterr().err
    assert main(["--opset", str(path), "run", str(model)]) == 0
    assert "float32" in capsys.readouterr().out
    assert main(["--opset", str(path), "info", str(model)]) == 0 and "Scaled" in capsys.readouterr().out
    assert main(["--opset", str(model), "run", str(model)]) == 1 and "magic" in capsys.readouterr().err


def test_a_registry_of_ones_own() -> None:
    own = Registry(registry)
    opsets.register_opset(document(1, [scaled(2)]), registry=own)
    assert registry.domain(DOMAIN) is None and not check_model(using("Scaled"), registry=own).refused
    assert check_model(using("Scaled")).refused

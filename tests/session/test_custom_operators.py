"""Operators written in Python by users: registered for all sessions or for some, compiled, or evaluated by the host."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import jitonnx
from jitonnx import InferenceSession, SessionOptions, custom, errors
from jitonnx.custom import FLOATS, e
from jitonnx.ops.onnx.arithmetic import Add, Mul
from tests.conftest import CACHE_VARIABLE

DOMAIN = "test.custom"
X = np.random.default_rng(0).normal(size=(3, 5)).astype(np.float32)


class Swoosh(custom.Elementwise):
    """x * tanh(alpha * x)."""

    domain = DOMAIN
    inputs, outputs = ("X: T",), ("Y: T",)
    types: ClassVar[Any] = {"T": FLOATS}

    alpha: float = 1.0

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        wide = x.astype(np.float64)
        return (wide * np.tanh(self.alpha * wide)).astype(x.dtype)

    def scalar(self, x: e.Expr) -> e.Expr:
        return x * e.tanh(x * self.alpha)


class Clump(custom.Operator):
    """Elements rounded to multiples of `step`, on NumPy; and how many are 0."""

    domain = DOMAIN
    versions = (1, 3)
    inputs = ("X: T", "step?: T")
    outputs = ("Y: T", "zeros: tensor(int64)")
    types: ClassVar[Any] = {"T": ("tensor(float)", "tensor(double)")}

    mode: str = "nearest"
    halved: bool = custom.internal(default=False)

    @classmethod
    def upgrade(cls, node: Any) -> None:
        node.attributes["halved"] = True  # version 1 meant half of the step

    def infer(self, context: custom.InferenceContext, x: Any, step: Any = None) -> Any:
        if self.mode not in ("nearest", "down"):
            raise custom.InferenceError(f"mode {self.mode!r}: nearest or down expected")
        return x.type, custom.TensorType(custom.DType.INT64, ())

    def evaluate(self, x: np.ndarray, step: np.ndarray | None = None) -> Any:
        size = x.dtype.type(1) if step is None else step
        size = size / 2 if self.halved else size
        y = (np.rint if self.mode == "nearest" else np.floor)(x / size) * size
        return y.astype(x.dtype), np.array((y == 0).sum(), np.int64)


class Affine(custom.Composite):
    """A * X + B."""

    domain = DOMAIN
    inputs, outputs = ("X", "A", "B"), ("Y",)

    def compose(self, parts: custom.Parts, x: Any, a: Any, b: Any) -> Any:
        return parts.add(Add(), parts.add(Mul(), x, a), b)


class RowNorm(custom.Operator):
    """Rows divided by the sum of their sizes, said with computations."""

    domain = DOMAIN
    inputs, outputs = ("X",), ("Y",)
    types = frozenset({custom.DType.FLOAT})

    def infer(self, context: custom.InferenceContext, x: Any) -> Any:
        return x.type

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x / np.abs(x).sum(-1, keepdims=True)

    def lower(self, to: custom.Lowering, x: Any) -> Any:
        total = to.reduce("l1", x, (len(x.shape) - 1,), keepdims=True)
        return to.map(e.operand(0, x.dtype) / e.operand(1, x.dtype), x, total)


class Chunks(custom.Operator):
    """A tensor's rows as a sequence."""

    domain = DOMAIN
    inputs, outputs = ("X: T",), ("Y: S",)
    types: ClassVar[Any] = {"T": FLOATS, "S": ("seq(tensor(float))",)}

    def infer(self, context: custom.InferenceContext, x: Any) -> Any:
        return custom.SequenceType(custom.TensorType(x.dtype, x.shape[1:]))

    def evaluate(self, x: np.ndarray) -> Any:
        return (list(x),)


OPERATORS = (Swoosh, Clump, Affine, RowNorm, Chunks)


def model(
    nodes: list[Any],
    outputs: Sequence[str] = ("y",),
    sizes: Any = (3, 5),
    version: int = 1,
    elem: int = TensorProto.FLOAT,
) -> bytes:
    """A model of nodes on the input x."""
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info("x", elem, sizes)],
        [onnx.ValueInfoProto(name=name) for name in outputs],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, version)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


def node(name: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    domain = DOMAIN if any(declared.name == name for declared in OPERATORS) else ""
    return helper.make_node(name, inputs, outputs, name=f"make_{outputs[0]}", domain=domain, **attributes)


def options(*declarations: Any) -> SessionOptions:
    made = SessionOptions()
    made.register_custom_ops(*(declarations or OPERATORS))
    return made


def swoosh(x: np.ndarray, alpha: float = 1.0) -> np.ndarray:
    return x * np.tanh(alpha * x)


@pytest.mark.parametrize("sizes", [(3, 5), ("n", "m")], ids=["fixed", "open"])
def test_a_scalar_expression_is_compiled_and_fused(sizes: Any) -> None:
    nodes = [node("Neg", ["x"], ["a"]), node("Swoosh", ["a"], ["b"], alpha=0.5), node("Add", ["b", "x"], ["y"])]
    session = InferenceSession(model(nodes, sizes=sizes), options())
    np.testing.assert_allclose(session.run(None, {"x": X})[0], swoosh(-X, 0.5) + X, rtol=1e-5, atol=1e-6)
    assert len(session.engine.compiled.plan.calls) == 1  # all three nodes are one kernel


def test_half_precision_is_computed_in_single() -> None:
    x = X.astype(np.float16)
    data = model([node("Swoosh", ["x"], ["y"])], elem=TensorProto.FLOAT16)
    (y,) = InferenceSession(data, options()).run(None, {"x": x})
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, swoosh(x.astype(np.float32)).astype(np.float16), rtol=2e-3)


@pytest.mark.parametrize(("version", "size"), [(1, 0.5), (2, 0.5), (3, 1.0)])
def test_an_operator_on_the_host_between_native_code(version: int, size: float) -> None:
    nodes = [
        node("Mul", ["x", "x"], ["a"]),
        node("Clump", ["a"], ["b", "zeros"], mode="down"),
        node("Relu", ["b"], ["y"]),
    ]
    session = InferenceSession(model(nodes, ("y", "zeros"), version=version), options())
    expected = np.floor(X * X / np.float32(size)) * np.float32(size)
    y, zeros = session.run(None, {"x": X})
    np.testing.assert_array_equal(y, expected)
    assert zeros == (expected == 0).sum()


def test_an_operator_of_others_and_one_of_computations() -> None:
    nodes = [node("Affine", ["x", "x", "x"], ["a"]), node("RowNorm", ["a"], ["y"])]
    session = InferenceSession(model(nodes), options())
    whole = X * X + X
    expected = whole / np.abs(whole).sum(-1, keepdims=True)
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected, rtol=1e-5)


def test_an_operator_that_gives_a_sequence() -> None:
    (rows,) = InferenceSession(model([node("Chunks", ["x"], ["y"])]), options()).run(None, {"x": X})
    np.testing.assert_array_equal(rows, list(X))


def test_sessions_without_it_refuse_the_model_and_say_what_there_is() -> None:
    data = model([node("Swoosh", ["x"], ["y"])])
    InferenceSession(data, options())
    with pytest.raises(errors.Fail, match=r"test.custom:Swoosh\(-1\) is not a registered.*domains.*com.microsoft"):
        InferenceSession(data)
    with pytest.raises(errors.Fail, match=r"the operators of test.custom that are registered are Affine"):
        InferenceSession(data, options(Affine))


@pytest.mark.conformance("extensions")
def test_registered_for_all_sessions() -> None:
    @jitonnx.register
    class Thrice(custom.Elementwise):
        """3 * x."""

        domain = "test.custom.everywhere"
        inputs, outputs = ("X",), ("Y",)

        def evaluate(self, x: np.ndarray) -> np.ndarray:
            return x * 3

        def scalar(self, x: e.Expr) -> e.Expr:
            return x * 3.0

    graph = helper.make_graph(
        [helper.make_node("Thrice", ["x"], ["y"], domain=Thrice.domain)],
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None])],
        [onnx.ValueInfoProto(name="y")],
    )
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid(Thrice.domain, 1)], ir_version=8)
    np.testing.assert_array_equal(InferenceSession(data).run(None, {"x": X[0]})[0], X[0] * 3)
    with pytest.raises(ValueError, match="has an operator Thrice already"):
        jitonnx.register(Thrice)


class Settings(custom.Operator):
    """x plus all numbers among its attributes, as the type `kind` says; and the sizes of the others."""

    domain = DOMAIN
    inputs, outputs = ("X",), ("Y", "sizes: tensor(int64)")

    kind: custom.Type
    table: custom.Tensor
    tables: tuple[custom.Tensor, ...] = ()
    sparse: custom.SparseTensor | None = None
    sparses: tuple[custom.SparseTensor, ...] = ()
    kinds: tuple[custom.Type, ...] = ()
    names: tuple[str, ...] = ()

    def infer(self, context: custom.InferenceContext, x: Any) -> Any:
        assert isinstance(self.kind, custom.TensorType)
        return custom.TensorType(self.kind.dtype, x.shape), custom.TensorType(custom.DType.INT64, (3,))

    def evaluate(self, x: np.ndarray) -> Any:
        assert isinstance(self.kind, custom.TensorType) and self.kind.dtype is not None
        given = [self.table, *self.tables, *filter(None, [self.sparse]), *self.sparses]
        total = sum(float(one.array.sum()) for one in given)
        sizes = [len(self.kinds), len(self.names), sum(one.array.size for one in self.sparses)]
        return (x + total).astype(self.kind.dtype.numpy), np.array(sizes)


class Again(custom.Operator):
    """What `step` gives of x, of that, and so on, `times` times, and then `last`, which may be left out."""

    domain = DOMAIN
    inputs, outputs = ("X: T",), ("Y: T",)
    types: ClassVar[Any] = {"T": FLOATS}
    bodies = ("step", "last?")

    times: int

    def body_inputs(self, context: custom.InferenceContext, index: int, x: Any) -> Any:
        return [x.type]

    def infer_bodies(self, bodies: custom.Bodies, x: Any) -> Any:
        for index in range(2):
            if bodies.infer(index, [x.type]) != [x.type]:
                raise custom.InferenceError(f"{self.bodies[index]} changes the type of {x.type}")
        return x.type

    def evaluate(self, x: np.ndarray, bodies: Sequence[Any]) -> np.ndarray:
        for _ in range(self.times):
            (x,) = bodies[0](x)
        return bodies[1](x)[0]


def sparse(values: list[float], indices: list[int], dims: list[int]) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        helper.make_tensor("v", TensorProto.FLOAT, [len(values)], values),
        helper.make_tensor("i", TensorProto.INT64, [len(indices)], indices),
        dims,
    )


def test_attributes_that_are_tensors_types_and_sparse_tensors() -> None:
    def table(*values: float) -> onnx.TensorProto:
        return helper.make_tensor("t", TensorProto.FLOAT, [len(values)], values)

    double = helper.make_tensor_type_proto(TensorProto.DOUBLE, None)
    some = {"tables": [table(3), table(4, 5)], "sparses": [sparse([1], [2], [9]), sparse([6, 7], [0, 3], [2, 2])]}
    more = {"sparse": sparse([8], [5], [6]), "kinds": [double, double], "names": ["a"]}
    for given, expected, sizes in (({}, 3.0, [0, 0, 0]), (some | more, 37.0, [2, 1, 13])):
        made = helper.make_node(
            "Settings", ["x"], ["y", "s"], name="make_y", domain=DOMAIN, kind=double, table=table(1, 2), **given
        )
        session = InferenceSession(model([made], ("y", "s")), options(Settings))
        y, found = session.run(None, {"x": X})
        np.testing.assert_array_equal(y, (X + expected).astype(np.float64))
        assert y.dtype == np.float64 and found.tolist() == sizes
    with pytest.raises(errors.Error, match="Expected: 'SPARSE_TENSOR', actual: 'TENSOR'"):
        bad = helper.make_node("Settings", ["x"], ["y"], domain=DOMAIN, kind=double, table=table(1), sparse=table(1))
        InferenceSession(model([bad]), options(Settings))


def step_graph(operator: str, other: str) -> onnx.GraphProto:
    """operator(own input, other), a value around it."""
    value = helper.make_tensor_value_info("own", TensorProto.FLOAT, None)
    result = helper.make_tensor_value_info("result", TensorProto.FLOAT, None)
    return helper.make_graph([helper.make_node(operator, ["own", other], ["result"])], operator, [value], [result])


def test_attributes_that_are_graphs() -> None:
    nodes = [helper.make_node("Neg", ["x"], ["n"])]
    for last in (None, step_graph("Sub", "n")):
        attributes = {"step": step_graph("Add", "n"), "times": 3} | ({} if last is None else {"last": last})
        again = helper.make_node("Again", ["x"], ["a"], name="make_a", domain=DOMAIN, **attributes)
        data = model([*nodes, again, helper.make_node("Relu", ["a"], ["y"])])
        (y,) = InferenceSession(data, options(Again)).run(None, {"x": X})
        np.testing.assert_allclose(y, np.maximum((X if last else 0) + X - 3 * X, 0), rtol=1e-6, atol=1e-6)
    with pytest.raises(errors.Error, match="Required attribute 'step' is missing"):
        InferenceSession(model([helper.make_node("Again", ["x"], ["y"], domain=DOMAIN, times=1)]), options(Again))


@pytest.mark.parametrize(
    "annotation",
    [float, "float", "float | None", "typing.Optional[float]", float | None],
    ids=str,
)
def test_annotations_however_they_are_written(annotation: Any) -> None:
    def evaluate(self: Any, x: np.ndarray) -> np.ndarray:
        return x * np.float32(self.factor)

    parts = {"domain": DOMAIN, "inputs": ("X",), "outputs": ("Y",), "factor": 1.0, "evaluate": evaluate}
    infer = {"infer": lambda self, context, x: x.type}
    declaration = type("Times", (custom.Operator,), {**parts, **infer, "__annotations__": {"factor": annotation}})
    times = helper.make_node("Times", ["x"], ["y"], domain=DOMAIN, factor=2.0)
    (y,) = InferenceSession(model([times]), options(declaration)).run(None, {"x": X})
    np.testing.assert_array_equal(y, X * 2)


REFUSED = [
    (node("Swoosh", ["x", "x"], ["y"]), "input size 2 not in range"),
    (node("Swoosh", ["x"], ["y"], beta=1.0), "Unrecognized attribute: beta"),
    (node("Swoosh", ["x"], ["y"], alpha=1), "Expected: 'FLOAT', actual: 'INT'"),
    (node("Clump", ["x"], ["y"], mode="up"), "mode 'up': nearest or down expected"),
    (node("Swoosh", ["i"], ["y"]), "'i' is of type int64; allowed are bfloat16, double"),
    (node("Clump", ["x", "d"], ["y"]), "bound to different types"),
]


@pytest.mark.parametrize(("bad", "text"), REFUSED, ids=lambda value: value if isinstance(value, str) else "")
def test_nodes_that_break_the_declared_signature(bad: Any, text: str) -> None:
    cast = [node("Cast", ["x"], ["i"], to=TensorProto.INT64), node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE)]
    with pytest.raises(errors.Error, match=text) as caught:
        InferenceSession(model([*cast, bad]), options())
    assert "make_y" in str(caught.value)


def test_declarations_that_lack_a_part() -> None:
    class Silent(custom.Operator):
        """It has no inference."""

        domain, inputs, outputs = DOMAIN, ("X",), ("Y",)

    class Unclear(custom.Elementwise):
        """It is of a type that is not declared."""

        domain, inputs, outputs = DOMAIN, ("X: T",), ("Y",)

        def evaluate(self, x: np.ndarray) -> np.ndarray:
            return x

    class Nested(Swoosh):
        """It has attributes of no kind that ONNX has."""

        name = "Nested"
        rows: list[int]

    given = options(Swoosh)
    with pytest.raises(TypeError, match=r"'rows' of Nested is annotated as 'list\[int\]'; one of int, .*`bodies`"):
        given.register_custom_ops(Nested)
    for declaration, text in ((Silent, "no method 'infer'"), (Unclear, "do not say what T is"), (int, "no operator")):
        with pytest.raises(TypeError, match=text):
            given.register_custom_ops(declaration)
    with pytest.raises(ValueError, match="has an operator Swoosh already"):
        given.register_custom_ops(Swoosh)
    InferenceSession(model([node("Swoosh", ["x"], ["y"])]), given)  # it has kept what it had


def test_what_users_change_is_not_taken_from_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    path = tmp_path / "model.onnx"
    path.write_bytes(model([node("Swoosh", ["x"], ["y"])]))
    for factor in (2.0, 3.0):

        class Changed(Swoosh):
            """factor * x."""

            name = "Swoosh"
            scale = factor

            def scalar(self, x: e.Expr) -> e.Expr:
                return x * self.scale

        (y,) = InferenceSession(str(path), options(Changed)).run(None, {"x": X})
        np.testing.assert_allclose(y, X * np.float32(factor))


def test_sessions_can_be_pickled_with_them() -> None:
    session = InferenceSession(model([node("Swoosh", ["x"], ["y"])]), options())
    copy = pickle.loads(pickle.dumps(session))
    np.testing.assert_array_equal(copy.run(None, {"x": X})[0], session.run(None, {"x": X})[0])


def test_an_operator_that_fails_in_a_run_is_named() -> None:
    class Failing(custom.Operator):
        """Fails."""

        domain, inputs, outputs = DOMAIN, ("X",), ("Y",)

        def infer(self, context: custom.InferenceContext, x: Any) -> Any:
            return x.type

        def evaluate(self, x: np.ndarray) -> np.ndarray:
            if x.sum() > 0:
                raise ValueError("not today")
            return x[:1]

    failing = helper.make_node("Failing", ["x"], ["y"], name="bad", domain=DOMAIN)
    session = InferenceSession(model([failing]), options(Failing))
    with pytest.raises(errors.Error, match=r"Failing node. Name:'bad' Status Message: not today"):
        session.run(None, {"x": np.ones((3, 5), np.float32)})
    with pytest.raises(errors.Error, match=r"Name:'bad'.*it gave float32\[1, 5\].*its inference says float\[3,5\]"):
        session.run(None, {"x": -np.ones((3, 5), np.float32)})

"""Models with users' operators in the model cache: found again as long as the operators are the same, and not else."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from onnx import TensorProto, helper

import jitonnx
from jitonnx import custom
from jitonnx.api.saved import model_cache
from jitonnx.api.session import InferenceSession
from jitonnx.custom import e
from jitonnx.support.identity import Unknown, definition
from tests.artifact.test_whole import is_cached, wait_for

DOMAIN = "test.whole"
X = np.linspace(-3, 3, 60, dtype=np.float32).reshape(4, 15)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with a user's operator Made, and a kernel cache of the test's own."""
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path / "cache"))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 15]) for name in "xy"]
    nodes = [helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Made", ["a"], ["y"], domain=DOMAIN)]
    imports = [helper.make_opsetid("", 21), helper.make_opsetid(DOMAIN, 1)]
    made = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:]), opset_imports=imports)
    path = tmp_path / "model.onnx"
    path.write_bytes(made.SerializeToString())
    long_ago = time.time() - 10 * model_cache.SETTLED_SECONDS
    os.utime(path, (long_ago, long_ago))
    time.sleep(2 * model_cache.SETTLED_SECONDS)
    return path


def start(path: Path, declaration: Any) -> tuple[InferenceSession, np.ndarray]:
    made = jitonnx.SessionOptions()
    made.intra_op_num_threads = 1
    made.register_custom_ops(declaration)
    session = InferenceSession(path, made)
    return session, np.asarray(session.run(None, {"x": X})[0])


def by_function(rate: float) -> Any:
    def scaled(x: Any, offset: Any = 0.5) -> Any:
        return x * rate + offset

    return custom.elementwise(scaled, domain=DOMAIN, name="Made")


def helped(x: e.Expr, rate: float) -> e.Expr:
    return x * rate + 0.5


def by_class(rate: float) -> Any:
    table = {"rates": [rate]}

    class Base(custom.Elementwise):
        """What declarations may share."""

        domain, inputs, outputs = DOMAIN, ("X: T",), ("Y: T",)
        types: ClassVar[Any] = {"T": custom.FLOATS}

        def rate(self) -> float:
            return table["rates"][0]

    class Made(Base):
        """x * rate + 0.5."""

        kept: int = custom.internal(default=3)

        @property
        def doubled(self) -> float:
            return 2 * super().rate()

        def scalar(self, x: e.Expr) -> e.Expr:
            return helped(x, self.doubled / 2)

    return Made


def by_kernel(rate: float) -> Any:
    @custom.kernel(
        domain=DOMAIN,
        name="Made",
        outputs=["Y: T"],
        infer=lambda self, context, x: x.type,
        items=lambda self, x, y: y.shape[0],
    )
    def scaled(x: Any, y: Any, begin: Any, end: Any) -> None:
        for i in range(begin, end):
            for j in range(x.shape[1]):
                y[i, j] = x[i, j] * np.float32(rate) + np.float32(0.5)

    return scaled


@pytest.mark.parametrize("make", [by_function, by_class, by_kernel])
def test_a_model_is_kept_with_the_operators_that_it_had(model: Path, make: Callable[[float], Any]) -> None:
    for rate in (2.0, 3.0):
        first, y = start(model, make(rate))
        assert not is_cached(first)
        np.testing.assert_allclose(y, -X * rate + 0.5, rtol=1e-6, atol=1e-6)
        wait_for(model.parent, lambda files, rate=rate: bool(files) and is_cached(start(model, make(rate))[0]))
        second, again = start(model, make(rate))
        assert is_cached(second)
        np.testing.assert_array_equal(again, y)
        second._model.load_graph()  # by the operators of the session
        np.testing.assert_array_equal(second.run(None, {"x": X})[0], y)


def reads_a_file(x: e.Expr) -> e.Expr:
    with open(os.devnull, encoding="utf-8") as file:
        return x * float(len(file.read()) + 2)


def imports_a_module(x: e.Expr) -> e.Expr:
    import tests.artifact.models

    return x * float(len(tests.artifact.models.__name__))


class _Rates:
    rate = 2.0


RATES = _Rates()


def reads_an_object(x: e.Expr) -> e.Expr:
    return x * RATES.rate


def draws(x: e.Expr) -> e.Expr:
    return x * float(np.random.default_rng(1).normal())


@pytest.mark.parametrize("body", [reads_a_file, imports_a_module, reads_an_object, draws])
def test_what_hangs_on_more_than_its_text_is_not_kept(body: Any, model: Path) -> None:
    class Made(custom.Elementwise):
        """Something else tomorrow."""

        domain, inputs, outputs = DOMAIN, ("X",), ("Y",)

        def scalar(self, x: e.Expr) -> e.Expr:
            found: e.Expr = body(x)
            return found

    with pytest.raises(Unknown):
        definition(Made)
    for _ in range(2):
        session, _ = start(model, Made)
        assert not is_cached(session) and session._model.cache_key is None


def test_classes_are_told_by_what_they_say() -> None:
    def declared(body: Any = None, **members: Any) -> Any:
        given = {"domain": DOMAIN, "inputs": ("X",), "outputs": ("Y",), "__annotations__": {"a": int}, "a": 1}
        return type("Made", (custom.Elementwise,), {**given, "scalar": body or (lambda self, x: x), **members})

    same = definition(declared())
    assert same == definition(declared())
    others = [
        declared(lambda self, x: x + 1),
        declared(a=2),
        declared(__annotations__={"a": float}),
        declared(outputs=("Z",)),
        declared(types={"T": custom.FLOATS}),
        declared(types={"T": custom.INTEGERS}),
        declared(infer=lambda self, context, x: x.type),
        declared(table=[1, 2]),
        declared(table=[2, 1]),
        declared(table=np.arange(2)),
        declared(scalar=staticmethod(lambda self, x: x)),
        declared(result=custom.DType.BOOL),
    ]
    assert len({same, *map(definition, others)}) == 1 + len(others)

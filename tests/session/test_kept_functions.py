"""Translations of users' functions on disk: found again without Numba, and told apart by all that they depend on."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import numba
import numpy as np
import pytest
from onnx import TensorProto, helper

import jitonnx
from jitonnx import custom
from jitonnx.custom import e
from jitonnx.ir.operator import evaluate_arrays
from jitonnx.support.identity import Unknown, identity
from jitonnx.support.kernel_cache import KernelCache
from tests.session.test_compiled_functions import branches, comparisons, named, two_inputs
from tests.session.test_custom_operators import DOMAIN, model, node, options

FLOAT = custom.DType.FLOAT

_START = """
import math, sys
import numpy as np
import jitonnx

@jitonnx.register(domain="test.domain")
def Snake(x, alpha=1.0):
    s = math.sin(alpha * x)
    return x + s * s / alpha if x > -4 else x * math.exp(x + np.float32(4))

@jitonnx.register(domain="test.domain")
def Escape(x):
    count = 0
    while abs(x) < 4 and count < 20:
        x = x * x - np.float32(1.25)
        count += 1
    return x + count

x = np.linspace(-6, 6, 101, dtype=np.float32)
(y,) = jitonnx.InferenceSession(sys.argv[1]).run(None, {"x": x})
print(y.tobytes().hex())
found = sorted(name for name in sys.modules if name.partition(".")[0] == "numba")
assert bool(found) == (sys.argv[2] == "cold"), found
assert ("jitonnx.ops.registry" in sys.modules) == (sys.argv[2] == "cold")
"""


def test_a_warm_start_imports_no_module_of_numba(tmp_path: Path) -> None:
    """Neither for a function that is an expression, nor for one with a loop, whose IR is linked. Damage is mended.

    Nor are operators imported: the model is kept as a whole.
    """
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("test.domain", 1)]
    values = [helper.make_tensor_value_info(each, TensorProto.FLOAT, ["n"]) for each in "xz"]
    nodes = [helper.make_node("Snake", ["x"], ["y"], domain="test.domain", alpha=0.5)]
    nodes.append(helper.make_node("Escape", ["y"], ["z"], domain="test.domain"))
    made = helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:]), opset_imports=imports)
    path, cache = tmp_path / "model.onnx", tmp_path / "cache"
    path.write_bytes(made.SerializeToString())

    def start(kind: str) -> str:
        made = subprocess.run(
            [sys.executable, "-c", _START, path, kind],
            env={**os.environ, "JITONNX_CACHE_DIR": str(cache)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert made.returncode == 0, made.stderr
        return made.stdout

    first = start("cold")
    assert start("warm") == first
    kept = list(cache.glob("*.kernel"))
    for each in kept:
        each.write_bytes(each.read_bytes()[:-1])
    for each in cache.glob("*.model"):  # which needs none of them
        each.unlink()
    assert start("cold") == first
    assert start("warm") == first
    assert KernelCache(cache).clear() >= len(kept)
    assert not list(cache.iterdir())


def test_equal_functions_are_equal_and_others_are_not() -> None:
    def scaling(factor: Any) -> Any:
        def scaled(x: Any) -> Any:
            return x * factor

        return scaled

    texts = [identity(scaling(factor)) for factor in (1, 1.0, -0.0, 0.0, np.float32(1), np.float64(1), True, (1,), "1")]
    assert len(set(texts)) == len(texts)
    assert identity(scaling(2.5)) == identity(scaling(2.5))
    assert identity(lambda x: x + 1) != identity(lambda x: x + 2)
    assert identity(lambda x: x + 1) != identity(lambda x: x - 1)
    assert identity(lambda x: math.sin(x)) != identity(lambda x: math.cos(x))
    assert identity(lambda x, y=1: x) != identity(lambda x, y=2: x)
    assert identity(lambda x, *, y=1: x) != identity(lambda x, *, y=2: x)
    assert identity(lambda x: sum(y + 1 for y in (x,))) != identity(lambda x: sum(y + 2 for y in (x,)))


def _of_source(source: str, **names: Any) -> Any:
    scope = {"math": math, "np": np, "numba": numba, **names}
    exec(source, scope)
    return scope["f"]


def test_globals_and_what_they_call_count() -> None:
    source = "def f(x): return x * RATE + g(x)"

    def text(rate: Any, body: str, **options: Any) -> str:
        return identity(_of_source(source, RATE=rate, g=numba.njit(**options)(_of_source(f"def f(x): return {body}"))))

    same = text(2.0, "x + 1")
    assert same == text(2.0, "x + 1")
    assert len({same, text(3.0, "x + 1"), text(2.0, "x + 2"), text(2.0, "x + 1", fastmath=True)}) == 4
    inner = (numba.njit(_of_source(f"def f(x): return x - {value}")) for value in (1, 2))
    deep = [identity(_of_source(source, RATE=1, g=numba.njit(_of_source("def f(x): return h(x)", h=h)))) for h in inner]
    assert deep[0] != deep[1]
    users = [ModuleType("settings"), ModuleType("settings")]
    users[0].RATE, users[1].RATE = 1.0, 2.0  # type: ignore[attr-defined]
    read = [identity(_of_source("def f(x): return x * settings.RATE", settings=user)) for user in users]
    assert read[0] != read[1]
    own = numba.njit(_of_source("def f(x): return f(x - 1) if x > 0 else x"))
    own.py_func.__globals__["f"] = own
    assert identity(own.py_func)


@pytest.mark.parametrize("value", [[1.0], {1: 2.0}, object(), lambda x: x, np.array([None])])
def test_what_has_no_text_is_not_kept(value: Any) -> None:
    with pytest.raises(Unknown):
        identity(_of_source("def f(x): return x * VALUE", VALUE=value))


def test_a_changed_function_is_translated_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path))
    x = e.operand(0, FLOAT)
    made = []
    for rate in (2.0, 3.0, 2.0):
        made.append(repr(custom.compiled(_of_source("def f(x): return x * RATE", RATE=rate))(x)))
    assert made[0] == made[2] != made[1]
    assert len({each.name for each in tmp_path.glob("*.kernel")}) == 3  # with the digest of our sources


def bits(x: Any, y: Any) -> Any:
    return (x << 2) ^ y if x > y else x - (y & 5)


@pytest.mark.parametrize("function", [branches, comparisons, bits])
def test_expressions_are_evaluated_on_numpy(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """They give what Numba gives, which is not asked."""
    elem, dtype = (TensorProto.INT32, np.int32) if function is bits else (TensorProto.FLOAT, np.float32)
    compiled = custom.compiled(function)
    declared = custom.elementwise(compiled, domain=DOMAIN, name="Made")
    x, y = (np.random.default_rng(5).normal(size=(2, 400)) * 4).astype(dtype)
    with np.errstate(all="ignore"):
        expected = compiled(x, y).astype(dtype)
    monkeypatch.setattr(custom.CompiledFunction, "_on_arrays", lambda self: pytest.fail("Numba is asked"))
    (z,) = evaluate_arrays(declared(), (x, y))
    np.testing.assert_allclose(z, expected, rtol=2e-6)
    (z,) = jitonnx.InferenceSession(two_inputs("Made", elem), options(declared)).run(None, {"x": x, "y": y})
    np.testing.assert_allclose(z, expected, rtol=2e-6)


class Shifted(custom.Elementwise):
    """X + 0.1, in the precision in which it is computed; without `evaluate`."""

    domain, inputs, outputs = DOMAIN, ("X: T",), ("Y: T",)
    types: ClassVar[Any] = {"T": custom.FLOATS}

    def scalar(self, x: e.Expr) -> e.Expr:
        return e.where(x > 0, x + 0.1, 1)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", [(), (0,), (5,)])
def test_scalar_is_enough(dtype: Any, shape: tuple[int, ...]) -> None:
    x = np.full(shape, 3, dtype)
    (y,) = evaluate_arrays(Shifted(), (x,))
    assert y.dtype == dtype and y.shape == shape
    elem = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    data = model([named("Shifted", ["x"], ["a"]), node("Neg", ["a"], ["y"])], sizes=list(shape), elem=elem)
    (compiled,) = jitonnx.InferenceSession(data, options(Shifted)).run(None, {"x": x})
    np.testing.assert_array_equal(compiled, -y)


def test_constants_are_broadcast() -> None:
    class Seven(custom.Elementwise):
        """7 for whatever there is."""

        domain, inputs, outputs = DOMAIN, ("X",), ("Y",)

        def scalar(self, x: e.Expr) -> e.Expr:
            return e.constant(7, x.dtype)

    (y,) = evaluate_arrays(Seven(), (np.zeros((2, 3), np.float32),))
    np.testing.assert_array_equal(y, np.full((2, 3), 7, np.float32))


def test_neither_is_refused() -> None:
    class Neither(custom.Elementwise):
        """Nothing."""

        domain, inputs, outputs = DOMAIN, ("X",), ("Y",)

    with pytest.raises(TypeError, match="neither a method 'scalar' nor 'evaluate'"):
        options(Neither)

"""Models in what Numba compiles (`jitonnx.numba.bind`), against `session.run`: results, sizes, errors, threads."""

from __future__ import annotations

import gc
import importlib
import re
import runpy
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError
from onnx import TensorProto, helper

import jitonnx
from jitonnx.errors import Fail, InvalidArgument
from jitonnx.numba import bind
from tests.session.models import BOOL, FLOAT, INT64, STRING, model, node, relu_add, tensor, two_outputs


@numba.njit
def called(bound: Any, x: Any) -> Any:
    return bound(x)


@numba.njit
def called_with_two(bound: Any, x: Any, y: Any) -> Any:
    return bound(x, y)


@numba.njit
def written(bound: Any, x: Any, y: Any) -> None:
    bound.into(x, y)


@numba.njit(parallel=True)
def in_parallel(bound: Any, x: Any, rows: int) -> Any:
    out = np.zeros_like(x)
    for i in numba.prange(x.shape[0]):
        bound.attempt(x[i : i + rows], out[i : i + rows])
    bound.check()
    return out


def numbers(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def gather() -> bytes:
    """Rows of a table by index."""
    table = {"table": np.arange(12, dtype=np.float32).reshape(6, 2)}
    ends = [tensor("index", ("N",), INT64)], [tensor("rows", ("N", 2))]
    return model([node("Gather", ["table", "index"], ["rows"], "look_up")], *ends, table)


SESSION = jitonnx.InferenceSession(relu_add())


def refused(function: Any, *arguments: Any) -> str:
    with pytest.raises(Exception) as caught:
        function(*arguments)
    return str(caught.value)


def test_calls_give_what_the_session_gives() -> None:
    bound, x = bind(SESSION, {"x": (4, 3)}), numbers(4, 3)
    (name,) = (one.name for one in SESSION.get_inputs())
    (expected,) = SESSION.run(None, {name: x})
    np.testing.assert_array_equal(called(bound, x), expected)
    np.testing.assert_array_equal(bound(x), expected)  # by Python
    for method in (written, lambda bound, x, y: bound.into(x, y), written.py_func):
        y = np.empty_like(x)
        method(bound, x, y)
        np.testing.assert_array_equal(y, expected)


def test_two_outputs_are_a_tuple() -> None:
    session = jitonnx.InferenceSession(two_outputs())
    a, b = numbers(2, 5), numbers(2, 5, seed=1)
    bound = bind(session, {"a": a, "b": b})
    for made in (called_with_two(bound, a, b), bound(a, b)):
        total, difference = made
        np.testing.assert_array_equal(total, a + b)
        np.testing.assert_array_equal(difference, a - b)


def test_a_range_of_sizes() -> None:
    session = jitonnx.InferenceSession(two_outputs())
    bound = bind(session, {"a": ((1, 3), (0, 4)), "b": ((1, 3), (0, 4))})
    for n in range(1, 4):
        for m in range(5):
            a, b = numbers(n, m), numbers(n, m, seed=1)
            np.testing.assert_array_equal(called_with_two(bound, a, b)[0], a + b)
            np.testing.assert_array_equal(bound(a, b)[0], a + b)
    a = numbers(3, 5)
    assert "input 'a' has the shape [3, 5]; the bound model takes [1 to 3, 0 to 4]" in refused(
        called_with_two, bound, a, a
    )
    text = refused(called_with_two, bound, numbers(3, 2), numbers(2, 2))
    assert "do not go together" in text and "'a' [3, 2], 'b' [2, 2]" in text
    with pytest.raises(InvalidArgument, match="1000000 sets of sizes"):
        bind(SESSION, {"x": ((1, 1_000_000), 3)})


def test_numbers_without_axes_and_truth_values() -> None:
    nodes = [node("Greater", ["a", "b"], ["more"]), node("Add", ["a", "b"], ["sum"])]
    ends = [tensor("a", ()), tensor("b", ())], [tensor("more", (), BOOL), tensor("sum", ())]
    bound = bind(jitonnx.InferenceSession(model(nodes, *ends)))
    one, two = np.array(1, np.float32), np.array(2, np.float32)
    more, total = called_with_two(bound, two, one)
    assert more.dtype == bool and more.shape == total.shape == () and more and total == 3


@pytest.mark.parametrize("call", [called, lambda bound, x: bound(x)], ids=["njit", "python"])
def test_what_does_not_fit_is_named(call: Any) -> None:
    bound, x = bind(SESSION, {"x": (4, 3)}), numbers(4, 3)
    assert "input 'x' has the shape [5, 3]; the bound model takes [4, 3]" in refused(call, bound, numbers(5, 3))
    for misfit in (x.astype(np.float64), numbers(4), numbers(3, 4).T, numbers(4, 6)[:, ::2]):
        assert "give a C-contiguous, aligned array of float32 with 2 axes" in refused(call, bound, misfit)
    assert isinstance(_error(called, bound, numbers(5, 3)), InvalidArgument)


def _error(function: Any, *arguments: Any) -> Exception:
    with pytest.raises(Exception) as caught:
        function(*arguments)
    return caught.value


@pytest.mark.parametrize("call", [written, lambda bound, x, y: bound.into(x, y)], ids=["njit", "python"])
def test_arrays_given_for_outputs(call: Any) -> None:
    bound, x = bind(SESSION, {"x": (4, 3)}), numbers(4, 3)
    assert "has the shape [4, 4]; it is [4, 3]" in refused(call, bound, x, numbers(4, 4))
    assert "shares memory with that of input 'x'" in refused(call, bound, x, x)
    both = numbers(5, 3)
    assert "shares memory" in refused(call, bound, both[:4], both[1:])
    fixed = numbers(4, 3)
    fixed.flags.writeable = False
    _error(call, bound, x, fixed)
    call(bound, fixed, x)  # inputs are read alone


def test_another_number_of_arrays_and_arrays_by_name() -> None:
    bound, x = bind(SESSION, {"x": (4, 3)}), numbers(4, 3)
    with pytest.raises(TypingError, match="takes 1 arrays"):
        called_with_two(bound, x, x)
    with pytest.raises(TypeError, match="takes 1 arrays"):
        bound(x, x)
    by_name = numba.njit(lambda bound, x: bound(x=x))
    with pytest.raises(TypingError, match="not by name"):
        by_name(bound, x)


def test_errors_in_the_data() -> None:
    bound = bind(jitonnx.InferenceSession(gather()), {"index": (2,)})
    np.testing.assert_array_equal(called(bound, np.array([5, 0])), [[10, 11], [0, 1]])
    error = _error(called, bound, np.array([5, 7]))
    assert isinstance(error, InvalidArgument) and "look_up" in str(error)
    np.testing.assert_array_equal(called(bound, np.array([1, -1])), [[2, 3], [10, 11]])


def test_an_error_can_be_caught_in_nopython_code() -> None:
    @numba.njit
    def tried(bound: Any, x: Any) -> bool:
        try:
            bound(x)
        except Exception:
            return False
        return True

    bound = bind(SESSION, {"x": (4, 3)})
    assert tried(bound, numbers(4, 3)) and not tried(bound, numbers(5, 3)) and tried(bound, numbers(4, 3))


def test_parallel_loops() -> None:
    bound, x = bind(SESSION, {"x": (1, 3)}), numbers(500, 3)
    (expected,) = SESSION.run(None, {"x": x})
    for _ in range(5):
        np.testing.assert_array_equal(in_parallel(bound, x, 1), expected)
        assert "[2, 3]; the bound model takes [1, 3]" in refused(in_parallel, bound, x, 2)
    in_parallel(bound, x, 1)  # an error is told once
    bound.attempt(x, x)
    with pytest.raises(InvalidArgument):
        bound.check()
    bound.check()


def test_closed() -> None:
    session, x = jitonnx.InferenceSession(relu_add()), numbers(4, 3)
    bound, other = bind(session, {"x": x}), bind(session, {"x": x})
    other.close()
    called(bound, x)
    assert "closed" in refused(called, other, x)
    session.close()
    for call in (called, lambda bound, x: bound(x)):
        assert "closed" in refused(call, bound, x)
    with pytest.raises(RuntimeError, match="closed"):
        bind(session, {"x": x})


def test_a_bound_model_outlives_its_session_and_is_handed_on() -> None:
    @numba.njit
    def handed(bound: Any) -> Any:
        return bound

    x = numbers(4, 3)
    bound = bind(jitonnx.InferenceSession(relu_add()), {"x": x})
    assert handed(bound) is bound
    assert called(bound, x).shape == (4, 3)


def test_as_a_global_of_compiled_code() -> None:
    x = numbers(4, 3)

    def compiled() -> Any:
        bound = bind(SESSION, {"x": x})
        return numba.njit(lambda x: bound(x))

    by_name = compiled()
    (expected,) = SESSION.run(None, {"x": x})
    for _ in range(3):
        np.testing.assert_array_equal(by_name(x), expected)
        gc.collect()


def test_what_cannot_be_bound() -> None:
    with pytest.raises(TypeError, match="InferenceSession"):
        bind(3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="leave N open"):
        bind(SESSION)
    with pytest.raises(InvalidArgument, match="float64"):
        bind(SESSION, {"x": np.zeros((2, 3))})
    for shape, said in (
        (3, "3 is no shape for 'x'"),
        (((1.5, 2), 3), "no range of sizes"),
        ((("a", 2), 3), "no range"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            bind(SESSION, {"x": shape})
    texts = [tensor("x", (2,), STRING)], [tensor("y", (2,), STRING)]
    with pytest.raises(Fail, match=r"'x' is a tensor\(string\)"):
        bind(jitonnx.InferenceSession(model([node("Identity", ["x"], ["y"])], *texts)))
    halves = [tensor("x", (2,), TensorProto.FLOAT16)], [tensor("y", (2,), TensorProto.FLOAT16)]
    with pytest.raises(Fail, match=r"'x' is a tensor\(float16\), which Numba has no arrays of"):
        bind(jitonnx.InferenceSession(model([node("Neg", ["x"], ["y"])], *halves)))
    open_sizes = [tensor("x", (2, 3), FLOAT)], [tensor("y", (2, "N"), INT64)]
    session = jitonnx.InferenceSession(model([node("NonZero", ["x"], ["y"])], *open_sizes))
    with pytest.raises(Fail, match="not one native program"):
        bind(session)


def test_functions_kept_on_disk_take_bound_models_as_arguments(tmp_path: Path) -> None:
    """Sizes and addresses are read when the code runs; a global's address is not kept."""
    (tmp_path / "user.py").write_text(
        textwrap.dedent(
            """
            import sys
            import numba, numpy as np, jitonnx

            @numba.njit(cache=True)
            def total(bound, x):
                return bound(x).sum()

            size = int(sys.argv[2])
            bound = jitonnx.numba.bind(jitonnx.InferenceSession(sys.argv[1]), {"x": (size, 3)})
            x = np.ones((size, 3), np.float32)
            print(total(bound, x) == bound(x).sum(), len(total.stats.cache_hits))
            try:
                total(bound, x[1:])
            except ValueError as error:
                print(error)
            """
        )
    )
    (tmp_path / "model.onnx").write_bytes(relu_add())
    for size, hits in ((2, 0), (5, 1)):
        made = subprocess.run(
            [sys.executable, tmp_path / "user.py", tmp_path / "model.onnx", str(size)],
            capture_output=True,
            text=True,
            check=True,
        )
        first, second = made.stdout.splitlines()
        assert first == f"True {hits}", made.stderr
        assert f"[{size - 1}, 3]; the bound model takes [{size}, 3]" in second


def test_numba_registers_it_by_the_entry_point() -> None:
    """As the project says to installers; tests run in checkouts that were installed by an older one, too."""
    text = Path(__file__).parents[2].joinpath("pyproject.toml").read_text(encoding="utf-8")
    (told,) = re.findall(r"\[project.entry-points.numba_extensions\]\ninit = \"([\w.]+):(\w+)\"", text)
    module, name = told
    getattr(importlib.import_module(module), name)()


def test_the_example_samples() -> None:
    """docs/examples/sample.py gives the same chain by njit and by `session.run`."""
    path = Path(__file__).parents[2] / "docs" / "examples" / "sample.py"
    space = runpy.run_path(str(path))
    session = jitonnx.InferenceSession(str(path.parents[2] / "bench" / "zoo" / "mlp_tiny.onnx"))
    start, steps = np.zeros((1, 16), np.float32), 200
    compiled = space["sample"](bind(session), start.copy(), 2, steps, 7)
    by_python = space["sample"].py_func(lambda x: session.run(None, {"x": x})[0], start.copy(), 2, steps, 7)
    assert compiled[1] == by_python[1]
    np.testing.assert_array_equal(compiled[0], by_python[0])


@pytest.mark.parametrize("dtype", ["float64", "int8", "uint64", "bool"])
def test_types(dtype: str) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    ends = [tensor("x", (2, 3), kind)], [tensor("y", (3, 2), kind)]
    session = jitonnx.InferenceSession(model([node("Transpose", ["x"], ["y"])], *ends))
    bound, x = bind(session), np.arange(6).reshape(2, 3).astype(dtype)
    y = np.zeros((3, 2), dtype)
    written(bound, x, y)
    for made in (called(bound, x), y):
        assert made.dtype == dtype
        np.testing.assert_array_equal(made, x.T)


def test_no_inputs() -> None:
    @numba.njit
    def given(bound: Any) -> Any:
        return bound()

    session = jitonnx.InferenceSession(
        model([node("RandomNormal", [], ["y"], shape=[2, 3], seed=1.0)], [], [tensor("y", (2, 3))])
    )
    bound = bind(session)
    np.testing.assert_array_equal(given(bound), session.run(None, {})[0])

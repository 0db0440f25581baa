"""What a run takes and gives: names, feeds, types, shapes, outputs."""

import sys
import threading
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jitonnx import InferenceSession, RunOptions, SessionOptions
from jitonnx.errors import Error, Fail, InvalidArgument
from tests.session import models
from tests.session.models import model, node, tensor

X = np.array([[-1, 0.5, 2], [3, -4, 0]], np.float32)


@pytest.fixture(scope="module")
def session() -> InferenceSession:
    return InferenceSession(models.relu_add())


@pytest.fixture(scope="module")
def pair() -> InferenceSession:
    return InferenceSession(models.two_outputs())


# ------------------------------------------------------------------------------------------------ outputs by name


@pytest.mark.parametrize("names", [None, [], (), ["sum", "difference"]])
def test_all_outputs(pair: InferenceSession, names: Any) -> None:
    a, b = X, 2 * X
    outputs = pair.run(names, {"a": a, "b": b})
    assert isinstance(outputs, list)
    np.testing.assert_array_equal(outputs[0], a + b)
    np.testing.assert_array_equal(outputs[1], a - b)


@pytest.mark.parametrize("names", [["difference"], ("difference", "sum"), ["sum", "difference", "sum"]])
def test_outputs_come_in_the_order_asked_for(pair: InferenceSession, names: Any) -> None:
    results = {"sum": 3 * X, "difference": -X}
    outputs = pair.run(names, {"a": X, "b": 2 * X})
    assert len(outputs) == len(names)
    for name, output in zip(names, outputs, strict=True):
        np.testing.assert_array_equal(output, results[name])


def test_an_output_asked_for_twice_is_two_arrays(pair: InferenceSession) -> None:
    first, second = pair.run(["sum", "sum"], {"a": X, "b": X})
    assert not np.shares_memory(first, second)


def test_unknown_output(pair: InferenceSession) -> None:
    with pytest.raises(InvalidArgument, match=r"Invalid output name:summ\..*sum, difference.*did you mean 'sum'"):
        pair.run(["summ"], {"a": X, "b": X})


@pytest.mark.parametrize("names", ["sum", [None], [3]])
def test_output_names_of_a_wrong_type(pair: InferenceSession, names: Any) -> None:
    with pytest.raises(TypeError, match="output_names must be a list of str"):
        pair.run(names, {"a": X, "b": X})


# ------------------------------------------------------------------------------------------------ inputs by name


def test_missing_input(pair: InferenceSession) -> None:
    with pytest.raises(ValueError, match=r"Required inputs \(\['b'\]\) are missing from input feed \(\['a'\]\)"):
        pair.run(None, {"a": X})


def test_unknown_input(session: InferenceSession) -> None:
    with pytest.raises(InvalidArgument, match=r"Invalid input name: xx.*inputs are: x.*did you mean 'x'"):
        session.run(None, {"x": X, "xx": X})


@pytest.mark.parametrize("feeds", [None, [X], X, "x"])
def test_feeds_that_are_no_mapping(session: InferenceSession, feeds: Any) -> None:
    with pytest.raises(TypeError, match="give a dict of arrays by input name"):
        session.run(None, feeds)


def test_a_key_that_is_no_name(session: InferenceSession) -> None:
    with pytest.raises(TypeError, match="the key 3"):
        session.run(None, {3: X, "x": X})  # type: ignore[dict-item]


@pytest.mark.parametrize("kind", [dict, OrderedDict, types.MappingProxyType])
def test_kinds_of_mappings(session: InferenceSession, kind: Callable[[Any], Any]) -> None:
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, kind({"x": X}))[0], models.relu_add_result(X))


def test_keyword_arguments(session: InferenceSession) -> None:
    (output,) = session.run(output_names=["y"], input_feed={"x": X}, run_options=RunOptions())
    np.testing.assert_array_equal(output, models.relu_add_result(X))


# ------------------------------------------------------------------------------------------------ values


class Duck:
    """An object with nothing but `__array__`."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self._array


class Capsule:
    """An object with nothing but DLPack's interface."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()


class Subclass(np.ndarray):
    pass


def read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


def unaligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.nbytes + 1, np.uint8)[1:]
    made = memory.view(array.dtype).reshape(array.shape)
    made[...] = array
    return made


VALUES: dict[str, Callable[[np.ndarray], Any]] = {
    "fortran": np.asfortranarray,
    "strided": lambda x: np.repeat(x, 2, axis=0)[::2],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "big-endian": lambda x: x.astype(">f4"),
    "unaligned": unaligned,
    "read-only": read_only,
    "subclass": lambda x: x.view(Subclass),
    "empty": lambda x: x[:0],
    "list": lambda x: x.tolist(),
    "tuple": lambda x: tuple(map(tuple, x.tolist())),
    "list of arrays": list,
    "integers": lambda x: x.astype(int).tolist(),
    "__array__": Duck,
    "__dlpack__": Capsule,
}


@pytest.mark.parametrize("kind", VALUES)
def test_kinds_of_values(session: InferenceSession, kind: str) -> None:
    value = VALUES[kind](X)
    (output,) = session.run(None, {"x": value})
    expected = models.relu_add_result(np.asarray(value._array if isinstance(value, Capsule) else value))
    assert output.dtype == np.float32
    np.testing.assert_array_equal(output, expected)


def test_masked_array_is_taken_without_its_mask(session: InferenceSession) -> None:
    with pytest.warns(UserWarning, match="input 'x' is a masked array"):
        (output,) = session.run(None, {"x": np.ma.masked_array(X, X > 0)})
    np.testing.assert_array_equal(output, models.relu_add_result(X))


@pytest.mark.parametrize(
    "value, text",
    [
        (X.astype(float), r"Actual: \(tensor\(double\)\) , expected: \(tensor\(float\)\) for input 'x'.*'float32'"),
        (X.astype(np.int64), r"Actual: \(tensor\(int64\)\)"),
        (X.astype(object), "Actual: .NumPy's object"),
        (X.astype("M8[s]"), "NumPy's datetime64"),
        (X[0], r"Invalid rank for input: x Got: 1 Expected: 2 .*\[3\]; give a tensor\(float\) of shape \[N, 3\]"),
        (X[:, :2], r"Got invalid dimensions for input: x for the following indices\n index: 1 Got: 2 Expected: 3\n"),
        (X[:, :0], "index: 1 Got: 0 Expected: 3"),
        (None, "input 'x' is None"),
        (1.5, "Invalid rank for input: x Got: 0"),
        ([[1], [1, 2]], "Could not create tensor from given input list: input 'x'"),
        ([["a", "b", "c"]], "Could not create tensor from given input list: input 'x'.*str"),
        ([[1j, 0, 0]], "input 'x'.*cannot hold complex"),
        ((row for row in X), "single numpy array for input 'x'. It is a generator"),
        (b"abc", "input 'x'"),
    ],
)
def test_values_that_do_not_fit(session: InferenceSession, value: Any, text: str) -> None:
    session.run(None, {"x": X})  # the native entry must refuse them too
    with pytest.raises(InvalidArgument, match=text):
        session.run(None, {"x": value})


def test_type_is_checked_before_shape(session: InferenceSession) -> None:
    with pytest.raises(InvalidArgument, match="Unexpected input data type"):
        session.run(None, {"x": np.zeros(5)})


def test_integers_must_fit() -> None:
    session = InferenceSession(
        model([node("Identity", ["x"], ["y"])], [tensor("x", ["N"], models.INT64)], [tensor("y", ["N"], models.INT64)])
    )
    np.testing.assert_array_equal(session.run(None, {"x": [1, 2.0, True]})[0], [1, 2, 1])
    for value in ([1.5], [2**70], [float("nan")]):
        with pytest.raises(InvalidArgument, match="input 'x'"):
            session.run(None, {"x": value})


@pytest.mark.parametrize("value", [2.5, 3, np.float32(2.5), np.array(2.5, np.float32), np.array([2.5], np.float32)])
def test_scalars(value: Any) -> None:
    nodes = [node("Add", ["x", "scalar"], ["y"])]
    session = InferenceSession(model(nodes, [tensor("x"), tensor("scalar", [])], [tensor("y")]))
    (output,) = session.run(None, {"x": X, "scalar": value})
    np.testing.assert_array_equal(output, X + np.float32(value))


# ------------------------------------------------------------------------------------------------ outputs


def test_outputs_belong_to_the_caller(session: InferenceSession) -> None:
    feeds = {"x": X.copy()}
    (first,) = session.run(None, feeds)
    expected = first.copy()
    (second,) = session.run(None, feeds)
    first[...] = 7
    np.testing.assert_array_equal(second, expected)
    np.testing.assert_array_equal(session.run(None, feeds)[0], expected)
    np.testing.assert_array_equal(feeds["x"], X)
    assert first.flags.writeable and first.flags.c_contiguous and type(first) is np.ndarray


def test_outputs_outlive_the_session() -> None:
    session = InferenceSession(models.relu_add())
    (output,) = session.run(None, {"x": X})
    del session
    np.testing.assert_array_equal(output, models.relu_add_result(X))


def test_outputs_never_alias() -> None:
    """An output that is an input, one that is a constant, and one that is given twice."""
    nodes = [node("Identity", ["x"], ["same"]), node("Add", ["x", "one"], ["y"]), node("Identity", ["y"], ["again"])]
    outputs = [tensor(name) for name in ("same", "y", "again", "x")] + [tensor("one", [1])]
    session = InferenceSession(model(nodes, [tensor("x")], outputs, {"one": np.ones(1, np.float32)}))
    x = X.copy()
    for _ in range(2):
        made = session.run(None, {"x": x})
        for array, expected in zip(made, (X, X + 1, X + 1, X, [1]), strict=True):
            np.testing.assert_array_equal(array, expected)
        for array in made:
            array[...] = 9
        np.testing.assert_array_equal(x, X)


def test_shapes_come_and_go(session: InferenceSession) -> None:
    """Each size has its own program; all stay right in any order."""
    rng = np.random.default_rng(0)
    for rows in (1, 5, 1, 0, 7, 5, 64, 1):
        x = rng.standard_normal((rows, 3)).astype(np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], models.relu_add_result(x))


# ------------------------------------------------------------------------------------------------ disagreeing inputs


def test_disagreeing_inputs_get_one_warning_and_a_right_result() -> None:
    session = InferenceSession(models.two_outputs())
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    with pytest.warns(UserWarning, match=r"dimension 'N' is 2 on axis 0 of 'a', but 1 on axis 0 of 'b'") as caught:
        for _ in range(3):
            (total, difference) = session.run(None, {"a": a, "b": a[:1]})
            np.testing.assert_array_equal(total, a + a[:1])
            np.testing.assert_array_equal(difference, a - a[:1])
        session.run(None, {"a": a[:1], "b": a})
    assert len(caught) == 1
    np.testing.assert_array_equal(session.run(["sum"], {"a": a, "b": a})[0], 2 * a)


@pytest.mark.filterwarnings("ignore:inputs disagree")
def test_disagreeing_inputs_that_no_plan_can_serve() -> None:
    session = InferenceSession(models.two_outputs())
    with pytest.raises(InvalidArgument, match=r"'a' is \[2, 3\] and 'b' is \[3, 3\].*Add.*make_sum.*float\[2,3\]"):
        session.run(None, {"a": X, "b": np.zeros((3, 3), np.float32)})


def test_strict_mode_refuses_disagreeing_inputs() -> None:
    options = SessionOptions()
    options.add_session_config_entry("session.strict_shape_type_inference", "1")
    session = InferenceSession(models.two_outputs(), options)
    with pytest.raises(InvalidArgument, match="dimension 'N' is 2 on axis 0 of 'a', but 1 on axis 0 of 'b'"):
        session.run(None, {"a": X, "b": X[:1]})
    np.testing.assert_array_equal(session.run(["sum"], {"a": X, "b": X})[0], 2 * X)


def test_a_broadcast_that_the_plan_did_not_expect_is_no_disagreement(recwarn: pytest.WarningsRecorder) -> None:
    """Two variables that broadcast against each other are assumed equal; 1 breaks that, and nothing else."""
    nodes = [node("Add", ["a", "b"], ["y"])]
    session = InferenceSession(model(nodes, [tensor("a", ["N", 3]), tensor("b", ["M", 3])], [tensor("y", [None, 3])]))
    for a, b in ((X, X), (X, X[:1]), (X[:1], X)):
        np.testing.assert_array_equal(session.run(None, {"a": a, "b": b})[0], a + b)
    assert not recwarn.list


def test_inputs_of_unknown_rank() -> None:
    session = InferenceSession(model([node("Relu", ["x"], ["y"])], [tensor("x", None)], [tensor("y", None)]))
    assert session.get_inputs()[0].shape == []
    for shape in ((2, 3), (), (4,)):
        x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.maximum(x, 0))


# ------------------------------------------------------------------------------------------------ the call itself


def test_a_run_is_few_python_calls(session: InferenceSession) -> None:
    feeds = {"x": X}
    session.run(None, feeds)
    calls: list[str] = []
    sys.setprofile(lambda frame, event, argument: calls.append(event) if "call" in event else None)
    session.run(None, feeds)
    sys.setprofile(None)
    assert len(calls) <= 3 + 1  # and the call that ends the counting


def test_runs_of_several_threads(session: InferenceSession) -> None:
    wrong: list[int] = []

    def work(rows: int) -> None:
        x = np.random.default_rng(rows).standard_normal((rows, 3)).astype(np.float32)
        expected = models.relu_add_result(x)
        for _ in range(200):
            if not np.array_equal(session.run(None, {"x": x})[0], expected):
                wrong.append(rows)

    threads = [threading.Thread(target=work, args=(rows,)) for rows in (1, 2, 3, 500)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_terminate(session: InferenceSession) -> None:
    options = RunOptions()
    options.terminate = True
    with pytest.raises(Fail, match="Exiting due to terminate flag being set to true"):
        session.run(None, {"x": X}, options)


def test_run_async(session: InferenceSession) -> None:
    called = threading.Event()
    seen: list[Any] = []

    def callback(outputs: list[Any], user_data: Any, error: str) -> None:
        seen.extend([outputs, user_data, error, threading.current_thread()])
        called.set()

    future = session.run_async(["y"], {"x": X}, callback, "data")
    np.testing.assert_array_equal(future.result(10)[0], models.relu_add_result(X))
    assert called.wait(10)
    np.testing.assert_array_equal(seen[0][0], models.relu_add_result(X))
    assert seen[1:3] == ["data", ""] and seen[3] is not threading.current_thread()


def test_run_async_keeps_feeds_until_the_callback_ends(session: InferenceSession) -> None:
    """As onnxruntime, whose callbacks may look at the inputs' memory."""
    ran, ended, fed = threading.Event(), threading.Event(), X.copy()
    seen: list[Any] = []

    def callback(outputs: list[Any], user_data: Any, error: str) -> None:
        ran.wait(10)
        seen.append(held())
        ended.set()

    held = weakref.ref(fed)
    session.run_async(["y"], {"x": fed}, callback).result(10)
    del fed
    ran.set()
    assert ended.wait(10)
    assert seen[0] is not None


def test_run_async_with_an_error(session: InferenceSession) -> None:
    with pytest.raises(ValueError, match="Required inputs"):
        session.run_async(None, {})
    called = threading.Event()
    seen: list[Any] = []

    def callback(outputs: list[Any], user_data: Any, error: str) -> None:
        seen.extend([outputs, error])
        called.set()

    future = session.run_async(None, {"x": X.astype(int)}, callback)
    assert isinstance(future.exception(10), Error)
    assert called.wait(10)
    assert seen[0] == [] and "Unexpected input data type" in seen[1]


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_a_complex_constant_as_an_output(shape: tuple[int, ...], dtype: type) -> None:
    """No kernel computes with such numbers; they are copied word by word."""
    constant = (np.arange(np.prod(shape)).reshape(shape) * (1 - 2j) + 0.5).astype(dtype)
    kind = models.TensorProto.COMPLEX64 if dtype is np.complex64 else models.TensorProto.COMPLEX128
    made = model([node("Identity", ["c"], ["y"])], [], [tensor("y", shape, kind)], {"c": constant})
    (y,) = InferenceSession(made).run(None, {})
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, constant)

"""`IOBinding` and runs on OrtValues, beside onnxruntime's; and where outputs are written."""

from __future__ import annotations

import threading
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto

import jitonnx
from jitonnx import InferenceSession, OrtValue, errors
from jitonnx.api.targets import copied, in_place
from jitonnx.runtime.executable import Executable
from tests.api.faces import assert_alike, session, sum_and_product
from tests.session.models import STRING, model, node, tensor

A = np.arange(6, dtype=np.float32).reshape(2, 3)
B = np.full((2, 3), 2, np.float32)


def bound(ort: ModuleType, **outputs: Any) -> tuple[Any, Any]:
    """A session, and a binding of A and B with these outputs: None, or an array to write to."""
    made = session(ort)
    binding = made.io_binding()
    binding.bind_cpu_input("a", A)
    binding.bind_cpu_input("b", B)
    for name, array in outputs.items():
        if array is None:
            binding.bind_output(name)
        else:
            binding.bind_output(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
    return made, binding


def ran(ort: ModuleType, **outputs: Any) -> Any:
    """The outputs of a run, three ways."""
    made, binding = bound(ort, **outputs)
    assert made.run_with_iobinding(binding) is None
    values = [value.numpy().copy() for value in binding.get_outputs()]
    return values, binding.copy_outputs_to_cpu(), [v.numpy().copy() for v in binding.get_outputs_as_ortvaluevector()]


def raw_inputs(ort: ModuleType) -> Any:
    made, binding = bound(ort, s=None)
    binding.clear_binding_inputs()
    binding.bind_input("a", "cpu", 0, np.float32, [2, 3], A.ctypes.data)
    binding.bind_input(name="b", device_type="cpu", device_id=0, element_type=1, shape=(2, 3), buffer_ptr=B.ctypes.data)
    made.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()


def values(ort: ModuleType) -> Any:
    """Inputs and an output that are OrtValues."""
    made, binding = bound(ort)
    target = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    binding.bind_ortvalue_input("a", ort.OrtValue.ortvalue_from_numpy(A))
    binding.bind_ortvalue_output("p", target)
    binding.bind_output("s")
    made.run_with_iobinding(binding, ort.RunOptions())
    same = binding.get_outputs()[0].data_ptr() == target.data_ptr()
    return same, target.numpy().copy(), binding.copy_outputs_to_cpu()


def changed(ort: ModuleType, order: str = "C") -> Any:
    """An input that is written to between binding and run."""
    made, binding = bound(ort, s=None)
    array = np.array(A, order=order)  # type: ignore[call-overload]
    binding.bind_cpu_input("a", array)
    array[:] = 7
    made.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()


def rebound(ort: ModuleType) -> Any:
    """An output bound anew keeps what the run before gave."""
    made, binding = bound(ort, s=None)
    made.run_with_iobinding(binding)
    (first,) = binding.get_outputs()
    binding.bind_output("s")
    binding.bind_cpu_input("a", A + 1)
    made.run_with_iobinding(binding)
    return first.numpy().copy(), binding.copy_outputs_to_cpu()


def inner(ort: ModuleType) -> Any:
    """The inner objects, as code in the wild uses them."""
    C = ort.capi._pybind_state
    made, device = session(ort), C.OrtDevice(C.OrtDevice.cpu(), C.OrtDevice.default_memory(), 0)
    binding = C.SessionIOBinding(made._sess)
    binding.bind_input("a", device, np.float32, A.shape, A.ctypes.data)
    binding.bind_input("b", B)
    binding.bind_output("s", device)
    target = np.zeros((2, 3), np.float32)
    binding.bind_output("p", device, np.float32, [2, 3], target.ctypes.data)
    made._sess.run_with_iobinding(binding, None)
    outer = made.io_binding()
    outer.bind_cpu_input("a", A)
    outer.bind_cpu_input("b", B)
    outer._iobinding.bind_output("s", device)
    made.run_with_iobinding(outer)
    again = [value.numpy().copy() for value in outer._iobinding.get_outputs()]
    return [value.numpy().copy() for value in binding.get_outputs()], target, binding.copy_outputs_to_cpu(), again


def inner_runs(ort: ModuleType) -> Any:
    C, made = ort.capi._pybind_state, session(ort)
    feeds = {
        "a": C.OrtValue.ortvalue_from_numpy(A, C.OrtDevice(0, 0, 0)),
        "b": ort.OrtValue.ortvalue_from_numpy(B)._ortvalue,
    }
    vector = made._sess.run_with_ort_values(feeds, ["p"], None)
    lone = C.InferenceSession(C.get_default_session_options(), sum_and_product(), False, False)
    lone.initialize_session(["CPUExecutionProvider"], [{}], set())
    described = [(arg.name, arg.type, arg.shape) for arg in (*lone.inputs_meta, *lone.outputs_meta)]
    return type(vector).__name__, vector[0].numpy().copy(), lone.run(["s"], {"a": A, "b": B}, None), described


def vectors(ort: ModuleType) -> Any:
    C, made = ort.capi._pybind_state, session(ort)
    feeds, fetches = C.OrtValueVector(), C.OrtValueVector()
    for array in (A, B):
        feeds.push_back(ort.OrtValue.ortvalue_from_numpy(array)._ortvalue)
    device = C.OrtDevice(C.OrtDevice.cpu(), C.OrtDevice.default_memory(), 0)
    made.run_with_ortvaluevector(ort.RunOptions(), ["a", "b"], feeds, ["p", "s"], fetches, [device, device])
    return len(fetches), [value.numpy().copy() for value in fetches]


def on_values(ort: ModuleType, names: Any = None, **others: Any) -> Any:
    arrays = {"a": A, "b": B} | others
    feeds = {name: ort.OrtValue.ortvalue_from_numpy(x) for name, x in arrays.items() if x is not None}
    return [value.numpy().copy() for value in session(ort).run_with_ort_values(names, feeds)]


WHOLE = np.zeros((2, 3), np.float32)

ALIKE = {
    "both": lambda ort: ran(ort, s=None, p=None),
    "one": lambda ort: ran(ort, p=None),
    "in another order": lambda ort: ran(ort, p=None, s=None),
    "given memory": lambda ort: (ran(ort, s=WHOLE), WHOLE),
    "given and new": lambda ort: ran(ort, p=np.zeros((2, 3), np.float32), s=None),
    "addresses": raw_inputs,
    "values": values,
    "read when it runs": changed,
    "copied when it is bound": lambda ort: changed(ort, "F"),
    "bound anew": rebound,
    "inner binding": inner,
    "inner runs": inner_runs,
    "vectors": vectors,
    "cuda without memory": lambda ort: bound(ort)[1].bind_output("s", "cuda", 0),
    "no outputs yet": lambda ort: bound(ort)[1].get_outputs(),
    "cleared": lambda ort: [b := bound(ort, s=None)[1], b.clear_binding_outputs(), b.get_outputs()][2],
    "before the run": lambda ort: [value.has_value() for value in bound(ort, s=None)[1].get_outputs()],
    "synchronise": lambda ort: (bound(ort)[1].synchronize_inputs(), bound(ort)[1].synchronize_outputs()),
    "on values": on_values,
    "on values, one output": lambda ort: on_values(ort, ["p"]),
    "on values, twice": lambda ort: on_values(ort, ["p", "p"]),
    "run takes values": lambda ort: session(ort).run(None, {"a": ort.OrtValue.ortvalue_from_numpy(A), "b": B}),
    "memory of a session": lambda ort: session(ort).create_ortvalue_from_shape_and_type([2], np.float32, "cpu").shape(),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_alike(name: str) -> None:
    assert_alike(ALIKE[name])


def with_input(ort: ModuleType, name: str, value: Any) -> Any:
    made, binding = bound(ort, s=None)
    binding.bind_cpu_input(name, value)
    made.run_with_iobinding(binding)


def ended(ort: ModuleType) -> Any:
    made, binding = bound(ort, s=None)
    options = ort.RunOptions()
    options.terminate = True
    made.run_with_iobinding(binding, options)


REFUSED = {
    "no output": (ran, "At least one output should be requested"),
    "unknown input": (lambda ort: with_input(ort, "zz", A), "Failed to find NodeArg with name: zz in the def list"),
    "unknown output": (lambda ort: ran(ort, zz=None), "Invalid output name:"),
    "type": (
        lambda ort: with_input(ort, "a", A.astype(float)),
        "Unexpected input data type. Actual: (tensor(double)) , expected: (tensor(float))",
    ),
    "rank": (lambda ort: with_input(ort, "a", A[0]), "Invalid rank for input: a Got: 1 Expected: 2 Please fix either"),
    "size": (lambda ort: with_input(ort, "a", A[:, :2]), "index: 1 Got: 2 Expected: 3"),
    "output's size": (
        lambda ort: ran(ort, s=np.zeros((2, 4), np.float32)),
        "Got invalid dimensions for output: s for the following indices\n index: 1 Got: 4 Expected: 3\n",
    ),
    "output's open size": (
        lambda ort: ran(ort, s=np.zeros((4, 3), np.float32)),
        "has shape {4,3} but the computed output shape for this run is {2,3}",
    ),
    "output's rank": (lambda ort: ran(ort, s=np.zeros(6, np.float32)), "Invalid rank for output: s Got: 1 Expected: 2"),
    "output's type": (
        lambda ort: ran(ort, s=np.zeros((2, 3))),
        "Unexpected output data type. Actual: (tensor(double)) , expected: (tensor(float))",
    ),
    "memory without a type": (
        lambda ort: bound(ort)[1].bind_output("s", buffer_ptr=A.ctypes.data),
        "`element_type` and `shape` are to be provided if pre-allocated memory is provided",
    ),
    "unknown device": (lambda ort: bound(ort)[1].bind_output("s", "foo"), "Unsupported device type: foo"),
    "another session": (
        lambda ort: session(ort).run_with_iobinding(bound(ort, s=None)[1]),
        "IOBinding must be used with the session that created it.",
    ),
    "ended": (ended, "Exiting due to terminate flag being set to true."),
    "values: missing": (lambda ort: on_values(ort, b=None), "Required inputs (['b']) are missing from input feed"),
    "values: unknown output": (lambda ort: on_values(ort, ["q"]), "Invalid output name:q"),
    "values: unknown input": (lambda ort: on_values(ort, c=A), "Invalid input name: c"),
    "values: type": (lambda ort: on_values(ort, a=A.astype(float)), "Actual: (tensor(double)) , expected: (tensor("),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    assert_alike(*REFUSED[name])


def test_what_onnxruntime_does_not_say() -> None:
    """It says "Missing Input" from within a node, and crashes on copies before the first run."""
    made, binding = bound(jitonnx, s=None)
    with pytest.raises(RuntimeError, match="has no value yet"):
        binding.copy_outputs_to_cpu()
    binding.clear_binding_inputs()
    with pytest.raises(errors.InvalidArgument, match=r"Required inputs \(\['a', 'b'\]\) are missing"):
        made.run_with_iobinding(binding)
    with pytest.raises(RuntimeError, match="the CPU's memory alone"):
        binding.bind_input("a", "cuda", 0, np.float32, [2, 3], A.ctypes.data)
    with pytest.raises(errors.InvalidArgument, match="the address 0 is given"):
        binding.bind_input("a", "cpu", 0, np.float32, [2, 3], 0)
    with pytest.raises(TypeError, match="the address of memory is an int, not None"):
        binding.bind_input("a", "cpu", 0, np.float32, [2, 3], None)
    with pytest.raises(TypeError, match="an OrtValue is bound here"):
        binding.bind_ortvalue_output("s", A)
    with pytest.raises(TypeError, match="not what InferenceSession"):
        made.run_with_iobinding(None)
    made.close()
    for name, array in (("a", A), ("b", B)):
        binding.bind_cpu_input(name, array)
    for target in (None, OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)):
        if target is not None:
            binding.bind_ortvalue_output("s", target)
        with pytest.raises(RuntimeError, match="the session is closed"):
            made.run_with_iobinding(binding)


def test_an_inner_session_has_no_model_at_first() -> None:
    C = jitonnx.capi._pybind_state
    inner = C.InferenceSession(C.get_default_session_options(), sum_and_product(), False, False)
    with pytest.raises(RuntimeError, match="call initialize_session"):
        inner.run(None, {})


def test_every_run_has_outputs_of_its_own_and_any_shape() -> None:
    """onnxruntime overwrites those of the run before, and refuses other shapes."""
    made, binding = bound(jitonnx, s=None)
    seen = []
    for rows in (1, 2, 5, 3, 2):
        a, b = (np.full((rows, 3), value, np.float32) for value in (rows, 1))
        binding.bind_cpu_input("a", a)
        binding.bind_cpu_input("b", b)
        made.run_with_iobinding(binding)
        seen.append((rows, binding.get_outputs()[0].numpy()))
    for rows, array in seen:
        np.testing.assert_array_equal(array, np.full((rows, 3), rows + 1))


def test_an_output_that_is_listed_twice() -> None:
    """As onnxruntime's tests of GroupQueryAttention list theirs."""
    y = tensor("y", ["n"])
    made = InferenceSession(model([node("Neg", ["x"], ["y"])], [tensor("x", ["n"])], [y, y]))
    binding, x = made.io_binding(), np.arange(4, dtype=np.float32)
    place = OrtValue.ortvalue_from_numpy(np.zeros(4, np.float32))
    binding.bind_cpu_input("x", x)
    binding.bind_ortvalue_output("y", place)
    for _ in range(2):
        made.run_with_iobinding(binding)
        np.testing.assert_array_equal(place.numpy(), -x)


# ---------------------------------------------------------------------------------------------- where outputs go


def written(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """Addresses that programs are given to write outputs to, by run."""
    places: list[list[int]] = []
    call = Executable.call

    def noted(self: Executable, inputs: Any, given: Any = ()) -> Any:
        places.append([0 if array is None else array.ctypes.data for array in given])
        return call(self, inputs, given)

    monkeypatch.setattr(Executable, "call", noted)
    return places


def test_kernels_write_where_they_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    places = written(monkeypatch)
    s, p = (np.zeros((2, 3), np.float32) for _ in "sp")
    made, binding = bound(jitonnx, p=p, s=s)
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(s, A + B)
    np.testing.assert_array_equal(p, A * B)
    assert places == [[s.ctypes.data, p.ctypes.data]]


def test_runs_on_the_same_memory_are_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    """They look at nothing again, and read and write what lies there."""
    places = written(monkeypatch)
    a, s = np.array(A), np.zeros((2, 3), np.float32)
    made, binding = bound(jitonnx, s=s)
    binding.bind_cpu_input("a", a)
    for turn in range(4):
        a[:] = turn
        s[:] = -1
        made.run_with_iobinding(binding)
        assert (s == turn + 2).all() and (binding.get_outputs()[0].numpy() == turn + 2).all()
    assert len(places) == 1
    binding.bind_cpu_input("a", A)
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(s, A + B)
    binding.bind_output("p")
    made.run_with_iobinding(binding)
    first = binding.get_outputs()[1].numpy()
    binding.bind_cpu_input("a", A + 1)
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(first, A * B)
    binding.clear_binding_outputs()
    binding.bind_output("s", "cpu", 0, np.float32, [2, 3], s.ctypes.data)
    for _ in range(2):
        made.run_with_iobinding(binding)
    made.close()
    with pytest.raises(RuntimeError, match="the session is closed"):
        made.run_with_iobinding(binding)


def test_errors_in_data_are_told_at_every_run() -> None:
    nodes = [node("Gather", ["x", "i"], ["y"])]
    made = InferenceSession(model(nodes, [tensor("x", [4]), tensor("i", [2], 7)], [tensor("y", [2])]))
    x, i, y = np.arange(4, dtype=np.float32), np.array([1, 2]), np.zeros(2, np.float32)
    binding = made.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_cpu_input("i", i)
    binding.bind_output("y", "cpu", 0, np.float32, [2], y.ctypes.data)
    for index in (1, 3, 9, 0, -5, 2):
        i[0] = index
        if -4 <= index < 4:
            made.run_with_iobinding(binding)
            assert y.tolist() == [index, 2]
        else:
            with pytest.raises(errors.InvalidArgument, match="make_y"):
                made.run_with_iobinding(binding)


def test_inputs_that_are_not_aligned_are_read_at_every_run() -> None:
    block = np.zeros(25, np.uint8)
    a, s = block[1:].view(np.float32).reshape(2, 3), np.zeros((2, 3), np.float32)
    made, binding = bound(jitonnx, s=s)
    for bind in (
        lambda: binding.bind_cpu_input("a", a),
        lambda: binding.bind_input("a", "cpu", 0, np.float32, [2, 3], block.ctypes.data + 1),
    ):
        bind()
        for turn in range(3):
            a[:] = turn
            made.run_with_iobinding(binding)
            assert (s == turn + 2).all()


def memory(name: str) -> tuple[np.ndarray, np.ndarray]:
    """An input, and memory for an output that kernels cannot write to."""
    block = np.arange(13, dtype=np.float32)
    a = block[:6].reshape(2, 3)
    if name == "not aligned":
        return a, np.zeros(25, np.uint8)[1:].view(np.float32).reshape(2, 3)
    return a, a if name == "the input's" else block[3:9].reshape(2, 3)


@pytest.mark.parametrize("name", ["not aligned", "the input's", "a part of the input's"])
def test_memory_that_kernels_cannot_use_gets_a_copy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    places = written(monkeypatch)
    a, target = memory(name)
    expected = a + B
    made, binding = bound(jitonnx)
    binding.bind_cpu_input("a", a)
    binding.bind_output("s", "cpu", 0, np.float32, [2, 3], target.ctypes.data)
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, expected)
    assert places == [[0, 0]]


def test_a_state_that_is_read_and_written() -> None:
    """y = x * (x + 1), s = x + 1 in the place of x: y is right although s may be there before it."""
    nodes = [node("Add", ["x", "one"], ["s"]), node("Mul", ["s", "x"], ["y"])]
    session = InferenceSession(
        model(nodes, [tensor("x", [4])], [tensor("y", [4]), tensor("s", [4])], {"one": np.float32(1)})
    )
    state = OrtValue.ortvalue_from_numpy(np.arange(4, dtype=np.float32))
    binding = session.io_binding()
    binding.bind_ortvalue_input("x", state)
    binding.bind_ortvalue_output("s", state)
    binding.bind_output("y")
    for step in range(5):
        session.run_with_iobinding(binding)
        x = np.arange(4, dtype=np.float32) + step
        np.testing.assert_array_equal(binding.get_outputs()[1].numpy(), x * (x + 1))
        np.testing.assert_array_equal(state.numpy(), x + 1)


def test_outputs_that_share_memory() -> None:
    """The one bound last is there in the end."""
    target = np.zeros((2, 3), np.float32)
    made, binding = bound(jitonnx, s=target, p=target)
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(target, A * B)


def test_overlaps_are_found() -> None:
    """Random spans of one block of memory against a comparison of all pairs."""

    class Takes:
        shared: frozenset[tuple[int, int]] = frozenset()

        def takes(self, index: int, array: np.ndarray) -> bool:
            return True

    rng = np.random.default_rng(0)
    for _ in range(300):
        block = np.zeros(40, np.uint8)
        spans = [
            (begin, begin + length) for begin, length in zip(rng.integers(0, 40, 7), rng.integers(0, 9, 7), strict=True)
        ]
        arrays = [block[begin:end] for begin, end in spans]
        inputs, targets = arrays[:3], arrays[3:]
        usable = in_place(Takes(), inputs, targets)  # type: ignore[arg-type]
        for index, target in enumerate(targets):
            others = inputs + targets[:index] + targets[index + 1 :]
            assert (usable[index] is None) == any(np.shares_memory(target, other) for other in others), spans
    assert copied([1, 2], [None, None]) == [1, 2]
    Takes.shared = frozenset({(1, 0)})
    block = np.zeros(40, np.uint8)
    cache, part = block[:20], block[:19]
    assert in_place(Takes(), [block[20:], cache], [cache])[0] is cache  # type: ignore[arg-type]
    for inputs in ([cache, block[20:]], [block[20:], part], [cache, cache]):
        assert in_place(Takes(), inputs, [cache]) == [None]  # type: ignore[arg-type]


def test_read_only_memory_is_refused_before_it_is_written() -> None:
    made, binding = bound(jitonnx)
    binding.bind_ortvalue_output("s", OrtValue.ortvalue_from_numpy(np.broadcast_to(np.float32(1), (2, 3)).copy()))
    made.run_with_iobinding(binding)
    frozen = np.zeros((2, 3), np.float32)
    frozen.flags.writeable = False
    binding.bind_ortvalue_output("s", OrtValue.ortvalue_from_numpy(frozen))
    with pytest.raises(ValueError, match="read-only"):
        made.run_with_iobinding(binding)
    assert not frozen.any()


# ---------------------------------------------------------------------------------------------- other types and ways


def test_strings() -> None:
    """onnxruntime binds none."""
    nodes = [node("Identity", ["x"], ["y"]), node("Concat", ["x", "x"], ["z"], axis=0)]
    io = [tensor(name, ["N"], STRING) for name in "xy"] + [tensor("z", ["M"], STRING)]
    made = InferenceSession(model(nodes, io[:1], io[1:]))
    binding = made.io_binding()
    texts = np.array(["a", "bb"], object)
    target = OrtValue.ortvalue_from_shape_and_type([4], str)
    binding.bind_cpu_input("x", texts)
    binding.bind_ortvalue_output("z", target)
    binding.bind_output("y")
    for _ in range(300):
        texts[0] += "c"
        made.run_with_iobinding(binding)
        assert target.numpy().tolist() == texts.tolist() * 2
        (z, y) = binding.get_outputs()
        assert y.numpy().tolist() == texts.tolist() and z.numpy() is not texts
    texts[1] = None
    made.run_with_iobinding(binding)
    assert target.numpy().tolist() == [texts[0], "None"] * 2, "str() of what is no string, as in feeds"
    with pytest.raises(errors.NotImplemented, match="Only binding non-string Tensors"):
        binding.bind_input("x", "cpu", 0, np.object_, [2], texts.ctypes.data)
    again = made.run_with_ort_values(["z"], {"x": OrtValue.ortvalue_from_numpy(["q"])})
    assert again[0].numpy().tolist() == ["q", "q"]


def test_bfloat16() -> None:
    kind = TensorProto.BFLOAT16
    made = InferenceSession(
        model([node("Add", ["x", "x"], ["y"])], [tensor("x", ["N"], kind)], [tensor("y", ["N"], kind)])
    )
    x = np.array([1.5, -2, 3], ml_dtypes.bfloat16)
    raw = OrtValue.ortvalue_from_numpy_with_onnx_type(x.view(np.uint16), kind)
    target = np.zeros(3, np.uint16)
    binding = made.io_binding()
    binding.bind_ortvalue_input("x", raw)
    binding.bind_output("y", "cpu", 0, kind, [3], target.ctypes.data)
    made.run_with_iobinding(binding)
    np.testing.assert_array_equal(target.view(ml_dtypes.bfloat16), x + x)
    assert made.run_with_ort_values(None, {"x": raw})[0].data_type() == "tensor(bfloat16)"


def test_parts_evaluated_on_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """NonZero cuts the graph: outputs are copied to where they are wanted."""
    nodes = [node("NonZero", ["x"], ["i"]), node("Neg", ["x"], ["y"])]
    made = InferenceSession(model(nodes, [tensor("x", [4])], [tensor("i", [1, "k"], 7), tensor("y", [4])]))
    x = np.array([0, 1, 0, 2], np.float32)
    y, places = np.zeros(4, np.float32), np.zeros((1, 2), np.int64)
    binding = made.io_binding()
    binding.bind_cpu_input("x", x)
    binding.bind_output("y", "cpu", 0, np.float32, [4], y.ctypes.data)
    binding.bind_output("i", "cpu", 0, np.int64, [1, 2], places.ctypes.data)
    for _ in range(3):
        y[:], places[:] = 0, 0
        made.run_with_iobinding(binding)
        assert y.tolist() == (-x).tolist() and places.tolist() == [[1, 3]]
    x[0] = 1
    before = y.copy()
    with pytest.raises(errors.InvalidArgument, match=r"has shape \{1,2\} but the computed output shape .* is \{1,3\}"):
        made.run_with_iobinding(binding)
    assert y.tolist() == before.tolist()


def test_profiles_and_defaults(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = session(jitonnx, enable_profiling=True)
    target = np.zeros((2, 3), np.float32)
    binding = made.io_binding()
    binding.bind_cpu_input("a", A)
    binding.bind_cpu_input("b", B)
    binding.bind_output("s", "cpu", 0, np.float32, [2, 3], target.ctypes.data)
    made.run_with_iobinding(binding)
    assert target.tolist() == (A + B).tolist()
    assert "model_run" in (tmp_path / made.end_profiling()).read_text()
    default = model(
        [node("Add", ["x", "w"], ["y"])],
        [tensor("x", [2]), tensor("w", [2])],
        [tensor("y", [2])],
        {"w": np.ones(2, np.float32)},
    )
    other = InferenceSession(default)
    binding = other.io_binding()
    binding.bind_cpu_input("x", np.zeros(2, np.float32))
    binding.bind_output("y")
    other.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].tolist() == [1, 1]
    binding.bind_cpu_input("w", np.full(2, 5, np.float32))
    other.run_with_iobinding(binding)
    assert binding.copy_outputs_to_cpu()[0].tolist() == [5, 5]


def test_threads_with_bindings_of_their_own() -> None:
    made = session(jitonnx)
    wrong: list[Any] = []

    def work(number: int) -> None:
        binding = made.io_binding()
        for turn in range(40):
            rows = 1 + (number + turn) % 5
            a, b = np.full((rows, 3), number, np.float32), np.full((rows, 3), turn, np.float32)
            target = np.zeros((rows, 3), np.float32)
            binding.bind_cpu_input("a", a)
            binding.bind_cpu_input("b", b)
            binding.bind_output("p")
            binding.bind_output("s", "cpu", 0, np.float32, target.shape, target.ctypes.data)
            made.run_with_iobinding(binding)
            if not (target == number + turn).all() or not (binding.get_outputs()[0].numpy() == number * turn).all():
                wrong.append((number, turn))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong

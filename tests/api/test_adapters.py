"""LoRA adapters: files that onnxruntime reads and writes, and runs that take their parameters."""

from __future__ import annotations

import pickle
import random
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import jitonnx
from jitonnx.api.adapters import LoraAdapter
from jitonnx.errors import Error, Fail, InvalidArgument, NoSuchFile
from jitonnx.support.flatbuffers import FlatbufferError, Writer, root
from tests.session.models import model, node, tensor

A, B = np.ones((4, 2), np.float32), np.full((2, 3), 2, np.float32)
X = np.arange(8, dtype=np.float32).reshape(2, 4)
BOTH = pytest.mark.parametrize("module", [jitonnx, onnxruntime], ids=["jitonnx", "onnxruntime"])


def adapted_model() -> bytes:
    """y = x W + (x A) B with matrices A [4, r] and B [r, 3], by default of rank 0."""
    nodes = [
        node("MatMul", ["x", "w"], ["base"]),
        node("MatMul", ["x", "A"], ["low"]),
        node("MatMul", ["low", "B"], ["delta"]),
        node("Add", ["base", "delta"], ["y"]),
    ]
    constants = {
        "w": np.ones((4, 3), np.float32),
        "A": np.zeros((4, 0), np.float32),
        "B": np.zeros((0, 3), np.float32),
    }
    inputs = [tensor("x", ("n", 4)), tensor("A", (4, "r")), tensor("B", ("r", 3))]
    return model(nodes, inputs, [tensor("y", ("n", 3))], constants)


def export(module: Any, path: Path, parameters: dict[str, Any], adapter: int = 3, version: int = 5) -> Path:
    written = module.AdapterFormat()
    written.set_adapter_version(adapter)
    written.set_model_version(version)
    written.set_parameters({name: module.OrtValue.ortvalue_from_numpy(array) for name, array in parameters.items()})
    written.export_adapter(str(path))
    return path


def run(module: Any, paths: list[Path], feed: dict[str, Any], source: bytes | None = None) -> Any:
    session = module.InferenceSession(source or adapted_model(), providers=["CPUExecutionProvider"])
    adapters = [module.LoraAdapter() for _ in paths]
    options = module.RunOptions()
    for adapter, path in zip(adapters, paths, strict=True):
        adapter.Load(str(path))
        options.add_active_adapter(adapter)
    (result,) = session.run(None, feed, options)
    return result


# ---------------------------------------------------------------- files


INTEGERS = [np.dtype(f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)]
TYPES = [np.float32, np.float64, np.float16, *INTEGERS]


@pytest.mark.parametrize("writer, reader", [(jitonnx, onnxruntime), (onnxruntime, jitonnx), (jitonnx, jitonnx)])
def test_files_are_onnxruntimes(writer: Any, reader: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    parameters = {f"p.{n}": (rng.random((n + 1, 3)) * 100).astype(kind) for n, kind in enumerate(TYPES)}
    parameters |= {"empty": np.zeros((4, 0), np.float32), "ä" * 9: np.arange(3.0)}
    read = reader.AdapterFormat.read_adapter(str(export(writer, tmp_path / "a", parameters)))
    assert (read.get_format_version(), read.get_adapter_version(), read.get_model_version()) == (1, 3, 5)
    found = {name: value.numpy() for name, value in read.get_parameters().items()}
    assert found.keys() == parameters.keys()
    for name, array in parameters.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)


@BOTH
def test_a_new_one_is_empty(module: Any, tmp_path: Path) -> None:
    made = module.AdapterFormat()
    assert (made.get_format_version(), made.get_adapter_version(), made.get_model_version()) == (1, 0, 0)
    assert made.get_parameters() == {}
    assert module.AdapterFormat.read_adapter(str(export(module, tmp_path / "a", {}))).get_parameters() == {}
    made.set_adapter_version(-1)
    assert made.get_adapter_version() == -1
    for wrong in (1 << 40, 1.5):
        with pytest.raises(TypeError):
            made.set_adapter_version(wrong)


def test_bfloat16(tmp_path: Path) -> None:
    bits = np.array([0x3F80, 0x4000], np.uint16)
    written = jitonnx.AdapterFormat()
    written.set_parameters({"p": jitonnx.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, 16)})
    written.export_adapter(tmp_path / "a")
    for module in (jitonnx, onnxruntime):
        (value,) = module.AdapterFormat.read_adapter(str(tmp_path / "a")).get_parameters().values()
        assert value.element_type() == 16 and value.shape() == [2]


def test_what_a_file_cannot_hold(tmp_path: Path) -> None:
    written = jitonnx.AdapterFormat()
    for array in (np.array([True]), np.array(["text"], object)):
        written.set_parameters({"p": jitonnx.OrtValue.ortvalue_from_numpy(array)})
        with pytest.raises(InvalidArgument, match=r"Lora Param 'p': data_type '[89]' is (BOOL|STRING); allowed are bf"):
            written.export_adapter(str(tmp_path / "a.onnx_adapter"))
        assert not list(tmp_path.iterdir())
    with pytest.raises(TypeError, match="'p' is a ndarray"):
        written.set_parameters({"p": A})  # type: ignore[dict-item]
    written.set_parameters({})
    with pytest.raises(Fail, match="Failed to open file"):
        written.export_adapter(tmp_path / "none" / "a")


def test_files_that_are_no_adapters(tmp_path: Path) -> None:
    with pytest.raises(NoSuchFile):
        jitonnx.LoraAdapter().Load(str(tmp_path / "none"))
    for content in (b"", b"TORT", b"hello world, this is no adapter", bytes(100)):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(InvalidArgument, match=r"not appear to be a valid lora parameter format.*not 'TORT'"):
            jitonnx.LoraAdapter().Load(str(tmp_path / "a"))
    with pytest.raises(InvalidArgument, match="cannot be read"):
        jitonnx.AdapterFormat.read_adapter(tmp_path)


def test_damaged_files_are_errors_or_arrays(tmp_path: Path) -> None:
    """Bytes are cut off and changed: nothing but our errors comes of that, and in no time."""
    path = tmp_path / "a"
    whole = export(jitonnx, path, {"A": A, "B": B}).read_bytes()
    draw = random.Random(1)
    damaged = [whole[:length] for length in range(len(whole))]
    for _ in range(1500):
        changed = bytearray(whole)
        for _ in range(draw.randint(1, 3)):
            changed[draw.randrange(len(changed))] = draw.choice([0, 1, 4, 127, 128, 255, draw.randrange(256)])
        damaged.append(bytes(changed))
    begun, refused = time.perf_counter(), 0
    for content in damaged:
        path.write_bytes(content)
        try:
            for value in jitonnx.AdapterFormat.read_adapter(path).get_parameters().values():
                value.numpy().sum()
        except Error:
            refused += 1
    assert refused > len(whole)
    assert time.perf_counter() - begun < 20


def test_many_tables_of_one_long_list(tmp_path: Path) -> None:
    """A file in which thousands of parameters share a long text is refused at the first, and not read thousands of
    times."""
    writer = Writer(b"TORT")
    adapter = writer.table(4)
    writer.set_integer(adapter, 0, 1)
    places = writer.set_tables(adapter, 3, 20_000)
    table = writer.table(4)
    for place in places:
        writer.point(place, table)
    writer.set_text(table, 0, "x" * 2_000_000)
    (tmp_path / "a").write_bytes(writer.finished())
    with pytest.raises(InvalidArgument, match="has 2000000 elements, and may have"):
        jitonnx.LoraAdapter().Load(str(tmp_path / "a"))


def test_two_parameters_of_a_name(tmp_path: Path) -> None:
    writer = Writer(b"TORT")
    adapter = writer.table(4)
    writer.set_integer(adapter, 0, 1)
    for place in writer.set_tables(adapter, 3, 2):
        table = writer.table(4)
        writer.point(place, table)
        writer.set_text(table, 0, "p")
        writer.set_integer(table, 2, 1)
        writer.set_bytes(table, 3, bytes(4))
    (tmp_path / "a").write_bytes(writer.finished())
    with pytest.raises(InvalidArgument, match="two parameters are named 'p'"):
        jitonnx.LoraAdapter().Load(str(tmp_path / "a"))


def test_tables() -> None:
    writer = Writer(b"KIND")
    made = writer.table(5)
    writer.set_integer(made, 0, -7)
    writer.set_text(made, 1, "text")
    writer.set_integers(made, 2, [1, -(1 << 40)])
    writer.set_bytes(made, 4, b"abc", 64)
    data = memoryview(writer.finished())
    table = root(data, b"KIND")
    assert table.integer(0) == -7 and table.text(1) == "text" and table.integers(2, 2) == (1, -(1 << 40))
    assert bytes(table.bytes(3)) == b"" and bytes(table.bytes(4)) == b"abc" and table.integer(9, 5) == 5
    with pytest.raises(FlatbufferError, match="may have 1"):
        table.integers(2, 1)
    with pytest.raises(FlatbufferError, match="not 'ELSE'"):
        root(data, b"ELSE")


# ---------------------------------------------------------------- runs


CASES: dict[str, tuple[list[dict[str, Any]], dict[str, Any]]] = {
    "one": ([{"A": A, "B": B}], {}),
    "none of its parameters": ([{}], {}),
    "the first of two": ([{"A": A, "B": B}, {"A": A * 2, "B": B}], {}),
    "the other first": ([{"A": A * 2, "B": B}, {"A": A, "B": B}], {}),
    "two that share the work": ([{"A": A}, {"B": B}], {}),
    "above what is fed": ([{"A": A, "B": B}], {"A": A * 3, "B": B}),
    "beside what is fed": ([{"A": A}], {"B": B}),
    "an input without a default": ([{"x": X + 1, "A": A, "B": B}], {}),
    "rank 1": ([{"A": A[:, :1], "B": B[:1]}], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_runs_are_onnxruntimes(name: str, tmp_path: Path) -> None:
    adapters, feed = CASES[name]
    paths = [export(jitonnx, tmp_path / f"{n}", parameters) for n, parameters in enumerate(adapters)]
    ours, theirs = (run(module, paths, {"x": X, **feed}) for module in (jitonnx, onnxruntime))
    np.testing.assert_array_equal(ours, theirs)


WRONG = {
    "no input": ({"Z": B}, "Invalid input name: Z"),
    "another type": ({"A": A.astype(np.float64), "B": B}, "Unexpected input data type"),
    "another rank": ({"A": A[None], "B": B}, "Invalid rank for input: A"),
    "ranks that differ": ({"A": A, "B": B[:1]}, "INVALID_ARGUMENT"),
}


@BOTH
@pytest.mark.parametrize("name", WRONG)
def test_parameters_that_do_not_fit(name: str, module: Any, tmp_path: Path) -> None:
    parameters, text = WRONG[name]
    onnxruntime.set_default_logger_severity(4)
    with pytest.raises((InvalidArgument, onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument), match=text):
        run(module, [export(jitonnx, tmp_path / "a", parameters)], {"x": X})
    onnxruntime.set_default_logger_severity(2)


def test_every_way_to_run(tmp_path: Path) -> None:
    """Also with bindings, behind the caller, and when nobody else knows the adapter any more; and without it after."""
    session = jitonnx.InferenceSession(adapted_model())
    options, adapter = jitonnx.RunOptions(), jitonnx.LoraAdapter()
    adapter.Load(str(export(jitonnx, tmp_path / "a", {"A": A, "B": B})))
    options.add_active_adapter(adapter)
    del adapter
    plain, adapted = X @ np.ones((4, 3)), X @ np.ones((4, 3)) + X @ A @ B
    for _ in range(3):
        np.testing.assert_array_equal(session.run(["y"], {"x": X}, options)[0], adapted)
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], plain)
    values = session.run_with_ort_values(None, {"x": jitonnx.OrtValue.ortvalue_from_numpy(X)}, options)
    np.testing.assert_array_equal(values[0].numpy(), adapted)
    place = jitonnx.OrtValue.ortvalue_from_numpy(np.zeros((2, 3), np.float32))
    for bind in (lambda binding: binding.bind_output("y"), lambda binding: binding.bind_ortvalue_output("y", place)):
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        bind(binding)
        for given, expected in ((None, plain), (options, adapted), (options, adapted), (None, plain), (None, plain)):
            session.run_with_iobinding(binding, given)
            np.testing.assert_array_equal(binding.copy_outputs_to_cpu()[0], expected)
    done, found = threading.Event(), []
    session.run_async(None, {"x": X}, lambda results, *_: (found.extend(results), done.set()), None, options)
    assert done.wait(60)
    np.testing.assert_array_equal(found[0], adapted)
    copied = pickle.loads(pickle.dumps(options))
    np.testing.assert_array_equal(session.run(None, {"x": X}, copied)[0], adapted)


def test_adapters_are_switched_without_compiling(tmp_path: Path) -> None:
    session = jitonnx.InferenceSession(adapted_model())
    for rank in (1, 2, 5):
        for factor in (1, 2):
            parameters = {"A": np.full((4, rank), factor, np.float32), "B": np.ones((rank, 3), np.float32)}
            options, adapter = jitonnx.RunOptions(), jitonnx.LoraAdapter()
            adapter.Load(str(export(jitonnx, tmp_path / f"{rank}-{factor}", parameters)))
            options.add_active_adapter(adapter)
            expected = X @ np.ones((4, 3)) + X @ parameters["A"] @ parameters["B"]
            np.testing.assert_array_equal(session.run(None, {"x": X}, options)[0], expected)
    assert len(session._model._overriding) == 1, "one engine serves adapters of all ranks"


def test_an_adapter_without_a_file() -> None:
    session, options = jitonnx.InferenceSession(adapted_model()), jitonnx.RunOptions()
    options.add_active_adapter(LoraAdapter())
    with pytest.raises(InvalidArgument, match="call its method Load"):
        session.run(None, {"x": X}, options)
    with pytest.raises(TypeError, match=r"jitonnx\.LoraAdapter is needed"):
        options.add_active_adapter("path")  # type: ignore[arg-type]

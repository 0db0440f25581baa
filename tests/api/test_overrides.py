"""What options say of a model before it is read: external data from memory, sizes by what dimensions denote."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest

import jitonnx
from tests.api.faces import assert_alike

WEIGHTS = np.arange(300, dtype=np.float32).reshape(3, 100)
DATA = WEIGHTS.tobytes()
BEHIND = b"0123" * 4 + DATA
WRITEABLE = bytearray(DATA)
"""Here, since onnxruntime does not keep what it is given."""
FEED = {"x": np.eye(3, dtype=np.float32)}


def external(location: str = "w.bin", offset: int = 0) -> bytes:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> g (float[N,3] x) => (float[N,100] y) { y = MatMul(x, w) }'
    )
    tensor = model.graph.initializer.add(name="w", data_type=1, dims=[3, 100])
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", "1200")):
        tensor.external_data.add(key=key, value=value)
    return bytes(model.SerializeToString())


def given(ort: ModuleType, names: list[str], *arrays: np.ndarray) -> Any:
    options = ort.SessionOptions()
    options.add_external_initializers(names, [ort.OrtValue.ortvalue_from_numpy(array) for array in arrays])
    return options


def in_memory(ort: ModuleType, names: list[str], buffers: list[Any], lengths: list[int] | None = None) -> Any:
    options = ort.SessionOptions()
    lengths = [len(memoryview(buffer).cast("B")) for buffer in buffers] if lengths is None else lengths
    options.add_external_initializers_from_files_in_memory(names, buffers, lengths)
    return options


def run(ort: ModuleType, options: Any, model: bytes | None = None) -> Any:
    session = ort.InferenceSession(model or external(), options, providers=["CPUExecutionProvider"])
    return session.run(None, FEED)


ALIKE = {
    "values": (lambda ort: run(ort, given(ort, ["w"], WEIGHTS)), ""),
    "values of another shape": (
        lambda ort: run(ort, given(ort, ["w"], WEIGHTS.T.copy())), "Replacement tensor's dimensions do not match."
    ),
    "values of another type": (
        lambda ort: run(ort, given(ort, ["w"], WEIGHTS.astype("d"))), "Replacement tensor's data type does not match."
    ),
    "values of no initializer": (
        lambda ort: run(ort, given(ort, ["q"], WEIGHTS)), "Failed to find existing initializer with name q."
    ),
    "a file": (lambda ort: run(ort, in_memory(ort, ["w.bin"], [DATA])), ""),
    "a file at an offset": (
        lambda ort: run(ort, in_memory(ort, ["w.bin"], [BEHIND]), external(offset=16)), ""
    ),
    "a file in no folder": (lambda ort: run(ort, in_memory(ort, ["../w.bin"], [DATA]), external("../w.bin")), ""),
    "an array": (lambda ort: run(ort, in_memory(ort, ["w.bin"], [WEIGHTS])), ""),
    "other memory": (lambda ort: run(ort, in_memory(ort, ["w.bin"], [WRITEABLE])), ""),
    "no such file": (
        lambda ort: run(ort, in_memory(ort, ["v.bin"], [DATA])),
        "External file: w.bin not found from the table user provided.",
    ),
    "a short file": (
        lambda ort: run(ort, in_memory(ort, ["w.bin"], [DATA], [100])),
        "External initializer: w offset: 0 size to read: 1200 given file_length: 100 are out of bounds",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_alike(name: str) -> None:
    assert_alike(*ALIKE[name])


def test_elements_of_other_types() -> None:
    """Strings and small integers, and what is in the model itself, are replaced, too."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g () => (string[2] s, int4[3] i, float[2] f) '
        "{ s = Identity(t) i = Identity(j) f = Identity(e) }"
    )
    old = {"t": np.array(["a", "b"], object), "j": np.array([1, 2, 3], ml_dtypes.int4), "e": np.ones(2, np.float32)}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in old.items())
    options = jitonnx.SessionOptions()
    values = [np.array(["c", "d"], object), np.array([-8, 7, 0], ml_dtypes.int4), np.array([5, 6], ">f4")]
    options.add_external_initializers(["t", "j", "e"], values)
    strings, integers, floats = jitonnx.InferenceSession(model, options).run(None, {})
    assert strings.tolist() == ["c", "d"] and integers.tolist() == [-8, 7, 0] and floats.tolist() == [5, 6]


def test_lists_of_other_lengths() -> None:
    options = jitonnx.SessionOptions()
    with pytest.raises(RuntimeError, match="2 names, 1 buffers and 1 lengths"):
        options.add_external_initializers_from_files_in_memory(["a", "b"], [b"x"], [1])
    with pytest.raises(RuntimeError, match="2 names were given for 1 initializers"):
        options.add_external_initializers(["a", "b"], [WEIGHTS])
    with pytest.raises(jitonnx.Error, match="has 1 bytes in memory, not 2"):
        options.add_external_initializers_from_files_in_memory(["a"], [b"x"], [2])


def test_a_pickled_session_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(external())
    session = jitonnx.InferenceSession(str(path), in_memory(jitonnx, ["w.bin"], [DATA]))
    again = pickle.loads(pickle.dumps(session))
    assert np.array_equal(again.run(None, FEED)[0], WEIGHTS)


def denoting(axis: int, shape: str, name: str = "BATCH") -> bytes:
    model = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 18]> g (float[{shape}] x) => (float[{shape}] y) {{ y = Neg(x) }}'
    )
    model.graph.input[0].type.tensor_type.shape.dim[axis].denotation = name
    return bytes(model.SerializeToString())


def shapes(ort: ModuleType, axis: int, shape: str, denotation: str = "BATCH") -> Any:
    options = ort.SessionOptions()
    options.add_free_dimension_override_by_denotation(denotation, 3)
    session = ort.InferenceSession(denoting(axis, shape), options, providers=["CPUExecutionProvider"])
    return [session.get_inputs()[0].shape, session.get_outputs()[0].shape]


DENOTED = {
    "one": (lambda ort: shapes(ort, 0, "N,M"), ""),
    "one of two of a name": (lambda ort: shapes(ort, 0, "N,N")[0], ""),
    "in small letters": (lambda ort: shapes(ort, 0, "N,M", "batch"), ""),
    "none": (lambda ort: shapes(ort, 0, "N,M", "HEIGHT"), ""),
    "the same number": (lambda ort: shapes(ort, 0, "3,M"), ""),
    "another number": (lambda ort: shapes(ort, 0, "2,M"), "Invalid free dimension override."),
}


@pytest.mark.parametrize("name", DENOTED)
def test_denotations(name: str) -> None:
    assert_alike(*DENOTED[name])


def test_the_cache_tells_denotations_apart(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(denoting(0, "N,M"))
    told = []
    for size in (None, 3, 4, None):
        options = jitonnx.SessionOptions()
        if size is not None:
            options.add_free_dimension_override_by_denotation("BATCH", size)
        with jitonnx.InferenceSession(str(path), options) as session:
            session.run(None, {"x": np.ones((size or 7, 2), np.float32)})
            told.append(session.get_inputs()[0].shape[0])
    assert told == ["N", 3, 4, "N"]
    with pytest.raises(jitonnx.Error, match="at least 0"):
        jitonnx.SessionOptions().add_free_dimension_override_by_denotation("BATCH", -1)


TEXTS = {
    "NaN": np.array(["a", np.nan], object),
    "None": np.array(["a", None], object),
    "numbers": np.array([1, 2.5, True, np.float32(1.5), np.int64(3), -0.0, 1e20, float("inf")], object),
    "bytes as they are": np.array([b"ab", b"cde"], "V4"),
    "a list": ["a", None, 1.5],
}


@pytest.mark.parametrize("name", TEXTS)
def test_strings(name: str) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> g (string[N] x) => (string[N] y) { y = Identity(x) }'
    ).SerializeToString()
    theirs, ours = (
        package.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": TEXTS[name]})[0].tolist()
        for package in (onnxruntime, jitonnx)
    )
    assert ours == theirs


@pytest.mark.parametrize("package", [onnxruntime, jitonnx])
def test_providers_that_nobody_knows_and_inputs_that_are_missing(package: ModuleType) -> None:
    session = package.InferenceSession(denoting(0, "N"), providers=["CPUExecutionProvider"])
    with pytest.raises(ValueError, match="Required inputs"):
        session.run(None, {})
    with pytest.warns(UserWarning), pytest.raises(RuntimeError, match="Unknown Provider Type: InvalidProvider"):
        session.set_providers(["InvalidProvider"])


THREADS = """
import sys, {package} as ort, numpy as np
options = ort.SessionOptions()
options.use_per_session_threads = False
def run():
    session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(x=np.ones(2, np.float32)))[0].tolist()
try:
    run()
except RuntimeError as error:
    assert "not configured to use per session threadpools" in str(error)
    print("refused", end=" ")
ort.set_global_thread_pool_sizes(2, 1)
print(run())
"""


@pytest.mark.parametrize("package", ["jitonnx"])
def test_threads_of_the_process(package: str, tmp_path: Path) -> None:
    """onnxruntime never lets a process have them whose first session was refused; else it is the same."""
    path = tmp_path / "m.onnx"
    path.write_bytes(denoting(0, "N"))
    command = [sys.executable, "-c", THREADS.format(package=package), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "refused [-1.0, -1.0]\n"

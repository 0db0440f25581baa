"""A library of custom operators in C, and what of it goes wrong."""

import copy
import pickle
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from jitonnx import InferenceSession, SessionOptions
from jitonnx.api.environment import INTERFACE_VERSION
from jitonnx.c_api import functions
from jitonnx.c_api.errors import Refused
from jitonnx.c_api.handles import write_bytes
from jitonnx.errors import Fail, InvalidArgument, NotImplemented

COMPILER = shutil.which("cc")
SOURCE = Path(__file__).parent / "library.c"
DOMAIN = "test.library"
X = np.arange(6, dtype=np.float32).reshape(2, 3)

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler")


def compiled(source: str, path: Path) -> str:
    """The path of a library of C."""
    path.with_suffix(".c").write_text(source)
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", str(path), str(path.with_suffix(".c"))], check=True)
    return str(path)


def operators(version: int, path: Path) -> str:
    places = "\n".join(f"#define {name} {place}" for place, name in enumerate(functions.NAMES))
    return compiled(f"#define VERSION {version}\n{places}\n{SOURCE.read_text()}", path)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> str:
    return operators(functions.VERSION, tmp_path_factory.mktemp("library") / "operators.so")


def model(nodes: Any, inputs: dict[str, Any], outputs: dict[str, Any]) -> bytes:
    """A model; inputs and outputs are element types with shapes."""
    declared = [[helper.make_tensor_value_info(name, *kind) for name, kind in one.items()] for one in (inputs, outputs)]
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(DOMAIN, 1)]
    made = helper.make_model(helper.make_graph(nodes, "g", *declared), opset_imports=imports, ir_version=10)
    return made.SerializeToString()


def options_with(library: str) -> SessionOptions:
    options = SessionOptions()
    options.register_custom_ops_library(library)
    return options


def session(library: str, *arguments: Any) -> InferenceSession:
    return InferenceSession(model(*arguments), options_with(library))


def node(name: str, inputs: list[str], outputs: list[str], **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(name, inputs, outputs, name=f"a {name}", domain=DOMAIN, **attributes)


FLOAT, OPEN = TensorProto.FLOAT, (TensorProto.FLOAT, [None, None])


def test_an_old_kernel_between_native_ones(library: str) -> None:
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        node("Scaled", ["a"], ["b"], factor=3.0),
        helper.make_node("Scaled", ["b"], ["c"], domain=DOMAIN),
        helper.make_node("Neg", ["c"], ["y"]),
    ]
    made = session(library, nodes, {"x": OPEN}, {"y": OPEN})
    for shape in ((2, 3), (0, 3), (5, 1), (2, 3)):
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        np.testing.assert_allclose(made.run(None, {"x": x})[0], -12 * x, rtol=1e-6)


def test_a_rank_that_a_run_shows(library: str) -> None:
    nodes = [
        node("Shaped", ["x", "shape"], ["a"]),
        helper.make_node("Exp", ["a"], ["b"]),
        helper.make_node("ReduceSum", ["b"], ["c"], keepdims=0),
        helper.make_node("Sub", ["b", "c"], ["y"]),
    ]
    made = session(library, nodes, {"x": OPEN, "shape": (TensorProto.INT64, [None])}, {"y": (FLOAT, None)})
    for shape in ([3, 2], [6], [1, 6], [3, 1, 2], [], [2, 3], [1, 2, 3]):
        x = X if shape else X[:1, :1]
        (y,) = made.run(None, {"x": x, "shape": np.array(shape, np.int64)})
        expected = np.exp(x.reshape(shape))
        np.testing.assert_allclose(y, expected - expected.sum(), rtol=1e-5)


def test_inputs_of_any_number_and_type(library: str) -> None:
    kinds = {"x": OPEN, "s": (TensorProto.STRING, [1]), "i": (TensorProto.INT64, []), "b": (TensorProto.BFLOAT16, [1])}
    made = session(library, [node("Kinds", ["x", "s", "", "i", "b"], ["y"])], kinds, {"y": (TensorProto.INT64, None)})
    feeds = {
        "x": X,
        "s": np.array(["a"], object),
        "i": np.array(1),
        "b": np.zeros(1, onnx.helper.tensor_dtype_to_np_dtype(16)),
    }
    assert made.run(None, feeds)[0].tolist() == [1, 8, 0, 7, 16]
    assert made.get_inputs()[2].shape == []
    feeds["i"] = np.zeros((2, 2), np.int64)  # as onnxruntime: a scalar of such a model is a tensor of any shape
    assert made.run(None, feeds)[0].tolist() == [1, 8, 0, 7, 16]


def test_a_kernel_that_refuses_an_input(library: str) -> None:
    kinds = {"x": OPEN, "shape": (TensorProto.INT64, [None])}
    made = session(library, [node("Shaped", ["x", "shape"], ["y"])], kinds, {"y": (FLOAT, None)})
    with pytest.raises(InvalidArgument, match=r"running Shaped node. Name:'a Shaped' Status Message: the sizes do not"):
        made.run(None, {"x": X, "shape": np.array([7], np.int64)})
    with pytest.raises(InvalidArgument, match=r"sizes \[-2, -3\] is asked for"):
        made.run(None, {"x": X, "shape": np.array([-2, -3], np.int64)})


def test_a_kernel_that_is_not_made(library: str) -> None:
    with pytest.raises(InvalidArgument, match=r"Shaped node 'a Shaped': the attribute refused .*operators.so"):
        session(library, [node("Shaped", ["x", "s"], ["y"], refused=1.0)], {"x": OPEN, "s": (TensorProto.INT64, [1])},
                {"y": (FLOAT, None)})  # fmt: skip


def test_functions_that_are_not_here_and_wrong_pointers(library: str) -> None:
    made = session(library, [node("Absent", ["x"], ["y"])], {"x": OPEN}, {"y": (FLOAT, None)})
    with pytest.raises(NotImplemented, match=r"Absent node.*the function CreateSession of onnxruntime's C interface"):
        made.run(None, {"x": X})
    made = session(library, [node("Wild", ["x"], ["y"])], {"x": OPEN}, {"y": (FLOAT, None)})
    with pytest.raises(InvalidArgument, match=r"Wild node.*0x3039, which is none.* for an OrtKernelContext"):
        made.run(None, {"x": X})


def test_null_pointers_for_bytes() -> None:
    with pytest.raises(Refused, match="null pointer was given for 2 bytes"):
        write_bytes(None, b"ab")
    write_bytes(None, b"")


def test_types_that_no_operator_takes(library: str) -> None:
    with pytest.raises(Exception, match=r"tensor\(int64\).*Scaled"):
        session(library, [node("Scaled", ["x"], ["y"])], {"x": (TensorProto.INT64, [2])}, {"y": (FLOAT, None)})


def test_what_is_no_library(tmp_path: Path) -> None:
    with pytest.raises(Fail, match=r"Failed to load library .*missing.so"):
        options_with(str(tmp_path / "missing.so"))
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(Fail, match=r"Failed to load library .*text.so"):
        options_with(str(tmp_path / "text.so"))
    with pytest.raises(Fail, match="Failed to get symbol RegisterCustomOps"):
        options_with(compiled("int other(void) { return 1; }", tmp_path / "other.so"))
    linked = "void* OrtGetApiBase(void); void* RegisterCustomOps(void* a, void* b) { return OrtGetApiBase(); }"
    with pytest.raises(Fail, match="linked to onnxruntime itself"):
        options_with(compiled(f"{linked} void* const used = OrtGetApiBase;", tmp_path / "linked.so"))


def test_a_library_for_a_newer_onnxruntime(tmp_path: Path) -> None:
    with pytest.raises(Fail, match=rf"asks for version 99 .*and {functions.VERSION} is the newest here; the inter"):
        options_with(operators(99, tmp_path / "newer.so"))


def test_options_are_copied_and_pickled(library: str) -> None:
    given = model([node("Scaled", ["x"], ["y"])], {"x": OPEN}, {"y": OPEN})
    for options in (copy.copy(options_with(library)), pickle.loads(pickle.dumps(options_with(library)))):
        made = pickle.loads(pickle.dumps(InferenceSession(given, options)))
        np.testing.assert_array_equal(made.run(None, {"x": X})[0], 2 * X)
    with pytest.raises(ValueError, match="has an operator Scaled already"):
        options.register_custom_ops_library(library)


def test_runs_from_several_threads(library: str) -> None:
    made = session(library, [node("Scaled", ["x"], ["y"])], {"x": OPEN}, {"y": OPEN})

    def run(rows: int) -> bool:
        x = np.full((rows, 5), rows, np.float32)
        return all(np.array_equal(made.run(None, {"x": x})[0], 2 * x) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(8)))


def test_a_compiled_model_with_them_is_not_stored(library: str, tmp_path: Path) -> None:
    made = session(library, [node("Scaled", ["x"], ["y"])], {"x": OPEN}, {"y": OPEN})
    with pytest.raises(Fail, match="Scaled of node 'a Scaled' is none of jitonnx's own"):
        made.save(tmp_path / "model.jitonnx", shapes={"x": (2, 3)})


def test_a_process_ends_as_it_should(library: str, tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(model([node("Scaled", ["x"], ["y"])], {"x": OPEN}, {"y": OPEN}))
    text = (
        "import sys, jitonnx, numpy as np\noptions = jitonnx.SessionOptions()\n"
        "assert 'jitonnx.c_api' not in sys.modules\n"
        "options.register_custom_ops_library(sys.argv[1])\nsession = jitonnx.InferenceSession(sys.argv[2], options)\n"
        "print(session.run(None, {'x': np.ones((1, 1), np.float32)}))\n"
    )
    command = [sys.executable, "-c", text, library, str(tmp_path / "model.onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2." in done.stdout and not done.stderr


def test_the_table_is_that_of_the_interface() -> None:
    assert len(set(functions.NAMES)) == len(functions.NAMES)
    assert INTERFACE_VERSION.split(".")[1] == str(functions.VERSION)
    places = {"ReleaseCustomOpDomain": 101, "GetSessionConfigEntry": 238, "KernelContext_GetResource": 265}
    for name, place in places.items():  # as onnxruntime's own sources hold them
        assert functions.NAMES.index(name) == place

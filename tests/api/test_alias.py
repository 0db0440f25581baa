"""jitonnx in the place of onnxruntime: the function, the command, and processes that come of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import jitonnx
from jitonnx.compat.alias import FOLDER
from tests.session.models import relu_add

ROOT = Path(jitonnx.__file__).parents[1]

APP = """
import importlib.metadata, importlib.util, multiprocessing, subprocess, sys
import onnxruntime, onnxruntime as ort
import onnxruntime.capi.onnxruntime_pybind11_state as state
from onnxruntime.capi import _pybind_state as C
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument

def told():
    import onnxruntime
    from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession
    return InferenceSession.__module__, onnxruntime.__version__, onnxruntime.InferenceSession is InferenceSession

if __name__ == "__main__":
    import jitonnx
    from jitonnx.capi import onnxruntime_pybind11_state as ours
    assert onnxruntime.InferenceSession is jitonnx.InferenceSession and C.OrtValue is jitonnx.OrtValue
    assert state is ours and state.Fail is jitonnx.errors.Fail and ours.__spec__.name == ours.__name__
    assert onnxruntime.capi.onnxruntime_pybind11_state.Fail is Fail and onnxruntime.capi._pybind_state is C
    assert importlib.metadata.version("onnxruntime") == ort.__version__ == ort.get_version_string()
    assert C.get_version_string() == ort.__version__ and importlib.util.find_spec("onnxruntime").origin == ort.__file__
    assert jitonnx.__version__ != ort.__version__ and ort.get_available_providers() == ["CPUExecutionProvider"]
    try:
        import onnxruntime.training
    except ModuleNotFoundError as error:
        assert error.name == "onnxruntime.training" and "use onnxruntime itself for it" in str(error)
    else:
        raise AssertionError("training")
    try:
        ort.nothing
    except AttributeError:
        pass
    session = ort.InferenceSession(MODEL, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    print(session.run(None, {"x": [[1, 2, 3]]})[0].tolist(), sys.argv[1:])
    for method in ("spawn", "forkserver", "fork"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(*pool.apply(told))
    command = "import onnxruntime.capi, sys; print(onnxruntime.InferenceSession.__module__)"
    print(subprocess.run([sys.executable, "-W", "ignore", "-c", command], stdout=subprocess.PIPE, text=True).stdout)
"""

CHILDREN = "jitonnx.api.session 1.32.0 True\n" * 3


def script(folder: Path, first: str = "") -> Path:
    """A program that asks what onnxruntime is, and asks so in processes of its own."""
    place = folder / "app.py"
    text = f"{first}\n{APP}".replace("MODEL", repr(str(folder / "model.onnx")))
    place.write_text(text, encoding="utf-8")
    (folder / "model.onnx").write_bytes(relu_add())
    return place


def python(*words: str | Path, **variables: str) -> str:
    """What a Python process prints; jitonnx is found, and otherwise installed or not."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *map(str, words)],
        env={**os.environ, "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command(tmp_path: Path) -> None:
    out = python("-m", "jitonnx", "exec", script(tmp_path), "-m", "--help", "--", "x")
    assert out == f"[[2.0, 4.0, 6.0]] ['-m', '--help', '--', 'x']\n{CHILDREN}jitonnx.api.session\n\n"


def test_the_function(tmp_path: Path) -> None:
    """What multiprocessing starts follows; other processes do not."""
    main = "if __name__ == '__main__':\n    import jitonnx\n    jitonnx.install_as_onnxruntime()\n"
    main += "    jitonnx.install_as_onnxruntime()"
    out = python(script(tmp_path, main))
    assert out.endswith("onnxruntime.capi.onnxruntime_inference_collection\n\n")
    assert out.removesuffix("onnxruntime.capi.onnxruntime_inference_collection\n\n").endswith(CHILDREN)


def test_ways_to_name_a_program(tmp_path: Path) -> None:
    code = "import onnxruntime, sys; print(onnxruntime.__author__, sys.argv)"
    assert python("-m", "jitonnx", "exec", "-c", code, "x") == "jitonnx ['-c', 'x']\n"
    (tmp_path / "program.py").write_text(code)
    named = python("-m", "jitonnx", "exec", "-m", "program", "x", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert named.startswith("jitonnx [") and named.endswith("program.py', 'x']\n")
    assert python("-m", "jitonnx", "exec", sys.executable, "-c", code) == "jitonnx ['-c']\n"
    assert python("-m", "jitonnx", "exec").startswith(f"PYTHONPATH={FOLDER}{os.pathsep}")
    assert "usage: jitonnx exec" in python("-m", "jitonnx", "exec", "--help")
    done = subprocess.run(
        [sys.executable, "-m", "jitonnx", "exec", "no-such-thing"], capture_output=True, text=True, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (1, "jitonnx: no-such-thing cannot be run: No such file or directory\n")


def test_the_variable_alone() -> None:
    """The folder in front of the path is all; jitonnx itself is found beside it where it is not installed."""
    code = "import onnxruntime.capi._pybind_state as C; print(C.OrtValue.__module__)"
    found = os.pathsep.join([FOLDER, str(Path(pytest.__file__).parents[1])])
    assert python("-c", code, PYTHONPATH=found) == "jitonnx.api.values\n"
    assert (
        python(
            "-c", "import sys, jitonnx; print('onnxruntime' in sys.modules)", PYTHONPATH=found + f"{os.pathsep}{ROOT}"
        )
        == "False\n"
    )


def test_tools_are_lent(tmp_path: Path) -> None:
    """An installed onnxruntime lends what is Python alone, and gets jitonnx's sessions."""
    pytest.importorskip("onnxruntime")
    code = (
        "from onnxruntime.quantization import quantize_dynamic, calibrate; import onnxruntime, sys\n"
        "from onnxruntime.tools import onnx_model_utils; from onnxruntime.datasets import get_example\n"
        "print(calibrate.onnxruntime.InferenceSession.__module__, onnxruntime.__version__, get_example('mul_1.onnx'))"
    )
    out = python("-c", f"import jitonnx; jitonnx.install_as_onnxruntime()\n{code}")
    assert out.startswith("jitonnx.api.session 1.32.0 ") and out.endswith("mul_1.onnx\n")
    lacking = "try:\n    import onnxruntime.quantization\nexcept ModuleNotFoundError as error:\n    print(error)"
    found = os.pathsep.join([str(ROOT), str(alone(tmp_path))])
    said = python("-S", "-c", f"import jitonnx; jitonnx.install_as_onnxruntime()\n{lacking}", PYTHONPATH=found)
    assert "install onnxruntime too, which lends it" in said


def alone(folder: Path) -> Path:
    """A folder with NumPy and nothing else of what is installed."""
    import numpy

    (folder / "numpy").symlink_to(Path(numpy.__file__).parent)
    return folder


def test_too_late() -> None:
    pytest.importorskip("onnxruntime")
    with pytest.raises(RuntimeError, match="onnxruntime is imported already"):
        jitonnx.install_as_onnxruntime()
    assert FOLDER not in sys.path

"""What jitonnx needs to be installed, and what of it a start imports."""

import os
import subprocess
import sys
from pathlib import Path

_SCRIPT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("ml_dtypes", "onnx", "onnxruntime", "numba", "PIL", "scipy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from jitonnx.tools.cli import main

sys.exit(main(["demo"]))
"""


def test_the_demo_needs_no_extras() -> None:
    """Nor Numba, which is for operators of users."""
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


_START = """
import sys

def imported(what):
    found = sorted(name for name in sys.modules if name.partition(".")[0] == "numba")
    assert not found, f"{what} imports {found}"

import jitonnx
imported("import jitonnx")
from jitonnx.tools import demo
images, _ = demo.test_images()
feeds = {"image": images[:3]}
session = jitonnx.InferenceSession(demo.model_path())
(expected,) = session.run(None, feeds)
imported(f"a {sys.argv[1]} start")
if sys.argv[1] == "cold":
    session.save(sys.argv[2], {"image": images[:3].shape})
(got,) = jitonnx.load(sys.argv[2]).run(None, feeds)
imported("an artifact's start")
assert (got == expected).all()
import jitonnx.custom
imported("jitonnx.custom")
"""


def test_a_start_imports_no_module_of_numba(tmp_path: Path) -> None:
    for start in ("cold", "warm"):
        subprocess.run(
            [sys.executable, "-c", _START, start, tmp_path / "model.jitonnx"],
            env={**os.environ, "JITONNX_CACHE_DIR": str(tmp_path / "cache")},
            timeout=120,
            check=True,
        )

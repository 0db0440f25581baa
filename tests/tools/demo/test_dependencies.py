"""What jitonnx needs to be installed: the demo runs without the packages of extras and of development."""

import subprocess
import sys

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


def test_the_demo_needs_none_of_them() -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

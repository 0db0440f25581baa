"""Starts with a model file: from a filled kernel cache, from one that many processes fill, and without one."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import jitonnx
from jitonnx.runtime.artifact import ArtifactError, open_artifact
from jitonnx.support.kernel_cache import KernelCache
from jitonnx.target.cpu import described, description_key
from tests.artifact.models import images, small_cnn

ROOT = Path(__file__).parents[2]
IS_LINKED_AHEAD = sys.platform == "linux" and os.uname().machine == "x86_64"

_SCRIPT = """
import sys
import numpy as np
import jitonnx
options = jitonnx.SessionOptions()
options.intra_op_num_threads = 1
session = jitonnx.InferenceSession(sys.argv[1], options)
with np.load(sys.argv[2]) as stored:
    np.save(sys.argv[3], session.run(None, dict(stored))[0])
print(*sys.modules)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model file with inputs beside it."""
    path = tmp_path / "cnn.onnx"
    path.write_bytes(small_cnn())
    np.savez(tmp_path / "feeds.npz", **images())
    return path


def start(model: Path, number: int = 0, **environment: str) -> subprocess.Popen[str]:
    """A process that runs the model once, with a kernel cache of this test."""
    folder = model.parent
    arguments = [sys.executable, "-c", _SCRIPT, model, folder / "feeds.npz", folder / f"{number}.npy"]
    settings = {"PYTHONPATH": str(ROOT), "JITONNX_CACHE_DIR": str(folder / "cache"), **environment}
    return subprocess.Popen(
        list(map(str, arguments)),
        cwd=ROOT,
        env={name: value for name, value in {**os.environ, **settings}.items() if value},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[set[str], str]:
    """The modules that a process imported, and what it wrote to standard error. It has to have ended well."""
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return set(output.split()), errors


def test_warm_start_imports_no_compiler(model: Path) -> None:
    """A second process takes all code from the cache: neither LLVM nor our code generation is imported."""
    assert "jitonnx.codegen.build" in finish(start(model))[0]
    modules, _ = finish(start(model, 1))
    unwanted = {"jitonnx.codegen.build", "jitonnx.codegen.region", "jitonnx.runtime.native.walk", "logging"}
    if IS_LINKED_AHEAD:
        unwanted |= {"llvmlite.binding", "llvmlite.ir", "jitonnx.runtime.linker"}
    assert not unwanted & modules
    assert np.array_equal(np.load(model.parent / "0.npy"), np.load(model.parent / "1.npy"))


@pytest.mark.skipif(not IS_LINKED_AHEAD, reason="the loader of other systems imports LLVM")
def test_warm_start_with_features_of_next_year(model: Path) -> None:
    """Features that LLVM lists and we do not know cost a start with a filled cache nothing."""
    known = described()
    cache = KernelCache(model.parent / "cache")
    cache.put(description_key(), f"{known.name}\n{known.features},+of-next-year,-of-the-year-after".encode())
    assert {"jitonnx.codegen.build", "llvmlite.binding"} <= finish(start(model))[0]
    (kept,) = cache.directory.glob("*.model")
    with pytest.raises(ArtifactError, match="this one lacks: of-next-year"):
        open_artifact(kept)  # this process's own description of the CPU has no such feature
    for number in (1, 2):  # from the whole model, and from its kernels
        assert not {"jitonnx.codegen.build", "llvmlite.binding", "llvmlite.ir"} & finish(start(model, number))[0]
        kept.unlink()
    assert np.array_equal(np.load(model.parent / "0.npy"), np.load(model.parent / "1.npy"))


def test_damaged_entries_are_made_again(model: Path) -> None:
    finish(start(model))
    for number, damage in enumerate(("empty", "half", "changed"), 1):
        entries = [*(model.parent / "cache").glob("*.kernel"), *(model.parent / "cache").glob("*.model")]
        assert entries
        for path in entries:
            content = path.read_bytes()
            middle = len(content) // 2 if path.suffix == ".kernel" else 200  # weights are not compared with checksums
            path.write_bytes(
                {
                    "empty": b"",
                    "half": content[:middle],
                    "changed": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
                }[damage]
            )
        assert "jitonnx.codegen.build" in finish(start(model, number))[0], damage
        assert np.array_equal(np.load(model.parent / "0.npy"), np.load(model.parent / f"{number}.npy")), damage
    assert "jitonnx.codegen.build" not in finish(start(model, 4))[0]
    assert np.array_equal(np.load(model.parent / "0.npy"), np.load(model.parent / "4.npy"))


@pytest.mark.slow
def test_sixteen_processes_with_one_empty_cache_and_one_of_them_killed(model: Path) -> None:
    processes = [start(model, number) for number in range(16)]
    deadline = time.monotonic() + 100
    while not list((model.parent / "cache").glob("*.kernel")) and time.monotonic() < deadline:
        time.sleep(0.01)
    processes[7].kill()
    for number, process in enumerate(processes):
        if number != 7:
            finish(process)
    processes[7].communicate(timeout=60)
    expected = jitonnx.InferenceSession(model).run(None, images())[0]
    for number in set(range(16)) - {7}:
        assert np.array_equal(np.load(model.parent / f"{number}.npy"), expected)
    modules, errors = finish(start(model, 16))
    assert "jitonnx.codegen.build" not in modules and not errors
    assert KernelCache(model.parent / "cache").info().problem is None


@pytest.mark.parametrize("where", ["missing", "a file", "not private"])
def test_without_a_folder_for_the_cache(model: Path, where: str) -> None:
    """Kernels are then kept in memory, with one warning that says what to do."""
    home = model.parent / "home"
    if where == "a file":
        home.write_text("")
    elif where == "not private":
        (home / ".cache" / "jitonnx").mkdir(parents=True)
        (home / ".cache" / "jitonnx").chmod(0o777)
    else:
        home = Path("/proc/nowhere")  # where nobody can make a folder
    _, errors = finish(start(model, JITONNX_CACHE_DIR="", XDG_CACHE_HOME="", HOME=str(home)))
    assert errors.count("CacheWarning") == 1 and "Set JITONNX_CACHE_DIR to a folder" in errors
    expected = jitonnx.InferenceSession(model).run(None, images())[0]
    assert np.array_equal(np.load(model.parent / "0.npy"), expected)

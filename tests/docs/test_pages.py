"""The code blocks of README and of the site's Start and Guides run, in the order in which they stand.

A page's Python is one program. Commands are given to the command line in this process. docs/operators.md has excerpts
of code, which tests/ops/test_documentation.py compares. Left out of commands: `pip install`, the demo and what
`jitonnx exec` starts, which `.ci/run` and other tests run."""

import contextlib
import io
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openai
import pytest
from onnx import TensorProto, helper, numpy_helper

import jitonnx
import jitonnx.genai
from bench.decoder import decoder
from docs.examples.train_digits import training_model
from jitonnx.tools.cli import main
from jitonnx.tools.demo import model_path
from tests.genai.encoders import write_encoder
from tests.genai.folders import SHAPE, write_folder
from tests.genai.test_speech import tone, wav
from tests.genai.vision_folders import picture, write_vision_folder
from tests.genai.whisper import write_builders
from tests.serve.test_serve import NAME as SERVED
from tests.serve.test_serve import served

ROOT = Path(__file__).resolve().parents[2]
Names = dict[str, Any]
PLACEHOLDERS = {"MODEL": "model.onnx", "FOLDER": "package"}
LEFT_OUT = ("chat", "demo", "exec", "serve")


def blocks(page: str) -> list[tuple[str, str]]:
    """Language and text of each block of code; not those that need clusters, whose calls tests/engines makes."""
    text = (ROOT / page).read_text(encoding="utf-8").partition("\n## On a cluster\n")[0]
    return re.findall(r"^```(python|sh)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def write_network(path: str, width: int, rows: int | str, out: int = 4) -> None:
    """A linear layer and ReLU, float32 `x` [rows, width] to `y` [rows, out]."""
    weights = np.random.default_rng(0).standard_normal((width, out), np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    write(path, nodes, ("x", TensorProto.FLOAT, [rows, width]), ("y", TensorProto.FLOAT, [rows, out]), w=weights)


def write(path: str, nodes: list[Any], given: tuple[Any, ...], made: tuple[Any, ...], **weights: np.ndarray) -> None:
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info(*given)],
        [helper.make_tensor_value_info(*made)],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)


def digits() -> Names:
    Path("model.onnx").write_bytes(model_path().read_bytes())
    return {}


def ids() -> Names:
    given, made = (("ids", TensorProto.INT64, ["batch", "seq"]), ("y", TensorProto.FLOAT, ["batch", "seq", 8]))
    write("model.onnx", [helper.make_node("Gather", ["w", "ids"], ["y"])], given, made, w=np.ones((50, 8), np.float32))
    return {"ids": np.zeros((1, 7), np.int64)}


def rows() -> Names:
    write_network("model.onnx", 64, "batch")
    return {}


def quantised() -> Names:
    write_network("float.onnx", 64, "n")
    return {}


def table() -> Names:
    pyarrow = pytest.importorskip("pyarrow")
    write_network("model.onnx", 2, "n")
    made = pyarrow.table({"x": pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.ones(6, np.float32)), 2)})
    __import__("pyarrow.parquet").parquet.write_table(made, "rows.parquet")
    session = jitonnx.InferenceSession("model.onnx")
    return {"table": made, "session": session, "feeds": [{"x": np.ones((1, 2), np.float32)}]}


def numba_loop() -> Names:
    write_network("step.onnx", 16, 1, out=16)
    write_network("model.onnx", 16, "n")
    return {"maximum": np.maximum, "x": np.ones((3, 16), np.float32)}


def training() -> Names:
    Path("training.onnx").write_bytes(training_model().SerializeToString())
    random = np.random.default_rng(0)
    batch = (random.random((64, 1, 8, 8), np.float32), random.integers(0, 10, 64))
    return {"batches": [batch], "rate": np.float32(0.01)}


def image() -> Names:
    nodes = [helper.make_node("GlobalAveragePool", ["x"], ["y"])]
    shapes = ([1, 3, 224, 224], [1, 3, 1, 1])
    write("resnet50.onnx", nodes, ("x", TensorProto.FLOAT, shapes[0]), ("y", TensorProto.FLOAT, shapes[1]))
    return {}


def debugging() -> Names:
    write_network("model.onnx", 16, 3)
    np.savez("feeds.npz", x=np.ones((3, 16), np.float32))
    return {}


PREPARED: dict[str, Callable[[], Names]] = {
    "README.md": image,
    "docs/index.md": digits,
    "docs/onnxruntime.md": digits,
    "docs/starting.md": digits,
    "docs/artifacts.md": ids,
    "docs/tuning.md": ids,
    "docs/quantized.md": quantised,
    "docs/batch.md": table,
    "docs/deploying.md": rows,
    "docs/numba.md": numba_loop,
    "docs/training.md": training,
    "docs/checker.md": digits,
    "docs/versioning.md": dict,
    "docs/troubleshooting.md": digits,
    "docs/debugging.md": debugging,
}
"""What a page takes for granted: files in the current folder, and names."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("page", PREPARED)
def test_blocks_run(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jitonnx, "install_as_onnxruntime", lambda: None)  # it would hold for the tests that follow
    run_all(page, PREPARED[page]())


def test_the_first_hour(folder: Path) -> None:
    """With the block of PyTorch where that is installed, else with a model of the same signature in its place."""
    found = blocks("docs/start.md")
    with contextlib.suppress(ModuleNotFoundError):
        import torch  # noqa: F401

        return run_all("docs/start.md", {}, found)
    (exported,) = [block for block in found if "torch.onnx.export" in block[1]]
    written = ("python", 'write_network("model.onnx", 16, "batch")\nsession = jitonnx.InferenceSession("model.onnx")')
    replaced = [written if block == exported else block for block in found]
    return run_all("docs/start.md", {"write_network": write_network}, replaced)


def test_language_models(folder: Path) -> None:
    write_folder(folder / "folder", decoder(SHAPE))
    write_encoder(folder / "embedder")
    write_encoder(folder / "reranker", classes=1)
    write_builders(folder / "whisper")
    (folder / "speech.wav").write_bytes(wav(tone(2.0)))
    write_vision_folder(folder / "gemma-3-vision", "gemma3")
    write_vision_folder(folder / "phi-3-vision", "phi3v")
    (folder / "photo.jpg").write_bytes(picture(40, 30, "JPEG"))
    with served(jitonnx.genai.load("folder")) as address:
        page = [
            (language, text.replace("http://127.0.0.1:8000", address).replace('"FOLDER"', f'"{SERVED}"'))
            for language, text in blocks("docs/genai.md")
        ]
        page = [(language, text.replace("max_length=4096", "max_length=2000")) for language, text in page]
        run_all("docs/genai.md", {"prompts": ["hello", "world of"], "openai": openai}, page)


def run_all(page: str, names: Names, found: list[tuple[str, str]] | None = None) -> None:
    names = {"__name__": "example", "jitonnx": jitonnx, "np": np} | names
    for language, text in blocks(page) if found is None else found:
        if language == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(text, page, "exec"), names)
        else:
            for line in text.splitlines():
                run_command(line)


def run_command(line: str) -> None:
    """A line of shell: commands of jitonnx, joined by `&&`, with what they print in a file where the line says so."""
    for command in re.sub(r"\s+#.*|\[[^]]*\]", "", line).split("&&"):
        words, _, output = command.partition(">")
        arguments = [PLACEHOLDERS.get(word, word) for word in shlex.split(words)]
        if arguments[:1] != ["jitonnx"] or arguments[1] in LEFT_OUT:
            assert arguments[0] in ("pip", "jitonnx", "pytest"), line
            continue
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            shorter = ["--seconds", "0.2"] if arguments[1] == "bench" else []
            assert main(arguments[1:] + shorter) == 0, line
        if output:
            Path(output.strip()).write_text(printed.getvalue(), encoding="utf-8")

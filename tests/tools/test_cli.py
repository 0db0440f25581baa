"""The commands, each called as a user calls it."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import jitonnx
import jitonnx.tools.demo
from bench.loop_models import smoothing
from jitonnx.support import kernel_cache
from jitonnx.support.artifact_magic import MAGIC
from jitonnx.tools.cli import main
from tests.session import models
from tests.session.models import model, node, tensor


@pytest.fixture
def relu_add(tmp_path: Path) -> str:
    path = tmp_path / "relu_add.onnx"
    path.write_bytes(models.relu_add())
    return str(path)


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command prints; it must succeed."""
    status = main(arguments)
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


def test_demo(capsys: pytest.CaptureFixture[str]) -> None:
    out = call(capsys, "demo")
    accuracy = re.search(r"accuracy: \d+ of 360 test images right \((\d+\.\d) %\)", out)
    assert accuracy and float(accuracy[1]) > 98
    assert "predicted 7" in out and "time of a run of 1 image: " in out
    assert "digits.onnx: 18 nodes became" in out and "stem.conv" in out


def test_demo_as_a_script() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "jitonnx", "demo"], capture_output=True, text=True, timeout=300, env={**os.environ}
    )
    assert done.returncode == 0, done.stderr
    assert "test images right" in done.stdout


def test_run(capsys: pytest.CaptureFixture[str], relu_add: str, tmp_path: Path) -> None:
    output = tmp_path / "outs.npz"
    out = call(capsys, "run", relu_add, "--shape", "x=4,3", "--output", str(output), "--threads", "1")
    assert re.search(r"input +x +float32 +\[4, 3\]", out) and re.search(r"output +y +float32 +\[4, 3\]", out)
    assert "a run on 1 thread(s)" in out
    with np.load(output) as stored:
        assert stored["y"].shape == (4, 3)


def test_run_on_given_inputs(capsys: pytest.CaptureFixture[str], relu_add: str, tmp_path: Path) -> None:
    x = np.array([[-1, 2, np.nan]], np.float32)
    np.savez(tmp_path / "feeds.npz", x=x)
    output = tmp_path / "outs.npz"
    out = call(capsys, "run", relu_add, "--input", str(tmp_path / "feeds.npz"), "--output", str(output))
    assert re.search(r"output +y .* 1 +3 +5 +1$|output +y .* 1$", out, re.MULTILINE)
    with np.load(output) as stored:
        np.testing.assert_array_equal(stored["y"], models.relu_add_result(x))


@pytest.mark.filterwarnings("ignore:inputs disagree")
def test_shapes_are_those_that_a_session_takes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Sizes that operators tell, names that say nothing, and inputs that disagree."""
    nodes = [models.node("MatMul", ["x", "w"], ["m"]), models.node("Add", ["m", "b"], ["y"])]
    inputs = [models.tensor("x", ("n", "?")), models.tensor("b", ("n", "?"))]
    data = models.model(nodes, inputs, [models.tensor("y", None)], {"w": np.ones((7, 5), np.float32)})
    (path := tmp_path / "product.onnx").write_bytes(data)
    out = call(capsys, "run", str(path))
    assert re.search(r"x +float32 +\[1, 7\]", out) and re.search(r"b +float32 +\[1, 5\]", out)
    out = call(capsys, "run", str(path), "--shape", "x=4,7", "--shape", "b=1,5")
    assert re.search(r"y +float32 +\[4, 5\]", out)
    out = call(capsys, "explain", str(path), "--dim", "n=4", "--shape", "b=4,1")
    assert "product" in out
    out = call(capsys, "compile", str(path), "--shape", "x=1:8,7", "--shape", "b=1,5", "-o", str(tmp_path / "out"))
    session = jitonnx.load(tmp_path / "out")
    x, b = np.ones((6, 7), np.float32), np.ones((1, 5), np.float32)
    for rows in (6, 1, 3):
        np.testing.assert_array_equal(session.run(None, {"x": x[:rows], "b": b})[0], np.full((rows, 5), 8, np.float32))


def test_run_says_what_it_assumes(capsys: pytest.CaptureFixture[str], relu_add: str) -> None:
    assert main(["run", relu_add]) == 0
    captured = capsys.readouterr()
    assert "taken as 1: N; set with --dim NAME=SIZE" in captured.err and "[1, 3]" in captured.out
    assert "[5, 3]" in call(capsys, "run", relu_add, "--dim", "N=5")


def test_run_with_texts(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "texts.onnx"
    texts, ids = tensor("s", [2], models.STRING), tensor("x", [2], models.BOOL)
    path.write_bytes(
        model(
            [node("Identity", ["s"], ["t"]), node("Not", ["x"], ["y"])],
            [texts, ids],
            [tensor("t", [2], models.STRING), tensor("y", [2], models.BOOL)],
        )
    )
    out = call(capsys, "run", str(path), "--output", str(tmp_path / "outs.npz"))
    assert re.search(r"output +t +object +\[2\]", out)
    with np.load(tmp_path / "outs.npz", allow_pickle=False) as stored:
        assert set(stored["t"]) <= {"0", "1"}


def test_explain(capsys: pytest.CaptureFixture[str], relu_add: str) -> None:
    out = call(capsys, "explain", relu_add, "--dim", "N=7")
    assert "relu_add.onnx: 2 nodes became 1 kernel call" in out
    assert "float[7,3]" in out and re.search(r"relu +Relu +float\[N,3\] +kernel #0", out)
    details = call(capsys, "explain", relu_add, "--details", "--dim", "N=7")
    assert re.search(r"computes +y = (maximum\(x, 0\)|relu\(x\)) \+ ", details)


def test_explain_as_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    from jitonnx.tools import demo

    call(capsys, "explain", str(demo.model_path()), "--html", str(page))
    text = page.read_text("utf-8")
    assert text.count('<g class="kernel ') == text.count('<tr data-kernel="') - 17 == 8
    assert "{{" not in text and "stem.conv" in text
    assert not re.search(r"(src|href)=|https?://(?!www\.w3\.org)", text), "the page must load nothing"


def test_bench(capsys: pytest.CaptureFixture[str], relu_add: str) -> None:
    out = call(capsys, "bench", relu_add, "--dim", "N=4", "--seconds", "0.1", "--threads", "1")
    assert "relu_add.onnx, 1 thread: x [4, 3]" in out
    assert re.search(r"onnxruntime / jitonnx: \d", out)
    difference = re.search(r"largest difference over the largest value: (.*)", out)
    assert difference and float(difference[1]) < 1e-6


def test_profile_of_a_loop(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "loop.onnx"
    path.write_bytes(smoothing(length=7, width=4).model.SerializeToString())
    out = call(capsys, "profile", str(path), "--dim", "time=7", "--rounds", "2")
    assert "region" in out and "1 steps in" in out
    artifact = tmp_path / "loop.jitonnx"
    call(capsys, "compile", str(path), "--dim", "time=7", "-o", str(artifact))
    assert "profile the model itself" in refusal(capsys, "profile", "--artifact", str(artifact), "--dim", "time=7")
    for command in ("run", "profile", "explain", "bench", "compile", "info", "optimize", "export"):
        more = ["-o", str(tmp_path / "out")] if command in ("compile", "optimize", "export") else []
        assert "open it with jitonnx.load" in refusal(capsys, command, str(artifact), *more)
    assert "a step that runs its body natively" in call(capsys, "explain", "--artifact", str(artifact))


def test_profile(capsys: pytest.CaptureFixture[str], relu_add: str) -> None:
    out = call(capsys, "profile", relu_add, "--dim", "N=1000", "--rounds", "2", "--by", "order")
    assert re.search(r"100\.0 .* 0 +region", out) and "1 steps in" in out and "GFLOP/s" in out


def test_cache(
    capsys: pytest.CaptureFixture[str], relu_add: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITONNX_CACHE_DIR", str(tmp_path / "cache"))
    assert ": 0 kernels, 0 B" in call(capsys, "cache", "info")
    call(capsys, "run", relu_add)
    assert re.search(rf"^{tmp_path / 'cache'}: [1-9]", call(capsys, "cache", "info"))
    assert re.match(r"removed [1-9]\d* kernels", call(capsys, "cache", "clear"))
    assert ": 0 kernels" in call(capsys, "cache", "info")


def test_version_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert call(capsys, "--version") == f"jitonnx {jitonnx.__version__}\n"
    assert main([]) == 1
    out = capsys.readouterr().out
    for command in ("demo", "run", "chat", "transcribe", "export", "explain", "bench", "profile", "cache"):
        assert re.search(rf"^ +{command} ", out, re.MULTILINE)


@pytest.mark.parametrize(
    "arguments, text",
    [
        (["run", "nope.onnx"], "File doesn't exist"),
        (["run", "MODEL", "--shape", "z=1"], "the model has no input 'z'; its inputs are: x"),
        (["run", "MODEL", "--shape", "x=2,4"], r"'x' has the shape \['N', 3\]; \[2, 4\] does not fit"),
        (["run", "MODEL", "--shape", "x=2,3", "--dim", "N=3"], "as 'N' is 3"),
        (["run", "MODEL", "--dim", "M=1"], "the model has no dimension 'M'; its named dimensions are: N"),
        (["run", "MODEL", "--input", "nope.npz"], "^jitonnx: nope.npz: No such file or directory$"),
        (["run", "MODEL", "--input", "FOLDER"], ": Is a directory$"),
        (["run", "MODEL", "--input", "MODEL"], "is no .npz file of inputs, as numpy.savez writes them: "),
        (["run", "MODEL", "--input", "FOLDER/empty"], "is no .npz file of inputs, as numpy.savez writes them: "),
        (["bench", "MODEL", "--input", "FOLDER/cut.npz"], "is no .npz file of inputs, as numpy.savez writes them: "),
        (["profile", "MODEL", "--input", "FOLDER/one.npy"], "holds one array without a name: give an .npz file"),
        (["run", "MODEL", "--dim", f"N={1 << 70}"], r"'x' would have the shape \[\d+, 3\], which is beyond all memory"),
        (["explain", "MODEL", "--dim", f"N={1 << 70}"], "which is beyond all memory"),
        (["run", "MODEL", "--dim", f"N={1 << 50}"], "^jitonnx: there is not enough memory: "),
        (["run", "MODEL", "--dim", "N=1", "--output", "FOLDER/a/b"], "/a/b.npz: No such file or directory$"),
        (["explain", "MODEL", "--dim", "N=1", "--html", "FOLDER"], ": Is a directory$"),
        (["compile", "MODEL", "--dim", "N=1", "-o", ""], ": that is a folder, not a file to write to$"),
        (["compile", "MODEL", "--dim", "N=1", "-o", "FOLDER"], ": Is a directory$"),
    ],
)
def test_mistakes(
    capsys: pytest.CaptureFixture[str], relu_add: str, tmp_path: Path, arguments: list[str], text: str
) -> None:
    np.save(tmp_path / "one.npy", np.ones((4, 3), np.float32))
    np.savez(tmp_path / "cut.npz", x=np.ones((4, 3), np.float32))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "cut.npz").read_bytes()[:150])
    (tmp_path / "empty").touch()
    given = [argument.replace("MODEL", relu_add).replace("FOLDER", str(tmp_path)) for argument in arguments]
    assert re.search(text, refusal(capsys, *given))


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command that must fail says: one message, and no traceback."""
    capsys.readouterr()
    assert main(arguments) == 1
    said = capsys.readouterr().err.splitlines()
    assert not any("Traceback" in line or "Bug" in line for line in said)
    first = next(number for number, line in enumerate(said) if line.startswith("jitonnx: "))
    assert all(line.startswith("note: ") for line in said[:first])
    return "\n".join(said[first:])


COMMANDS = (
    ("run",),
    ("explain",),
    ("explain", "--details"),
    ("explain", "--html", "page.html"),
    ("profile",),
    ("bench", "--seconds", "0"),
    ("compile", "-o", "out"),
    ("export", "-o", "out"),
)
OPEN = [tensor("x", ["a", "b"]), tensor("y", ["c", "d"])]
DIGITS = Path(jitonnx.tools.demo.model_path()).read_bytes()
BAD_FILES = {
    "No such file": (None, "File doesn't exist"),
    "empty": (b"", "No graph was found in the protobuf"),
    "cut off": (DIGITS[:20_000], "protobuf parsing failed: the field at byte .* truncated"),
    "text": (b"not a model\n" * 9, "protobuf parsing failed"),
    "artifact, cut off": (MAGIC + bytes(8), "It holds machine code, which runs on request alone"),
    "missing operator": (
        model([node("Missing", ["x"], ["y"])], [tensor("x", [2])], [tensor("y", [2])]),
        "Missing",
    ),
    "wrong types": (
        model([node("Add", ["x", "y"], ["z"])], [tensor("x", [2]), tensor("y", [2], models.INT64)], [tensor("z", [2])]),
        r"Type Error: .*'x' and 'y' have different element types",
    ),
    "wrong shapes": (
        model([node("MatMul", ["x", "y"], ["z"])], [tensor("x", [2, 3]), tensor("y", [4, 5])], [tensor("z", [2, 5])]),
        r"the last axis of A \(3\) and the next to last of B \(4\) differ",
    ),
}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_files(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    kind: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    content, text = BAD_FILES[kind]
    if content is not None:
        (tmp_path / "bad.onnx").write_bytes(content)
    assert re.search(text, refusal(capsys, command[0], "bad.onnx", *command[1:]))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "operator, text",
    [
        ("MatMul", r"MatMul node 'make_z' .*: the last axis of A \(3\) and the next to last of B \(4\) differ"),
        ("Add", r"Add node 'make_z' .*: shapes do not broadcast: float\[2,3\], float\[4,5\]"),
    ],
)
def test_shapes_that_a_node_refuses(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    operator: str,
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("open.onnx").write_bytes(model([node(operator, ["x", "y"], ["z"])], OPEN, [tensor("z", ["e", "f"])]))
    shapes = ("--shape", "x=2,3", "--shape", "y=4,5")
    assert re.search(text, refusal(capsys, command[0], "open.onnx", *shapes, *command[1:]))


def test_optimize(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "digits.onnx"
    said = call(capsys, "optimize", str(jitonnx.tools.demo.model_path()), "-o", str(out), "--external", "digits.data")
    assert re.search(r"18 nodes became \d+\n", said) and "batch normalization 4" in said
    assert (tmp_path / "digits.data").exists()
    onnx.checker.check_model(out, full_check=True)
    image = np.ones((1, 1, 8, 8), np.float32)
    sessions = [jitonnx.InferenceSession(path) for path in (out, jitonnx.tools.demo.model_path())]
    ours, theirs = (session.run(None, {session.get_inputs()[0].name: image}) for session in sessions)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 1e-5)


@pytest.mark.parametrize("kind", BAD_FILES)
def test_optimize_bad_files(capsys: pytest.CaptureFixture[str], tmp_path: Path, kind: str) -> None:
    content, text = BAD_FILES[kind]
    if content is not None:
        (tmp_path / "bad.onnx").write_bytes(content)
    if kind != "artifact, cut off":  # which is no model at all
        assert re.search(
            text, refusal(capsys, "optimize", str(tmp_path / "bad.onnx"), "-o", str(tmp_path / "out.onnx"))
        )
    assert not (tmp_path / "out.onnx").exists()


def test_no_elements(capsys: pytest.CaptureFixture[str], relu_add: str) -> None:
    for command in ("run", "explain", "profile"):
        assert "[0, 3]" in call(capsys, command, relu_add, "--dim", "N=0") or command == "profile"


def test_bench_of_what_onnxruntime_refuses(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "float8.onnx"
    x, y = tensor("x", [4], onnx.TensorProto.FLOAT8E4M3FN), tensor("y", [4])
    path.write_bytes(model([node("Cast", ["x"], ["y"], to=models.FLOAT)], [x], [y]))
    out = call(capsys, "bench", str(path), "--seconds", "0")
    assert "jitonnx " in out and re.search(r"onnxruntime cannot run it \(.*\), so there is nothing to compare", out)


def test_a_fault_of_ours_is_a_message_too(
    capsys: pytest.CaptureFixture[str], relu_add: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def faulty(*_: object) -> None:
        raise TypeError("no such thing")

    monkeypatch.setattr(jitonnx.InferenceSession, "run", faulty)
    assert main(("run", relu_add, "--dim", "N=4")) == 1
    assert capsys.readouterr().err.startswith("jitonnx: Bug: TypeError: no such thing. Please report it, with what")
    with pytest.raises(TypeError):
        main(("--traceback", "run", relu_add, "--dim", "N=4"))


def test_a_cache_that_cannot_be_used(
    capsys: pytest.CaptureFixture[str], relu_add: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JITONNX_CACHE_DIR", relu_add)  # a file
    for arguments in (("cache", "info"), ("cache", "clear"), ("run", relu_add, "--dim", "N=4")):
        monkeypatch.setattr(kernel_cache, "_warned", set())
        assert main(arguments) == 0
        assert "jitonnx: kernels are not kept on disk: " in capsys.readouterr().err


@pytest.mark.parametrize("argument", [["--shape", "x"], ["--shape", "x=a"], ["--dim", "N"], ["--threads", "0"]])
def test_arguments_that_cannot_be_read(capsys: pytest.CaptureFixture[str], argument: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "model.onnx", *argument])
    assert "error: argument" in capsys.readouterr().err


def test_an_interrupt_is_told_in_one_line(
    capsys: pytest.CaptureFixture[str], relu_add: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(jitonnx.InferenceSession, "run", interrupted)
    assert main(("run", relu_add, "--shape", "x=4,3")) == 130
    assert capsys.readouterr().err.endswith("jitonnx: interrupted\n")


def test_compile_for_a_range(capsys: pytest.CaptureFixture[str], relu_add: str, tmp_path: Path) -> None:
    out = str(tmp_path / "out.jitonnx")
    for arguments in (["--shape", "x=1:512,3"], ["--dim", "N=1:512"]):
        assert main(["compile", relu_add, "-o", out, *arguments]) == 0
        assert "compiled for x [1:512, 3]\n" in capsys.readouterr().out
        assert main(["run", "--artifact", out, "--shape", "x=7,3"]) == 0
        capsys.readouterr()
        assert main(["run", "--artifact", out, "--shape", "x=513,3"]) == 1
        assert "It was compiled for: x [1:512, 3]." in capsys.readouterr().err
    assert main(["compile", relu_add, "-o", out, "--shape", "x=1:8,3", "--shape", "x=64,3"]) == 0
    assert "compiled for x [1:8, 3]\ncompiled for x [64, 3]\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    "command, argument, text",
    [
        ("compile", ["--shape", "x=512:1,3"], "the range 512:1, which ends before it begins"),
        ("compile", ["--shape", "x=1:,3"], "is not NAME=SIZE,SIZE,..."),
        ("compile", ["--dim", "N=:4"], "is not NAME=SIZE"),
        ("run", ["--shape", "x=1:512,3"], "is a range of sizes, which only `jitonnx compile` takes"),
        ("run", ["--dim", "N=1:512"], "is a range of sizes, which only `jitonnx compile` takes"),
    ],
)
def test_ranges_that_are_refused(
    capsys: pytest.CaptureFixture[str], relu_add: str, command: str, argument: list[str], text: str
) -> None:
    with pytest.raises(SystemExit):
        main([command, relu_add, *(["-o", "out"] if command == "compile" else []), *argument])
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments, key, text",
    [(["--api-key", "secret"], "", "--api-key means nothing"), ([], "secret", "JITONNX_API_KEY")],
    ids=["an option", "the environment"],
)
def test_serving_a_file_asks_for_no_key(
    relu_add: str, arguments: list[str], key: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The protocol has none: who wants one is told, and is not served without."""
    monkeypatch.setenv("JITONNX_API_KEY", key)
    with pytest.raises(SystemExit, match=text):
        main(["serve", relu_add, *arguments])

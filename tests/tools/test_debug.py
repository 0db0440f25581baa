"""`jitonnx debug`: what is broken on purpose is named, reduced, and shown again by what was written."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitonnx.ops.onnx.activation import Relu
from jitonnx.passes.rewriting import Rule
from jitonnx.passes.rules import cleanup
from jitonnx.plan.fusion import _Fusion
from jitonnx.tools.cli import main
from jitonnx.tools.debug.differences import difference
from tests.session.models import model, node, tensor


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Two layers with a residual: y = swish-like(relu(x W + b) W) - x, with parts that are fused and rewritten."""
    rng = np.random.default_rng(3)
    weights = {"w": rng.standard_normal((8, 8), np.float32), "b": rng.standard_normal(8, np.float32)}
    nodes = [
        node("MatMul", ["x", "w"], ["p"], name="first"),
        node("Add", ["p", "b"], ["q"], name="bias"),
        node("Relu", ["q"], ["r"], name="relu"),
        node("MatMul", ["r", "w"], ["s"], name="second"),
        node("Sigmoid", ["s"], ["t"], name="gate"),
        node("Mul", ["s", "t"], ["u"], name="gated"),
        node("Neg", ["u"], ["n"], name="neg"),
        node("Neg", ["n"], ["m"], name="back"),
        node("Sub", ["m", "x"], ["y"], name="residual"),
    ]
    file = tmp_path / "layers.onnx"
    file.write_bytes(model(nodes, [tensor("x", ("n", 8))], [tensor("y", ("n", 8))], weights))
    return str(file)


def debug(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    status = main(["debug", *arguments, "--threads", "1"])
    return status, capsys.readouterr().out


def test_no_difference(capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "feeds.npz", x=np.ones((3, 8), np.float32))
    for arguments in (["--dim", "n=5"], ["--feeds", str(tmp_path / "feeds.npz")], ["--dim", "n=5", "--level", "none"]):
        status, out = debug(capsys, path, *arguments)
        assert status == 0 and out.startswith("no difference: 1 outputs"), out


def test_a_rewrite(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule that takes two negations for none takes one of them for none."""

    def broken(rule: Rule) -> Rule:
        return Rule(rule.name, rule.equation, rule.level, rule.anchors, lambda n, edit: n.inputs[0])

    rules = tuple(broken(r) if r.name == "involution" else r for r in cleanup.RULES)
    monkeypatch.setattr(cleanup, "RULES", rules)
    single = tmp_path / "negated.onnx"
    nodes = [node("Neg", ["x"], ["n"], name="neg"), node("Exp", ["n"], ["y"], name="exp")]
    single.write_bytes(model(nodes, [tensor("x", (3, 5))], [tensor("y", (3, 5))]))
    status, out = debug(capsys, str(single), "-o", str(tmp_path / "reduced.onnx"))
    assert status == 1 and "rewrite: involution" in out and "disabled_optimizers=['involution']" in out, out
    again, out = debug(capsys, str(tmp_path / "reduced.onnx"), "--feeds", str(tmp_path / "reduced.npz"))
    assert again == 1 and "rewrite: involution" in out, out


def test_a_kernel(
    capsys: pytest.CaptureFixture[str], path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Relu is compiled as a negation."""
    monkeypatch.setattr(Relu, "scalar", lambda self, x: -x)
    status, out = debug(capsys, path, "--dim", "n=5", "-o", str(tmp_path / "reduced.onnx"))
    assert status == 1 and "guilty      kernel" in out and "relu" in out, out
    assert "reduced     " in out and "'relu'" in out.split("guilty")[0], out
    again, out = debug(capsys, str(tmp_path / "reduced.onnx"), "--feeds", str(tmp_path / "reduced.npz"))
    assert again == 1, out


def test_fusion(capsys: pytest.CaptureFixture[str], path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is put behind a product is done twice."""
    extend = _Fusion._extend

    def broken(self: Any, group: Any, region: Any) -> None:
        extend(self, group, region)
        group.expr = group.expr + group.expr

    monkeypatch.setattr(_Fusion, "_extend", broken)
    status, out = debug(capsys, path, "--dim", "n=5")
    assert status == 1 and "guilty      fusion" in out, out


def test_differences() -> None:
    nan = np.array([1, np.nan, np.inf], np.float32)
    assert difference(nan, nan.copy()) is None
    found = difference(nan, np.array([1, 2, np.inf], np.float32))
    assert found is not None and found.place == (1,) and found.what == "NaN or infinity"
    found = difference(np.zeros((2, 3), np.float32), np.eye(2, 3, 1, dtype=np.float32))
    assert found is not None and found.place == (0, 1) and found.given == "1.0"
    assert difference(np.array([3], np.int8), np.array([4], np.int8)) is None
    assert difference(np.array([3], np.int64), np.array([4], np.int64)) is not None
    assert difference([np.ones(2)], [np.ones(3)]) is not None
    assert difference(np.array(["a"], object), np.array(["a"], object)) is None
    assert difference(np.ones((0, 3)), np.ones((0, 3))) is None

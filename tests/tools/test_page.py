"""The page of `jitonnx explain --html` in a browser: what is seen when it opens, and what its buttons do."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jitonnx.tools.explain import as_html
from jitonnx.tools.explain.layout import BOX_HEIGHT, draw
from tests.session.models import model, node, tensor
from tests.tools.test_explain import explained

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
in_browser = pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")

_MEASURING = """
<script>{
  const place = element => {
    const r = element.getBoundingClientRect();
    return {left: r.left, right: r.right, top: r.top, bottom: r.bottom};
  };
  const measured = () => ({
    frame: place(canvas),
    kernels: [...svg.querySelectorAll(".kernel .body")].map(place),
    texts: [...svg.querySelectorAll(".kernel")].map(box => [...box.querySelectorAll("text")].map(place)),
  });
  const seen = {opened: measured()};
  document.getElementById("fit").click();
  seen.whole = measured();
  document.querySelector("#kernels tbody tr:last-child").click();
  seen.last = measured();
  document.getElementById("width").click();
  seen.again = measured();
  document.body.innerHTML = `<pre>${JSON.stringify(seen)}</pre>`;
}</script>
"""


def chain(length: int) -> bytes:
    """Kernels one after the other."""
    nodes = [node("Softmax", [f"x{i}"], [f"x{i + 1}"], axis=i % 2) for i in range(length)]
    return model(nodes, [tensor("x0", [4, 3])], [tensor(f"x{length}", [4, 3])])


def wide() -> bytes:
    """A kernel at one side of many, so that the top of the drawing is far from its middle."""
    nodes = [node("Softmax", ["x"], ["f"], axis=1), node("Softmax", ["t"], ["s"], axis=0)]
    weights = {f"w{i}": np.float32(i + 2) for i in range(9)}
    for i in range(9):
        nodes += [node("Mul", ["s", f"w{i}"], [f"m{i}"]), node("Softmax", [f"m{i}"], [f"y{i}"], axis=1)]
    for i in range(3):
        nodes += [node("Softmax", [f"y{i}"], [f"z{i}"], axis=0), node("Softmax", [f"z{i}"], [f"q{i}"], axis=1)]
    outputs = [tensor("f", [4, 3]), *(tensor(f"q{i}" if i < 3 else f"y{i}", [4, 3]) for i in range(9))]
    return model(nodes, [tensor("x", [4, 3]), tensor("t", [4, 3])], outputs, weights)


MODELS = {"one": chain(1), "long": chain(30), "wide": wide()}


@pytest.mark.parametrize("kind", MODELS)
def test_the_top_is_in_the_middle_at_once(kind: str) -> None:
    """It is there before any script runs."""
    explanation = explained(MODELS[kind])
    drawing, page = draw(explanation), as_html(explanation)
    first = next(box for box in drawing.boxes if box.number == 0)
    assert kind != "wide" or abs(first.x - drawing.width / 2) > 500
    seen = re.search(r'<svg id="graph" viewBox="(\S+) (\S+) (\S+) (\S+)" preserveAspectRatio="xMidYMin"', page)
    assert seen is not None
    left, top, width, height = map(float, seen.groups())
    assert abs(left + width / 2 - first.x) <= 1
    assert top <= first.y and first.y + first.height <= top + height
    assert min(box.row for box in drawing.boxes if box.kind == "kernel") == first.row


def measured(explanation: Any, folder: Path, window: tuple[int, int]) -> Any:
    """Tell where the frame, the boxes and their texts are seen: when the page opens, and after three buttons."""
    page = folder / "page.html"
    page.write_text(as_html(explanation).replace("</body>", f"{_MEASURING}</body>"), "utf-8")
    assert BROWSER is not None
    options = ["--headless=new", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    command = [BROWSER, *options, f"--window-size={window[0]},{window[1]}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r"<pre>({.*})</pre>", done.stdout)
    assert found is not None, done.stdout[-2000:]
    return json.loads(found[1])


def is_inside(inner: dict[str, float], outer: dict[str, float]) -> bool:
    across = inner["left"] >= outer["left"] and inner["right"] <= outer["right"]
    return across and inner["top"] >= outer["top"] and inner["bottom"] <= outer["bottom"]


@in_browser
@pytest.mark.parametrize("kind, window", [("one", (1400, 900)), ("long", (700, 900)), ("wide", (1400, 900))])
def test_in_a_browser(tmp_path: Path, kind: str, window: tuple[int, int]) -> None:
    explanation = explained(MODELS[kind])
    seen = measured(explanation, tmp_path, window)
    for look in (seen["opened"], seen["again"]):
        frame, first = look["frame"], look["kernels"][0]
        assert is_inside(first, frame)
        assert abs((first["left"] + first["right"]) - (frame["left"] + frame["right"])) < 6
        assert 0.7 * BOX_HEIGHT < first["bottom"] - first["top"] <= BOX_HEIGHT + 1
        assert first["top"] - frame["top"] < 200
        for box, texts in zip(look["kernels"], look["texts"], strict=True):
            assert all(is_inside(text, box) for text in texts)
    assert all(is_inside(box, seen["whole"]["frame"]) for box in seen["whole"]["kernels"])
    assert is_inside(seen["last"]["kernels"][-1], seen["last"]["frame"])

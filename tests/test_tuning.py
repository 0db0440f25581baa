"""`jitonnx.target.tuning`: each figure says what it means and where it was measured, and somebody goes by it."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = (ROOT / "jitonnx" / "target" / "tuning.py").read_text(encoding="utf-8")
CPUS = ("Zen 4", "Granite Rapids", "Zen 5")


def figures() -> list[tuple[str, str]]:
    """Each name, and the text behind its assignment."""
    body = ast.parse(SOURCE).body
    found = []
    for statement, behind in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.Assign):
            text = ast.literal_eval(behind.value) if isinstance(behind, ast.Expr) else ""
            found += [(node.id, text) for node in ast.walk(statement.targets[0]) if isinstance(node, ast.Name)]
    return found


FIGURES = figures()
USES = "\n".join(
    path.read_text(encoding="utf-8") for place in ("jitonnx", "kernels") for path in (ROOT / place).rglob("*.py")
)


@pytest.mark.parametrize("name, text", FIGURES, ids=[name for name, _ in FIGURES])
def test_a_figure_says_where_it_is_from(name: str, text: str) -> None:
    origin = re.search(r"\[([^\]]+)\]$", text)
    assert origin is not None, f"{name} does not end with the CPU and the command in brackets, or [estimated]"
    cpu, _, command = origin[1].replace("\n", " ").partition("; ")
    if cpu != "estimated":
        assert cpu in CPUS
        module = ROOT.joinpath(*command.split()[0].split("."))
        assert module.with_suffix(".py").exists() or (module / "__main__.py").exists(), f"there is no {command}"
    assert len(text) > len(origin[0]) + 10, f"{name} does not say what it means"
    assert f"tuning.{name}" in USES, f"nobody goes by {name}"


def test_formulas_are_where_it_says() -> None:
    for place in re.findall(r"`jitonnx\.([\w.]+)`", (ast.get_docstring(ast.parse(SOURCE)) or "")):
        parts = place.split(".")
        folder = ROOT if parts[0] == "kernels" else ROOT / "jitonnx"
        whole = folder.joinpath(*parts).with_suffix(".py")
        if not whole.exists():
            text = folder.joinpath(*parts[:-1]).with_suffix(".py").read_text(encoding="utf-8")
            assert re.search(rf"^def {parts[-1]}\b", text, re.MULTILINE), place

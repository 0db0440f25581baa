"""What may import what: the floors of docs/architecture.md, from the bottom up."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ALLOWED = {
    "support": {"errors"},
    "proto": {"support"},
    "ir": {"errors", "support"},
    "target": {"support"},
    "emit": {"support", "target"},
    "kernels": {"emit", "support", "target"},
    "ops": {"ir", "support"},
    "passes": {"ir", "ops", "support"},
    "model": {"errors", "ir", "ops", "passes", "proto", "support"},
    "runtime": {"emit", "errors", "support", "target"},
    "plan": {"emit", "errors", "ir", "kernels", "runtime", "support", "target"},
    "codegen": {"emit", "errors", "ir", "kernels", "ops", "plan", "runtime", "support", "target"},
    "engine": {"codegen", "errors", "ir", "ops", "passes", "plan", "runtime", "support", "target"},
    "api": {
        "c_api",
        "codegen",
        "engine",
        "errors",
        "ir",
        "kernels",
        "model",
        "ops",
        "passes",
        "plan",
        "proto",
        "runtime",
        "support",
        "target",
    },
    "numba": {"api", "errors", "ir", "runtime", "support"},
    "compat": {"api", "errors", "support"},
    "c_api": {"errors", "ir", "support"},
    "batch": {"api", "errors", "ir", "model", "runtime", "support"},
    "genai": {"api", "errors", "ir", "proto", "support"},
    "serve": {"errors", "genai", "serving"},
    "serving": {"api", "batch", "errors", "runtime", "support"},
    "tools": {
        "api",
        "batch",
        "codegen",
        "compat",
        "engine",
        "errors",
        "genai",
        "ir",
        "model",
        "ops",
        "opsets",
        "passes",
        "plan",
        "proto",
        "serve",
        "serving",
        "support",
        "target",
        "versioning",
    },
}
"""The keys are folders, the values the other parts of jitonnx that their modules import."""

MODULES: dict[str, set[str]] = {
    "__init__": {"support"},
    "__main__": {"tools"},
    "custom": {"codegen", "ops", "support"},
    "errors": set(),
    "opsets": {"errors", "ir", "model", "ops", "proto", "support"},
    "versioning": {"ir", "ops", "support"},
}
"""The same of the modules beside the folders."""


def folder(place: str) -> Path:
    """Tell where a package of jitonnx lies: an installed one has `kernels` and `proto` elsewhere than a checkout."""
    return Path(importlib.import_module(f"jitonnx.{place}").__path__[0])


def imported(path: Path) -> Iterator[str]:
    """The modules of jitonnx that a file imports when it runs; what only type checkers read is left out."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module is not None:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        waiting += ast.iter_child_nodes(node)


@pytest.mark.parametrize("place", ALLOWED)
def test_a_floor_imports_what_is_below(place: str) -> None:
    allowed = ALLOWED[place] | {place}
    read = {(module, path.name) for path in folder(place).rglob("*.py") for module in imported(path)}
    ours = {(module.split(".")[1], name) for module, name in read if module.startswith("jitonnx.")}
    assert {(part, name) for part, name in ours if part not in allowed} == set()
    assert {part for part, _ in ours} >= ALLOWED[place], "something is allowed that nobody needs"


def test_of_emitting_the_runtime_knows_how_text_is_written() -> None:
    """Native functions are written with the same builder as kernels."""
    read = {module for path in folder("runtime").rglob("*.py") for module in imported(path)}
    assert {module for module in read if module.startswith("jitonnx.emit")} == {"jitonnx.emit.llvm_ir"}


def test_of_the_cpu_kernels_know_tables_figures_and_choices_alone() -> None:
    """What a kernel is made for, its spec says; it never looks at the machine at hand."""
    read = {module for path in folder("kernels").rglob("*.py") for module in imported(path)}
    of_target = {module for module in read if module.startswith("jitonnx.target.")}
    assert {module for module in of_target if not module.startswith("jitonnx.target.products.")} == {
        "jitonnx.target.choosing.cheapest",
        "jitonnx.target.tuning",
    }


def test_every_folder_and_module_is_on_a_floor() -> None:
    root = Path(importlib.import_module("jitonnx").__path__[0])
    folders = {path.name for path in root.iterdir() if (path / "__init__.py").exists()}
    assert folders <= set(ALLOWED)
    assert {path.stem for path in root.glob("*.py")} == set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_what_is_below(module: str) -> None:
    path = Path(importlib.import_module("jitonnx").__path__[0]) / f"{module}.py"
    assert {name.split(".")[1] for name in imported(path) if name.startswith("jitonnx.")} == MODULES[module]


def test_what_the_session_imports_does_not_know_the_session() -> None:
    """Explanations and saved models take a `CompiledModel`, also where only type checkers look."""
    for place in ("tools.explain", "api.saved"):
        for path in folder(place).rglob("*.py"):
            assert "api.session " not in path.read_text(encoding="utf-8"), path


def test_planning_needs_no_compiler() -> None:
    """The planner knows the specs of kernels, and never the modules that import LLVM."""
    names = {module for path in folder("plan").rglob("*.py") for module in imported(path)}
    kernels = {module.rpartition(".")[0] for module in names if module.startswith("jitonnx.kernels.")}
    assert kernels
    for module in kernels:
        text = folder("kernels").joinpath(*module.split(".")[2:]).with_suffix(".py").read_text(encoding="utf-8")
        whole = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not re.search(r"llvmlite|\bemit\.(?!arguments\b)", "\n".join(map(ast.unparse, whole))), module

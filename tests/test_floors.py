"""What may import what: the floors of docs/architecture.md, from the bottom up."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ALLOWED = {
    "proto": {"forks", "records"},
    "ir": {"records", "forks"},
    "runtime": {"ending", "errors", "magic", "mapped", "metadata", "records", "forks", "draws", "kernels"},
    "computation": {"ir", "records", "forks", "draws", "philox", "defects"},
    "ops": {"ir", "computation", "records", "forks"},
    "gradient": {"ir", "computation", "ops"},
    "checker": {"proto", "ir", "ops", "model", "errors", "records"},
    "model": {
        "mapped",
        "proto",
        "ir",
        "ops",
        "gradient",
        "checker",
        "errors",
        "magic",
        "metadata",
        "records",
        "forks",
        "replacing",
    },
    "passes": {"ir", "ops", "mapped", "records", "defects"},
    "kernels": {"target", "mapped", "records", "forks", "jobs", "philox"},
    "plan": {
        "ir",
        "computation",
        "defects",
        "kernels",
        "runtime",
        "target",
        "errors",
        "mapped",
        "records",
        "forks",
        "draws",
    },
    "codegen": {
        "ir",
        "computation",
        "kernels",
        "plan",
        "runtime",
        "target",
        "errors",
        "jobs",
        "records",
        "versions",
        "forks",
    },
    "engine": {
        "mapped",
        "ir",
        "ops",
        "computation",
        "interpreter",
        "passes",
        "plan",
        "codegen",
        "runtime",
        "target",
        "defects",
        "ending",
        "errors",
        "jobs",
        "records",
        "forks",
    },
    "api": {
        "defects",
        "mapped",
        "ir",
        "ops",
        "kernels",
        "passes",
        "plan",
        "ending",
        "engine",
        "runtime",
        "target",
        "errors",
        "flatbuffer",
        "metadata",
        "records",
        "replacing",
        "draws",
        "forks",
        "versions",
    },
    "saved": {
        "mapped",
        "api",
        "engine",
        "errors",
        "explain",
        "forks",
        "ir",
        "log",
        "plan",
        "records",
        "runtime",
        "versions",
    },
    "explain": {
        "api",
        "codegen",
        "computation",
        "engine",
        "errors",
        "ir",
        "passes",
        "plan",
        "runtime",
    },
    "cli": {
        "alias",
        "api",
        "changes",
        "checker",
        "demo",
        "errors",
        "explain",
        "info",
        "model",
        "opsets",
        "optimized",
        "runtime",
        "saved",
        "session",
        "versioning",
    },
    "capi": {"api", "errors", "log", "metadata", "session"},
    "backend": {"api", "session"},
    "alias": {"api"},
    "demo": set(),
}
"""The keys are folders, the values the other parts of jitonnx that their modules import."""

MODULES: dict[str, set[str]] = {
    "__init__": set(),  # names are imported when they are asked for
    "__main__": {"cli"},
    "calibration": {"cores", "runtime"},
    "changes": {"checker", "errors", "ir", "model", "proto", "records", "versioning"},
    "compiled": {"computation", "forks", "ir", "ops", "records", "translated"},
    "cores": {"calibration", "records", "runtime"},
    "custom": {"compiled", "computation", "ir", "ops"},
    "defects": {"errors", "ir", "jobs"},
    "draws": {"forks", "records"},
    "ending": {"errors"},
    "auto_precision": {"api", "errors", "records", "runtime", "saved", "target"},
    "errors": set(),
    "flatbuffer": set(),
    "forks": set(),
    "info": {
        "api",
        "checker",
        "engine",
        "errors",
        "ir",
        "model",
        "ops",
        "passes",
        "plan",
        "proto",
        "records",
        "target",
        "versioning",
    },
    "interpreter": {"ending", "errors", "ir"},
    "jobs": {"errors", "forks"},
    "log": set(),
    "magic": set(),
    "mapped": {"errors"},
    "metadata": {"records"},
    "opening": {
        "defects",
        "mapped",
        "api",
        "engine",
        "errors",
        "forks",
        "jobs",
        "log",
        "model",
        "optimized",
        "runtime",
        "saved",
    },
    "opsets": {"checker", "errors", "ir", "model", "ops", "proto", "records"},
    "optimized": {"errors", "ir", "model", "ops", "passes"},
    "philox": set(),
    "records": {"forks"},
    "replacing": set(),
    "session": {"api", "auto_precision", "capi", "errors", "forks", "ir", "metadata", "opening", "saved"},
    "target": {"cores", "records", "runtime"},
    "training": {"api", "errors", "ir", "model", "proto", "replacing", "session"},
    "translated": {"computation", "ir"},
    "versioning": {"ir", "ops", "records"},
    "versions": set(),
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


def test_of_kernels_the_runtime_knows_how_text_is_written() -> None:
    """Native functions are written with the same builder as kernels."""
    read = {module for path in folder("runtime").rglob("*.py") for module in imported(path)}
    assert {module for module in read if module.startswith("jitonnx.kernels")} == {"jitonnx.kernels.language.ir"}


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
    for place in ("explain", "saved"):
        for path in folder(place).rglob("*.py"):
            assert "jitonnx.session" not in path.read_text(encoding="utf-8"), path


def test_planning_needs_no_compiler() -> None:
    """The planner knows the specs of kernels, and never the modules that import LLVM."""
    names = {module for path in folder("plan").rglob("*.py") for module in imported(path)}
    kernels = {module.rpartition(".")[0] for module in names if module.startswith("jitonnx.kernels.")}
    assert kernels
    for module in kernels:
        text = folder("kernels").joinpath(*module.split(".")[2:]).with_suffix(".py").read_text(encoding="utf-8")
        whole = [node for node in ast.parse(text).body if isinstance(node, ast.Import | ast.ImportFrom)]
        assert not re.search(r"llvmlite|kernels\.(language|mathematics)\b", "\n".join(map(ast.unparse, whole))), module

"""Definitions copied out of modules: some functions with all that they use, as one module that stands alone."""

from __future__ import annotations

import ast
import functools
import importlib.util
from collections.abc import Iterable, Iterator
from pathlib import Path

from jitonnx.support.records import NamedTuple

OURS = "jitonnx."
_STAND_INS = {("jitonnx.support.records", "NamedTuple"): "from typing import NamedTuple"}
"""What the standard library has, too."""


class _Source(NamedTuple):
    """A module as text: its lines, what it defines and what it imports, by name."""

    lines: list[str]
    definitions: dict[str, ast.stmt]
    notes: dict[str, ast.stmt]
    """The strings behind assignments that say what these mean."""
    imports: dict[str, tuple[str, str, str]]
    """The statement that imports a name alone, the module it is from and what it is called there, by the name; the last
    is "" of whole modules.

    What comes from our modules keeps its name."""


def copied(module: str, names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Import statements and definitions, those that others need before them.

    names: of the module's functions. ValueError where two modules define a name that is needed of both.
    """
    found: dict[str, tuple[str, str]] = {}
    imports: set[str] = set()

    def visit(module: str, name: str) -> None:
        source = _source(module)
        if name in source.imports:
            statement, origin, original = source.imports[name]
            if (origin, original) in _STAND_INS:
                imports.add(_STAND_INS[origin, original])
            elif origin.startswith(OURS):
                visit(origin, original)
            else:
                imports.add(statement)
            return
        if name in found:
            if found[name][0] != module:
                raise ValueError(f"{module} and {found[name][0]} both define {name}")
            return
        found[name] = (module, "")  # so that a function which calls itself is copied once
        for used in _used(source, name):
            visit(module, used)
        del found[name]  # behind what it needs
        found[name] = (module, _text(source, name))

    for name in names:
        visit(module, name)
    return sorted(imports, key=lambda text: (text.startswith("from "), text)), [text for _, text in found.values()]


@functools.cache
def _source(module: str) -> _Source:
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None, f"Bug: there is no module {module}"
    text = Path(found.origin).read_text(encoding="utf-8")
    source = _Source(text.split("\n"), {}, {}, {})
    last = ""
    for statement in ast.parse(text).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            source.definitions[statement.name] = statement
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            last = ast.unparse(target)
            source.definitions[last] = statement
            continue
        elif isinstance(statement, ast.Expr) and last:
            source.notes[last] = statement
        elif isinstance(statement, ast.Import | ast.ImportFrom):
            source.imports.update(_imported(statement))
        last = ""
    return source


def _imported(statement: ast.Import | ast.ImportFrom) -> Iterator[tuple[str, tuple[str, str, str]]]:
    """The names that a statement imports."""
    for alias in statement.names:
        behind = f" as {alias.asname}" if alias.asname else ""
        if isinstance(statement, ast.Import):
            yield alias.asname or alias.name, (f"import {alias.name}{behind}", alias.name, "")
        else:
            origin = statement.module or ""
            text = f"from {origin} import {alias.name}{behind}"
            yield alias.asname or alias.name, (text, origin, alias.name)


def _used(source: _Source, name: str) -> list[str]:
    """The module's own and imported names that a definition needs to run, in order. Annotations are not among them,
    but for what they import from elsewhere than from us."""
    needed: dict[str, None] = {}

    def walk(node: ast.AST, *, annotation: bool) -> None:
        if isinstance(node, ast.Name) and node.id != name:
            foreign = node.id in source.imports and not source.imports[node.id][1].startswith(OURS)
            if foreign or (not annotation and (node.id in source.definitions or node.id in source.imports)):
                needed[node.id] = None
        for field, value in ast.iter_fields(node):
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    walk(child, annotation=annotation or field in ("annotation", "returns"))

    walk(source.definitions[name], annotation=False)
    return list(needed)


def _text(source: _Source, name: str) -> str:
    """A definition as it is written."""
    statement = source.definitions[name]
    last = source.notes.get(name, statement)
    decorated = [node.lineno for node in getattr(statement, "decorator_list", ())]
    return "\n".join(source.lines[min([statement.lineno, *decorated]) - 1 : last.end_lineno])

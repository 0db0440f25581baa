"""What docs/reference shows says what it is given: each parameter of a public function stands in its docstring."""

import inspect
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
SELF = ("self", "cls")


def shown() -> list[str]:
    """The names that the pages show."""
    return sorted(name for page in REFERENCE.glob("*.md") for name in re.findall(r"^::: (\S+)", page.read_text(), re.M))


def found(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        return import_module(name)
    except ModuleNotFoundError:
        return getattr(import_module(module), attribute)


def functions(name: str) -> Iterator[tuple[str, Callable[..., Any], str]]:
    """Each public function of a name with the text that may say what its parameters are: a method's class's, too."""
    thing = found(name)
    if inspect.isfunction(thing):
        yield name, thing, inspect.getdoc(thing) or ""
    for member, value in vars(thing).items() if inspect.isclass(thing) or inspect.ismodule(thing) else ():
        own = getattr(value, "__module__", None) == (thing.__name__ if inspect.ismodule(thing) else thing.__module__)
        if inspect.isclass(value) and inspect.ismodule(thing) and own and not member.startswith("_"):
            yield from functions(f"{name}.{member}")
        value = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if not inspect.isfunction(value) or not own or (member.startswith("_") and member != "__init__"):
            continue
        text = (inspect.getdoc(value) or "") if inspect.ismodule(thing) else f"{thing.__doc__} {inspect.getdoc(value)}"
        yield f"{name}.{member}", value, text


@pytest.mark.parametrize("name", shown())
def test_parameters_are_named(name: str) -> None:
    assert inspect.getdoc(found(name)), f"{name} has no docstring"
    missing = [
        f"{function}: {', '.join(unnamed)}"
        for function, value, text in functions(name)
        if len(inspect.signature(value).parameters) > 2
        and (unnamed := [each for each in inspect.signature(value).parameters if each not in (*SELF, *words(text))])
    ]
    assert not missing, "\n".join(missing)


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))

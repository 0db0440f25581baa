"""The modules of a package as text: what stands around functions and `run`, and lines that are not too long."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from jitonnx.codegen.numba.export.copied import copied
from jitonnx.codegen.numba.sources import helpers

OPERATORS = "jitonnx.codegen.numba.export.operators"
_WIDTH = 120
_USE = """\
Written by `jitonnx export`; it needs NumPy and Numba alone. With NUMBA_DISABLE_JIT=1 in the environment all of it is
plain Python, for a debugger to step through. Results stay in their variables to the end of `run`."""


def first_module(title: str) -> str:
    """What importing the package gives."""
    names = ("INPUTS", "OUTPUTS", "run")
    listed = ", ".join(map(json.dumps, names))
    return f'"""{_doc(title)}: `run` runs it."""\n\nfrom .model import {", ".join(names)}\n\n__all__ = [{listed}]\n'


def model_module(
    title: str,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    constants: Sequence[str],
    kernels: Sequence[str],
    run: str,
    called: Iterable[str],
) -> str:
    """The module with the kernels and `run`.

    inputs, outputs: by name what they are. constants: lines that define them. called: what may be imported from
    `operators`.
    """
    everything = "\n".join([*constants, *kernels, run])
    imported = [name for name in sorted(set(called)) if re.search(rf"\b{name}\(", everything)]
    standard = ["from pathlib import Path"] * ("WEIGHTS" in everything) + ["from typing import Any"]
    others = ["import numpy as np", *(["from numba import njit"] if kernels else [])]
    head = [
        f'"""{_doc(title)}.\n\n{_USE}\n"""',
        "from __future__ import annotations",
        "\n".join(standard),
        "\n".join(others),
        wrapped(f"from .operators import ({', '.join(imported)})"),
        f"INPUTS = {_dictionary(inputs)}\nOUTPUTS = {_dictionary(outputs)}\n"
        '"""Types and shapes by name, in the order in which `run` takes and gives them."""',
    ]
    if "WEIGHTS" in everything:
        head.append('WEIGHTS = Path(__file__).parent / "weights"')
    if constants:
        head.append("\n".join(map(wrapped, constants)))
    functions = [f'@njit(error_model="numpy", cache=True)\n{source.rstrip()}' for source in kernels]
    return "\n\n\n".join(["\n\n".join(head), *functions, run]) + "\n"


def operators_module(functions: Iterable[str], kernels: Sequence[str]) -> str:
    """The module with what `model` calls. functions: names of those of `operators`. kernels: sources that call
    functions of `scalars`."""
    imports, definitions = copied(OPERATORS, functions)
    called = [text.strip() for text in helpers("\n".join(kernels))]
    for module in ("math", "numpy"):
        statement, word = f"import {module}" + " as np" * (module == "numpy"), "np" if module == "numpy" else module
        if statement not in imports and any(re.search(rf"\b{word}\.", text) for text in called):
            imports.append(statement)
    standard = sorted((text for text in imports if "numpy" not in text), key=lambda text: (text[:4] == "from", text))
    others = ["import numpy as np"] * ("import numpy as np" in imports) + ["from numba import njit"] * bool(called)
    blocks = [
        '"""What `model` calls: operators on NumPy, and the scalar functions of its kernels."""',
        "from __future__ import annotations",
        *filter(None, ("\n".join(standard), "\n".join(others))),
    ]
    if called:
        blocks.append("Number = Any")
        if "from typing import Any" not in standard:
            blocks.insert(2, "from typing import Any")
    compiled = [f'@njit(error_model="numpy")\n{text}' for text in called]
    return "\n\n\n".join(["\n\n".join(blocks), *definitions, *compiled]) + "\n"


def run_function(arguments: Sequence[str], lines: Sequence[str]) -> str:
    """The function `run`."""
    head = wrapped(f"def run({', '.join(f'{argument}: Any' for argument in arguments)}) -> tuple[np.ndarray, ...]:")
    text = '"""The outputs for inputs of the types and shapes that INPUTS has; ValueError for others."""'
    body = [text, 'with np.errstate(all="ignore"):', *(textwrap.indent(wrapped(line, 8), "    ") for line in lines)]
    return "\n".join([head, *(textwrap.indent(line, "    ") for line in body)])


def wrapped(line: str, depth: int = 0) -> str:
    """A line, if it is too long with what it is indented by, with what its first brackets hold on lines of its own.

    A comment goes in front.
    """
    code, _, comment = line.partition("  # ")
    if depth + len(line) <= _WIDTH:
        return re.sub(r"^(from \S+ import )\((.*)\)$", r"\1\2", line)
    head, bracket, rest = code.partition("(")
    inside, close, tail = rest.rpartition(")")
    lines = [f"# {comment}"] if comment else []
    if not bracket or len(code) + depth <= _WIDTH:
        return "\n".join([*lines, code])
    body: list[str] = []
    for part in _parts(inside):
        if body and depth + 4 + len(body[-1]) + len(part) + 3 <= _WIDTH:
            body[-1] += f" {part},"
        else:
            body.append(f"{part},")
    return "\n".join([*lines, f"{head}(", *(f"    {part}" for part in body), f"{close}{tail}"])


def _parts(text: str) -> list[str]:
    """What stands between commas that are in no brackets or quotation marks."""
    parts, depth, quoted, start = [], 0, "", 0
    for place, character in enumerate(text):
        if quoted:
            quoted = "" if character == quoted and text[place - 1] != "\\" else quoted
        elif character in "\"'":
            quoted = character
        elif character == "," and depth == 0:
            parts.append(text[start:place].strip())
            start = place + 1
        depth += 0 if quoted else (character in "([") - (character in ")]")
    return [part for part in (*parts, text[start:].strip()) if part]


def _dictionary(entries: Mapping[str, str]) -> str:
    lines = "".join(f"\n    {json.dumps(name)}: {json.dumps(text)}," for name, text in entries.items())
    return f"{{{lines}\n}}" if entries else "{}"


def _doc(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', "'")

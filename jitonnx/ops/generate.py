"""Regenerate the modules `schemas` of the domains' folders: what ONNX and onnxruntime say of each operator's versions.

    python -m jitonnx.ops.generate            write the files
    python -m jitonnx.ops.generate --check    only say whether they are up to date (exit status 1 if not)

It reads the schemas of the packages onnx and, for its own domain, onnxruntime. A line says

    Sin,Cos 7,22 input:T > output:T | T=0,3 | alpha:FLOAT beta:FLOAT transA:INT transB:INT!

operators; versions; inputs and outputs with their type variables ("?" optional, "*" any number, "**" any number of
types of their own, then the least number of them); the types of each variable (a number: a place in TYPES; several: by
version); attributes ("!" required). Versions that follow each other and differ in nothing but types are one line, and
operators all of whose lines are the same have them together. A "-" behind the version: ONNX dropped the operator.
"""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from jitonnx.ops.registry import FOLDERS

FOLDER = Path(__file__).resolve().parent
CONTRIBUTED = {
    **dict.fromkeys(("Affine", "Crop", "DynamicSlice", "ImageScaler", "ParametricSoftplus", "Scale", "ScaledTanh"), 10),
    "LayerNormalization": 17,
    "MeanVarianceNormalization": 9,
    "SimplifiedLayerNormalization": None,
    "ThresholdedRelu": 10,
}
"""What onnxruntime has in ONNX's own domain, though ONNX has no such operators, and the operator set since which it has
them no more, or ONNX has them."""


def schemas_of(domain: str) -> list[Any]:
    """All schemas of a domain, by name and version."""
    from onnx import defs
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    of_onnxruntime = state.get_all_operator_schema()
    if domain.startswith("com.microsoft"):
        found = of_onnxruntime
    else:
        found = [*defs.get_all_schemas_with_history(), *(one for one in of_onnxruntime if is_contributed(one))]
    own = [schema for schema in found if schema.domain == domain]
    return sorted(own, key=lambda schema: (schema.name, schema.since_version))


def is_contributed(schema: Any) -> bool:
    """Whether a schema of onnxruntime's is of one of CONTRIBUTED, and not ONNX's too."""
    until = CONTRIBUTED.get(schema.name, 0) if schema.domain == "" else 0
    return until is None or schema.since_version < until or (schema.deprecated and schema.since_version == until)


def text_of(domain: str) -> str:
    """The text of a domain's module."""
    types: dict[tuple[str, ...], int] = {}
    lines: dict[str, list[str]] = {}
    for schema in schemas_of(domain):
        lines.setdefault(schema.name, []).append(_line(schema, types))
    tables = "".join(f'    "{" ".join(allowed)}",\n' for allowed in types)
    return (
        f'"""The schemas of domain {domain or "ai.onnx"}, which `jitonnx.ops.generate` writes and `jitonnx.ir.schema` '
        f'reads."""\n\nTYPES = (\n{tables})\n\nSCHEMAS = """\\\n{_table(lines)}"""\n'
    )


def _table(lines: Mapping[str, Sequence[str]]) -> str:
    """The text of SCHEMAS. lines: by operator, one a version."""
    operators: dict[tuple[str, ...], list[str]] = {}
    for name, versions in lines.items():
        operators.setdefault(tuple(_joined(versions)), []).append(name)
    return "".join(f"{','.join(names)} {line}\n" for rows, names in operators.items() for line in rows)


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """The lines of an operator: of versions that follow each other and differ in nothing but types, one."""
    parts = [line.split(" ", 1) for line in lines]
    for (_, text), same in itertools.groupby(parts, lambda part: (part[0].endswith("-"), _PLACE.sub("", part[1]))):
        versions, rests = zip(*same, strict=True)
        places = zip(*(_PLACE.findall(rest) for rest in rests), strict=True)
        told = (place[0] if len(set(place)) == 1 else ",".join(place) for place in places)
        yield f"{','.join(versions)} {text.replace('=', '={}').format(*told)}".rstrip()


_PLACE = re.compile(r"(?<==)\d+")
"""Which of TYPES a variable has."""


def _line(schema: Any, types: dict[tuple[str, ...], int]) -> str:
    variables = " ".join(
        f"{constraint.type_param_str}={types.setdefault(_allowed(constraint), len(types))}"
        for constraint in schema.type_constraints
    )
    attributes = " ".join(
        f"{name}:{str(attribute.type).rpartition('.')[2]}{'!' * attribute.required}"
        for name, attribute in sorted(schema.attributes.items())
    )
    dropped = "-" if schema.deprecated else ""
    inputs, outputs = _parameters(schema.inputs, schema.min_input), _parameters(schema.outputs, schema.min_output)
    return f"{schema.since_version}{dropped} {inputs} > {outputs} | {variables} | {attributes}"


def _parameters(parameters: Iterable[Any], least: int) -> str:
    texts = []
    for place, parameter in enumerate(parameters):
        option = parameter.option.name
        mark = "?" if option == "Optional" else ""
        if option == "Variadic":
            homogeneous = getattr(parameter, "is_homogeneous", None)
            homogeneous = parameter.isHomogeneous if homogeneous is None else homogeneous
            mark = f"{'*' if homogeneous else '**'}{max(least - place, 0)}"
        kind = getattr(parameter, "type_str", None) or parameter.typeStr
        texts.append(f"{parameter.name}{mark}:{short_type(kind)}")
    return " ".join(texts)


def _allowed(constraint: Any) -> tuple[str, ...]:
    return tuple(sorted(map(short_type, constraint.allowed_type_strs)))


def short_type(kind: str) -> str:
    """A type without spaces, and spelt out: "map(int64, float)" is "map(int64,tensor(float))"."""
    return re.sub(r"map\((\w+),(\w+)\)", r"map(\1,tensor(\2))", kind.replace(" ", ""))


def main() -> None:
    """The command line."""
    stale = []
    for domain, folder in FOLDERS.items():
        path, text = FOLDER / folder / "schemas.py", text_of(domain)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(path))
        if "--check" not in sys.argv[1:]:
            path.write_text(text, encoding="utf-8")
    print("\n".join(stale) or "all schemas are up to date")
    raise SystemExit(1 if stale and "--check" in sys.argv[1:] else 0)


if __name__ == "__main__":
    main()

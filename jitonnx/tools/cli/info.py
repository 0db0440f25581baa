"""`jitonnx info MODEL`: all that a model's file says about it, and what a run costs."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from jitonnx.tools.cli.common import add_inputs

if TYPE_CHECKING:
    from jitonnx.tools.info import Argument, Info, Storage, Work


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("info", help="show a model's metadata, inputs, outputs, operators, weights and work")
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    add_inputs(parser, feeds=False)
    parser.add_argument("--file", action="store_true", help="only what the file says: the work of a run is not counted")
    parser.add_argument("--json", action="store_true", help="print it as JSON, for machines")
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> None:
    """Print what is known of the model."""
    from jitonnx.tools.info import describe, known_work

    info = describe(options.model)
    work = None if options.file else known_work(options.model, dict(options.shape), dict(options.dim))
    if options.json:
        content: dict[str, Any] = {"model": options.model, **info.as_json()}
        if isinstance(work, str):
            content["work"] = {"error": work}
        elif work is not None:
            content["work"] = work.as_json()
        print(json.dumps(content, indent=2))
    else:
        print(_as_text(options.model, info, work))


def _as_text(model: str, info: Info, work: Work | str | None) -> str:
    from jitonnx.api.units import nbytes, table

    version = f"{info.model_version}" + (f" ({info.semver})" if info.semver else "")
    facts = [
        ("model", f"{model}" + ("" if info.file_bytes is None else f", {nbytes(info.file_bytes)}")),
        ("producer", f"{info.producer_name} {info.producer_version}".strip()),
        ("domain", info.domain),
        ("version", version if info.model_version else ""),
        ("description", info.doc_string),
        ("IR version", str(info.ir_version)),
        ("operator sets", ", ".join(f"{name or 'ai.onnx'} {number}" for name, number in info.opsets.items())),
        ("graph", f"{info.graph_name}, {info.nodes} nodes"),
        ("", info.graph_doc_string),
        ("functions", ", ".join(info.functions)),
        ("training", f"{info.training_infos} training infos" if info.training_infos else ""),
        ("parameters", _stored(info.parameters)),
        ("constants", _stored(info.constants) if info.constants.tensors else ""),
        ("external data", ", ".join(info.external_files)),
        *(("property", f"{key}: {value}") for key, value in info.metadata.items()),
        *_work(work),
    ]
    lines = [f"{name:14} {_indented(text)}" for name, text in facts if text]
    rows = [_row("input", each) for each in info.inputs] + [_row("output", each) for each in info.outputs]
    operators = [
        (
            f"{each.domain}:{each.name}".lstrip(":"),
            "function" if each.is_function else str(each.version or "?"),
            str(each.nodes),
        )
        for each in info.operators
    ]
    parts = ["\n".join(lines), table(("", "name", "type", "shape", ""), rows)]
    parts.append(table(("operator", "version", "nodes"), operators, right=(1, 2)))
    return "\n\n".join(parts)


def _indented(text: str) -> str:
    """Text of several lines behind a heading."""
    return text.strip().replace("\n", "\n" + " " * 15)


def _stored(storage: Storage) -> str:
    from jitonnx.api.units import count, nbytes

    types = (
        f" ({', '.join(f'{name} {count(number)}' for name, number in storage.types.items())})" if storage.types else ""
    )
    return f"{storage.elements:,} in {storage.tensors} tensors, {nbytes(storage.bytes)}{types}"


def _row(kind: str, argument: Argument) -> tuple[str, ...]:
    shape = argument.shape
    sizes = "any" if shape is None else "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"
    if shape is None and not argument.type.startswith(("tensor", "sparse")):
        sizes = ""
    return kind, argument.name, argument.type, sizes, "has a default" if argument.has_default else ""


def _work(work: Work | str | None) -> list[tuple[str, str]]:
    from jitonnx.api.units import count

    if work is None:
        return []
    if isinstance(work, str):
        return [("work", f"not known: {work}"), ("", "sizes are set with --dim NAME=SIZE or --shape INPUT=...")]
    shapes = ", ".join(f"{name} {list(shape)}" for name, shape in work.shapes.items())
    lines = [("work", f"{count(work.flops, 'FLOP')} for {shapes or 'no inputs'}")]
    if work.assumed:
        lines.append(("", f"taken as 1: {', '.join(work.assumed)}; set with --dim NAME=SIZE or --shape INPUT=..."))
    return lines + [("", note) for note in work.notes]

"""`jitonnx compile MODEL -o OUT`: a model to one file that starts without compiling; see docs/artifacts.md."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from jitonnx.cli.common import add_inputs, add_model, session_of


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "compile",
        help="compile a model to a file that starts at once",
        epilog="Several shapes for an input make several programs; an input given once has that shape in all of them.",
    )
    add_model(parser)
    add_inputs(parser, feeds=False)
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="the file to write, such as model.jitonnx")
    parser.add_argument(
        "--cpu",
        default="host",
        metavar="NAME",
        help="the CPU to compile for, by LLVM's name: x86-64-v3, x86-64-v4, haswell, znver4, ... (default: this one)",
    )
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> None:
    """Compile, write, and say what is in the file."""
    from jitonnx.entries import CPU_NAME
    from jitonnx.errors import InvalidArgument
    from jitonnx.explain.units import nbytes
    from jitonnx.inputs import choose_shapes

    session = session_of(options, {CPU_NAME: options.cpu})
    chosen = [choose_shapes(session.declared_inputs, one, dict(options.dim)) for one in shape_sets(options.shape)]
    if chosen[0].assumed:
        names = ", ".join(chosen[0].assumed)
        raise InvalidArgument(f"say for which sizes to compile {names}: --shape INPUT=1,2,3 or --dim NAME=1")
    size = session.save(options.output, [one.shapes for one in chosen])
    for one in chosen:
        print("compiled for " + ", ".join(f"{name} {list(shape)}" for name, shape in one.shapes.items()))
    print(f"{options.output}: {nbytes(size)}")


def shape_sets(given: Sequence[tuple[str, tuple[int, ...]]]) -> list[dict[str, tuple[int, ...]]]:
    """Sets of shapes from (input, shape) pairs: the first of every input, the second of every input, ...

    An input that is given once has its shape in all sets. InvalidArgument for other differences in number.
    """
    from jitonnx.errors import InvalidArgument

    by_name: dict[str, list[tuple[int, ...]]] = {}
    for name, shape in given:
        by_name.setdefault(name, []).append(shape)
    counts = {name: len(shapes) for name, shapes in by_name.items() if len(shapes) > 1}
    if len(set(counts.values())) > 1:
        raise InvalidArgument(f"inputs have different numbers of shapes: {counts}; give each of them one for every set")
    return [
        {name: shapes[number if len(shapes) > 1 else 0] for name, shapes in by_name.items()}
        for number in range(max(counts.values(), default=1))
    ]

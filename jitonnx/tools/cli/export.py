"""`jitonnx export MODEL -o FOLDER`: the model as a Python package of NumPy and Numba alone; see docs/numba.md."""

from __future__ import annotations

import argparse
from typing import Any

from jitonnx.tools.cli.common import LEVELS, add_inputs


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "export",
        help="write the model as a Python package that needs NumPy and Numba alone",
        epilog="Sizes that are not given stay open: the package serves all of them.",
    )
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    parser.add_argument("-o", "--output", metavar="FOLDER", required=True, help="the folder to make, such as package")
    parser.add_argument("--level", choices=LEVELS, default="all", help="which rewrites are made (default: all)")
    add_inputs(parser, feeds=False)
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> None:
    """Write the package, and say what is in it."""
    from jitonnx.api.units import nbytes
    from jitonnx.tools.export import export

    sizes = dict(options.shape), dict(options.dim)
    made = export(options.model, options.output, *sizes, level=LEVELS[options.level])
    kernels = f"{made.kernels} Numba function{'s' * (made.kernels != 1)}"
    print(f"{options.output}: {made.regions} region{'s' * (made.regions != 1)} as {kernels}, ", end="")
    print(f"{made.weights} weight file{'s' * (made.weights != 1)} of {nbytes(made.weight_bytes)}")

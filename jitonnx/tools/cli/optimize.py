"""`jitonnx optimize MODEL -o OUT`: the rewritten model as an ONNX file, which any runtime loads."""

from __future__ import annotations

import argparse
from typing import Any

from jitonnx.tools.cli.common import LEVELS, count


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("optimize", help="write the rewritten model as an ONNX file")
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="the file to write, such as small.onnx")
    parser.add_argument("--level", choices=LEVELS, default="all", help="which rewrites are made (default: all)")
    parser.add_argument("--external", metavar="FILE", help="a file beside OUT that large initializers go to")
    parser.add_argument(
        "--external-bytes", type=count, default=1024, metavar="N", help="how large these are at least (default: 1024)"
    )
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> None:
    """Write the model, and say which rewrites were made."""
    from jitonnx.model.optimized import optimize_file
    from jitonnx.model.write import ExternalFile

    external = ExternalFile(options.external, options.external_bytes) if options.external else None
    report = optimize_file(options.model, options.output, LEVELS[options.level], external)
    print(f"{options.output}: {report.nodes_before} nodes became {report.nodes_after}")
    for rewrite, times in report.counts.most_common():
        print(f"  {rewrite} {times}")

"""`jitonnx explain MODEL`: what became of each node and why, as text and as a page to look at."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from jitonnx.tools.cli.common import add_inputs, add_model, session_of, shapes_of


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("explain", help="tell what became of each node and why")
    add_model(parser)
    add_inputs(parser, feeds=False)
    parser.add_argument("--html", metavar="FILE", help="write one self-contained page that draws the plan")
    parser.add_argument("--details", action="store_true", help="also operands, formulas, and every rewrite")
    parser.add_argument("--numba", action="store_true", help="the sources of the regions' Numba functions instead")
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> None:
    """Print the explanation, or write the page."""
    from jitonnx.api.inputs import random_feeds
    from jitonnx.api.saved.engine import SavedEngine
    from jitonnx.tools.explain import as_html, as_text, explain, has_steps, numba_sources

    session = session_of(options)
    model = session.compiled_model
    if isinstance(model.engine, SavedEngine) and not (options.html or options.details or options.numba):
        print(model.engine.explanation(), end="")
        return
    shapes = shapes_of(model, options).shapes
    if has_steps(model, shapes):
        session.run(None, random_feeds(model.description.inputs, shapes))  # only a run tells all sizes
    explanation = explain(model, shapes)
    if options.html:
        Path(options.html).write_text(as_html(explanation), "utf-8")
        print(f"{options.html}: {len(explanation.nodes)} nodes, {len(explanation.kernels)} kernel calls")
    elif options.numba:
        print(numba_sources(explanation), end="")
    else:
        print(as_text(explanation, details=options.details), end="")

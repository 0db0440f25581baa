"""`jitonnx compile MODEL -o OUT`: a model to one file that starts without compiling; see docs/artifacts.md."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jitonnx.tools.cli.common import add_inputs, add_model, session_of

if TYPE_CHECKING:
    from jitonnx.api.inputs import Shape, Size
    from jitonnx.api.session import InferenceSession


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "compile",
        help="compile a model to a file that starts at once",
        epilog="Several shapes for an input make several programs; an input given once has that shape in all of them. "
        "Ranges, such as --shape ids=1:8,1:512, make one that serves all sizes in them, both ends included.",
    )
    add_model(parser, artifact=False)
    add_inputs(parser, feeds=False, ranges=True)
    parser.add_argument("-o", "--output", metavar="OUT", required=True, help="the file to write, such as model.jitonnx")
    parser.add_argument(
        "--cpu",
        default="host",
        metavar="NAME",
        help="the CPU to compile for, by LLVM's name: x86-64-v3, x86-64-v4, haswell, znver4, ... (default: this one)",
    )
    parser.add_argument(
        "--tune",
        type=float,
        metavar="SECONDS",
        help="measure on this machine for about so long which kernels are fastest, on random inputs of the first "
        "shapes or the first --calibration, and take these (default: kernels are chosen by estimated cost)",
    )
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> None:
    """Compile, write, and say what is in the file."""
    from jitonnx.api.entries import CPU_NAME
    from jitonnx.api.inputs import choose_shapes, ends, joined
    from jitonnx.api.saved.engine import range_text
    from jitonnx.api.units import nbytes
    from jitonnx.errors import InvalidArgument

    session = session_of(options, {CPU_NAME: options.cpu})
    model = session.compiled_model
    declared, usual = model.description.inputs, model.engine.usual_sizes
    sizes = {name: ends({name: [size]}) for name, size in options.dim}
    dimensions = [{name: both[end][name][0] for name, both in sizes.items()} for end in (0, 1)]
    chosen = [
        tuple(choose_shapes(declared, end, given, usual) for end, given in zip(ends(one), dimensions, strict=True))
        for one in shape_sets(options.shape)
    ]
    if chosen[0][0].assumed:
        names = ", ".join(chosen[0][0].assumed)
        raise InvalidArgument(f"say for which sizes to compile {names}: --shape INPUT=1,2,3 or --dim NAME=1")
    if options.tune:
        session = _tuned(options, session, chosen[0][1].shapes)
    written = session.save(options.output, [joined(low.shapes, high.shapes) for low, high in chosen])
    for low, high in chosen:
        shapes = (f"{name} {range_text(low.shapes[name], high.shapes[name])}" for name in low.shapes)
        print("compiled for " + ", ".join(shapes))
    print(f"{options.output}: {nbytes(written)}")


def _tuned(options: argparse.Namespace, session: InferenceSession, shapes: Mapping[str, Shape]) -> InferenceSession:
    """A session for the same model with the kernels that were measured to be fastest for these shapes."""
    import numpy as np

    from jitonnx.api.entries import CALIBRATION, CPU_NAME, KEEP_MODEL, TUNE
    from jitonnx.api.inputs import random_feeds

    # Not kept under the name of a file of inputs that is gone by the next start.
    entries = {CPU_NAME: options.cpu, TUNE: str(options.tune), KEEP_MODEL: "0"}
    with tempfile.TemporaryDirectory() as folder:
        if not options.calibration:
            feeds = random_feeds(session.compiled_model.description.inputs, shapes)
            entries[CALIBRATION] = os.path.join(folder, "feeds.npz")
            np.savez(entries[CALIBRATION], **feeds)  # type: ignore[arg-type]
        tuned = session_of(options, entries)
    print(tuned.tuning)
    return tuned


def shape_sets(given: Sequence[tuple[str, tuple[Size, ...]]]) -> list[dict[str, tuple[Size, ...]]]:
    """Sets of shapes from (input, shape) pairs: the first of every input, the second of every input, ...

    An input that is given once has its shape in all sets. InvalidArgument for other differences in number.
    """
    from jitonnx.errors import InvalidArgument

    by_name: dict[str, list[tuple[Size, ...]]] = {}
    for name, shape in given:
        by_name.setdefault(name, []).append(shape)
    counts = {name: len(shapes) for name, shapes in by_name.items() if len(shapes) > 1}
    if len(set(counts.values())) > 1:
        raise InvalidArgument(f"inputs have different numbers of shapes: {counts}; give each of them one for every set")
    return [
        {name: shapes[number if len(shapes) > 1 else 0] for name, shapes in by_name.items()}
        for number in range(max(counts.values(), default=1))
    ]

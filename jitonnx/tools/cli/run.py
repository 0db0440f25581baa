"""`jitonnx run MODEL`: run a model once on random inputs or on a file's, look at the outputs, keep them."""

from __future__ import annotations

import argparse
import time
from typing import Any

from jitonnx.tools.cli.common import add_inputs, add_model, feeds_of, median_seconds, session_of


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("run", help="run a model on random inputs or on those of an .npz file")
    add_model(parser)
    add_inputs(parser)
    parser.add_argument("--output", metavar="OUTS.npz", help="save the outputs by name")
    parser.set_defaults(command=main)


def main(options: argparse.Namespace) -> None:
    """Run, print a line for each input and output, and the times."""
    import numpy as np

    from jitonnx.api.units import seconds, table

    started = time.perf_counter()
    session = session_of(options)
    ready = time.perf_counter()
    model = session.compiled_model
    feeds = feeds_of(model, options)
    first_began = time.perf_counter()
    outputs = session.run(None, feeds)
    first = time.perf_counter() - first_began
    named = dict(zip([output.name for output in session.get_outputs()], outputs, strict=True))
    rows = [_row("input", name, value) for name, value in feeds.items()]
    rows += [_row("output", name, value) for name, value in named.items()]
    print(table(("", "name", "type", "shape", "min", "mean", "max", "not finite"), rows, right=(4, 5, 6, 7)))
    steady = median_seconds(lambda: session.run(None, feeds))
    print(
        f"\nready after {seconds(ready - started)}, first run {seconds(first)}, "
        f"then {seconds(steady)} a run on {model.engine.settings.threads} thread(s)"
    )
    if options.output:
        np.savez(options.output, allow_pickle=False, **{name: _storable(value) for name, value in named.items()})
        print(f"outputs saved to {options.output}")


def _storable(value: Any) -> Any:
    """An array that can be stored without pickling: texts as NumPy's own kind of text."""
    import numpy as np

    array = np.asarray(value)
    return array.astype(np.str_) if array.dtype == object else array


def _row(kind: str, name: str, value: Any) -> tuple[str, ...]:
    """One line of the table: what the value is, and statistics of its numbers."""
    import numpy as np

    array = np.asarray(value)
    if array.dtype.kind in "OUST" or not array.size:
        return kind, name, str(array.dtype), str(list(array.shape)), "", "", "", ""
    wide = array.astype(np.float64 if array.dtype.kind != "c" else np.complex128)
    numbers = np.abs(wide) if wide.dtype.kind == "c" else wide
    finite = numbers[np.isfinite(numbers)]
    statistics = [f"{function(finite):.6g}" for function in (np.min, np.mean, np.max)] if finite.size else ["", "", ""]
    return kind, name, str(array.dtype), str(list(array.shape)), *statistics, str(numbers.size - finite.size)

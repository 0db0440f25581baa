"""`jitonnx map MODEL INPUT -o FOLDER`: a model over the rows of tables in files."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from jitonnx.tools.cli.common import positive

if TYPE_CHECKING:
    from jitonnx.batch.files import Progress

_TELL_SECONDS = 0.2
"""Between two lines about how far it is."""


def add(subparsers: Any) -> None:
    parser = subparsers.add_parser("map", help="run a model over the rows of Parquet or CSV files")
    parser.add_argument("model", metavar="MODEL", help="an ONNX file")
    parser.add_argument("input", metavar="INPUT", help="a .parquet or .csv file, or a folder of these, or of images")
    parser.add_argument(
        "-o", "--output", required=True, metavar="FOLDER", help="for Parquet files; begun ones are gone on with"
    )
    parser.add_argument(
        "--column",
        action="append",
        default=[],
        type=_column,
        metavar="INPUT=COLUMN[,COLUMN]",
        help="what an input is made of (default: the column of its name); several times for several inputs",
    )
    parser.add_argument(
        "--outputs", metavar="NAME[=COLUMN],...", help="outputs to write, and names for their columns (default: all)"
    )
    parser.add_argument(
        "--keep-columns",
        type=lambda text: text.split(",") if text else [],
        metavar="NAME,...",
        help="of the columns that were there those that are written in front of the outputs'; none for '' (default: "
        "all, but not the pixels of images)",
    )
    for name, number in (("mean", 0), ("std", 1)):
        parser.add_argument(
            f"--{name}",
            type=_numbers,
            metavar="NUMBER,...",
            help=f"of the pixels of images, by channel: they become (pixel / 255 - mean) / std (default: {number})",
        )
    parser.add_argument("--batch-rows", type=positive, metavar="N", help="of a batch (default: as many as pay)")
    parser.add_argument("--workers", type=positive, metavar="N", help="batches beside each other (default: all CPUs)")
    parser.add_argument(
        "--engine",
        type=_engine,
        default="local",
        metavar="ENGINE",
        help="what has the workers: this process (local), or the cluster of ray, dask or spark as its environment says "
        "(default: local)",
    )
    parser.add_argument(
        "--on-error",
        choices=("raise", "keep"),
        default="raise",
        help="what a row that does not fit does: end, or a note in a column `error` (default: raise)",
    )
    parser.set_defaults(command=main)


def _engine(text: str) -> str:
    from jitonnx.batch.files import ENGINES

    if text not in ENGINES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(ENGINES)}")
    return text


def _column(text: str) -> tuple[str, list[str]]:
    name, equals, columns = text.partition("=")
    if not (name and equals and columns):
        raise argparse.ArgumentTypeError(f"{text!r} is not INPUT=COLUMN")
    return name, columns.split(",")


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main(options: argparse.Namespace) -> None:
    """Run it, and say how far it is while standard error is a terminal."""
    from jitonnx.batch import Pixels
    from jitonnx.batch.files import map_files

    given = {name: getattr(options, name) for name in ("mean", "std") if getattr(options, name)}

    names = [text.partition("=") for text in options.outputs.split(",")] if options.outputs else []
    line = _Line()
    done = map_files(
        options.model,
        options.input,
        options.output,
        columns=dict(options.column),
        outputs={name: column or name for name, _, column in names} or None,
        batch_rows=options.batch_rows,
        threads=options.workers,
        on_error=options.on_error,
        keep_columns=options.keep_columns,
        pixels=Pixels(**given) if given else None,
        engine=options.engine,
        tell=line.tell,
    )
    line.end()
    seconds = time.perf_counter() - line.began
    there = f", {done.found} were there" if done.found else ""
    print(f"{done.done} rows in {seconds:.1f} s ({done.done / max(seconds, 1e-9):.0f} rows/s){there}: {options.output}")


class _Line:
    """A line on the terminal that is written over."""

    def __init__(self) -> None:
        self.began = time.perf_counter()
        self._last = 0.0

    def tell(self, progress: Progress) -> None:
        now = time.perf_counter()
        if not sys.stderr.isatty() or now - self._last < _TELL_SECONDS:
            return
        self._last = now
        rate = progress.done / max(now - self.began, 1e-9)
        left = ""
        if progress.total is not None:
            seconds = (progress.total - progress.found - progress.done) / max(rate, 1e-9)
            left = f" of {progress.total}, {seconds:.0f} s left"
        print(f"\r{progress.found + progress.done} rows{left}, {rate:.0f} rows/s\x1b[K", end="", file=sys.stderr)

    def end(self) -> None:
        if sys.stderr.isatty():
            print("\r\x1b[K", end="", file=sys.stderr)

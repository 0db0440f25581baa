"""Operators: jitonnx beside onnxruntime and the machine's limits, on models of one node or a few.

    python -m bench.operators                           # all cases, one thread
    python -m bench.operators conv softmax/1x --threads 2
    python -m bench.operators --json rows.json --plot chart.png
    python -m bench.operators convolution product --precision bfloat16         # our share of the tile registers' peak
    python -m bench.operators convolution product --cpu haswell --clock cpu    # our share of the FMA peak of AVX2

A filter keeps the cases whose "family/case" contains it. Both runtimes and the measurement of the limit take turns in
one process; times are medians of rounds. The ratio is onnxruntime's time over ours: above 1 jitonnx is faster.

`limit` is what binds: the FMA peak, for products of bytes that of tile registers or dot products, the bandwidth of
copying as many bytes where data of this size lie (L1, L2, L3, memory), or what a call of a model costs that does
nothing; bytes and operations are counted as `bench.operators.work` says. Cases of operators that onnxruntime lacks are
compared with the evaluation on NumPy, and have no ratio.
`share` is how much of that limit is reached. `difference` is the largest to onnxruntime's output, over its
largest value. A case whose answer is wrong fails, and so does the command at its end; times are never judged. `*` marks
cases that are evaluated on NumPy, for want of a kernel.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.arguments import add_clock
from bench.operators.cases import Case, cases
from bench.operators.chart import draw
from bench.operators.measure import TOLERANCES, measure
from bench.operators.rows import COLUMNS, FAMILY_COLUMNS, HEAD, Row, cells, families, line, summary
from bench.operators.work import Limits
from bench.results import add_record, keep


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print, and store what was asked for. The exit status is 1 if an answer was wrong."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.operators", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("filters", nargs="*", metavar="FILTER", help='parts of "family/case"; default: all cases')
    parser.add_argument("--threads", type=int, default=1, help="threads of each runtime (default 1)")
    parser.add_argument("--cpu", default="host", help="compile for this CPU, and measure its FMA peak: haswell, ...")
    parser.add_argument("--precision", default="float32", choices=list(TOLERANCES), help="of our products")
    add_clock(parser)
    parser.add_argument("--rounds", type=int, default=7, help="rounds of turns (default 7)")
    parser.add_argument("--list", action="store_true", help="only name the cases")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    add_record(parser)
    parser.add_argument("--plot", type=Path, help="draw the rows to this file (.png, .svg, .pdf)")
    options = parser.parse_args(arguments)
    chosen = list(cases(options.filters))
    if not chosen:
        parser.error(f"no case fits {' '.join(options.filters)}; --list names them all")
    if options.list:
        print("\n".join(f"{case.family}/{case.name}" for case in chosen))
        return
    limits = Limits(options.threads, options.cpu, options.clock)
    rows = _measure_all(chosen, limits, options.rounds, options.precision)
    print(f"\n{summary(rows)}")
    if options.json:
        options.json.write_text(json.dumps(_report(rows, options.threads), indent=1))
    if options.plot:
        draw(rows, options.threads, options.plot)
    if options.record:
        keep(options.record, [options.threads], COLUMNS, list(map(cells, rows)))
        keep(f"{options.record}-families", [options.threads], FAMILY_COLUMNS, families(rows))
    if wrong := [f"{row.family}/{row.case} differs by {row.difference:.1e}" for row in rows if row.wrong]:
        sys.exit("wrong answers: " + "; ".join(wrong))


def _measure_all(chosen: Sequence[Case], limits: Limits, rounds: int, precision: str) -> list[Row]:
    """The rows, each printed as soon as it is there."""
    bounds = limits.described().items()
    rates = ", ".join(f"{name} {bound.rate(limits.seconds(bound)):.3g} {bound.unit}" for name, bound in bounds)
    print(f"{limits.threads} thread(s); limits: {rates}\n\n{HEAD}")
    rows: list[Row] = []
    for case in chosen:
        if not rows or rows[-1].family != case.family:
            print(f"\n{case.family}")
        rows.append(measure(case, limits, rounds, precision=precision))
        print(line(rows[-1]), flush=True)
    return rows


def _report(rows: Sequence[Row], threads: int) -> dict[str, Any]:
    return {"threads": threads, "rows": [asdict(row) | {"ratio": row.ratio} for row in rows]}


if __name__ == "__main__":
    main()

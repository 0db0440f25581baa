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
nothing; bytes and operations are counted as `bench.operator_work` says. Cases of operators that onnxruntime lacks are
compared with the evaluation on NumPy, and have no ratio.
`share` is how much of that limit is reached. `difference` is the largest to onnxruntime's output, over its
largest value. A case whose answer is wrong fails, and so does the command at its end; times are never judged. `*` marks
cases that are evaluated on NumPy, for want of a kernel.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from bench.clocks import add_clock
from bench.models import block_of, difference, medians_in_turns
from bench.operator_cases import Case, cases
from bench.operator_work import Limits, work

BLOCK_SECONDS = 0.05
"""Length of a block of runs: many short rounds even out other processes' turns better than few long ones."""
TOLERANCES = {"float32": 1e-4, "bfloat16": 2e-2}
"""Largest difference allowed where outputs are floating-point numbers, by the precision of products; others must be
equal, but for quantised results, which may differ by a unit: onnxruntime's float32 scales are multiplied in another
order."""


@dataclass(frozen=True)
class Row:
    """What was measured of one case. Times are microseconds."""

    family: str
    case: str
    shapes: str
    ours: float
    onnxruntime: float | None
    """None: it has not the operator."""
    rate: float
    """GFLOP/s, GB/s or millions of calls a second: `unit` says which."""
    unit: str
    limit: str
    share: float
    difference: float
    flops: int
    bytes: int
    on_numpy: bool
    wrong: bool

    @property
    def ratio(self) -> float:
        """onnxruntime's time over ours; NaN without one."""
        return math.nan if self.onnxruntime is None else self.onnxruntime / self.ours


_HALF = 1e-3
"""The spacing of float16 about 1: results of that type may be neighbours."""


def measure(
    case: Case, limits: Limits, rounds: int, block_seconds: float = BLOCK_SECONDS, precision: str = "float32"
) -> Row:
    """Run a case with both runtimes in turns, and in its turn measure the limit that binds it. precision: of our
    products with constant weights."""
    import onnxruntime

    import jitonnx
    from jitonnx.engine.pipeline import Engine
    from jitonnx.interpreter import evaluate
    from jitonnx.model import load

    model, net = case.make()
    data, feeds = model.SerializeToString(), net.feeds
    our_options, their_options = jitonnx.SessionOptions(), onnxruntime.SessionOptions()
    our_options.add_session_config_entry("jitonnx.cpu", limits.cpu)
    our_options.add_session_config_entry("jitonnx.precision", precision)
    our_options.intra_op_num_threads = their_options.intra_op_num_threads = limits.threads
    our_session = jitonnx.InferenceSession(data, our_options)
    their_session = None
    if not case.ours_alone:
        their_session = onnxruntime.InferenceSession(data, their_options, providers=["CPUExecutionProvider"])
    ours = our_session.run(None, feeds)
    theirs = evaluate(load(data).graph, feeds) if their_session is None else their_session.run(None, feeds)
    needed = work(model, net, theirs, precision)
    bound = limits.binding(needed)
    # The limit right behind our turn: cores slow down under wide vectors, and speed up again.
    our_block = block_of(partial(our_session.run, None, feeds), block_seconds, limits.clock)
    blocks = [our_block, lambda: limits.seconds(bound)]
    if their_session is not None:
        blocks.append(block_of(partial(their_session.run, None, feeds), block_seconds, limits.clock))
    our_seconds, least, *their_seconds = medians_in_turns(blocks, rounds)
    apart, engine = difference(ours, theirs), our_session.engine
    schedule = engine.schedule if isinstance(engine, Engine) else None
    exact = all(array.dtype.kind != "f" for array in theirs)
    # Bytes that one rounds up and the other down: sums of floats in another order are behind them.
    rounded = bool(needed.byte_products) or any(node.op_type.startswith("QLinear") for node in model.graph.node)
    halves = any(array.dtype == np.float16 for array in theirs)
    unit = 1.01 / min(float(np.abs(array.astype(np.float64)).max(initial=0.0)) or 1.0 for array in theirs)
    allowed = unit if rounded else 0 if exact else _HALF if halves else TOLERANCES[precision]
    return Row(
        case.family,
        case.name,
        f"{_shapes(feeds.values())} -> {_shapes(theirs)}",
        1e6 * our_seconds,
        1e6 * their_seconds[0] if their_seconds else None,
        bound.rate(our_seconds),
        bound.unit,
        bound.limit,
        least / our_seconds,
        apart,
        needed.flops + needed.rounded_products,
        needed.bytes,
        schedule is not None and any(True for _ in schedule.host_steps()),
        apart > allowed,
    )


def _shapes(arrays: Iterable[np.ndarray]) -> str:
    """`2*128x768, 16 int64`: equal neighbours counted, float32 left out."""
    texts = []
    for array in arrays:
        kind = "" if array.dtype == np.float32 else f" {array.dtype}"
        texts.append(("x".join(map(str, array.shape)) or "scalar") + kind)
    counted = [(text, len(list(group))) for text, group in itertools.groupby(texts)]
    return ", ".join(text if count == 1 else f"{count}*{text}" for text, count in counted)


# ---------------------------------------------------------------- text

_HEAD = (
    f"{'case':38} {'shapes':44} {'ours us':>9} {'onnxrt us':>9} {'ratio':>6} {'rate':>6} {'unit':7} {'limit':6} "
    f"{'share':>5} {'differ.':>7}"
)


def line(row: Row) -> str:
    """A row of the table."""
    shapes = row.shapes if len(row.shapes) <= 44 else row.shapes[:43] + "…"
    compared = f"{'-':>9} {'-':>6}" if row.onnxruntime is None else f"{row.onnxruntime:9.4g} {row.ratio:6.2f}"
    return (
        f"{row.case + '*' * row.on_numpy:38} {shapes:44} {row.ours:9.4g} {compared} "
        f"{row.rate:6.1f} {row.unit:7} {row.limit:6} {row.share:5.2f} {row.difference:7.1e}{' WRONG' * row.wrong}"
    )


def table(rows: Sequence[Row]) -> str:
    """All rows, by family."""
    lines = [_HEAD]
    for family, members in itertools.groupby(rows, lambda row: row.family):
        lines += ["", family, *map(line, members)]
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> str:
    """Sum up each family and all: geometric mean and worst of the ratios, share of rows at least as fast as
    onnxruntime."""
    lines = [f"{'family':16} {'rows':>5} {'at least as fast':>17} {'mean ratio':>11} {'worst':>6}  worst case"]
    families = [(name, list(members)) for name, members in itertools.groupby(rows, lambda row: row.family)]
    for name, members in [*families, ("all", list(rows))]:
        ratios = {row.case: row.ratio for row in members if row.onnxruntime is not None}
        if not ratios:
            lines.append(f"{name:16} {len(members):5} {'-':>17} {'-':>11} {'-':>6}")
            continue
        worst = min(ratios, key=lambda case: ratios[case])
        faster = sum(ratio >= 1 for ratio in ratios.values()) / len(ratios)
        mean = statistics.geometric_mean(ratios.values())
        lines.append(f"{name:16} {len(members):5} {faster:17.0%} {mean:11.2f} {ratios[worst]:6.2f}  {worst}")
    heavy = [row.share >= 0.93 for row in rows if row.limit == "FMA" and row.flops > 10e6]
    light = [row.share >= 0.8 for row in rows if row.unit == "GB/s"]
    calls = sum(row.limit == "call" for row in rows)
    lines += [
        "",
        f"bound by FMA, over 10 MFLOP: {sum(heavy)} of {len(heavy)} rows reach 0.93 of the peak",
        f"bound by memory: {sum(light)} of {len(light)} rows reach 0.8 of the copy bandwidth",
        f"bound by the call: {calls} rows",
    ]
    return "\n".join(lines)


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
        from bench.operator_chart import draw

        draw(rows, options.threads, options.plot)
    if wrong := [f"{row.family}/{row.case} differs by {row.difference:.1e}" for row in rows if row.wrong]:
        sys.exit("wrong answers: " + "; ".join(wrong))


def _measure_all(chosen: Sequence[Case], limits: Limits, rounds: int, precision: str) -> list[Row]:
    """The rows, each printed as soon as it is there."""
    bounds = limits.described().items()
    rates = ", ".join(f"{name} {bound.rate(limits.seconds(bound)):.3g} {bound.unit}" for name, bound in bounds)
    print(f"{limits.threads} thread(s); limits: {rates}\n\n{_HEAD}")
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

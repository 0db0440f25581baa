"""The rows of the table of operators: what was measured of each case, as text and summed up."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


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


HEAD = (
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


COLUMNS = ("family", "case", "shapes", "jitonnx us", "onnxruntime us", "ratio", "rate", "limit", "share", "difference")
FAMILY_COLUMNS = ("family", "rows", "at least as fast", "mean ratio", "worst", "worst case")


def cells(row: Row) -> list[str]:
    """A row for a record, whose columns are COLUMNS."""
    compared = ["-", "-"] if row.onnxruntime is None else [f"{row.onnxruntime:.4g}", f"{row.ratio:.2f}"]
    reached = [f"{row.rate:.1f} {row.unit}", row.limit, f"{row.share:.2f}", f"{row.difference:.1e}"]
    return [row.family, row.case + " (NumPy)" * row.on_numpy, row.shapes, f"{row.ours:.4g}", *compared, *reached]


def table(rows: Sequence[Row]) -> str:
    """All rows, by family."""
    lines = [HEAD]
    for family, members in itertools.groupby(rows, lambda row: row.family):
        lines += ["", family, *map(line, members)]
    return "\n".join(lines)


def families(rows: Sequence[Row]) -> list[list[str]]:
    """A row each family and one for all, whose columns are FAMILY_COLUMNS."""
    groups = [(name, list(members)) for name, members in itertools.groupby(rows, lambda row: row.family)]
    table = []
    for name, members in [*groups, ("all", list(rows))]:
        ratios = {row.case: row.ratio for row in members if row.onnxruntime is not None}
        if not ratios:
            table.append([name, str(len(members)), "-", "-", "-", ""])
            continue
        worst = min(ratios, key=lambda case: ratios[case])
        faster = sum(ratio >= 1 for ratio in ratios.values()) / len(ratios)
        mean = statistics.geometric_mean(ratios.values())
        table.append([name, str(len(members)), f"{faster:.0%}", f"{mean:.2f}", f"{ratios[worst]:.2f}", worst])
    return table


def summary(rows: Sequence[Row]) -> str:
    """Sum up each family and all: geometric mean and worst of the ratios, share of rows at least as fast as
    onnxruntime."""
    lines = [
        f"{name:16} {count:>5} {faster:>17} {mean:>11} {worst:>6}  {case}"
        for name, count, faster, mean, worst, case in (FAMILY_COLUMNS, *families(rows))
    ]
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

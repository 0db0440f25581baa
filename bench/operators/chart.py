"""The chart of `bench.operators`: for each case the ratio to onnxruntime and the share of the limit that binds."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.operators.rows import Row

FASTER, SLOWER = "#2a7f8e", "#d1495b"
LIMITS = {
    "FMA": "#5b4b8a",
    "dots": "#8c7bbd",
    "L1": "#f2c14e",
    "L2": "#eda13c",
    "L3": "#e0812b",
    "memory": "#b85c1a",
    "call": "#8a8a94",
}
"""Colours of the limits: arithmetic apart from the bandwidths, which darken with the distance of the data."""

LOWEST, HIGHEST = 0.25, 16.0
"""Ratios beyond are drawn up to here; the number beside the bar is right."""
LARGEST_SHARE = 1.5
ROW_INCHES, COLUMN_INCHES, HEADER_INCHES = 0.155, 8.6, 1.6
ROWS_OF_A_COLUMN = 150
"""About as many rows stand in a column at most, names of families counted."""


def draw(rows: Sequence[Row], threads: int, path: Path) -> None:
    """Write the chart of `rows` to `path`, in the format of its suffix."""
    from matplotlib.figure import Figure

    rows = [row for row in rows if row.onnxruntime is not None]
    families = [(name, list(members)) for name, members in itertools.groupby(rows, lambda row: row.family)]
    columns = _columns(families)
    height = max(sum(len(members) + 2 for _, members in column) for column in columns)
    inches = height * ROW_INCHES + HEADER_INCHES
    figure = Figure(figsize=(COLUMN_INCHES * len(columns), inches), facecolor="white")
    top, bottom = 1 - (HEADER_INCHES - 0.1) / inches, 0.1 / inches
    for number, column in enumerate(columns):
        left, width = number / len(columns), 1 / len(columns)
        ratios = figure.add_axes((left + 0.31 * width, bottom, 0.37 * width, top - bottom))
        shares = figure.add_axes((left + 0.71 * width, bottom, 0.27 * width, top - bottom))
        _draw_column(ratios, shares, column, height)
    _draw_header(figure, rows, threads, inches)
    figure.savefig(path, dpi=100)


def _columns(families: Sequence[tuple[str, list[Row]]]) -> list[list[tuple[str, list[Row]]]]:
    """The families in order, in columns of about equal height."""
    total = sum(len(members) + 2 for _, members in families)
    count = -(-total // ROWS_OF_A_COLUMN)
    columns: list[list[tuple[str, list[Row]]]] = [[] for _ in range(count)]
    before = 0
    for name, members in families:
        middle = before + (len(members) + 2) / 2
        columns[min(count - 1, int(middle * count / total))].append((name, members))
        before += len(members) + 2
    return [column for column in columns if column]


def _draw_column(ratios: Any, shares: Any, column: Sequence[tuple[str, list[Row]]], height: int) -> None:
    """Both panels of some families; a row of the chart has height 1, a family's name stands above its rows."""
    _style(ratios, shares, height)
    y = 0
    for name, members in column:
        y += 1
        ratios.text(
            -0.80, y + 0.05, name, transform=ratios.get_yaxis_transform(), weight="bold", fontsize=9, va="center"
        )
        for row in members:
            y += 1
            if y % 2:
                for axes in (ratios, shares):
                    axes.axhspan(y - 0.5, y + 0.5, color="#f5f5f7", zorder=0, linewidth=0)
            _draw_row(ratios, shares, row, y)
        y += 1


def _draw_row(ratios: Any, shares: Any, row: Row, y: int) -> None:
    name = row.case + (" (NumPy)" if row.on_numpy else "")
    ratios.text(-0.02, y, name, transform=ratios.get_yaxis_transform(), ha="right", va="center", fontsize=7.5)
    end = min(max(row.ratio, LOWEST), HIGHEST)
    ratios.barh(y, end - 1, left=1, height=0.66, color=FASTER if row.ratio >= 1 else SLOWER, zorder=2)
    outside = {"ha": "left"} if row.ratio >= 1 else {"ha": "right"}
    number = f"{row.ratio:.0f}" if row.ratio >= 20 else f"{row.ratio:.2f}"
    ratios.annotate(
        number,
        (end, y),
        xytext=(3 if row.ratio >= 1 else -3, 0),
        textcoords="offset points",
        va="center",
        fontsize=6.5,
        **outside,
    )
    share = min(row.share, LARGEST_SHARE)
    shares.barh(y, share, height=0.66, color=LIMITS[row.limit], zorder=2)
    shares.annotate(
        f"{row.share:.2f}",
        (share, y),
        xytext=(3, 0),
        textcoords="offset points",
        va="center",
        fontsize=6.5,
        color="#333333",
        zorder=4,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5},
    )


def _style(ratios: Any, shares: Any, height: int) -> None:
    ratios.set_xscale("log", base=2)
    ratios.set_xlim(LOWEST / 1.8, HIGHEST * 1.45)
    ticks = [0.25, 0.5, 1, 2, 4, 8, 16]
    ratios.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ratios.axvline(1, color="#333333", linewidth=0.9, zorder=3)
    ratios.set_title("time of onnxruntime / time of jitonnx", fontsize=8.5, pad=18)
    shares.set_xlim(0, LARGEST_SHARE * 1.15)
    shares.set_xticks([0, 0.5, 1, 1.5])
    shares.axvline(1, color="#333333", linewidth=0.9, linestyle=(0, (3, 2)), zorder=3)
    shares.set_title("share of the limit that binds", fontsize=8.5, pad=18)
    for axes in (ratios, shares):
        axes.set_ylim(height + 0.5, 0.4)
        axes.set_yticks([])
        axes.xaxis.tick_top()
        axes.tick_params(axis="x", labelsize=7.5, length=0)
        axes.grid(axis="x", color="#dddddd", linewidth=0.6, zorder=1)
        axes.set_axisbelow(True)
        for spine in axes.spines.values():
            spine.set_visible(False)


def _draw_header(figure: Any, rows: Sequence[Row], threads: int, inches: float) -> None:
    from matplotlib.patches import Patch

    faster = sum(row.ratio >= 1 for row in rows)
    title = f"Operators: jitonnx beside onnxruntime, {threads} thread{'s' if threads > 1 else ''}"
    figure.text(0.1 / COLUMN_INCHES, 1 - 0.2 / inches, title, fontsize=14, weight="bold", va="top")
    text = f"{faster} of {len(rows)} cases at least as fast as onnxruntime"
    figure.text(0.1 / COLUMN_INCHES, 1 - 0.5 / inches, text, fontsize=10, color="#555555", va="top")
    labels = {"FMA": "FMA peak", "dots": "peak of bytes", "memory": "memory bandwidth", "call": "call"}
    handles = [Patch(color=FASTER, label="faster"), Patch(color=SLOWER, label="slower")]
    handles += [Patch(color=colour, label=labels.get(name, f"{name} bandwidth")) for name, colour in LIMITS.items()]
    figure.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0.02 / COLUMN_INCHES, 1 - 0.68 / inches),
        ncols=len(handles),
        frameon=False,
        fontsize=8,
        handlelength=1.2,
        columnspacing=1.2,
    )

"""A picture of what `bench.models --json ROWS` measured: a bar a model and runtime, its time over jitonnx's.

python -m bench.model_chart ROWS.json docs/models.png --title "AMD EPYC (Zen 5), 1 thread" [--threads 1]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

COLOURS = {"onnxruntime": "#2f7f8f", "openvino": "#e8963c"}
NAMES = {"onnxruntime": "onnxruntime", "openvino": "OpenVINO"}
LARGEST = 3.5
"""Ratios beyond are drawn up to here; the number beside the bar is right."""
BAR_HEIGHT, MODEL_INCHES, MARGIN_INCHES = 0.38, 0.3, 1.1


def draw(rows: Sequence[dict[str, Any]], threads: int, title: str, path: Path) -> None:
    """Write the picture of the rows for that number of threads to `path`, in the format of its suffix."""
    from matplotlib.figure import Figure

    chosen = [row for row in rows if row["threads"] == threads]
    if not chosen:
        raise ValueError(f"no row is for {threads} threads")
    figure = Figure(figsize=(8.6, len(chosen) * MODEL_INCHES + MARGIN_INCHES), facecolor="white", layout="constrained")
    axes = figure.add_subplot()
    for place, name in enumerate(name for name in COLOURS if name in chosen[0]):
        ratios = [row[name] / row["jitonnx"] for row in chosen]
        known = [ratio for ratio in ratios if not math.isnan(ratio)]
        label = f"{NAMES[name]} (geometric mean {statistics.geometric_mean(known):.2f})"
        at = [number + (place - 0.5) * BAR_HEIGHT for number in range(len(chosen))]
        bars = axes.barh(at, [min(ratio, LARGEST) for ratio in ratios], BAR_HEIGHT, color=COLOURS[name], label=label)
        axes.bar_label(bars, [f"{ratio:.2f}" for ratio in ratios], padding=2, fontsize=7)
    axes.axvline(1, color="#404040", linewidth=1)
    axes.set_yticks(range(len(chosen)), [row["model"] for row in chosen], fontsize=9)
    axes.invert_yaxis()
    axes.set_xlabel("time of the other runtime over jitonnx's: above 1 jitonnx is faster")
    axes.set_title(title, fontsize=11)
    axes.legend(loc="lower right", fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rows", type=Path, help="what `bench.models --json` wrote")
    parser.add_argument("chart", type=Path, help="the picture to write")
    parser.add_argument("--title", required=True, help="the CPU and its threads")
    parser.add_argument("--threads", type=int, default=1, help="of the rows that are drawn (default 1)")
    options = parser.parse_args(arguments)
    draw(json.loads(options.rows.read_text()), options.threads, options.title, options.chart)


if __name__ == "__main__":
    main()

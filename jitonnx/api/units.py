"""Numbers with units, and tables of text, for people to read."""

from __future__ import annotations

from collections.abc import Sequence


def count(value: float, unit: str = "") -> str:
    """1234567 -> "1.23 M"; with a unit "1.23 MFLOP"."""
    for prefix in ("", "k", "M", "G", "T"):
        if abs(value) < 1000 or prefix == "T":
            break
        value /= 1000
    number = f"{value:.0f}" if prefix == "" and value == int(value) else f"{value:.3g}"
    return f"{number} {prefix}{unit}".rstrip()


def nbytes(value: float) -> str:
    """Bytes in binary units: 1536 -> "1.5 KiB"."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.3g} {unit}"


def seconds(value: float) -> str:
    """A duration: 0.00123 -> "1.23 ms"."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= size or unit == "µs":
            return f"{value / size:.3g} {unit}"
    raise AssertionError("unreachable")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int] = ()) -> str:
    """Columns under a header; those numbered in `right` are aligned to the right. The last column is not padded."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(padded).rstrip()

    return "\n".join([line(header), line(["─" * width for width in widths]), *map(line, rows)])


def shortened(text: str, width: int) -> str:
    """The text, its middle left out if it is longer than `width`."""
    if len(text) <= width:
        return text
    keep = width - 1
    return f"{text[: keep - keep // 2]}…{text[len(text) - keep // 2 :]}"

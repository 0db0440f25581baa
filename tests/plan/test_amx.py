"""How kernels of products in tile registers read their rows."""

from __future__ import annotations

import pytest

from jitonnx.ir.dims import variable
from jitonnx.ir.dtypes import DType
from jitonnx.kernels.parts.amx_products import chosen
from jitonnx.plan.selection.amx_rows import rows_together, way_of_rows, way_of_windows
from jitonnx.plan.tensor import Buffer, StridedTensor


@pytest.mark.parametrize(
    ("space", "depth", "row", "offset", "as_taken", "way"),
    [
        ("arena", 128, 192, 64, True, "in place"),
        ("arena", 128, 192, 64, False, "copied"),
        ("input", 128, 192, 64, True, "copied"),
        ("output", 128, 192, 64, True, "copied"),
        ("arena", 100, 192, 64, True, "copied"),
        ("arena", 128, 130, 64, True, "copied"),
        ("arena", 128, 192, 32, True, "copied"),
    ],
)
def test_rows_are_read_in_place_where_each_is_whole_cache_lines(
    space: str, depth: int, row: int, offset: int, as_taken: bool, way: str
) -> None:
    x = StridedTensor(Buffer("x", space, 1 << 20, DType.UINT8), offset, (9, depth), (row, 1))
    assert way_of_rows(x, row, 64, as_taken=as_taken) == way


@pytest.mark.parametrize(
    ("channels", "width", "taps", "strides", "dilations", "way"),
    [
        (64, 56, (3, 3), (1, 1), (1, 1), "padded"),
        (64, 56, (3, 3), (2, 2), (1, 1), "gathered"),
        (3, 112, (7, 7), (2, 2), (1, 1), "im2col"),
        (3, 112, (7, 7), (2, 2), (2, 2), "gathered"),
        (64, 3, (3, 3), (1, 1), (1, 1), "gathered"),
        (70, 56, (3, 3), (1, 1), (1, 1), "gathered"),
        (120, 56, (3, 3), (1, 1), (1, 1), "padded"),
    ],
)
def test_windows_are_read_from_rows_with_their_padding_where_that_makes_few_more_products(
    channels: int,
    width: int,
    taps: tuple[int, int],
    strides: tuple[int, int],
    dilations: tuple[int, int],
    way: str,
) -> None:
    assert way_of_windows(channels, width, taps, strides, dilations, 64) == way


def test_blocks_of_one_tile_of_columns() -> None:
    """They make one block of all rows, and read weights from beyond the cache once."""
    blocks = chosen("padded", 64, 1 << 30, 61)
    assert (blocks["high"], blocks["width"], blocks["once"]) == (4, 16, True)
    for way, weights, rows in [("padded", 1 << 20, 61), ("padded", 1 << 30, 65), ("padded", 1 << 30, None)]:
        assert "high" not in chosen(way, 64, weights, rows)
    assert "high" not in chosen("in place", 64, 1 << 30, 49)


def test_rows_that_weights_are_multiplied_with_at_once() -> None:
    assert rows_together((3, 7, 7), "padded", (3, 3), (1, 1)) == 61
    assert rows_together((3, 7), "padded", (1, 3), (1, 2)) == 7
    assert rows_together((variable("n"), 7, 7), "padded", (3, 3), (2, 2)) == 73
    assert rows_together((3, 7, 7), "gathered", (3, 3), (1, 1)) == 147
    assert rows_together((variable("n"), 7, 7), "gathered", (3, 3), (1, 1)) is None

"""Pixels that are spread over an image, in front of 1x1 convolutions."""

from __future__ import annotations

import numpy as np
import pytest

from jitonnx.ops.onnx.activation import Relu
from jitonnx.ops.onnx.concat_split import Concat
from jitonnx.ops.onnx.convolution import Conv
from jitonnx.ops.onnx.pooling import GlobalAveragePool
from jitonnx.ops.onnx.resize import Resize
from jitonnx.ops.onnx.shape import Expand
from jitonnx.passes.report import Reason
from tests.passes.graphs import Build, Value, normal, operators, rewritten


def pyramid(b: Build, axis: int = 1, first: bool = False, **attributes: object) -> Value:
    """The end of an atrous pyramid: features and their average, spread by a Resize, through a 1x1 convolution."""
    x = b.op(Relu(), b.input(normal(2, 3, 4, 5)))
    pooled = b.op(Relu(), b.op(GlobalAveragePool(), x))
    spread = b.op(Resize(mode="linear"), pooled, None, None, np.array([2, 3, 4, 5]))
    parts = [spread, x] if first else [x, spread, b.op(Relu(), x)]
    joined = b.op(Concat(axis=axis), *parts)
    kernel = normal(7, joined.shape[1], 1, 1)
    return b.op(Relu(), b.op(Conv(**attributes), joined, kernel, normal(7)))


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_a_spread_pixel_has_a_product_of_its_own(first: bool, strides: tuple[int, int]) -> None:
    graph, report = rewritten(lambda b: pyramid(b, first=first, strides=strides))
    assert report.counts["spread pixel"] == 1
    found = operators(graph)
    assert found["Conv"] == 2 and found["Add"] == 1
    assert "Expand" not in found and found.get("Concat", 0) == (0 if first else 1)


def test_padding_is_not_the_pixel() -> None:
    graph, _ = rewritten(lambda b: pyramid(b, pads=(1, 1, 1, 1)))
    assert operators(graph)["Conv"] == 1


def test_rows_that_differ_are_no_pixel() -> None:
    def author(b: Build) -> Value:
        x = b.op(Relu(), b.input(normal(1, 3, 4, 5)))
        rows = b.op(Expand(), b.op(Relu(), b.input(normal(1, 2, 4, 1))), [1, 2, 4, 5])
        return b.op(Conv(), b.op(Concat(axis=1), x, rows), normal(6, 5, 1, 1))

    assert operators(rewritten(author)[0])["Conv"] == 1


def test_a_concatenation_that_others_read_stays() -> None:
    def author(b: Build) -> list[Value]:
        x = b.op(Relu(), b.input(normal(1, 3, 4, 5)))
        joined = b.op(Concat(axis=1), x, b.op(Expand(), b.op(GlobalAveragePool(), x), [1, 3, 4, 5]))
        return [b.op(Conv(), joined, normal(6, 6, 1, 1)), b.op(Relu(), joined)]

    graph, report = rewritten(author)
    assert operators(graph)["Conv"] == 1
    assert [entry.reason for entry in report.declined] == [Reason.OTHER_USES]

"""Resampling kernels on tables of ONNX's Resize, against onnx's reference evaluator."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import onnx.reference
import pytest
from onnx import TensorProto, helper

from jitonnx.emit import types
from jitonnx.emit.arguments import by_name
from jitonnx.emit.simd import convert
from jitonnx.ir.computation.resampling import axis_table
from jitonnx.kernels.resize.kernel import build
from jitonnx.kernels.resize.spec import (
    RepeatPlanesSizes,
    RepeatPlanesSpec,
    ResizeAxisSpec,
    ResizePlanesSizes,
    ResizePlanesSpec,
    ResizeSizes,
    ResizeSpec,
    Table,
    choose,
    pack_table,
    pack_windows,
)
from jitonnx.target.machine import host
from tests.kernels.guarded import guarded
from tests.kernels.harness import Compiled
from tests.kernels.layouts import pixels, planes, planes_to_planes
from tests.targets import named

WIDTHS = sorted({8, host().lanes(4)})
TARGETS = {4: named("x86-64-v2"), 8: named("haswell"), host().lanes(4): host()}
COORDINATES = (
    *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"),
    "tf_crop_and_resize",
)
AREA = (0.13, 0.89)  # no ties between neighbours, where rounding would decide


@functools.cache
def compiled(spec: Any, lanes: int, epilogue: Any = None) -> Compiled:
    return Compiled(build(spec, lanes, epilogue), TARGETS[lanes], combining=spec.COMBINING)


def reference(x: np.ndarray, spatial: tuple[int, ...], **attributes: Any) -> np.ndarray:
    """x [N, C, …] resized by onnx's reference evaluator."""
    sizes = (*x.shape[:2], *spatial)
    area = [0.0, 0.0, *(AREA[0] for _ in spatial), 1.0, 1.0, *(AREA[1] for _ in spatial)]
    node = helper.make_node("Resize", ["x", "roi", "", "sizes"], ["y"], **attributes)
    kinds = (("x", TensorProto.FLOAT), ("roi", TensorProto.FLOAT), ("sizes", TensorProto.INT64))
    inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    feeds = {"x": x.astype(np.float32), "roi": np.array(area, np.float32), "sizes": np.array(sizes, np.int64)}
    return onnx.reference.ReferenceEvaluator(model).run(None, feeds)[0]


def tables(extents: tuple[int, ...], outputs: tuple[int, ...], **attributes: Any) -> list[Table]:
    """The tables of the spatial axes, by ONNX's attributes."""
    coordinates = attributes.get("coordinate_transformation_mode", "half_pixel")
    result = []
    for extent, output in zip(extents, outputs, strict=True):
        table = axis_table(
            *(extent, output, output / extent, AREA),
            mode=attributes.get("mode", "nearest"),
            coordinates=coordinates,
            nearest=attributes.get("nearest_mode", "round_prefer_floor"),
            cubic_coefficient=attributes.get("cubic_coeff_a", -0.75),
            exclude_outside=bool(attributes.get("exclude_outside", 0)),
            antialias=bool(attributes.get("antialias", 0)),
        )
        result.append(pack_table(table.indices, table.weights, table.outside))
    return result


def resize(
    x: np.ndarray, axes: list[Table], spec: ResizeSpec, lanes: int, gap: int = 3, epilogue: Any = None
) -> np.ndarray:
    """x [N, C, H, W] resized by the kernel, channels-last with gaps between pixels."""
    images, channels, height, width = x.shape
    out = [len(table.positions) for table in axes]
    wide_x = np.full((images, height, width, channels + gap), 99, x.dtype)
    wide_x[..., :channels] = x.transpose(0, 2, 3, 1)
    wide_y = np.full((images, *out, channels + gap), 77, x.dtype)
    strides = [[step // a.itemsize for step in a.strides[:3]] for a in (wide_x, wide_y)]
    sizes = ResizeSizes(
        **pixels((images, height, width, channels), *strides),
        **by_name("out_height out_width", out),
        **by_name("row_taps column_taps", [table.positions.shape[1] for table in axes]),
    )
    buffers = [wide_x, *axes[0], *axes[1], wide_y]
    compiled(spec, lanes, epilogue)(buffers, sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces=3)
    assert (wide_y[..., channels:] == 77).all()
    return wide_y[..., :channels].transpose(0, 3, 1, 2)


def check(attributes: dict[str, Any], lanes: int, shapes: Any, channels: tuple[int, ...] = (5,)) -> None:
    for (extents, outputs), count in itertools.product(shapes, channels):
        x = np.random.default_rng(count).normal(size=(2, count, *extents)).astype(np.float32)
        axes = tables(extents, outputs, **attributes)
        outside = attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
        value = attributes.get("extrapolation_value", 0.0) if outside else None
        spec = choose(attributes.get("mode", "nearest"), *(t.positions.shape[1] for t in axes), extrapolation=value)
        expected = reference(x, outputs, **attributes)
        for gap in (0, 3):
            np.testing.assert_allclose(resize(x, axes, spec, lanes, gap), expected, 1e-5, 1e-5)


UP_AND_DOWN = (((5, 7), (9, 12)), ((8, 6), (3, 4)), ((4, 9), (8, 3)))


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("nearest", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
def test_nearest(coordinates: str, nearest: str) -> None:
    attributes = {"coordinate_transformation_mode": coordinates, "nearest_mode": nearest, "extrapolation_value": 2.5}
    check(attributes, host().lanes(4), UP_AND_DOWN)


@pytest.mark.parametrize("coordinates", COORDINATES)
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_weighted(mode: str, coordinates: str) -> None:
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, "extrapolation_value": 2.5}
    check(attributes, host().lanes(4), UP_AND_DOWN)


@pytest.mark.parametrize("options", [{"exclude_outside": 1}, {"cubic_coeff_a": -0.5}, {"antialias": 1}])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_options(mode: str, options: dict[str, Any]) -> None:
    check({"mode": mode, **options}, host().lanes(4), UP_AND_DOWN)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_channel_counts(mode: str, lanes: int) -> None:
    check({"mode": mode}, lanes, [((3, 4), (7, 6))], (1, 8, 15, 16, 17, 33, 64, 97))


@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.int64])
def test_nearest_of_other_elements(dtype: Any) -> None:
    x = np.random.default_rng(0).integers(0, 99, (2, 19, 4, 5)).astype(dtype)
    axes = tables((4, 5), (9, 3))
    spec = choose("nearest", 1, 1, x.itemsize)
    rows, columns = (table.positions[:, 0] for table in axes)
    np.testing.assert_array_equal(resize(x, axes, spec, host().lanes(4)), x[:, :, rows][..., columns])


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_epilogue(mode: str) -> None:
    def epilogue(code, x, batch, row, column, active):
        return x * 2.0 + convert(batch * 10000 + row * 100 + column, types.float32).splat(x.lanes)

    x, lanes = np.random.default_rng(0).normal(size=(2, 40, 3, 4)).astype(np.float32), host().lanes(4)
    axes = tables((3, 4), (5, 6), mode=mode)
    spec = choose(mode, *(table.positions.shape[1] for table in axes))
    place = np.arange(2)[:, None, None, None] * 10000.0 + np.arange(30).reshape(5, 6) * 100
    place = place + (np.arange(40) // lanes * lanes)[:, None, None]
    expected = resize(x, axes, spec, lanes) * 2 + place
    np.testing.assert_allclose(resize(x, axes, spec, lanes, epilogue=epilogue), expected, 1e-6)


@pytest.mark.parametrize("lanes", WIDTHS)
@pytest.mark.parametrize("coordinates", ["half_pixel", "tf_crop_and_resize"])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_any_rank_axis_by_axis(mode: str, coordinates: str, lanes: int) -> None:
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates, "extrapolation_value": 2.5}
    extents, outputs = (4, 5, 6), (7, 3, 9)
    x = np.random.default_rng(0).normal(size=(2, 3, *extents)).astype(np.float32)
    spec = ResizeAxisSpec(2.5 if coordinates == "tf_crop_and_resize" else None)
    y = x
    for axis, table in enumerate(tables(extents, outputs, **attributes), 2):
        outer, extent, inner = int(np.prod(y.shape[:axis])), y.shape[axis], int(np.prod(y.shape[axis + 1 :]))
        count, taps = table.positions.shape
        result = np.zeros((*y.shape[:axis], count, *y.shape[axis + 1 :]), np.float32)
        sizes = spec.given([outer, count, inner, taps, extent * inner, inner, count * inner, inner])
        compiled(spec, lanes)([y, *table, result], sizes, spec.tasks(sizes), pieces=2)
        y = result
    np.testing.assert_allclose(y, reference(x, outputs, **attributes), 1e-5, 1e-5)


def test_nothing_to_do_and_wrong_specs() -> None:
    axes = tables((3, 4), (5, 6))
    assert resize(np.zeros((0, 3, 3, 4), np.float32), axes, choose("nearest", 1, 1), host().lanes(4)).size == 0
    assert resize(np.zeros((1, 0, 3, 4), np.float32), axes, choose("nearest", 1, 1), host().lanes(4)).size == 0
    with pytest.raises(ValueError, match="mode 'area'"):
        ResizeSpec("area")
    with pytest.raises(ValueError, match="float32"):
        choose("linear", 2, 2, itemsize=2)


def test_linear_with_an_axis_that_stays() -> None:
    """Tables of one tap are padded to two."""
    x = np.random.default_rng(0).normal(size=(1, 6, 4, 5)).astype(np.float32)
    _, columns = tables((4, 5), (4, 8), mode="linear")
    rows = pack_table(np.arange(4)[:, None], np.ones((4, 1)), taps=2)
    got = resize(x, [rows, columns], choose("linear", 2, 2), host().lanes(4))
    np.testing.assert_allclose(got, reference(x, (4, 8), mode="linear"), 1e-5, 1e-6)


def resize_planes(
    x: np.ndarray, axes: list[Table], lanes: int, epilogue: Any = None, window: int = 2, together: int = 1
) -> np.ndarray | None:
    """x [N, C, H, W], the end of memory behind it, resized to planes whose rows have gaps; None: no windows."""
    spec = ResizePlanesSpec(axes[0].positions.shape[1], window, together)
    images, channels = x.shape[:2]
    height, width = (len(table.positions) for table in axes)
    wide = np.full((images, channels, height, width + 3), 77, np.float32)
    windows = pack_windows(axes[1], x.shape[3], lanes, window)
    if windows is None:
        return None
    of_x, of_y = ([step // 4 for step in array.strides[:3]] for array in (x, wide))
    sizes = spec.complete(ResizePlanesSizes(**planes_to_planes(x.shape, of_x, (height, width), of_y)))
    assert len(sizes) == spec.size_count
    results = []
    for pieces in (1, 3):
        wide[:] = 77
        compiled(spec, lanes, epilogue)(
            [guarded(x), *axes[0], *windows, wide], sizes, spec.tasks(sizes), spec.scratch_bytes(sizes), pieces
        )
        assert (wide[..., width:] == 77).all()
        results.append(wide[..., :width].copy())
    np.testing.assert_array_equal(results[0], results[1])
    return results[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("lanes", [4, *WIDTHS])
@pytest.mark.parametrize(("mode", "taps"), [("nearest", 1), ("linear", 2), ("cubic", 4)])
@pytest.mark.parametrize("coordinates", COORDINATES[:-1])
def test_planes(coordinates: str, mode: str, taps: int, lanes: int) -> None:
    attributes = {"mode": mode, "coordinate_transformation_mode": coordinates}
    for extents, outputs in (
        *UP_AND_DOWN,
        *(((1, 1), (3, 17)), ((3, 2), (40, 33)), ((5, 4), (5, 64)), ((2, 9), (31, 9)), ((7, 33), (5, 17))),
        *(((6, 64), (12, 32)), ((4, 100), (3, 51)), ((3, 40), (7, 100)), ((3, 15), (4, 8))),
    ):
        x = np.random.default_rng(0).normal(size=(2, 5, *extents)).astype(np.float32)
        axes = [pack_table(*table, taps=taps) for table in tables(extents, outputs, **attributes)]
        resized = [resize_planes(x, axes, lanes, None, *how) for how in ((1, 1), (1, 2), (2, 1), (2, 2))]
        assert resized[-1] is not None or outputs[1] < extents[1] / 2 + taps
        for result in resized:
            if result is not None:
                np.testing.assert_allclose(result, reference(x, outputs, **attributes), 1e-5, 5e-5)


def test_columns_too_far_apart_have_no_windows() -> None:
    tables_of = [pack_table(*table, taps=2) for table in tables((4, 400), (4, 100), mode="linear")]
    assert pack_windows(tables_of[1], 400, 16, 2) is None
    assert pack_windows(tables_of[1], 400, 64, 2) is None


def test_planes_with_an_epilogue() -> None:
    def epilogue(code, x, batch, row, column, active):
        return x * 2.0 + convert(batch * 10000 + row * 1000 + column, types.float32).splat(x.lanes)

    lanes = host().lanes(4)
    x = np.random.default_rng(0).normal(size=(2, 3, 4, 5)).astype(np.float32)
    axes = [pack_table(*table, taps=2) for table in tables((4, 5), (6, 7), mode="linear")]
    starts = np.arange(6)[:, None] * 7 + np.arange(7) // lanes * lanes
    place = np.arange(2)[:, None, None, None] * 10000.0 + np.arange(3)[:, None, None] * 1000 + starts
    expected = resize_planes(x, axes, lanes) * 2 + place
    np.testing.assert_allclose(resize_planes(x, axes, lanes, epilogue), expected, 1e-6)
    assert resize_planes(x[:0], axes, lanes, epilogue).size == 0


@pytest.mark.parametrize("lanes", [4, *WIDTHS])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.float64])
@pytest.mark.parametrize(("down", "across"), [(1, 2), (2, 1), (2, 2), (3, 3), (1, 4)])
def test_repeated_pixels(down: int, across: int, dtype: type, lanes: int) -> None:
    spec = RepeatPlanesSpec(np.dtype(dtype).itemsize, across)
    for images, channels, height, width in ((2, 3, 4, 5), (1, 2, 3, 16), (1, 1, 2, 1), (2, 1, 70, 67), (1, 3, 2, 33)):
        wide = np.random.default_rng(0).integers(0, 255, (images, channels, height + 1, width + 2)).astype(dtype)
        x = wide[:, :, 1:, 2:]  # up to the end of memory
        y = np.zeros((images, channels, height * down, width * across), dtype)
        strides = [step // x.itemsize for step in wide.strides[:3]]
        sizes = spec.complete(RepeatPlanesSizes(**planes((images, channels, height, width), strides), down=down))
        memory = guarded(wide).reshape(-1)[wide.shape[3] + 2 :]
        compiled(spec, lanes)([memory, y], sizes, spec.tasks(sizes), pieces=3)
        np.testing.assert_array_equal(y, x.repeat(down, 2).repeat(across, 3))
    nothing = RepeatPlanesSizes(**planes((2, 0, 3, 4), (0, 0, 0)), down=down)
    assert spec.tasks(spec.complete(nothing)) == 0

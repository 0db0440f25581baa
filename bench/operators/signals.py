"""Cases of signals, and of images that are sampled, cut into regions or blocks."""

from __future__ import annotations

from typing import Any

import numpy as np

from bench.operators.net import Build, Net, Shape

# ---------------------------------------------------------------- signals


def fourier(rows: int, length: int) -> Build:
    """DFT of real rows, half of which is given."""
    return lambda net: net.node("DFT", net.feed((rows, length, 1)), "", net.constant(-2, "int64"), onesided=1)


def short_time_fourier(length: int, frame: int, step: int) -> Build:
    """STFT of one signal under a window."""

    def build(net: Net) -> str:
        window = net.constant(np.hanning(frame), "float32")
        given = net.feed((1, length, 1)), net.constant(step, "int64"), window, net.constant(frame, "int64")
        return net.node("STFT", *given, onesided=1)

    return build


def mel_weights(bands: int, length: int) -> Build:
    """MelWeightMatrix of so many bands for a transform of `length`; the sample rate and the bounds are fed."""

    def build(net: Net) -> str:
        sizes = [net.constant(value, "int64") for value in (bands, length)]
        given = (16000, np.float32(0), np.float32(8000))
        return net.node("MelWeightMatrix", *sizes, *(net.feed_array(np.array(value)) for value in given))

    return build


# ---------------------------------------------------------------- images sampled, regions, blocks


def grid_sample(image: Shape, points: Shape, **attributes: Any) -> Build:
    """An image sampled at a grid that is a little bent; points outside are few."""

    def build(net: Net) -> str:
        axes = [np.linspace(-1, 1, size) for size in points]
        grid = np.stack(np.meshgrid(*axes, indexing="ij")[::-1], -1)
        bent = grid + np.random.default_rng(1).normal(size=(image[0], *grid.shape)) * 0.05
        return net.node("GridSample", net.feed(image), net.feed_array(bent.astype(np.float32)), **attributes)

    return build


def affine_grid(images: int, *size: int) -> Build:
    return lambda net: net.node("AffineGrid", net.feed((images, 2, 3)), net.integers(images, 3, *size))


def deform_conv(shape: Shape, filters: int, groups: int = 1) -> Build:
    """A 3x3 convolution of the image's size, modulated."""

    def build(net: Net) -> str:
        images, channels, *size = shape
        x, weights = net.feed(shape), net.weight(filters, channels, 3, 3)
        offsets, mask = net.feed((images, 18 * groups, *size)), net.feed((images, 9 * groups, *size), 0)
        return net.node(
            "DeformConv", x, weights, offsets, net.weight(filters), mask, pads=[1, 1, 1, 1], offset_group=groups
        )

    return build


def roi_align(shape: Shape, regions: int, size: int, then: str = "", **attributes: Any) -> Build:
    """Regions of an image of 16 times the size of the feature map. then: the image is that of a 1x1 convolution."""

    def build(net: Net) -> str:
        x = net.feed(shape)
        if then == "Conv":
            x = net.node("Conv", x, net.weight(shape[1], shape[1], 1, 1))
        random = np.random.default_rng(1)
        corners = np.sort(random.uniform(0, 1, (regions, 2, 2)), axis=1) * [shape[3] * 16, shape[2] * 16]
        rois = net.feed_array(corners.reshape(regions, 4).astype(np.float32))
        images = net.feed_array(random.integers(0, shape[0], regions))
        options = {"spatial_scale": 1 / 16, "output_height": size, "output_width": size, **attributes}
        return net.node("RoiAlign", x, rois, images, **options)

    return build


def max_roi_pool(shape: Shape, regions: int, size: int) -> Build:
    """The benchmark that `roi_align` makes, with one image."""

    def build(net: Net) -> str:
        corners = np.sort(np.random.default_rng(1).uniform(0, 1, (regions, 2, 2)), axis=1)
        rois = np.pad((corners * [shape[3] * 16, shape[2] * 16]).reshape(regions, 4), ((0, 0), (1, 0)))
        options = {"spatial_scale": 1 / 16, "pooled_shape": [size, size]}
        return net.node("MaxRoiPool", net.feed(shape), net.feed_array(rois.astype(np.float32)), **options)

    return build


def col2im(images: int, channels: int, size: int, block: int, step: int, pad: int) -> Build:
    def build(net: Net) -> str:
        count = ((size + 2 * pad - block) // step + 1) ** 2
        x = net.feed((images, channels * block * block, count))
        windows = {"strides": [step] * 2, "pads": [pad] * 4}
        return net.node("Col2Im", x, net.integers(size, size), net.integers(block, block), **windows)

    return build


def max_unpool(*shape: int) -> Build:
    """What a 2x2 pool took is put back."""

    def build(net: Net) -> str:
        images, channels, height, width = shape
        places = np.random.default_rng(1).integers(0, 2, (2, *shape)) + 2 * np.indices((height, width))[:, None, None]
        planes = np.arange(images * channels).reshape(images, channels, 1, 1)
        indices = (planes * 2 * height + places[0]) * 2 * width + places[1]
        return net.node("MaxUnpool", net.feed(shape), net.feed_array(indices), kernel_shape=[2, 2], strides=[2, 2])

    return build

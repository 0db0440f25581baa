"""Folders of images as tables: a row a file, with its name and its pixels.

Images are decoded by Pillow (the extra `jitonnx[images]`) to RGB, or grey levels where the input has one channel, and
brought to the input's height and width by Pillow's bilinear filter. Inputs of bytes get the pixels; others get them as
numbers from 0 to 1, less `mean`, over `std`.
"""

from __future__ import annotations

import importlib.util
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from jitonnx.batch.signature import Input, Signature
from jitonnx.errors import InvalidArgument
from jitonnx.runtime.threads import allowed_cpus

if TYPE_CHECKING:
    import pyarrow

SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
FILE_COLUMN = "file"
"""The column of files' names."""
_ROWS = 64
"""Images of a record batch, at most."""
_CHUNK_BYTES = 8 << 20
"""And what their pixels take."""
_CHUNKS = 1
"""Record batches that are decoded ahead, while one is run."""


class Pixels(NamedTuple):
    """What numbers pixels become in inputs that are no bytes: (pixel / 255 - mean) / std, for each channel."""

    mean: Sequence[float] = (0.0,)
    std: Sequence[float] = (1.0,)


def images_of(folder: Path) -> list[Path]:
    """The images in a folder, by name."""
    return sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)


def read_images(files: Sequence[Path], signature: Signature, pixels: Pixels) -> pyarrow.RecordBatchReader:
    """A column of the files' names and one for the model's input; a file that is no image is a null there.

    InvalidArgument for a model that does not take an image a row, [channels, height, width] or [height, width,
    channels] of known sizes with 1 or 3 channels; ImportError without Pillow.
    """
    import pyarrow as pa

    if importlib.util.find_spec("PIL") is None:
        raise ImportError("images need the package 'pillow': pip install 'jitonnx[images]'")
    form = _form_of(signature, pixels)
    kind = pa.list_(pa.from_numpy_dtype(form.input.dtype), int(np.prod(form.shape)))
    schema = pa.schema([(FILE_COLUMN, pa.string()), (form.input.name, kind)])
    rows = min(_ROWS, max(1, _CHUNK_BYTES // (kind.list_size * form.input.dtype.itemsize)))

    def batches() -> Iterator[pyarrow.RecordBatch]:
        with ThreadPoolExecutor(allowed_cpus(), "jitonnx-images") as pool:  # Pillow decodes without Python's lock
            begun: deque[_Chunk] = deque()
            for begin in range(0, len(files), rows):
                chunk = files[begin : begin + rows]
                made = np.empty((len(chunk), *form.shape), form.input.dtype)
                begun.append(
                    _Chunk(chunk, made, [pool.submit(form.fill, *one) for one in zip(made, chunk, strict=True)])
                )
                if len(begun) > _CHUNKS:
                    yield begun.popleft().batch(schema)
            while begun:
                yield begun.popleft().batch(schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


class _Chunk(NamedTuple):
    """Files, the array [files, ...] that their pixels are written to, and for each whether it is an image, later."""

    files: Sequence[Path]
    pixels: np.ndarray
    are_images: list[Future[bool]]

    def batch(self, schema: Any) -> pyarrow.RecordBatch:
        """The names and pixels of all files, when they are decoded; null for those that are no images."""
        import pyarrow as pa

        missing = np.array([not one.result() for one in self.are_images])
        size = schema.types[1].list_size
        column = pa.FixedSizeListArray.from_arrays(pa.array(self.pixels.reshape(-1)), size, mask=pa.array(missing))
        return pa.RecordBatch.from_arrays([pa.array([path.name for path in self.files]), column], schema=schema)


class _Form(NamedTuple):
    """What an input takes: an image as [channels, height, width], or [height, width, channels].

    factors, offsets: of a channel's bytes, for inputs that are no bytes.
    """

    input: Input
    shape: tuple[int, int, int]
    is_channels_first: bool
    factors: np.ndarray
    offsets: np.ndarray

    def fill(self, target: np.ndarray, path: Path) -> bool:
        """Write an image to an array of `shape`. False for a file that is none; zeros are written."""
        from PIL import Image, UnidentifiedImageError

        channels, height, width = self.shape if self.is_channels_first else (self.shape[2], *self.shape[:2])
        try:
            with Image.open(path) as image:
                found = image.convert("RGB" if channels == 3 else "L")
                found = found.resize((width, height), Image.Resampling.BILINEAR)
        except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
            target[...] = 0
            return False
        decoded = np.asarray(found).reshape(height, width, channels)
        planes = target if self.is_channels_first else target.transpose(2, 0, 1)
        for channel, plane in enumerate(planes):
            if self.input.dtype == np.uint8:
                plane[...] = decoded[..., channel]
            else:
                plane[...] = decoded[..., channel] * self.factors[channel] + self.offsets[channel]
        return True


def _form_of(signature: Signature, pixels: Pixels) -> _Form:
    """InvalidArgument where a model's input takes no image, or there are other channels of `pixels`."""
    one, is_channels_first = _input(signature)
    shape = tuple(size or 0 for size in one.shape)
    channels = shape[0] if is_channels_first else shape[2]
    scaled = {}
    for name, given in pixels._asdict().items():
        if len(given) not in (1, channels):
            raise InvalidArgument(
                f"pixels' {name} has {len(given)} numbers; input {one.name!r} has {channels} channels"
            )
        scaled[name] = np.broadcast_to(np.array(given, np.float64), channels)
    std, mean = scaled["std"], scaled["mean"]
    factors, offsets = (made.astype(np.float32) for made in (1 / (255 * std), -mean / std))
    return _Form(one, (shape[0], shape[1], shape[2]), is_channels_first, factors, offsets)


def _input(signature: Signature) -> tuple[Input, bool]:
    """The input that takes an image, and whether its channels are in front."""
    if len(signature.inputs) == 1:
        one = signature.inputs[0]
        if len(one.shape) == 3 and None not in one.shape and one.dtype.kind in "uf":
            if one.shape[0] in (1, 3):
                return one, True
            if one.shape[2] in (1, 3):
                return one, False
    told = ", ".join(f"{one.name!r}: {one}" for one in signature.inputs)
    raise InvalidArgument(
        f"images are for a model of one input whose rows are [channels, height, width] or [height, width, channels] of "
        f"known sizes with 1 or 3 channels, numbers with fractions or bytes; this one takes {told}"
    )

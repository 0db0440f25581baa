"""Folders of images as tables: a row a file, with its name and its pixels.

Images are decoded by Pillow (the extra `jitonnx[images]`) to RGB, or grey levels where the input has one channel, and
brought to the input's height and width by Pillow's bilinear filter. Inputs of bytes get the pixels; others get them as
numbers from 0 to 1, less `mean`, over `std`.
"""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
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
"""Images of a record batch."""


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
    one, channels_first = _input(signature)
    size = int(np.prod([extent or 0 for extent in one.shape]))
    kind = pa.list_(pa.from_numpy_dtype(one.dtype), size)
    schema = pa.schema([(FILE_COLUMN, pa.string()), (one.name, kind)])

    def batches() -> Iterator[pyarrow.RecordBatch]:
        with ThreadPoolExecutor(allowed_cpus(), "jitonnx-images") as pool:  # Pillow decodes without Python's lock
            chunks = [files[begin : begin + _ROWS] for begin in range(0, len(files), _ROWS)]
            begun: list[Any] = []
            for chunk in itertools.chain(chunks, [None]):
                if chunk is not None:
                    begun.append(
                        (
                            chunk,
                            [pool.submit(_decoded, path, one, pixels, channels_first=channels_first) for path in chunk],
                        )
                    )
                if len(begun) > 1 or (chunk is None and begun):  # the next are decoded while these are run
                    taken, decoded = begun.pop(0)
                    yield _batch(taken, [found.result() for found in decoded], one, schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def _batch(files: Sequence[Path], decoded: list[np.ndarray | None], one: Input, schema: Any) -> pyarrow.RecordBatch:
    import pyarrow as pa

    missing = np.array([array is None for array in decoded])
    blank = np.zeros([extent or 0 for extent in one.shape], one.dtype)
    flat = np.stack([blank if array is None else array for array in decoded]).reshape(-1)
    column = pa.FixedSizeListArray.from_arrays(pa.array(flat), blank.size, mask=pa.array(missing))
    return pa.RecordBatch.from_arrays([pa.array([path.name for path in files]), column], schema=schema)


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


def _decoded(path: Path, one: Input, pixels: Pixels, *, channels_first: bool) -> np.ndarray | None:
    """An image as the input has it; None for what is none."""
    from PIL import Image, UnidentifiedImageError

    sizes = [extent or 0 for extent in one.shape]
    channels, height, width = sizes if channels_first else (sizes[2], *sizes[:2])
    try:
        with Image.open(path) as image:
            found = image.convert("RGB" if channels == 3 else "L").resize((width, height), Image.Resampling.BILINEAR)
    except (UnidentifiedImageError, OSError, ValueError, SyntaxError, Image.DecompressionBombError):
        return None
    array = np.asarray(found).reshape(height, width, channels)
    if one.dtype != np.uint8:
        mean, std = np.array(pixels.mean, np.float32), np.array(pixels.std, np.float32)
        array = ((array.astype(np.float32) / 255 - mean) / std).astype(one.dtype)
    return array.transpose(2, 0, 1) if channels_first else array

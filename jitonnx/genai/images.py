"""`Images` of a prompt, and what a folder's `processor_config.json` makes of them.

The steps that it names (decoding, resizing, normalising, cutting into patches) are those of onnxruntime-extensions, as
onnxruntime-genai has them, so that models see the same pixels. Its decoders end the process at files that are damaged:
Pillow reads each file before, and writes those that they do not know as PNG.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jitonnx.errors import InvalidArgument, NoSuchFile
from jitonnx.genai.config import read_object
from jitonnx.genai.extras import needed

EXTRA = "vision"

_MOST_SIDE, _MOST_PIXELS = 16384, 100_000_000
"""The largest images that onnxruntime-extensions decodes."""
_NARROWEST = 200
"""Images whose sides differ by more cannot be cut into patches."""
_PASSED_ON = {("PNG", mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA")} | {("JPEG", "RGB")}
"""Formats and modes that it decodes."""


class Images:
    """Images, as files hold them, that can be decoded."""

    def __init__(self, files: Sequence[bytes], sizes: Sequence[tuple[int, int]]) -> None:
        self.files, self.sizes = list(files), list(sizes)
        """Files of PNG or JPEG, and their widths and heights. (Not in onnxruntime-genai.)"""

    def __len__(self) -> int:
        return len(self.files)

    @classmethod
    def open(cls, *paths: str) -> Images:
        """Images of files. NoSuchFile for those that are not there; InvalidArgument for none, and for what is no image;
        ImportError without the package `pillow`."""
        return cls.of(_given(paths, (str, os.PathLike), "a path"))

    @classmethod
    def open_bytes(cls, *datas: bytes) -> Images:
        """Images of files' contents. As `open`."""
        return cls.of(_given(datas, (bytes, bytearray, memoryview), "bytes"))

    @classmethod
    def of(cls, images: Sequence[Any]) -> Images:
        """Images of paths, files' contents, images of Pillow's, and uint8 [height, width], [height, width, 1, 3 or 4],
        the channels being red, green, blue and opacity. As `open`. (Not in onnxruntime-genai.)"""
        made = [_file(one, f"image {number}") for number, one in enumerate(images)]
        return cls([file for file, _ in made], [size for _, size in made])


def _given(images: Sequence[Any], kinds: tuple[type, ...], what: str) -> Sequence[Any]:
    if not images:
        raise InvalidArgument("no images were given")
    for one in images:
        if not isinstance(one, kinds):
            raise InvalidArgument(f"an image is given as {type(one).__name__}: {what} is needed")
    return images


def _file(image: Any, name: str) -> tuple[bytes, tuple[int, int]]:
    """A file of PNG or JPEG with an image, and its width and height. name: what errors call it."""
    pillow = needed("PIL.Image", "an image", extra=EXTRA)
    if isinstance(image, pillow.Image):
        return _as_png(image), image.size
    if isinstance(image, np.ndarray):
        shape = image.shape
        if image.dtype != np.uint8 or len(shape) not in (2, 3) or shape[2:] not in ((), (1,), (3,), (4,)) or 0 in shape:
            raise InvalidArgument(
                f"{name} is {image.dtype} of shape {list(shape)}: uint8 [height, width] is needed, or [height, width, "
                "channels] with 1, 3 or 4 of them"
            )
        return _as_png(pillow.fromarray(image[:, :, 0] if shape[2:] == (1,) else image)), (shape[1], shape[0])
    if isinstance(image, str | os.PathLike):
        place = os.fspath(image)
        if not os.path.isfile(place):
            raise NoSuchFile(f"Image path does not exist: {place}")
        with open(place, "rb") as file:
            data, name = file.read(), place
    elif isinstance(image, bytes | bytearray | memoryview):
        data = bytes(image)
    else:
        raise InvalidArgument(f"{name} is {type(image).__name__}: a path, a file's bytes or an array is needed")
    return _decodable(data, name, pillow)


def _decodable(data: bytes, name: str, pillow: Any) -> tuple[bytes, tuple[int, int]]:
    """A file that decodes to its end, as it is or as PNG. InvalidArgument for one that does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            with pillow.open(io.BytesIO(data)) as image:
                width, height = image.size
                if max(width, height) > _MOST_SIDE or width * height > _MOST_PIXELS:
                    raise InvalidArgument(
                        f"{name} has {width} times {height} pixels: at most {_MOST_SIDE} a side and {_MOST_PIXELS} in "
                        "all are read; give a smaller one"
                    )
                image.load()
                kept = data if (image.format, image.mode) in _PASSED_ON else _as_png(image)
                return kept, (width, height)
    except InvalidArgument:
        raise
    except Exception as error:  # decoders raise whatever a damaged file leads them to
        raise InvalidArgument(
            f"{name} ({len(data)} bytes) cannot be read as an image: {error}; PNG, JPEG and what else Pillow reads are "
            "supported"
        ) from error


def _as_png(image: Any) -> bytes:
    """A file of PNG with an image of Pillow's."""
    file = io.BytesIO()
    kept = image if ("PNG", image.mode) in _PASSED_ON else image.convert("RGB")
    kept.save(file, "PNG", compress_level=1)
    return file.getvalue()


class ImageProcessor:
    """What a folder's `processor_config.json` says is to be done with images."""

    def __init__(self, place: str) -> None:
        """NoSuchFile for a file that is not there; InvalidArgument for one that says nothing that can be done;
        ImportError without the package `onnxruntime_extensions`."""
        if not os.path.isfile(place):
            raise NoSuchFile(f"{place} does not exist: it tells what is to be done with images")
        self._place, self._config = place, read_object(place)
        section = self._config.get("processor")
        if not (isinstance(section, dict) and isinstance(section.get("transforms"), list)):
            raise InvalidArgument(f"{place} has no processor.transforms: a list of operations is needed")
        self._package = needed("onnxruntime_extensions.pp_api", "a prompt with images", extra=EXTRA)
        with self._processor(self._config):
            pass

    def __call__(self, images: Images, names: Sequence[str]) -> dict[str, np.ndarray]:
        """The first outputs, by the names that they are given; the first axis of each is that of images.

        InvalidArgument for images that cannot be processed, as ones without any size in common, and where there are
        fewer outputs.
        """
        return self._run(self._config, images, names)

    def each(self, images: Images, names: Sequence[str]) -> list[dict[str, np.ndarray]]:
        """As `__call__`, the outputs of each image alone, which keeps its proportions where the file says
        `smart_resize`."""
        return [
            self._run(self._resized(size), Images([file], [size]), names)
            for file, size in zip(images.files, images.sizes, strict=True)
        ]

    def _resized(self, size: tuple[int, int]) -> dict[str, Any]:
        """The configuration for an image, (width, height): onnxruntime-extensions 0.15 has `smart_resize` fit the sizes
        that the file tells, and onnxruntime-genai 0.18 those of the image, which are told here."""
        config = copy.deepcopy(self._config)
        for step in config["processor"]["transforms"]:
            operation = step.get("operation") if isinstance(step, dict) else None
            settings = operation.get("attrs") if isinstance(operation, dict) else None
            if isinstance(settings, dict) and settings.get("smart_resize"):
                width, height = smart_size(size, settings)
                settings |= {"width": width, "height": height, "smart_resize": 0, "keep_aspect_ratio": 0}
        return config

    def _run(self, config: Mapping[str, Any], images: Images, names: Sequence[str]) -> dict[str, np.ndarray]:
        package = self._package
        with contextlib.ExitStack() as held:
            try:
                processor = held.enter_context(self._processor(config))
                with tempfile.TemporaryDirectory() as folder:
                    places = [os.path.join(folder, str(place)) for place in range(len(images))]
                    for place, data in zip(places, images.files, strict=True):
                        with open(place, "wb") as file:
                            file.write(data)
                    loaded = package.load_images(places)
                held.callback(package.delete_object, loaded)
                made = package.image_pre_process(processor, loaded)
                held.callback(package.delete_object, made)
                return {name: package.tensor_result_get_at(made, place) for place, name in enumerate(names)}
            except RuntimeError as error:
                raise InvalidArgument(
                    f"of {len(images)} images of {', '.join(f'{one[0]} x {one[1]}' for one in images.sizes)} pixels "
                    f"{self._place} cannot make {', '.join(names)}: {error}"
                ) from error

    @contextlib.contextmanager
    def _processor(self, config: Mapping[str, Any]) -> Iterator[Any]:
        try:
            handle = self._package.create_processor(json.dumps(config))
        except Exception as error:  # the package raises nothing narrower
            raise InvalidArgument(f"{self._place} cannot be used: {error}") from error
        try:
            yield handle
        finally:
            self._package.delete_object(handle)


def smart_size(size: tuple[int, int], settings: Mapping[str, Any]) -> tuple[int, int]:
    """The width and height that an image is brought to: multiples of a square of patches, of about its proportions, and
    of as many pixels as the settings of `Resize` allow (`smart_resize` of transformers' Qwen2-VL).

    InvalidArgument for an image that is too narrow.
    """
    width, height = size
    if max(size) > _NARROWEST * min(size):
        raise InvalidArgument(
            f"an image has {width} x {height} pixels: its longer side must be below {_NARROWEST} times the other"
        )
    factor = settings.get("patch_size", 14) * settings.get("merge_size", 2)
    least, most = settings.get("min_pixels", 3136), settings.get("max_pixels", 12845056)
    high, wide = (max(factor, math.floor(side / factor + 0.5) * factor) for side in (height, width))
    if high * wide > most:
        scale = math.sqrt(height * width / most)
        high, wide = (math.floor(int(side / scale) / factor) * factor for side in (height, width))
    elif high * wide < least:
        scale = math.sqrt(least / (height * width))
        high, wide = (math.ceil(int(side * scale) / factor) * factor for side in (height, width))
    return max(wide, factor), max(high, factor)

"""`Images` of a prompt, and what a folder's `processor_config.json` makes of them.

The steps that it names (decoding, resizing, normalising, cutting into patches) are those of onnxruntime-extensions, as
onnxruntime-genai has them, so that models see the same pixels. Its decoders end the process at files that are damaged:
Pillow reads each file before, and writes those that they do not know as PNG.
"""

from __future__ import annotations

import io
import os
import tempfile
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from jitonnx.errors import Fail, InvalidArgument, NoSuchFile
from jitonnx.genai.config import read_object
from jitonnx.genai.extras import needed

EXTRA = "vision"

_MOST_SIDE, _MOST_PIXELS = 16384, 100_000_000
"""The largest images that onnxruntime-extensions decodes."""
_PASSED_ON = {("PNG", mode) for mode in ("1", "L", "LA", "P", "RGB", "RGBA")} | {("JPEG", "RGB")}
"""Formats and modes that it decodes."""


class Images:
    """Images, as files hold them, that can be decoded."""

    def __init__(self, files: Sequence[bytes]) -> None:
        self.files = list(files)
        """Files of PNG or JPEG. (Not in onnxruntime-genai.)"""

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
        return cls([_file(one, f"image {number}") for number, one in enumerate(images)])


def _given(images: Sequence[Any], kinds: tuple[type, ...], what: str) -> Sequence[Any]:
    if not images:
        raise InvalidArgument("no images were given")
    for one in images:
        if not isinstance(one, kinds):
            raise InvalidArgument(f"an image is given as {type(one).__name__}: {what} is needed")
    return images


def _file(image: Any, name: str) -> bytes:
    """A file of PNG or JPEG with an image. name: what errors call it."""
    pillow = needed("PIL.Image", "an image", extra=EXTRA)
    if isinstance(image, pillow.Image):
        return _as_png(image)
    if isinstance(image, np.ndarray):
        shape = image.shape
        if image.dtype != np.uint8 or len(shape) not in (2, 3) or shape[2:] not in ((), (1,), (3,), (4,)) or 0 in shape:
            raise InvalidArgument(
                f"{name} is {image.dtype} of shape {list(shape)}: uint8 [height, width] is needed, or [height, width, "
                "channels] with 1, 3 or 4 of them"
            )
        return _as_png(pillow.fromarray(image[:, :, 0] if shape[2:] == (1,) else image))
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


def _decodable(data: bytes, name: str, pillow: Any) -> bytes:
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
                return data if (image.format, image.mode) in _PASSED_ON else _as_png(image)
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
        self._place = place
        section = read_object(place).get("processor")
        if not (isinstance(section, dict) and isinstance(section.get("transforms"), list)):
            raise InvalidArgument(f"{place} has no processor.transforms: a list of operations is needed")
        self._package = needed("onnxruntime_extensions.pp_api", "a prompt with images", extra=EXTRA)
        try:
            self._handle = self._package.create_processor(place)
        except Exception as error:  # the package raises nothing narrower
            raise InvalidArgument(f"{place} cannot be used: {error}") from error

    def __del__(self) -> None:
        if hasattr(self, "_handle"):
            self._package.delete_object(self._handle)

    def __call__(self, images: Images, number: int) -> list[np.ndarray]:
        """The first `number` outputs, or as many as there are; the first axis of each is that of images.

        InvalidArgument for images that cannot be processed, as ones without any size in common.
        """
        package, handles = self._package, []
        try:
            with tempfile.TemporaryDirectory() as folder:
                places = [os.path.join(folder, str(place)) for place in range(len(images))]
                for place, data in zip(places, images.files, strict=True):
                    with open(place, "wb") as file:
                        file.write(data)
                handles.append(package.load_images(places))
            handles.append(package.image_pre_process(self._handle, handles[0]))
            made = [package.tensor_result_get_at(handles[1], 0)]
        except RuntimeError as error:
            raise InvalidArgument(f"the images cannot be processed as {self._place} says: {error}") from error
        else:
            while len(made) < number:
                try:
                    made.append(package.tensor_result_get_at(handles[1], len(made)))
                except RuntimeError:  # there are no more
                    break
            return made
        finally:
            for handle in handles:
                package.delete_object(handle)


def outputs(made: Sequence[np.ndarray], names: Sequence[str], place: str) -> dict[str, np.ndarray]:
    """Outputs by names. Fail where there are fewer."""
    if len(made) < len(names):
        raise Fail(f"{place} makes {len(made)} outputs of images: {', '.join(names)} are needed")
    return dict(zip(names, made, strict=True))

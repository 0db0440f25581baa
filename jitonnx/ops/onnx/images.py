"""Pictures in files: decoded on the host by Pillow, which is imported when a model needs it."""

from __future__ import annotations

import io

import numpy as np

from jitonnx.ir.dtypes import DType
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.types import TensorType

CHANNELS = {"RGB": 3, "BGR": 3, "Grayscale": 1}


class ImageDecoder(Operator):
    """The pixels [height, width, channels] of a picture from the bytes of its file; [0, 0, channels] if it is none.

    Needs Pillow, which decodes BMP, JPEG, JPEG 2000, TIFF, PNG, WebP and the portable formats. ImportError without it,
    when the model is loaded.
    """

    pixel_format: str = "RGB"

    def infer(self, context: InferenceContext, encoded: Value) -> TensorType:
        if self.pixel_format not in CHANNELS:
            raise InferenceError(f"pixel_format {self.pixel_format!r}: one of {', '.join(CHANNELS)} expected")
        if len(encoded.shape) != 1:
            raise InferenceError(f"encoded_stream has the type {encoded.type}: a vector of bytes expected")
        try:
            import PIL  # noqa: F401
        except ImportError as error:
            raise ImportError(
                "ImageDecoder needs the package Pillow: pip install jitonnx[images], or pip install pillow"
            ) from error
        return TensorType(DType.UINT8, (None, None, CHANNELS[self.pixel_format]))  # type: ignore[arg-type]

    def evaluate(self, encoded: np.ndarray) -> np.ndarray:
        from PIL import Image

        channels = CHANNELS[self.pixel_format]
        try:
            with Image.open(io.BytesIO(encoded.tobytes())) as picture:
                pixels = np.asarray(picture.convert("L" if channels == 1 else "RGB"))
        except (OSError, SyntaxError, ValueError):  # what Pillow raises for bytes that are no picture
            return np.zeros((0, 0, channels), np.uint8)
        if channels == 1:
            return pixels[:, :, None]
        return pixels[:, :, ::-1] if self.pixel_format == "BGR" else pixels

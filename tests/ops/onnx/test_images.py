"""ImageDecoder: pictures written by Pillow read back, and what happens without it."""

from __future__ import annotations

import io
import sys

import numpy as np
import pytest
from PIL import Image

from jitonnx import InferenceSession
from tests.ops.harness import Case, build, case, check, check_refused

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
GRAY = PIXELS[:, :, :1]


def encoded(pixels: np.ndarray, kind: str, mode: str = "RGB") -> np.ndarray:
    """The bytes of a file that holds the picture."""
    file = io.BytesIO()
    Image.fromarray(pixels[:, :, 0] if mode == "L" else pixels, mode).save(file, kind)
    return np.frombuffer(file.getvalue(), np.uint8)


CASES: list[Case] = [
    case("ImageDecoder", 20, encoded(PIXELS, "png"), expected=PIXELS),
    case("ImageDecoder", 20, encoded(PIXELS, "bmp"), pixel_format="BGR", expected=PIXELS[:, :, ::-1]),
    case("ImageDecoder", 20, encoded(GRAY, "png", "L"), pixel_format="Grayscale", expected=GRAY),
    case("ImageDecoder", 20, encoded(GRAY, "tiff", "L"), expected=np.repeat(GRAY, 3, 2), note="gray as RGB"),
    case("ImageDecoder", 20, np.arange(9, dtype=np.uint8), expected=np.zeros((0, 0, 3), np.uint8), note="no picture"),
    case("ImageDecoder", 20, encoded(PIXELS, "png")[:90], expected=np.zeros((0, 0, 3), np.uint8), note="cut off"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_images(case: Case) -> None:
    check(case)


def test_refused() -> None:
    check_refused(case("ImageDecoder", 20, np.arange(9, dtype=np.uint8), pixel_format="CMYK"), "pixel_format 'CMYK'")


def test_without_pillow_loading_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ImportError, match=r"jitonnx\[images\]"):
        InferenceSession(build(CASES[0]).SerializeToString())

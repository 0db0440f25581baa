"""The demonstration's data: a small convolutional network that reads handwritten digits, and images to try it on.

`digits.onnx` was trained by docs/examples/train_digits.py; `digits.npz` holds the images it was not trained on.
Both come from scikit-learn's digits, a part of the "Optical Recognition of Handwritten Digits" data set by E. Alpaydin
and C. Kaynak (UCI Machine Learning Repository, https://doi.org/10.24432/C50P49, licence CC BY 4.0).

The model takes `image`, float32 [batch, 1, 8, 8] with values from 0 (paper) to 1 (ink), and returns `probabilities`,
float32 [batch, 10].
"""

from pathlib import Path

import numpy as np

_FOLDER = Path(__file__).parent
_INK = 16  # the data set's darkest value


def model_path() -> Path:
    """The path of the trained model."""
    return _FOLDER / "digits.onnx"


def test_images() -> tuple[np.ndarray, np.ndarray]:
    """Images the model was not trained on, float32 [N, 1, 8, 8] as it takes them, and their digits, int64 [N]."""
    with np.load(_FOLDER / "digits.npz") as stored:
        return as_input(stored["images"]), stored["labels"].astype(np.int64)


def as_input(images: np.ndarray) -> np.ndarray:
    """Images as the data set has them, [N, 8, 8] with values 0 to 16, as the model takes them: float32 [N, 1, 8, 8]."""
    return images[:, np.newaxis].astype(np.float32) / np.float32(_INK)

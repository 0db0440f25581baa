"""Tables of rows in ggml's formats, against onnxruntime since 1.32."""

from functools import partial

import numpy as np
import pytest

from tests.ops.harness import Case, check, check_refused, needs_onnxruntime
from tests.ops.harness import case as any_case

case = partial(any_case, "GatherPacked", 1, domain="com.microsoft", constants=(0,))
RANDOM = np.random.default_rng(13)
BYTES = {0: 1024, 1: 512, 2: 144, 6: 176, 8: 272, 13: 176, 14: 210, 20: 144, 23: 136, 30: 512, 42: 72}
"""Of 256 elements, by the format."""


def table(packed_type: int, rows: int = 4) -> np.ndarray:
    """Any bytes but those of numbers that are huge, infinite or no numbers."""
    found: np.ndarray = RANDOM.integers(0, 256, (rows, BYTES[packed_type])).astype(np.uint8)
    return np.where((found & 0x7C) == 0x7C, found ^ 0x40, found) & np.uint8(0xBF if packed_type in (0, 1, 30) else 0xFF)


PLACES = np.array([[0, 3], [-1, 2], [9, 1]], np.int64)
CASES: list[Case] = [
    *(case(table(kind), PLACES, packed_type=kind, K=256, output_dtype=1) for kind in BYTES),
    case(table(14), PLACES.astype(np.int32), packed_type=14, K=256, output_dtype=10, constants=()),
    case(table(2), np.array(2, np.int64), packed_type=2, K=256, output_dtype=10),
]


@needs_onnxruntime("1.32")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows(case: Case) -> None:
    check(case)


REFUSED = [
    (case(table(2), PLACES, packed_type=16, K=256), "IQ2_XXS"),
    (case(table(2), PLACES, packed_type=12, K=256), "packed_type is 12"),
    (case(table(2), PLACES, packed_type=2, K=250), "K is 250"),
    (case(table(2), PLACES, packed_type=2, K=128), r"\[rows, 72\] is needed"),
    (case(table(2), PLACES, packed_type=2, K=256, output_dtype=11), "output_dtype is 11"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)

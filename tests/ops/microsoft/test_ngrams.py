"""Hashes of n-grams, against onnxruntime."""

from functools import partial
from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, check, check_refused
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft")
RANDOM = np.random.default_rng(30)


def hashed(
    shape: tuple[int, ...] = (2, 7),
    *,
    size: int = 3,
    heads: int = 2,
    dtype: Any = np.int64,
    past: bool = False,
    offsets: bool = False,
    eos: int | None = None,
    segments: bool = False,
    **attributes: int,
) -> Case:
    count = (size - 1) * heads
    most = 2 ** (30 if dtype is np.int32 else 62)
    inputs = [
        RANDOM.integers(0, 9, shape),
        RANDOM.integers(-most, most, size),
        RANDOM.integers(1, 1000, count),
        RANDOM.integers(0, 9, (shape[0], size - 1)) if past else None,
        RANDOM.integers(-5, most, count) if offsets else None,
        eos if eos is None else np.array(eos),
    ]
    arrays = [x if x is None else np.asarray(x).astype(dtype) for x in inputs]
    arrays.append(np.sort(RANDOM.integers(0, 3, shape)).astype(np.int32) if segments else None)
    while arrays[-1] is None:
        arrays.pop()
    attributes = {"max_ngram_size": size, "n_head_per_ngram": heads, "pad_id": 77, **attributes}
    return case("NGramHashMapping", 1, *arrays, outputs=2, **attributes)


CASES: list[Case] = [
    hashed(),
    hashed((1, 1), size=4, past=True),
    hashed((3, 5), dtype=np.int32, heads=3, past=True, offsets=True),
    hashed(eos=4),
    hashed((2, 20), eos=4, past=True, reset_on_eos=1, size=4),
    hashed((2, 20), segments=True, past=True),
    hashed((2, 20), segments=True, eos=3, reset_on_eos=1, size=4),
    hashed((2, 0), past=True),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_ngrams(case: Case) -> None:
    check(case)


REFUSED = [
    (hashed(max_ngram_size=1), "max_ngram_size is 1"),
    (hashed(max_ngram_size=4), "vocab_sizes"),
    (hashed((7,)), "rank 2"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)

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


def several(
    bounds: list[int],
    *,
    size: int = 3,
    dtype: Any = np.int64,
    past: bool = False,
    eos: int | None = None,
    segments: bool = False,
    past_segments: bool = False,
    captured: list[int] | None = None,
    outputs: int = 2,
    **attributes: int,
) -> Case:
    heads, count, batch = 2, bounds[-1], len(bounds) - 1
    inputs: list[Any] = [
        RANDOM.integers(0, 9, count).astype(dtype),
        RANDOM.integers(-1000, 1000, size).astype(dtype),
        RANDOM.integers(1, 1000, (size - 1) * heads).astype(dtype),
        np.array(bounds, np.int32),
        RANDOM.integers(0, 9, (batch, size - 1)).astype(dtype) if past else None,
        None,
        None if eos is None else np.array(eos, dtype),
        RANDOM.integers(0, 2, count).astype(np.int32) if segments else None,
        RANDOM.integers(0, 2, (batch, size - 1)).astype(np.int32) if past_segments else None,
        None if captured is None else np.array(captured, np.int32),
    ]
    while inputs[-1] is None:
        inputs.pop()
    attributes = {"max_ngram_size": size, "n_head_per_ngram": heads, "pad_id": 77, **attributes}
    return case("VarlenNGramHashMapping", 1, *inputs, outputs=outputs, **attributes)


CASES += [
    several([0, 5]),
    several([0, 1, 9, 11], size=4, past=True),
    several([0, 3, 9], dtype=np.int32, past=True, eos=4, reset_on_eos=1),
    several([0, 12, 20], past=True, segments=True, past_segments=True, outputs=3, size=4),
    several([0, 12, 20], segments=True, past=True, outputs=3, size=4),
    several([0, 12, 20], segments=True, eos=3, outputs=3),
    several([0, 2, 9], past=True, segments=True, captured=[3, 2], state_update_capacity=3, outputs=4),
    several([0, 2, 9, 10], size=4, segments=True, captured=[0, 9, 1], state_update_capacity=8, outputs=4),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_ngrams(case: Case) -> None:
    check(case)


REFUSED = [
    (hashed(max_ngram_size=1), "max_ngram_size is 1"),
    (hashed(max_ngram_size=4), "vocab_sizes"),
    (hashed((7,)), "rank 2"),
    (several([0, 5], outputs=3), "segment_ids"),
    (several([0, 5], segments=True, outputs=4), "state_update_capacity"),
    (several([0, 5], captured=[1]), "state_update_capacity is 0"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)

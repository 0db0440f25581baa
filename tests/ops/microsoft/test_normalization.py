"""Layer normalizations of sums of com.microsoft, against onnxruntime."""

from functools import partial

import numpy as np
import pytest

from tests.ops.harness import Case, check, check_refused, retyped
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft", rtol=1e-4, atol=1e-5)
RANDOM = np.random.default_rng(4)
X, SKIP = (RANDOM.normal(size=(2, 5, 16)).astype(np.float32) for _ in range(2))
GAMMA, BETA, BIAS = (RANDOM.normal(size=16).astype(np.float32) for _ in range(3))
IDS = RANDOM.integers(0, 11, (2, 5)).astype(np.int32)
SEGMENTS = RANDOM.integers(0, 2, (2, 5)).astype(np.int32)
MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
WORDS, POSITIONS, KINDS = (RANDOM.normal(size=(n, 16)).astype(np.float32) for n in (11, 8, 2))
PLACES = np.array([[4, 3, 2, 1, 0], [7, 7, 0, 1, 2]], np.int32)


def quantized(segments: np.ndarray | None, mask: np.ndarray | None = None, dtype: type = np.uint8) -> Case:
    """A QEmbedLayerNormalization."""
    sizes = [(11, 16), (8, 16), (2, 16), (16,), (16,)]
    integers = [RANDOM.integers(0, 120, size).astype(dtype) for size in sizes]
    scales: list[np.ndarray | None] = [np.float32(0.01 * n) for n in range(1, 6)]
    zeros: list[np.ndarray | None] = [np.array(n, dtype) for n in range(40, 45)]
    if segments is None:
        integers[2] = scales[2] = zeros[2] = None
    return case("QEmbedLayerNormalization", 1, IDS, segments, *integers, mask, *scales, *zeros, outputs=2)


CASES: list[Case] = [
    case("SkipLayerNormalization", 1, X, SKIP, GAMMA),
    case("SkipLayerNormalization", 1, X, SKIP, GAMMA, BETA, constants=(2, 3)),
    case("SkipLayerNormalization", 1, X, SKIP, GAMMA, BETA, BIAS, epsilon=1e-3),
    case("SkipLayerNormalization", 1, X, SKIP, GAMMA, None, BIAS),
    case("SkipLayerNormalization", 1, X, SKIP[:1], GAMMA, BETA),
    case("SkipLayerNormalization", 1, X, SKIP[0], GAMMA, BETA),
    *retyped(case("SkipLayerNormalization", 1, X, SKIP, GAMMA, BETA), np.float16),
    case("SkipSimplifiedLayerNormalization", 1, X, SKIP, GAMMA),
    case("SkipSimplifiedLayerNormalization", 1, X, SKIP, GAMMA, BIAS, epsilon=1e-2),
    case("BranchwiseRMSNorm", 1, X, epsilon=0.1),
    case("BranchwiseRMSNorm", 1, X, GAMMA),
    case("BranchwiseRMSNorm", 1, X, RANDOM.normal(size=(5, 16)).astype(np.float32)),
    case("BranchwiseRMSNorm", 1, X, GAMMA, num_branches=4),
    case("BranchwiseRMSNorm", 1, X, GAMMA[:4], num_branches=4),
    case("GatedRMSNorm", 1, X, GAMMA, SKIP),
    case("GatedRMSNorm", 1, X, GAMMA[:4], SKIP, activation="sigmoid", epsilon=0.1),
    *retyped(case("GatedRMSNorm", 1, X, GAMMA[:8], SKIP), np.float16),
    quantized(None),
    quantized(SEGMENTS),
    quantized(SEGMENTS, MASK),
    quantized(SEGMENTS, MASK, np.int8),
    case("EmbedLayerNormalization", 1, IDS, None, WORDS, POSITIONS, None, GAMMA, BETA, outputs=2),
    case("EmbedLayerNormalization", 1, IDS, SEGMENTS, WORDS, POSITIONS, KINDS, GAMMA, BETA, outputs=3),
    case("EmbedLayerNormalization", 1, IDS, SEGMENTS, WORDS, POSITIONS, KINDS, GAMMA, BETA, MASK, outputs=2),
    case("EmbedLayerNormalization", 1, IDS, SEGMENTS, WORDS, POSITIONS, KINDS, GAMMA, BETA, MASK, PLACES, outputs=2),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_normalization(case: Case) -> None:
    check(case)


REFUSED = [
    (case("EmbedLayerNormalization", 1, IDS, SEGMENTS, WORDS, POSITIONS, None, GAMMA, BETA), "given together"),
    (case("SkipSimplifiedLayerNormalization", 1, X, SKIP, GAMMA, outputs=2), "outputs for training"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)

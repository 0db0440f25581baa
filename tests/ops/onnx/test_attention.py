"""Attention and RotaryEmbedding against onnx's reference: masks, caches, windows, heads of all kinds."""

from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version

RANDOM = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


Q, K, V = normal(2, 4, 3, 8), normal(2, 4, 5, 8), normal(2, 4, 5, 6)
PAST = (normal(2, 4, 7, 8), normal(2, 4, 7, 6))
ALLOWED = RANDOM.random((2, 1, 3, 5)) > 0.4
ALLOWED[0, 0, 1] = False  # a row in which everything is masked
ALLOWED[1, 0, 2] = True
LENGTHS = np.array([5, 2], np.int64)


def attention(*inputs: Any, since: int = 23, **options: Any) -> list[Case]:
    return each_version("Attention", *inputs, since=since, rtol=1e-4, **options)


CASES: list[Case] = [
    *attention(Q, K, V),
    *attention(Q, K, V, scale=0.3),
    *attention(Q, K, V, is_causal=1),
    *attention(Q, K, V, normal(3, 5)),
    *attention(Q, K, V, normal(4, 3, 5), is_causal=1),
    *attention(Q, K, V, ALLOWED),
    *attention(Q, K, V, ALLOWED, is_causal=1),
    *attention(Q, K, V, normal(4, 3, 5), softcap=2.0),
    *attention(Q, normal(2, 2, 5, 8), normal(2, 2, 5, 6)),  # two heads of Q to one of K and V
    *attention(normal(2, 3, 16), normal(2, 5, 8), normal(2, 5, 12), q_num_heads=4, kv_num_heads=2),
    *attention(Q, K, V, None, *PAST, outputs=3),
    *attention(Q, K, V, None, *PAST, is_causal=1, outputs=3),
    *attention(Q, K, V, normal(3, 12), *PAST, is_causal=1, outputs=3),
    *(c for mode in (1, 3) for c in attention(Q, K, V, ALLOWED, outputs=4, qk_matmul_output_mode=mode, softcap=1.5)),
    *attention(Q, K, V, normal(3, 5), outputs=4, qk_matmul_output_mode=2, softcap=1.5),
    *attention(Q, K, V, outputs=4),
    *attention(Q, K, V, None, None, None, LENGTHS, since=24),
    *attention(Q, K, V, None, None, None, LENGTHS, is_causal=1, since=24),
    *attention(Q, K, V, normal(3, 4), since=24),  # a mask for four keys blocks the fifth
    *attention(Q, K, V, ALLOWED[..., :4], None, None, LENGTHS, since=24),
    *(
        c
        for left, right in ((1, 0), (0, 1), (-1, 1), (2, -1))
        for c in (
            *attention(Q, K, V, left_window_size=left, right_window_size=right, since=25),
            *attention(Q, K, V, None, *PAST, is_causal=1, left_window_size=left, right_window_size=right, since=25),
            *attention(*(Q, K, V, None, None, None, LENGTHS), left_window_size=left, right_window_size=right, since=25),
        )
    ),
    *(case("Attention", 23, *(x.astype(dtype) for x in (Q, K, V)), is_causal=1) for dtype in (np.float64, np.float16)),
    case("Attention", 23, *(x.astype(np.float16) for x in (Q, K, V)), softmax_precision=1),
]

CACHES = (normal(9, 4), normal(9, 4))
POSITIONS = RANDOM.integers(0, 9, (2, 4))
X, SIDE_BY_SIDE = normal(2, 3, 4, 8), normal(2, 4, 24)

CASES += [
    *(
        c
        for interleaved in (0, 1)
        for c in (
            case("RotaryEmbedding", 23, X, normal(2, 4, 4), normal(2, 4, 4), interleaved=interleaved),
            case("RotaryEmbedding", 23, X, *CACHES, POSITIONS, interleaved=interleaved),
            case("RotaryEmbedding", 23, SIDE_BY_SIDE, *CACHES, POSITIONS, interleaved=interleaved, num_heads=3),
            case(
                *("RotaryEmbedding", 23, X, CACHES[0][:, :2], CACHES[1][:, :2], POSITIONS),
                interleaved=interleaved,
                rotary_embedding_dim=4,
            ),
        )
    ),
    case("RotaryEmbedding", 23, *(x.astype(np.float16) for x in (X, *CACHES)), POSITIONS),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.float16, np.float64])
@pytest.mark.parametrize("of", [np.float32, np.float64, np.float16])
def test_masks_and_values_of_other_types_than_the_queries(of: Any, dtype: Any) -> None:
    mask = RANDOM.integers(0, 3, (Q.shape[2], K.shape[2] - 1)).astype(dtype)
    options = {"rtol": 1e-4, "atol": 1e-5, "widen": False}
    added = np.pad(mask.astype(np.float64), [(0, 0), (0, 1)], constant_values=-np.inf)
    logits = Q.astype(of).astype(np.float64) @ K.astype(of).astype(np.float64).swapaxes(2, 3) / np.sqrt(Q.shape[3])
    weights = np.exp(logits + added)
    expected = (weights / weights.sum(-1, keepdims=True) @ V.astype(np.float64)).astype(of)
    check(case("Attention", 25, Q.astype(of), K.astype(of), V, mask, expected=expected, **options))


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (case("Attention", 23, normal(2, 3, 16), normal(2, 5, 8), normal(2, 5, 8)), "q_num_heads and kv_num_heads"),
        (case("Attention", 23, Q, K[:, :3], V[:, :3]), "4 heads of Q do not divide among 3"),
        (case("Attention", 23, Q, K[:, :, :4], V), "do not fit each other"),
        (case("Attention", 24, Q, K, V, None, *PAST, LENGTHS), "nonpad_kv_seqlen cannot be given together"),
        (case("Attention", 25, Q, K, V, left_window_size=-2), "must be -1 or more"),
        (case("RotaryEmbedding", 23, SIDE_BY_SIDE, *CACHES, POSITIONS), "num_heads"),
        (case("RotaryEmbedding", 23, X, *CACHES), "rank 3 and 4 columns expected"),
    ],
    ids=str,
)
def test_refused(refused: Case, text: str) -> None:
    check_refused(refused, text)

"""Attention with caches and rotary embeddings of com.microsoft, against onnxruntime."""

from dataclasses import replace
from functools import partial
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jitonnx import InferenceSession
from jitonnx.engine.interpreter import evaluate
from jitonnx.model import load
from tests.ops.harness import Case, build, check, check_refused, needs_onnxruntime, run_onnxruntime
from tests.ops.harness import case as any_case

case = partial(any_case, domain="com.microsoft", rtol=1e-4, atol=1e-4)
RANDOM = np.random.default_rng(6)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def attention(
    batch: int,
    steps: int,
    lengths: list[int],
    capacity: int | None,
    *,
    heads: tuple[int, int] = (4, 2),
    depth: int = 16,
    packed: bool = True,
    rotary: int = 0,
    positions: bool = False,
    bias: bool = False,
    sink: bool = False,
    constant: bool = True,
    dtype: Any = np.float32,
    bits: int = 0,
    by_channel: tuple[bool, bool] = (False, False),
    scales: tuple[int, ...] | None = None,
    cache: Any = None,
    **attributes: Any,
) -> Case:
    """A GroupQueryAttention. lengths: keys of each row of the batch, with those of this run. capacity: rows of the
    past, None: there is none. rotary: elements of a head that are turned. bits: of caches of integers, whose scales are
    by_channel for keys and for values. scales, cache: another shape of scales, and type of caches, than is right."""
    total = max(lengths)
    before = [0 if steps == total else length - steps for length in lengths]
    count, shared = heads
    if packed:
        q, k, v = normal(batch, steps, (count + 2 * shared) * depth), None, None
    else:
        q, k, v = (normal(batch, steps, number * depth) for number in (count, shared, shared))
    past_key = past_value = None
    if capacity is not None:
        past_key, past_value = (normal(batch, shared, capacity, depth) for _ in range(2))
        if bits:
            past_key, past_value = (
                RANDOM.integers(
                    -128 if bits == 8 else 0, 128 if bits == 8 else 256, (*x.shape[:3], depth * bits // 8)
                ).astype(cache or (np.int8 if bits == 8 else np.uint8))
                for x in (past_key, past_value)
            )
        kept = [first if not attributes.get("sliding_window_cache") else capacity for first in before]
        for row, first in enumerate(kept):  # onnxruntime has zeros in the present's other rows
            past_key[row, :, first:] = past_value[row, :, first:] = 0
    cosines = sines = places = None
    if rotary:
        angles = RANDOM.uniform(0, 6, (total + 8, rotary // 2))
        cosines, sines = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        attributes["do_rotary"] = 1
    if positions:
        places = RANDOM.integers(0, total + 8, (batch, steps)).astype(np.int64)
    added = normal(1, count, steps, total) if bias else None
    sinks = normal(count) if sink else None
    inputs: list[Any] = [q, k, v, past_key, past_value, np.array(lengths, np.int32) - 1, np.array(total, np.int32)]
    inputs += [cosines, sines, places, added, sinks]
    inputs = [x.astype(dtype) if x is not None and x.dtype == np.float32 else x for x in inputs]
    if bits:
        kinds = ["PER_CHANNEL" if each else "PER_TENSOR" for each in by_channel]
        attributes.update(kv_cache_bit_width=bits, k_quant_type=kinds[0], v_quant_type=kinds[1])
        least = 3 / (1 << (bits - 1))
        for each in by_channel:
            shape = (1, shared, 1, depth) if each else (1,)
            inputs.append(RANDOM.uniform(0.7 * least, least, scales or shape).astype(np.float32))
    while inputs[-1] is None:
        inputs.pop()
    constants = (6, *((7, 8) if rotary else ())) if constant else ()
    return case(
        "GroupQueryAttention",
        1,
        *inputs,
        outputs=4 if attributes.get("qk_output") else 3,
        constants=constants,
        num_heads=count,
        kv_num_heads=shared,
        **attributes,
    )


CASES: list[Case] = [
    attention(1, 5, [5], None),
    attention(2, 5, [5, 5], None, packed=False),
    attention(1, 5, [5], 0),
    attention(1, 5, [5], 9, rotary=16),
    attention(2, 1, [7, 4], 7, rotary=16),
    attention(2, 1, [7, 4], 12, rotary=16, depth=32, packed=False),
    attention(1, 1, [8], 7),
    attention(1, 3, [9], 9, rotary=16),
    attention(1, 3, [9], 16, rotary=16, rotary_interleaved=1, local_window_size=4),
    attention(2, 1, [9, 9], 16, local_window_size=3, heads=(6, 2)),
    attention(1, 5, [5], None, softcap=2.0, scale=0.7),
    attention(2, 1, [7, 7], 8, smooth_softmax=1),
    attention(2, 1, [7, 7], 8, sink=True, rotary=16, softcap=3.0),
    attention(1, 6, [6], 8, sink=True, local_window_size=2),
    attention(1, 4, [4], 8, bias=True),
    attention(1, 1, [6], 8, bias=True, softcap=5.0),
    attention(1, 2, [6], 8, rotary=16, positions=True, heads=(2, 2)),
    attention(1, 1, [6], 8, heads=(8, 1), depth=32),
    attention(1, 1, [6], 8, rotary=16, constant=False),
    attention(1, 7, [7], 8, rotary=16, constant=False),
    attention(2, 5, [5, 5], None, bias=True, softcap=2.0, qk_output=1),
    attention(1, 3, [9], 9, rotary=16, local_window_size=4, qk_output=1, constant=False),
    attention(2, 1, [7, 7], 8, sink=True, qk_output=2),
    attention(1, 3, [9], 16, local_window_size=4, qk_output=2),
]
BOTH, KEYS = (True, True), (True, False)
CASES += [
    attention(1, 5, [5], 0, bits=8),
    attention(1, 5, [5], 9, rotary=16, bits=8, by_channel=BOTH),
    attention(2, 1, [7, 4], 12, rotary=16, bits=8, depth=32, packed=False),
    attention(2, 1, [7, 4], 12, rotary=16, bits=4, depth=32, packed=False, by_channel=BOTH),
    attention(1, 1, [8], 7, bits=4),
    attention(1, 3, [9], 16, rotary=16, rotary_interleaved=1, local_window_size=4, bits=8, heads=(6, 2)),
    attention(1, 9, [12], 16, bits=4, by_channel=BOTH),
    attention(1, 20, [20], 0, bits=4, heads=(2, 2), depth=64),
    attention(1, 1, [70], 80, bits=4, heads=(8, 2), depth=64),
    attention(1, 1, [70], 80, bits=8, heads=(8, 2), depth=64, by_channel=BOTH),
    attention(1, 1, [6], 8, bias=True, softcap=5.0, bits=8),
    attention(2, 1, [7, 7], 8, sink=True, rotary=16, softcap=3.0, bits=4, by_channel=BOTH),
    attention(1, 6, [6], 8, sink=True, local_window_size=2, bits=8, by_channel=BOTH),
    attention(1, 1, [6], 8, rotary=16, constant=False, bits=8),
    attention(1, 7, [7], 8, rotary=16, constant=False, bits=4),
]
windowed = partial(attention, sliding_window_cache=1)
CASES += [  # all rows of the presents are defined: there are as many positions as rows, or rows are the window
    windowed(1, 1, [6], 6, local_window_size=4),
    windowed(2, 1, [6, 6], 6, local_window_size=6, rotary=16),
    windowed(2, 1, [9, 7], 4, local_window_size=4, rotary=16, heads=(6, 2)),
    windowed(2, 1, [12, 9], 6, local_window_size=4),
    windowed(1, 1, [50], 4, local_window_size=4, packed=False, sink=True),
    windowed(1, 4, [4], 4, local_window_size=4, softcap=2.0),
    windowed(1, 9, [9], 4, local_window_size=4, rotary=16, smooth_softmax=1),
    windowed(2, 9, [9, 9], 3, local_window_size=3, rotary=16),
    windowed(1, 3, [9], 4, local_window_size=4, rotary=16, softcap=1.5),
    windowed(1, 7, [12], 6, local_window_size=4, constant=False),
    windowed(1, 1, [9], 1, local_window_size=1),
    windowed(1, 3, [11], 5, local_window_size=5, bias=True),
    windowed(2, 1, [11, 7], 5, local_window_size=5, bias=True, softcap=2.0),
    windowed(1, 12, [12], 5, local_window_size=5, bits=8),
    windowed(1, 1, [12], 5, local_window_size=5, bits=4, by_channel=BOTH, rotary=32, depth=32),
    windowed(1, 1, [12], 5, local_window_size=5, constant=False, rotary=16),
]
X3, X4 = normal(2, 5, 4 * 16), normal(2, 4, 5, 16)
ANGLES = RANDOM.uniform(0, 6, (12, 8))
COSINES, SINES = np.cos(ANGLES).astype(np.float32), np.sin(ANGLES).astype(np.float32)
PLACES = RANDOM.integers(0, 12, (2, 5)).astype(np.int64)
FIRST = np.array([3], np.int64)
THREE = RANDOM.integers(0, 12, (3, 2, 5)).astype(np.int64)
CASES += [
    case("RotaryEmbedding", 1, X3, PLACES, COSINES, SINES),
    *(
        case("MRotaryEmbedding", 1, x, THREE, COSINES, SINES, num_heads=4, mrope_section=sections, mrope_layout=layout)
        for x in (X3, X4)
        for layout, sections in ((0, (3, 1, 4)), (1, (4, 2, 2)))
    ),
    case("RotaryEmbedding", 1, X3, FIRST, COSINES, SINES, interleaved=1),
    case("RotaryEmbedding", 1, X4, PLACES, COSINES, SINES),
    case("RotaryEmbedding", 1, X4, FIRST, COSINES, SINES, interleaved=1),
    case("RotaryEmbedding", 1, X3, PLACES, COSINES[:, :4], SINES[:, :4], num_heads=4, rotary_embedding_dim=8),
]


Q, KEY, VALUE = normal(2, 5, 64), normal(2, 7, 64), normal(2, 7, 32)
PADDING = np.array([[1, 1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1]], np.int32)
heads = partial(case, "MultiHeadAttention", 1, num_heads=4)
CASES += [
    heads(Q, KEY, VALUE),
    heads(Q, KEY, VALUE, normal(64 + 64 + 32), scale=0.3),
    heads(Q, KEY, VALUE, None, PADDING),
    heads(Q, KEY, VALUE, None, np.array([5, 0], np.int32)),
    heads(Q, Q, Q, None, np.array([8, 6], np.int32), None, normal(2, 4, 3, 16), normal(2, 4, 3, 16), outputs=3),
    heads(Q, KEY, VALUE, None, PADDING, normal(1, 4, 5, 7)),
    heads(Q, KEY, VALUE, None, None, normal(2, 1, 5, 7)),
    heads(Q, Q, Q, unidirectional=1),
    heads(Q, normal(2, 4, 7, 16), normal(2, 4, 7, 16)),
    heads(Q, normal(2, 4, 7, 16), normal(2, 4, 7, 16), normal(64 + 64 + 64)),
    heads(Q, Q, Q, None, None, None, normal(2, 4, 3, 16), normal(2, 4, 3, 16), outputs=3),
    heads(Q[:, :1], Q[:, :1], Q[:, :1], None, None, None, normal(2, 4, 3, 16), normal(2, 4, 3, 16), outputs=3),
]


def quantised(
    mask: np.ndarray | None = None,
    past: int | None = None,
    *,
    weights: Any = np.int8,
    by_column: bool = False,
    **attributes: Any,
) -> Case:
    """A QAttention of two sequences of 5 with 4 heads of 16. past: how many keys there are before."""
    x, w = (
        RANDOM.integers(np.iinfo(t).min, np.iinfo(t).max + 1, shape).astype(t)
        for t, shape in ((np.uint8, (2, 5, 24)), (weights, (24, 3 * 64)))
    )
    scales = RANDOM.uniform(1e-3, 2e-3, 3 * 64 if by_column else ()).astype(np.float32)
    zeros = np.full(scales.shape, 3, weights)
    given = [x, w, normal(3 * 64), np.float32(0.02), scales, mask, np.uint8(100), zeros]
    given += [] if past is None else [normal(2, 2, 4, past, 16)]
    outputs = 1 if past is None else 2
    return case("QAttention", 1, *given, num_heads=4, constants=(1, 2, 3, 4, 6, 7), outputs=outputs, **attributes)


CASES += [
    quantised(),
    quantised(by_column=True),
    quantised(weights=np.uint8, scale=0.3),
    quantised(np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)),
    quantised(np.array([3, 5], np.int32)),
    quantised(np.array([4, 5, 1, 0], np.int32)),
    quantised(unidirectional=1),
    quantised(past=3),
    quantised(np.array([6, 8], np.int32), past=3),
]


def fused(
    mask: np.ndarray | None = None,
    past: int | None = None,
    *,
    bias: bool = True,
    added: bool = False,
    **attributes: Any,
) -> Case:
    """An Attention of two sequences of 5 with 4 heads of 16. past: how many keys there are before."""
    total = 5 + (past or 0)
    widths = attributes.get("qkv_hidden_sizes", (64,) * 3)
    given: list[Any] = [normal(2, 5, 24), normal(24, sum(widths)) * 0.3, normal(sum(widths)), mask]
    given += [None if past is None else normal(2, 2, 4, past, 16), normal(2, 4, 5, total) if added else None]
    while given[-1] is None:
        given.pop()
    outputs = 1 if past is None else 2
    return case("Attention", 1, *given, num_heads=4, constants=(1, 2), outputs=outputs, **attributes)


def without_bias() -> Case:
    """An Attention without a bias, which onnxruntime 1.31 does not survive."""
    x, weights = normal(2, 5, 24), normal(24, 192) * np.float32(0.3)
    q, k, v = (part.reshape(2, 5, 4, 16).swapaxes(1, 2) for part in np.split(x @ weights, 3, 2))
    scores = np.exp(q @ k.swapaxes(2, 3) / 4)
    y = (scores / scores.sum(3, keepdims=True) @ v).swapaxes(1, 2).reshape(2, 5, 64)
    return case("Attention", 1, x, weights, num_heads=4, constants=(1,), expected=y)


PADDED = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
BY_QUERY = np.tril(np.ones((2, 5, 5), np.int32))

CASES += [
    fused(),
    without_bias(),
    fused(PADDED),
    fused(PADDED, mask_filter_value=-3.0, scale=0.4),
    fused(BY_QUERY),
    fused(np.array([3, 5], np.int32)),
    fused(np.array([4, 5, 1, 0], np.int32)),
    fused(unidirectional=1),
    fused(PADDED, unidirectional=1),
    fused(past=3),
    fused(past=0, unidirectional=1),
    fused(past=3, unidirectional=1),
    fused(np.concatenate([PADDED * 0 + 1, PADDED], 1)[:, :8], past=3, unidirectional=1),
    fused(added=True),
    fused(PADDED, added=True),
    fused(qkv_hidden_sizes=[64, 64, 32]),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_attention(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    "given",
    [
        attention(1, 5, [5], 0, rotary=16),
        attention(2, 1, [7, 4], 12, rotary=16, depth=32, packed=False),
        attention(2, 1, [7, 4], 12, heads=(8, 2)),
        attention(1, 3, [9], 16, softcap=2.0, sink=True),
        windowed(1, 7, [12], 6, local_window_size=4, rotary=16),
    ],
    ids=str,
)
def test_caches_of_another_type(given: Case, dtype: Any) -> None:
    """Rows are rounded as they are added, which is all that differs. (onnxruntime has no kernels for such.)"""
    pasts = tuple(x.astype(dtype) for x in given.inputs[3:5])  # type: ignore[union-attr]
    wide = replace(given, inputs=(*given.inputs[:3], *(x.astype(np.float32) for x in pasts), *given.inputs[5:]))
    feeds = {f"x{i}": x for i, x in enumerate(wide.inputs) if x is not None and i not in wide.constants}
    y, *presents = run_onnxruntime(build(wide), feeds) or ()
    expected = (y, *(x.astype(dtype) for x in presents))
    inputs = (*given.inputs[:3], *pasts, *given.inputs[5:])
    check(replace(given, inputs=inputs, expected=expected, rtol=2e-2, atol=2e-2))


@needs_onnxruntime("1.32")
@pytest.mark.parametrize("rotary", [0, 16])
def test_padded_chunks(rotary: int) -> None:
    """query_seqlens: rows of a chunk that are there, of a first chunk, a later one, one without padding and none."""
    chunk = attention(4, 3, [2, 6, 5, 4], 9, packed=False, rotary=rotary, do_rotary=int(rotary > 0))
    counts = np.array([2, 1, 3, 0], np.int32)
    inputs = (*with_counts(chunk).inputs[:-1], counts)
    model = build(replace(chunk, inputs=inputs))
    feeds = {f"x{i}": x for i, x in enumerate(inputs) if x is not None and i not in chunk.constants}
    expected = run_onnxruntime(model, feeds)
    assert expected is not None
    results = InferenceSession(model.SerializeToString()).run(None, feeds)
    evaluated = evaluate(load(model).graph, feeds)
    for given in (results, evaluated):
        for row, (count, length) in enumerate(zip(counts, (2, 6, 5, 4), strict=True)):
            np.testing.assert_allclose(given[0][row, :count], expected[0][row, :count], rtol=1e-4, atol=1e-4)
            for present, right in zip(given[1:], expected[1:], strict=True):
                np.testing.assert_allclose(present[row, :, :length], right[row, :, :length], rtol=1e-4, atol=1e-5)


def with_counts(chunk: Case) -> Case:
    """The attention with query_seqlens."""
    rows = len(chunk.inputs[0])  # type: ignore[arg-type]
    inputs = (*chunk.inputs, *(None,) * (16 - len(chunk.inputs)), np.ones(rows, np.int32))
    return replace(chunk, inputs=inputs)


REFUSED = [
    (with_counts(attention(1, 5, [5], None)), "query_seqlens needs past_key"),
    (attention(1, 5, [5], None, heads=(3, 2)), "do not divide among"),
    (heads(normal(2, 5, 4, 3, 16)), "give the three apart"),
    (heads(Q, KEY, VALUE, None, np.array([5, 7, 3], np.int32)), r"\[batch\] or \[batch, keys\] is needed"),
    (attention(1, 5, [5], None, local_window_size=0), "local_window_size is 0"),
    (windowed(1, 5, [5], 8), "local_window_size -1"),
    (windowed(1, 5, [5], None, local_window_size=4), "past_key and past_value are needed"),
    (windowed(1, 5, [5], 3, local_window_size=4), "past_key has 3 rows"),
    (attention(1, 5, [5], None, k_quant_type="PER_TENSOR"), "both or neither are NONE"),
    (attention(1, 5, [5], None, bits=2), "kv_cache_bit_width is 2"),
    (attention(1, 5, [5], None, bits=8, scales=(4,)), r"k_scale is float\[4\]; 1 elements"),
    (attention(1, 5, [5], None, bits=8, by_channel=BOTH, scales=(2, 8)), "k_scale .* 32 elements"),
    (attention(1, 5, [5], 8, bits=8, cache=np.uint8), "caches of 8 bits are int8"),
    (attention(1, 5, [5], None, do_rotary=1), "cos_cache and sin_cache"),
    (quantised(do_rotary=1), "do_rotary"),
    (fused(do_rotary=1), "do_rotary"),
    (fused(np.ones((2, 1, 5, 5), np.int32)), "mask_index is"),
    (fused(qkv_hidden_sizes=[64, 32, 64]), "qkv_hidden_sizes is"),
    (case("RotaryEmbedding", 1, X3, PLACES, COSINES, SINES, is_packed_batching=1), "is_packed_batching"),
    (case("MRotaryEmbedding", 1, X3, THREE, COSINES, SINES, mrope_section=[3, 1, 3]), "sum of mrope_section"),
    (case("MRotaryEmbedding", 1, X3, THREE, COSINES, SINES, mrope_section=[3, 5]), "three sizes"),
    (case("MRotaryEmbedding", 1, X3, THREE, COSINES, SINES, mrope_section=[3, 1, 4]), "num_heads is 0"),
    (case("MRotaryEmbedding", 1, X3, PLACES, COSINES, SINES, mrope_section=[3, 1, 4]), "position_ids"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)

"""Normalisations: versions, axes, groups, statistics given or computed, training outputs."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, retyped

RANDOM = np.random.default_rng(0)
NARROW = (np.float16, ml_dtypes.bfloat16)


def normal(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def statistics(*shape: int) -> tuple[np.ndarray, ...]:
    """Scale, bias, mean and variance."""
    return normal(*shape), normal(*shape), normal(*shape), abs(normal(*shape)) + np.float32(0.1)


def normalized(x: np.ndarray, parameters: tuple[np.ndarray, ...], epsilon: float = 1e-5) -> np.ndarray:
    scale, bias, mean, variance = (p.reshape(-1, *(1,) * (x.ndim - 2)) if p.ndim == 1 else p for p in parameters)
    return (x - mean) / np.sqrt(variance + np.float32(epsilon)) * scale + bias


X = normal(2, 3, 4, 5)
GIVEN, BY_FEATURE = statistics(3), statistics(3, 4, 5)
OWN = (X.mean((0, 2, 3)), X.var((0, 2, 3)))
RUNNING = tuple(0.75 * given + 0.25 * own for given, own in zip(GIVEN[2:], OWN, strict=True))
TRAINED = normalized(X, (*GIVEN[:2], *OWN))
# Version 1 required it, though it never meant anything.
CONSUMED = {"consumed_inputs": [0, 0, 0, 1, 1]}


def normalized_locally(x: np.ndarray, size: int) -> np.ndarray:
    """LRN by its definition, for alpha 0.1, beta 0.6 and bias 1.5."""
    wide, y = x.astype(np.float64), np.empty(x.shape)
    for channel in range(x.shape[1]):
        near = wide[:, max(0, channel - (size - 1) // 2) : channel + size // 2 + 1]
        y[:, channel] = wide[:, channel] / (1.5 + 0.1 / size * (near * near).sum(1)) ** 0.6
    return y.astype(x.dtype)


CASES: list[Case] = [
    *(
        c
        for shape in ((2, 3, 4, 5), (2, 3, 4), (4, 3), (2, 3, 2, 2, 3))
        for c in each_version("BatchNormalization", normal(*shape), *GIVEN, since=7, epsilon=0.01)
    ),
    case("BatchNormalization", 15, X, *GIVEN, constants=(1, 2, 3, 4)),
    case("BatchNormalization", 1, X, *GIVEN, is_test=1, **CONSUMED, expected=normalized(X, GIVEN)),
    case("BatchNormalization", 6, X, *GIVEN, is_test=1, expected=normalized(X, GIVEN)),
    # Without the training outputs it is a test, whatever is_test says.
    case("BatchNormalization", 6, X, *GIVEN, expected=normalized(X, GIVEN)),
    *(
        case("BatchNormalization", version, X, *BY_FEATURE, spatial=0, expected=normalized(X, BY_FEATURE), **own)
        for version, own in ((1, CONSUMED), (6, {}), (7, {}))
    ),
    *(
        c
        for since, until, own in ((1, 5, CONSUMED), (6, 13, {}))
        for c in each_version(
            *("BatchNormalization", X, *GIVEN),
            since=since,
            until=until,
            momentum=0.75,
            outputs=5,
            expected=(TRAINED, *RUNNING, *OWN),
            **own,
        )
    ),
    *each_version(
        "BatchNormalization",
        X,
        *GIVEN,
        since=14,
        momentum=0.75,
        training_mode=1,
        outputs=3,
        expected=(TRAINED, *RUNNING),
    ),
    *retyped(case("BatchNormalization", 15, X, *GIVEN, rtol=1e-5), np.float64, *NARROW),
    *(
        c
        for shape in ((2, 3, 4, 5), (2, 3, 4), (2, 3, 2, 3, 2))
        for c in each_version("InstanceNormalization", normal(*shape), normal(3), normal(3), since=6, epsilon=0.01)
    ),
    case(
        "InstanceNormalization",
        1,
        X,
        *GIVEN[:2],
        consumed_inputs=[0, 0, 0],
        expected=normalized(X, (*GIVEN[:2], X.mean((2, 3), keepdims=True), X.var((2, 3), keepdims=True))),
    ),
    *retyped(case("InstanceNormalization", 22, X, *GIVEN[:2]), np.float64, *NARROW),
    *(
        case("GroupNormalization", 18, normal(3, 4, *size), normal(2), normal(2), num_groups=2)
        for size in ((5, 2), (5,))
    ),
    *(
        case("GroupNormalization", 21, normal(3, 4, *size), normal(4), normal(4), num_groups=2)
        for size in ((5, 2), (5,))
    ),
    case("GroupNormalization", 18, normal(3, 4, 5), normal(2), normal(2), num_groups=2, constants=(1, 2), epsilon=0.1),
    *retyped(case("GroupNormalization", 21, normal(3, 4, 5), normal(4), normal(4), num_groups=2), np.float64, *NARROW),
    *(
        case("LayerNormalization", 17, normal(2, 3, 4), normal(*(2, 3, 4)[axis:]), *bias, axis=axis, outputs=outputs)
        for axis in (-1, -2, 0, 1, 2)
        for bias, outputs in (((normal(*(2, 3, 4)[axis:]),), 3), ((), 1))
    ),
    *(case("LayerNormalization", 1, normal(2, 3, 4), normal(4), normal(4), outputs=n, epsilon=0.1) for n in (1, 3)),
    case("LayerNormalization", 1, normal(2, 3, 4), normal(3, 4), axis=1),
    *retyped(case("LayerNormalization", 1, normal(2, 3, 4), normal(4), normal(4)), np.float64, *NARROW),
    case("LayerNormalization", 17, normal(2, 3, 4), normal(1), normal(1), epsilon=0.1),
    *retyped(case("LayerNormalization", 17, normal(2, 3, 4), normal(4), normal(4)), np.float64, *NARROW),
    *(
        case("RMSNormalization", 23, normal(2, 3, 4), normal(*(2, 3, 4)[axis:]), axis=axis, epsilon=0.1)
        for axis in (-1, -2, 0, 1, 2)
    ),
    *retyped(case("RMSNormalization", 23, normal(2, 3, 4), normal(4)), np.float64, *NARROW),
    *(case("SimplifiedLayerNormalization", 1, normal(2, 3, 4), normal(4), epsilon=epsilon) for epsilon in (1e-5, 0.1)),
    *(
        case("MeanVarianceNormalization", 1, X, across_channels=across, normalize_variance=variance)
        for across in (0, 1)
        for variance in (0, 1)
    ),
    *each_version("MeanVarianceNormalization", X),
    *each_version("MeanVarianceNormalization", X, axes=[1, -1], since=9),
    *each_version("MeanVarianceNormalization", X[:1]),
    *each_version("MeanVarianceNormalization", X, axes=[2, 3], since=9),
    *each_version("MeanVarianceNormalization", X[:1], axes=[0, 1, 2, 3], since=9),
    *each_version("MeanVarianceNormalization", X[:1, :, :, :1], axes=[1, 2], since=9),
]

ZEROS = normal(2, 3, 4)
ZEROS[0, 1], ZEROS[:, :, 2] = 0, 0
CASES += [
    *(c for axis in (-1, 0, 1) for p in (1, 2) for c in each_version("LpNormalization", ZEROS, axis=axis, p=p)),
    *retyped(case("LpNormalization", 22, normal(3, 4)), np.float64, *NARROW),
    *(
        c
        for size in (1, 3, 5)
        for c in each_version("LRN", normal(2, 6, 3, 3), size=size, alpha=0.1, beta=0.6, bias=1.5)
    ),
    *(
        case("LRN", 13, x, size=4, alpha=0.1, beta=0.6, bias=1.5, expected=normalized_locally(x, 4), rtol=1e-6)
        for x in (normal(2, 6, 3).astype(np.float64), normal(2, 6), normal(1, 6, 2, 2, 3))
    ),
    # An even size reaches one channel further up than down.
    case(
        "LRN",
        13,
        np.array([[[1], [2], [3]]], np.float32),
        size=2,
        alpha=2.0,
        beta=1.0,
        expected=np.array([[[1 / 6], [2 / 14], [3 / 10]]], np.float32),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_normalization(case: Case) -> None:
    check(case)


def test_half_precision_keeps_statistics_in_float32() -> None:
    x = normal(2, 3, 4).astype(np.float16)
    wide = x.astype(np.float32)
    mean, inverse = wide.mean(-1, keepdims=True), 1 / np.sqrt(wide.var(-1, keepdims=True) + np.float32(1e-5))
    one = np.ones(4, np.float16)
    y = ((wide - mean) * inverse).astype(np.float16)
    check(case("LayerNormalization", 17, x, one, outputs=3, expected=(y, mean, inverse)))


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (case("BatchNormalization", 15, X, *statistics(4)), "scale has the type .* expected the shape"),
        (case("InstanceNormalization", 22, X, normal(4), normal(3)), "needs a vector of 3"),
        (case("GroupNormalization", 21, X, normal(3), normal(3), num_groups=2), "3 channels do not divide into 2"),
        (case("LayerNormalization", 17, X, normal(4)), "does not broadcast to X"),
        (case("LayerNormalization", 17, X, normal(5), axis=4), "axis 4 is outside"),
        (case("LayerNormalization", 17, X, normal(5), stash_type=7), "stash_type 7"),
        (case("LpNormalization", 22, X, p=3), "p is 3"),
        (case("LRN", 13, X, size=0), "size is 0"),
    ],
    ids=str,
)
def test_refused(refused: Case, text: str) -> None:
    check_refused(refused, text)

"""MaxUnpool: the windows of several pools, sizes that are given, types."""

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jitonnx import InferenceSession, errors
from tests.ops.harness import Case, build, case, check, check_refused, each_version, ints, retyped, run_onnxruntime

RANDOM = np.random.default_rng(4)


def pooled(*shape: int, **windows: Any) -> tuple[np.ndarray, np.ndarray]:
    """What MaxPool takes of random numbers, and where."""
    pool = case("MaxPool", 12, RANDOM.permutation(int(np.prod(shape))).reshape(shape).astype(np.float32), **windows)
    model = build(Case(pool.operator, 12, pool.inputs, pool.attributes, outputs=2))
    taken = run_onnxruntime(model, {"x0": pool.inputs[0]})
    assert taken is not None
    return taken[0], taken[1]


HALVED = {"kernel_shape": [2, 2], "strides": [2, 2]}
PADDED = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
X, PLACES = pooled(2, 3, 4, 6, **HALVED)

CASES: list[Case] = [
    *each_version("MaxUnpool", X, PLACES, **HALVED),
    case("MaxUnpool", 11, *pooled(1, 2, 5, 7, **PADDED), **PADDED),
    case("MaxUnpool", 11, *pooled(2, 2, 9, kernel_shape=[3], strides=[3]), kernel_shape=[3], strides=[3]),
    case("MaxUnpool", 11, *pooled(1, 2, 4, 4, 4, kernel_shape=[2] * 3, strides=[2] * 3), kernel_shape=[2] * 3,
         strides=[2] * 3),
    case("MaxUnpool", 11, *pooled(1, 2, 3, 3, kernel_shape=[2, 2]), kernel_shape=[2, 2]),
    *(
        case("MaxUnpool", version, X, PLACES, ints(2, 3, *size), **HALVED, constants=constants, by_reference=True)
        for version in (9, 11, 22)
        for size in ((4, 6), (5, 6), (7, 9))
        for constants in ((2,), ())
    ),
    *retyped(case("MaxUnpool", 22, X, PLACES, **HALVED, constants=(1,)), np.float64, np.float16, ml_dtypes.bfloat16),
    case("MaxUnpool", 11, X[:0], PLACES[:0], **HALVED, expected=np.zeros((0, 3, 4, 6), np.float32)),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=str)
def test_max_unpool(case: Case) -> None:
    check(case)


def test_places_outside() -> None:
    session = InferenceSession(build(case("MaxUnpool", 11, X, PLACES, **HALVED)))
    with pytest.raises(errors.Error, match="MaxUnpool node 'node'"):
        session.run(None, {"x0": X, "x1": PLACES + 1000})


REFUSED = [
    (case("MaxUnpool", 11, X, PLACES[:1], **HALVED), "different shapes"),
    (case("MaxUnpool", 11, X, PLACES.astype(np.int32), **HALVED), "allowed are int64"),
    (case("MaxUnpool", 11, X, PLACES, ints(2, 3, 4, 5), constants=(2,), **HALVED), "what was pooled had the shape"),
    (case("MaxUnpool", 11, X, PLACES, ints(2, 4, 4, 6), constants=(2,), **HALVED), r"output_shape is \[2, 4, 4, 6\]"),
    (case("MaxUnpool", 11, X, PLACES, kernel_shape=[2]), r"kernel_shape \[2\]: 2 entries"),
]


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_refused(case: Case, text: str) -> None:
    check_refused(case, text)

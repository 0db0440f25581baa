"""Reductions: every version, axes given and not, nothing to reduce, and equal extrema."""

import ml_dtypes
import numpy as np
import pytest

from tests.ops.harness import Case, case, check, each_version, ints, retyped

RANDOM = np.random.default_rng(6)
X = RANDOM.uniform(0.5, 2, (3, 4, 5)).astype(np.float32)
INTEGERS = RANDOM.integers(-5, 5, (3, 4))
EMPTY = np.zeros((2, 0, 3), np.float32)
NAN = np.array([[1, np.nan, 3], [np.inf, -np.inf, 0]], np.float32)
TIES = np.array([[1, 3, 3], [2, 2, 1], [0, 0, 0]], np.float32)

NAMES = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
AXES_SINCE = {name: 13 if name == "Sum" else 18 for name in NAMES}
ARG = ("ArgMax", "ArgMin")
NEWEST = {"Sum": 13, "Max": 20, "Min": 20}


CASES: list[Case] = [
    *(c for name in NAMES for c in each_version(f"Reduce{name}", X)),
    *(
        c
        for name in NAMES
        for c in each_version(f"Reduce{name}", X, until=AXES_SINCE[name] - 1, axes=[0, 2], keepdims=0)
    ),
    *(
        c
        for name in NAMES
        for c in each_version(f"Reduce{name}", X, ints(-1, 0), since=AXES_SINCE[name], constants=(1,), keepdims=0)
    ),
    *(case(f"Reduce{name}", 20, X, ints(1), constants=(1,)) for name in NAMES),
    *(case(f"Reduce{name}", 20, X, noop_with_empty_axes=1) for name in NAMES),
    *(case(f"Reduce{name}", 20, np.float32(2)) for name in NAMES),
    *(case(f"Reduce{name}", 20, X, np.zeros(0, np.int64), constants=(1,)) for name in NAMES),
    *(
        c
        for name in NAMES
        for c in retyped(
            case(f"Reduce{name}", 20, X, ints(1), constants=(1,)), np.float64, np.float16, ml_dtypes.bfloat16
        )
    ),
    *(
        c
        for name in ("L1", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
        for c in retyped(case(f"Reduce{name}", 20, INTEGERS, ints(1), constants=(1,)), np.int32, np.int64)
    ),
    *(case(f"Reduce{name}", 20, INTEGERS.astype(np.int8), ints(0), constants=(1,)) for name in ("Max", "Min")),
    *(
        case(f"Reduce{name}", 20, INTEGERS > 0, ints(0), constants=(1,), keepdims=0,
             expected=reduction(INTEGERS > 0, axis=0))
        for name, reduction in (("Max", np.any), ("Min", np.all))
    ),
    *(case(f"Reduce{name}", 20, NAN, ints(1), constants=(1,)) for name in ("Sum", "Mean")),
    *(
        case(f"Reduce{name}", 20, NAN, ints(1), constants=(1,), expected=np.array([[np.nan], [value]], np.float32))
        for name, value in (("Max", np.inf), ("Min", -np.inf))  # onnxruntime passes over NaN here
    ),
    *(
        case(f"Reduce{name}", 20, EMPTY, ints(1), constants=(1,), expected=np.full((2, 1, 3), value, np.float32))
        for name, value in (
            ("Sum", 0), ("Prod", 1), ("Max", -np.inf), ("Min", np.inf), ("L1", 0), ("L2", 0), ("SumSquare", 0),
            ("LogSum", -np.inf), ("LogSumExp", -np.inf), ("Mean", np.nan),
        )
    ),
    case("ReduceLogSumExp", 18, np.array([1000, 1001], np.float32), note="does not overflow"),
    *(  # a scalar passes for a tensor of one axis
        case(f"Reduce{name}", 20, np.float32(2), ints(axis), constants=constants, keepdims=keep,
             expected=np.float32(value))
        for name, value in (("Sum", 2), ("Max", 2), ("SumSquare", 4), ("LogSumExp", 2))
        for axis in (0, -1)
        for keep in (0, 1)
        for constants in ((), (1,))
    ),
    *(  # axes that are fed, as many as there are: nothing but their elements is left to the run
        case(f"Reduce{name}", 20, X, ints(2, 0, -2), keepdims=0) for name in NAMES
    ),
    *(case(f"Reduce{name}", 20, X, ints(1), keepdims=keep) for name in NAMES for keep in (0, 1)),
    *(c for name in ARG for c in each_version(name, X)),
    *(case(name, 13, X, axis=axis, keepdims=keep) for name in ARG for axis in (1, -1) for keep in (0, 1)),
    *(
        case(name, 13, TIES, axis=axis, select_last_index=last)
        for name in ARG
        for axis in (0, 1)
        for last in (0, 1)
    ),
    *(c for name in ARG for c in retyped(case(name, 13, X * 10, axis=1), np.float64, np.int32, np.int8)),
]  # fmt: skip


WHOLE = np.arange(60).reshape(3, 4, 5)
OF_WHOLE_NUMBERS: list[Case] = [
    case(f"Reduce{kind}", 18, WHOLE.astype(dtype), keepdims=0, expected=np.array(value, dtype))
    for kind, value in (("L2", np.sqrt((WHOLE * WHOLE).sum())), ("LogSum", np.log(WHOLE.sum())), ("LogSumExp", 59))
    for dtype in (np.int32, np.int64, np.uint32, np.uint64)
]


@pytest.mark.parametrize("case", OF_WHOLE_NUMBERS, ids=str)
def test_norms_and_logarithms_of_whole_numbers(case: Case) -> None:
    check(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_reduction(case: Case) -> None:
    check(case)

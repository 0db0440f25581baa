"""Axes of scalars, which have none: an error of ours, but where a scalar passes for one element."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, case, check_refused, ints

X = np.float32(3)
ONE = ints(1)


def _cases(axis: int) -> list[Case]:
    along: dict[str, Any] = {"axis": axis}
    where = {name: (position,) for position, name in ((1, "Squeeze"), (3, "Slice"), (3, "Pad"))}
    return [
        case("ArgMax", 13, X, **along),
        case("ArgMin", 13, X, **along, keepdims=0),
        case("Compress", 11, X, np.array([True]), **along, lowered=False),
        case("CenterCropPad", 18, X, ONE, axes=[axis], constants=(1,)),
        case("CumSum", 14, X, np.int64(axis), constants=(1,)),
        case("Gather", 13, X, np.int64(0), **along),
        case("GatherElements", 13, X, np.int64(0), **along),
        case("LpNormalization", 22, X, **along),
        case("LayerNormalization", 17, X, X, **along),
        case("MeanVarianceNormalization", 13, X, axes=[axis]),
        case("Pad", 18, X, ints(1, 1), None, ints(axis), constants=(1, *where["Pad"])),
        case("Resize", 18, X, None, np.array([2], np.float32), axes=[axis], constants=(2,)),
        case("ScatterElements", 18, X, np.int64(0), X, **along),
        case("Slice", 13, X, ints(0), ONE, ints(axis), constants=(1, 2, *where["Slice"])),
        case("Split", 18, X, **along, num_outputs=1),
        case("Split", 18, X, ONE, **along, constants=(1,)),
        case("Squeeze", 13, X, ints(axis), constants=where["Squeeze"]),
        case("TopK", 11, X, ONE, **along, outputs=2, constants=(1,)),
        case("Unique", 11, X, **along),
    ]


@pytest.mark.parametrize("refused", [*_cases(0), *_cases(-1)], ids=str)
def test_a_scalar_has_no_axis(refused: Case) -> None:
    check_refused(refused, "scalar|axis|axes")

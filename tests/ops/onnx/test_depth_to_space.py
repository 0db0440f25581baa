"""DepthToSpace and SpaceToDepth."""

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, retyped

RANDOM = np.random.default_rng(0)
DEEP, WIDE = (RANDOM.normal(size=shape).astype(np.float32) for shape in ((2, 12, 2, 3), (2, 3, 4, 6)))

CASES: list[Case] = [
    *each_version("DepthToSpace", DEEP, blocksize=2),
    *(c for mode in ("DCR", "CRD") for c in each_version("DepthToSpace", DEEP, blocksize=2, mode=mode, since=11)),
    *each_version("SpaceToDepth", WIDE, blocksize=2),
    *(c for mode in ("DCR", "CRD") for c in each_version("SpaceToDepth", WIDE, blocksize=2, mode=mode, since=28)),
    *retyped(case("DepthToSpace", 28, DEEP, blocksize=2), np.float64, np.int64, np.uint8, np.float16),
    *retyped(case("SpaceToDepth", 28, WIDE, blocksize=2), np.float64, np.int64, np.uint8, np.float16),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_blocks(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (case("DepthToSpace", 13, DEEP[:, :6], blocksize=2), "the number of channels is 6, which 4 does not divide"),
        (case("SpaceToDepth", 13, WIDE, blocksize=4), "the width is 6, which 4 does not divide"),
        (case("DepthToSpace", 13, DEEP[0], blocksize=2), "3 axes"),
        (case("DepthToSpace", 13, DEEP, blocksize=2, mode="RCD"), "mode 'RCD'"),
    ],
    ids=str,
)
def test_refused(refused: Case, text: str) -> None:
    check_refused(refused, text)

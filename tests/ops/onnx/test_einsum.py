"""Einsum: products, sums, transposes, diagonals, ellipses."""

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused, each_version, retyped

RANDOM = np.random.default_rng(0)

EQUATIONS: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
    ("ij,jk->ik", ((2, 3), (3, 4))),
    ("ij,jk", ((2, 3), (3, 4))),
    ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
    ("bhid, bhjd -> bhij", ((2, 3, 4, 5), (2, 3, 6, 5))),
    ("i,i->", ((3,), (3,))),
    ("i,j->ij", ((2,), (3,))),
    ("ij,k->ik", ((2, 3), (4,))),
    ("ij->ji", ((2, 3),)),
    ("ij->i", ((2, 3),)),
    ("ii->i", ((3, 3),)),
    ("ii", ((3, 3),)),
    ("Ab,bA->A", ((2, 3), (3, 2))),
    ("ijk,jil->kl", ((2, 3, 4), (3, 2, 5))),
    ("abc,cd,be->ade", ((2, 3, 4), (4, 5), (3, 6))),
    ("...->...", ((2, 3),)),
    ("...i->i...", ((2, 3, 4),)),
    ("...ij,...jk->...ik", ((2, 3, 4), (4, 5))),
    ("bn...,n->b...", ((2, 3, 4, 5), (3,))),
    ("b...i,b...i->b...", ((2, 1, 4), (2, 3, 4))),
    ("->", ((),)),
)


def normal(*shape: int) -> np.ndarray:
    return np.asarray(RANDOM.normal(size=shape), np.float32)


LARGE = np.arange(6).reshape(2, 3) * 20
CASES: list[Case] = [
    *(
        c
        for equation, shapes in EQUATIONS
        for c in each_version("Einsum", *(normal(*shape) for shape in shapes), equation=equation)
    ),
    *retyped(
        case("Einsum", 12, normal(2, 3) * 4, normal(3, 4) * 4, equation="ij,jk->ik"),
        *(np.float64, np.int32, np.int64, np.float16),
    ),
    *(
        case(
            "Einsum", 12, LARGE.astype(dtype), LARGE.T.astype(dtype), equation=equation, expected=product.astype(dtype)
        )
        for dtype in (np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.uint64)
        for equation, product in (("ij,jk->ik", LARGE @ LARGE.T), ("ij,ji->i", (LARGE * LARGE).sum(1)))
    ),  # wraps around
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_einsum(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(
    ("refused", "text"),
    [
        (case("Einsum", 12, normal(2, 3), equation="ij,jk->ik"), "2 terms for 1 inputs"),
        (case("Einsum", 12, normal(2, 3), equation="ijk->ik"), "does not fit an input of rank 2"),
        (case("Einsum", 12, normal(2, 3), normal(4, 5), equation="ij,jk->ik"), "label 'j' is 3 and 4"),
        (case("Einsum", 12, normal(2, 3), equation="ij->ik"), "repeated or new: .'k'"),
    ],
    ids=str,
)
def test_refused(refused: Case, text: str) -> None:
    check_refused(refused, text)

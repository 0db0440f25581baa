"""Labels and categories exchanged for others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ops.harness import Case, case, check, check_refused

ML = "ai.onnx.ml"
TEXTS = np.array([["a", "c", "z"], ["b", "a", ""]], object)
NUMBERS = np.array([[1, 7, 3], [-2, 0, 100]], np.int64)
FLOATS = np.array([[1.5, -0.0, np.nan], [np.inf, 0.25, 7.0]], np.float32)
MANY = np.random.default_rng(0).permutation(np.arange(-100, 100))
ASKED = np.random.default_rng(1).integers(-130, 130, (40, 3))


def own(operator: str, version: int, *inputs: Any, **options: Any) -> Case:
    return case(operator, version, *inputs, domain=ML, **options)


def strings(*texts: str) -> np.ndarray:
    return np.array(texts, object)


def tensors(x: np.ndarray, keys: Any, values: Any, default: Any, **options: Any) -> Case:
    """A LabelEncoder by tensors."""
    arrays = {"keys_tensor": keys, "values_tensor": values, "default_tensor": default}
    return own("LabelEncoder", 4, x, attributes={name: np.asarray(array) for name, array in arrays.items()}, **options)


LABELS = [
    own("LabelEncoder", 1, TEXTS, classes_strings=["b", "a", "c"], default_int64=-5),
    own("LabelEncoder", 1, NUMBERS, classes_strings=["x", "y", "z", "w"], default_string="none"),
    *(
        own("LabelEncoder", version, x, note=f"{keys}", **{keys[0]: keys[1], values[0]: values[1]})
        for version in (2, 4)
        for x, keys in (
            (TEXTS, ("keys_strings", ["a", "b", "c"])),
            (NUMBERS, ("keys_int64s", [1, 7, -2])),
            (FLOATS, ("keys_floats", [1.5, 7.0, 0.0])),
        )
        for values in (
            ("values_strings", ["p", "q", "r"]),
            ("values_int64s", [5, -6, 7]),
            ("values_floats", [0.5, 1.25, -3.0]),
        )
        if keys[0].removeprefix("keys") != values[0].removeprefix("values") or version == 4
    ),
    own("LabelEncoder", 4, FLOATS, keys_floats=[float("nan"), 0.25], values_int64s=[1, 2], default_int64=0),
    own("LabelEncoder", 4, NUMBERS, keys_int64s=[1, 1, 3], values_int64s=[4, 5, 6], note="twice"),
    tensors(TEXTS, strings("a", "b"), np.array([1, 2], np.int16), np.array([42], np.int16)),
    tensors(
        NUMBERS.astype(np.int16),
        np.array([7, 3], np.int16),
        np.array([1, 2], np.int16),
        np.array([42], np.int16),
        expected=np.array([[42, 1, 2], [42, 42, 42]], np.int16),
    ),
    tensors(FLOATS.astype(np.float64), np.array([np.nan, 0.25, 7]), np.array([1.0, 2.0, 3.0]), np.array([9.0])),
    tensors(
        NUMBERS.astype(np.int32),
        np.array([7, 3], np.int32),
        np.array([0.5, 2.5], np.float32),
        np.array([-1], np.float32),
        expected=np.array([[-1, 0.5, 2.5], [-1, -1, -1]], np.float32),
    ),
    own("LabelEncoder", 4, ASKED, keys_int64s=MANY.tolist(), values_int64s=(MANY * 3).tolist(), note="many"),
    own("LabelEncoder", 4, ASKED, keys_int64s=MANY.tolist(), values_floats=(MANY / 4).tolist(), note="many"),
    own(
        "LabelEncoder",
        4,
        np.where(ASKED > 90, np.nan, ASKED / 2).astype(np.float32),
        note="many, NaN",
        keys_floats=[*(MANY / 2).tolist(), float("nan")],
        values_int64s=list(range(len(MANY) + 1)),
    ),
    own(
        "LabelEncoder",
        4,
        np.float32(0.5),
        keys_floats=(MANY / 2).tolist(),
        values_int64s=MANY.tolist(),
        note="a scalar",
    ),
    own("CategoryMapper", 1, TEXTS, cats_strings=["a", "b"], cats_int64s=[4, 5], default_int64=9),
    own("CategoryMapper", 1, NUMBERS, cats_strings=["a", "b"], cats_int64s=[7, 3], default_string="?"),
    own("OneHotEncoder", 1, TEXTS, cats_strings=["a", "b", "c"]),
    own("OneHotEncoder", 1, NUMBERS, cats_int64s=[7, 1, 3]),
    own("OneHotEncoder", 1, NUMBERS[0], cats_int64s=[7, 1, 3], zeros=0),
    own("OneHotEncoder", 1, NUMBERS, cats_int64s=[7, 1, 7]),
    *(
        own("OneHotEncoder", 1, np.array([1.9, -0.3, 3, 7.2], dtype), cats_int64s=[1, 0, 3])
        for dtype in (np.float32, np.float64)
    ),
    own(
        "OneHotEncoder",
        1,
        np.array([[1, 2]], np.int32),
        cats_int64s=[2, 1],
        expected=np.array([[[0, 1], [1, 0]]], np.float32),
    ),
]

REFUSED = [
    (own("LabelEncoder", 4, TEXTS, keys_strings=["a"]), "0 lists of values"),
    (own("LabelEncoder", 4, TEXTS, keys_strings=["a"], values_int64s=[1, 2]), "1 keys are given and 2 values"),
    (own("LabelEncoder", 4, NUMBERS, keys_strings=["a"], values_int64s=[1]), "the keys are string"),
    (own("CategoryMapper", 1, TEXTS, cats_strings=["a"], cats_int64s=[4, 5]), "2 cats_int64s and 1 cats_strings"),
    (own("OneHotEncoder", 1, TEXTS, cats_int64s=[4, 5]), "the categories are int"),
    (own("OneHotEncoder", 1, TEXTS), "one of cats_int64s and cats_strings"),
]


@pytest.mark.parametrize("case", LABELS, ids=str)
def test_labels(case: Case) -> None:
    check(case)


@pytest.mark.parametrize(("case", "text"), REFUSED, ids=str)
def test_labels_refused(case: Case, text: str) -> None:
    check_refused(case, text)

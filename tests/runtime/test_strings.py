"""Strings looked up by native code."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from jitonnx.runtime import strings
from jitonnx.runtime.entry import supported

pytestmark = pytest.mark.skipif(not supported(), reason="this Python's objects are not read natively")


@pytest.fixture(autouse=True)
def made() -> None:
    end = time.monotonic() + 60
    while not strings.ready():
        assert time.monotonic() < end
        time.sleep(0.001)


TEXTS = ("a", "b", "ä", "a longer text, of 日本語 too", "", "a", " 12345678", "12345678", "1234567\0", "x" * 16)


def test_of_equal_texts_the_first_counts() -> None:
    table = strings.StringTable(TEXTS, np.arange(len(TEXTS) + 1))
    given = np.array([*TEXTS, "A", "12345678 ", "\U0001f600"], object)
    for x in (given, given[::-1], given.reshape(1, -1), given[:12].reshape(3, 4)[:, 1:3], np.zeros((0, 3), object)):
        places = np.full(x.shape, 77)
        assert table.find(x, places)
        assert places.ravel().tolist() == [TEXTS.index(text) if text in TEXTS else len(TEXTS) for text in x.flat]


def test_many_texts() -> None:
    rng = np.random.default_rng(0)
    letters = np.array(list("abcXYZ 09äß€\U0001f600"))
    texts = ["".join(rng.choice(letters, rng.integers(0, 30))) for _ in range(2000)]
    first = {text: number for number, text in reversed(list(enumerate(texts)))}
    table = strings.StringTable(texts, np.arange(2001))
    x, places = np.array([*texts[::3], "none"], object), np.empty(668, np.int64)
    assert table.find(x, places)
    assert places.tolist() == [first.get(text, 2000) for text in x.tolist()]


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64])
def test_rows(dtype: type) -> None:
    rows = np.arange(4 * 3).reshape(4, 3).astype(dtype)
    y = np.full((2, 2, 3), 77, dtype)
    assert strings.StringTable(("a", "b", "c"), rows).find(np.array([["b", "c"], ["d", "a"]], object), y)
    assert np.array_equal(y, rows[[[1, 2], [3, 0]]])


@pytest.mark.parametrize("once", [False, True])
def test_columns(once: bool) -> None:
    weights, columns = np.array([1, 2, 4, 8], np.float32), np.array([3, 0, 1, -1])
    table = strings.StringTable(("a", "b", "c"), weights, columns, 5, once=once)
    y = np.zeros((2, 5), np.float32)
    assert table.find(np.array([["b", "b", "z"], ["a", "c", "b"]], object), y)
    assert y.tolist() == [[2 if once else 4, 0, 0, 0, 0], [2, 4, 0, 1, 0]]


class Text(str):
    """Not quite str."""


@pytest.mark.parametrize("element", [1, None, b"a", float("nan"), "\ud800", Text("a"), np.str_("a")])
def test_what_is_no_string(element: object) -> None:
    x = np.array(["a", "b", "c"], object)
    assert strings.StringCheck()(x)
    x[1] = element
    assert not strings.StringCheck()(x)
    assert not strings.StringTable(("a",), np.arange(2)).find(x, np.empty(3, np.int64))


def test_what_is_no_array_of_objects() -> None:
    for x in (np.zeros(3), np.array(["a"]), ["a"], "a", None, np.array("a", object), np.array([[["a"]]], object)):
        assert not strings.StringCheck()(x)


def test_references_are_kept() -> None:
    x = np.array(["a text of its own" + str(1), "b"], object)
    before = sys.getrefcount(x[0])
    for _ in range(100):
        strings.StringCheck()(x)
    after = sys.getrefcount(x[0])
    assert after == before

"""Strings in com.microsoft: texts taken apart into words, as converters of scikit-learn's vectorizers ask for."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable

import numpy as np

from jitonnx.ir.graph import Value
from jitonnx.ir.inference import InferenceContext
from jitonnx.ir.operator import InferenceError, Operator
from jitonnx.ir.strings import strings_of
from jitonnx.ir.types import TensorType
from jitonnx.ops import re2

_START, _END = "\x02", "\x03"


class Tokenizer(Operator):
    """The tokens of each string along a new last axis, filled up with `pad_value`.

    Tokens are what matches `tokenexp`, or what is between matches of `separators`; a single separator "" parts a text
    into its characters. Regular expressions are RE2's. Tokens of less than `mincharnum` characters are left out. mark:
    each row begins and ends with a character that says so, but where no string has a token.
    """

    domain = "com.microsoft"

    mark: int
    mincharnum: int
    pad_value: str
    separators: tuple[str, ...] | None = None
    tokenexp: str | None = None

    def infer(self, context: InferenceContext, x: Value) -> TensorType:
        if len(x.shape) not in (1, 2):
            raise InferenceError(f"X has the type {x.type}; [C] or [N, C] expected")
        if bool(self.separators) == bool(self.tokenexp):
            raise InferenceError("one of separators and tokenexp is needed")
        if self.mincharnum < 1:
            raise InferenceError(f"mincharnum is {self.mincharnum}; at least 1 is needed")
        try:
            re2.compiled(self._pattern)
        except ValueError as error:
            raise InferenceError(str(error)) from error
        return TensorType(x.dtype, (*x.shape, None))  # type: ignore[arg-type]

    @property
    def _pattern(self) -> str:
        return self.tokenexp or "|".join(f"(?:{separator})" for separator in self.separators or ())

    def finder(self) -> Callable[[str], list[str]]:
        """What finds the tokens of a text."""
        if self.separators == ("",):
            find: Callable[[str], list[str]] = list
        else:
            expression = re2.compiled(self._pattern)
            find = expression.found if self.tokenexp else functools.partial(_between, expression)
            if self.tokenexp and self.mincharnum == 1 and isinstance(expression, re2.PlainExpression):
                return find  # it finds nothing without characters
        least = self.mincharnum
        if least == 1:
            return lambda text: list(filter(None, find(text)))
        return lambda text: [one for one in find(text) if len(one) >= least]

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        if not x.size:
            return strings_of([], (*x.shape, 0))
        rows = list(map(self.finder(), x.ravel().tolist()))
        if self.mark and any(rows):
            rows = [[_START, *row, _END] for row in rows]
        longest = max(map(len, rows))
        for row in rows:
            row += [self.pad_value] * (longest - len(row))
        return strings_of(list(itertools.chain.from_iterable(rows)), (*x.shape, longest))


def _between(separator: re2.Expression, text: str) -> list[str]:
    """What is in front of, between and behind matches."""
    places = list(separator.spans(text))
    starts, ends = [0, *(end for _, end in places)], [*(start for start, _ in places), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]

"""Strings in com.microsoft: texts taken apart into words, as converters of scikit-learn's vectorizers ask for."""

from __future__ import annotations

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

    def _tokens(self, text: str) -> list[str]:
        if self.tokenexp:
            found = [text[start:end] for start, end in re2.compiled(self._pattern).spans(text)]
        elif self.separators == ("",):
            found = list(text)
        else:
            places = list(re2.compiled(self._pattern).spans(text))
            starts, ends = [0, *(end for _, end in places)], [*(start for start, _ in places), len(text)]
            found = [text[start:end] for start, end in zip(starts, ends, strict=True)]
        return [token for token in found if len(token) >= self.mincharnum]

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        if not x.size:
            return strings_of([], (*x.shape, 0))
        rows = [self._tokens(text) for text in x.ravel().tolist()]
        if self.mark and any(rows):
            rows = [[_START, *row, _END] for row in rows]
        longest = max(map(len, rows))
        filled = [token for row in rows for token in (*row, *[self.pad_value] * (longest - len(row)))]
        return strings_of(filled, (*x.shape, longest))

"""Tensors of strings: NumPy arrays of the type `object` whose elements are str, and nothing else.

Their elements are references, which Python counts. So they are never read, copied or written as bytes, and never lie
in the memory of a program.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

_TEXT_KINDS = "OUST"
"""The kinds of NumPy's types that may hold text: objects, and fixed and variable widths."""


def may_hold_text(dtype: np.dtype[Any]) -> bool:
    """Whether arrays of a type may be strings: of objects, of text of any width, and of bytes as they are (np.void)."""
    return dtype.kind in _TEXT_KINDS or (dtype.type is np.void and dtype.names is None)


def string_array(array: np.ndarray, what: str) -> np.ndarray:
    """A new array of str, C-contiguous, of the elements of an array that `may_hold_text`.

    Bytes are decoded as UTF-8, and what is no text is written as Python writes it: NaN is "nan", None "None".
    ValueError for bytes that are not UTF-8, and code points that UTF-8 does not have; `what` says in its message what
    the array is.
    """
    texts: list[Any] = array.ravel().tolist()
    for index, element in enumerate(texts):
        if type(element) is not str:
            texts[index] = _text(element, index, what)
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        index = next(index for index, text in enumerate(texts) if not _is_unicode(text))
        raise ValueError(f"element {index} of {what} is {texts[index]!r}, which UTF-8 cannot encode") from None
    return strings_of(texts, array.shape)


def strings_of(texts: Sequence[str], shape: tuple[int, ...]) -> np.ndarray:
    """A new array of these strings, in row-major order."""
    flat = np.empty(len(texts), object)
    flat[:] = texts
    return flat.reshape(shape)


def string_scalar(text: str) -> np.ndarray:
    """A string as a tensor of rank 0."""
    array = np.empty((), object)
    array[()] = text
    return array


def _text(element: Any, index: int, what: str) -> str:
    if isinstance(element, bytes):
        try:
            return element.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"element {index} of {what} is not UTF-8: {error}") from error
    return str(element)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True

"""How far a compiled model's value may be from the interpreter's, by its type, and where it is farthest."""

from __future__ import annotations

from typing import Any

import numpy as np

from jitonnx.support.records import NamedTuple

TOLERANCES = {"float64": 1e-8, "float32": 5e-4, "float16": 2e-2, "bfloat16": 1e-1, "complex128": 1e-8}
"""The largest difference over the largest finite element that rounding explains, by dtype: sums in another order and
intermediate results that are not rounded, through the depth of a model."""
OF_QUANTISED = 5e-2
"""The same in quantised models, where a number beside a boundary is rounded to the next step."""
SMALL_FLOAT = 2.5e-1
"""The difference allowed of floats of 8 bits and fewer: two steps."""
STEPS = frozenset({"int8", "uint8", "int4", "uint4", "int2", "uint2"})
"""Integers that numbers are quantised to, which may be a step off. Others, booleans and texts are to be equal."""
LEAST_SCALE = 1e-6
"""What the largest element counts as at least: what cancels to nearly nothing has no digits left."""


class Difference(NamedTuple):
    """How a value differs from what it should be."""

    what: str
    """The kind of it, as "values differ", "shapes differ" or "NaN or infinity"."""
    place: tuple[int, ...] = ()
    """The element where they differ most."""
    wanted: str = ""
    given: str = ""
    relative: float = np.inf
    """The largest difference over the largest finite element wanted."""

    def __str__(self) -> str:
        if not self.wanted:
            return self.what
        size = f", {self.relative:.2g} of the largest element" if np.isfinite(self.relative) else ""
        return f"{self.what}: at {list(self.place)} it is {self.given} and should be {self.wanted}{size}"


def difference(wanted: Any, given: Any, *, quantised: bool = False) -> Difference | None:
    """How two values differ beyond rounding; None where they do not.

    wanted, given: arrays of any shape, sequences of these, or None. quantised: the model rounds to few steps.
    """
    if wanted is None or given is None:
        return None if wanted is given else Difference("one of them is absent")
    if isinstance(wanted, list | tuple):
        if not isinstance(given, list | tuple) or len(wanted) != len(given):
            return Difference("sequences of different lengths")
        pairs = enumerate(zip(wanted, given, strict=True))
        found = ((place, difference(*pair, quantised=quantised)) for place, pair in pairs)
        return next((d._replace(what=f"element {place}: {d.what}") for place, d in found if d is not None), None)
    if not isinstance(wanted, np.ndarray) or not isinstance(given, np.ndarray):
        return None if wanted == given else Difference("values differ", (), str(wanted), str(given))
    if wanted.dtype != given.dtype:
        return Difference(f"types differ: it is {given.dtype} and should be {wanted.dtype}")
    if wanted.shape != given.shape:
        return Difference(f"shapes differ: it is {list(given.shape)} and should be {list(wanted.shape)}")
    return _of_arrays(wanted, given, quantised=quantised) if wanted.size else None


def _of_arrays(wanted: np.ndarray, given: np.ndarray, *, quantised: bool) -> Difference | None:
    name = wanted.dtype.name
    if wanted.dtype.kind in "OSUb" or (wanted.dtype.kind in "iu" and name not in STEPS):
        places = np.argwhere(wanted != given)
        return _at(wanted, given, "values differ", tuple(places[0].tolist())) if len(places) else None
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    with np.errstate(all="ignore"):
        a, b = wanted.astype(kind), given.astype(kind)
        finite = np.isfinite(a)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        unlike = np.argwhere((finite != np.isfinite(b)) | (~finite & ~same))
        if len(unlike):
            return _at(wanted, given, "NaN or infinity", tuple(unlike[0].tolist()))
        apart = np.where(same, 0, np.abs(a - b))
    place = tuple(int(index) for index in np.unravel_index(int(np.argmax(apart)), apart.shape))
    largest = float(apart[place])
    if name in STEPS:
        return _at(wanted, given, "values differ", place) if largest > 1 else None
    scale = max(float(np.max(np.abs(a), where=finite, initial=0)), LEAST_SCALE)
    tolerance = _tolerance(name)
    if largest <= (max(tolerance, OF_QUANTISED) if quantised else tolerance) * scale:
        return None
    return _at(wanted, given, "values differ", place)._replace(relative=largest / scale)


def _tolerance(name: str) -> float:
    if name.startswith("float") and name not in TOLERANCES:
        return SMALL_FLOAT
    return TOLERANCES.get(name, TOLERANCES["float32"])


def _at(wanted: np.ndarray, given: np.ndarray, what: str, place: tuple[int, ...]) -> Difference:
    return Difference(what, place, str(wanted[place]), str(given[place]))

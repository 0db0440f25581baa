"""Translations of users' functions on disk, in the kernel cache, so that a warm start needs no Numba.

What is kept is the expression, flat, with the LLVM IR of what it calls. It is found by all that it depends on; a
function of which this cannot be told (`identity.Unknown`) is translated in each process.
"""

from __future__ import annotations

import marshal
import os
from collections.abc import Callable
from typing import Any

from jitonnx.ir.computation import expressions as e
from jitonnx.ir.dtypes import DType
from jitonnx.support import identity
from jitonnx.support.kernel_cache import KernelCache
from jitonnx.support.records import NamedTuple
from jitonnx.support.sources import source_digest


class Scalar(NamedTuple):
    """A function compiled for some types: an expression of operands by the arguments' numbers."""

    arguments: tuple[DType, ...]
    result: e.Expr


def kept(function: Callable[..., Any], types: object, make: Callable[[], Scalar]) -> Scalar:
    """What `make` gives for a function and these types: as an earlier process has kept it, or made now and kept.

    types: what has a text that says all of it.
    """

    def rows() -> Any:
        made = make()
        return tuple(map(int, made.arguments)), e.rows(made.result)

    arguments, nodes = kept_data("scalar function", function, types, rows)
    return Scalar(tuple(map(DType, arguments)), e.from_rows(nodes))


def kept_data(kind: str, function: Callable[..., Any], types: object, make: Callable[[], Any]) -> Any:
    """What `make` gives, which `marshal` writes, for a function that is compiled as one of a kind; see `kept`."""
    cache = KernelCache()
    try:
        told = (identity.identity(function), types, identity.surroundings())
    except identity.Unknown:
        return make()
    places = (os.path.dirname(__file__), os.path.dirname(e.__file__))
    key = f"{kind} {source_digest(*places, cache=cache)} {told!r}"
    data = cache.get(key)
    if data is not None:
        return marshal.loads(data)
    made = make()
    cache.put(key, marshal.dumps(made))
    return made

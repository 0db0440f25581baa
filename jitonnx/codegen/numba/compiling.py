"""Sources compiled by Numba: LLVM modules with a C function each, of the kernels' calling convention. Imports Numba.

Numba translates to LLVM IR and no more. Vectorising and all else that depends on a CPU are `optimization`'s, as of all
kernels: done here, they would be for the CPU that happens to be here.
"""

from __future__ import annotations

import functools
import math
import warnings
from types import FunctionType
from typing import Any

import llvmlite.binding as llvm
import numba
import numpy as np
from numba.core import types as numba_types
from numba.core.errors import NumbaError, NumbaPerformanceWarning
from numba.extending import intrinsic

from jitonnx.codegen.functions.modules import c_function
from jitonnx.codegen.functions.unoptimised import unoptimised
from jitonnx.codegen.numba import scalars
from jitonnx.codegen.numba.source import Source
from jitonnx.emit.module import triple_of
from jitonnx.ir.computation.linked import SYMBOL
from jitonnx.target.machine import Target

types: Any = numba_types
_SIGNATURE = types.void(
    types.CPointer(types.CPointer(types.uint8)), types.CPointer(types.int64), types.int64, types.int64, types.voidptr
)
"""(buffers, sizes, begin, end, scratch), as `emit.module` has it."""


@functools.cache
def _elements(kind: str) -> Any:
    """What gives a buffer's pointer, so many elements further on, as one to a NumPy type."""
    element = types.CPointer(getattr(types, kind))
    itemsize = np.dtype(kind).itemsize

    @intrinsic
    def elements(context: Any, pointer: Any, further: Any) -> Any:
        def emit(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            pointer, further = arguments
            moved = builder.gep(pointer, [builder.mul(further, further.type(itemsize))])
            return builder.bitcast(moved, context.get_value_type(element))

        return element(pointer, types.int64), emit

    return elements


@functools.cache
def _scalars() -> dict[str, Any]:
    """The functions of `scalars`, each compiled where it is called."""
    namespace: dict[str, Any] = {"np": np, "math": math}
    for name, function in vars(scalars).items():
        if isinstance(function, FunctionType):
            own = FunctionType(function.__code__, namespace, name)
            namespace[name] = numba.njit(error_model="numpy")(own)
    return namespace


def _entry_text(source: Source) -> str:
    """The C function's source: arguments are taken from the lists of buffers and sizes."""
    given = [f"{kind}_elements(buffers[{place}], {-below})" for place, kind, below in source.buffers]
    given += [f"sizes[{place}]" for place in source.sizes]
    given += ["begin", "end"] * source.has_tasks
    return f"def entry(buffers, sizes, begin, end, scratch):\n    {source.name}({', '.join(given)})\n"


def module_of(source: Source, symbol: str, target: Target) -> llvm.ModuleRef:
    """The unoptimised module of a source, which defines it as the C function `symbol` of the kernels' signature.

    Raises: TypeError for what Numba does not compile: a defect.
    """
    namespace = dict(_scalars())
    namespace.update((f"{kind}_elements", _elements(kind)) for _, kind, _ in source.buffers)
    exec(compile(f"{source.text}\n\n{_entry_text(source)}", f"<{symbol}>", "exec"), namespace)
    try:
        with unoptimised(), warnings.catch_warnings():
            warnings.simplefilter("ignore", NumbaPerformanceWarning)
            namespace[source.name] = numba.njit(error_model="numpy")(namespace[source.name])
            entry = numba.njit(_SIGNATURE, error_model="numpy")(namespace["entry"])
            text = entry.inspect_llvm(entry.signatures[0])
    except NumbaError as error:
        raise TypeError(f"Numba does not compile\n{source.text}\n{error}") from error
    function = c_function(text, source.name)
    module = function.module
    assert function.name == SYMBOL
    function.name = symbol
    module.triple = triple_of(target)
    return module

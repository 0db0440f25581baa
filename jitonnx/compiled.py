"""Scalar functions in Python that Numba compiles, for users' operators: they fuse as built-in operations do.

Numba, the extra `jitonnx[numba]`, is imported by the first function that is made.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from jitonnx import forks
from jitonnx.computation import expr as e
from jitonnx.computation.linked import SYMBOL, LinkedFunction
from jitonnx.ir.dtypes import DType, of_numpy

_MATHEMATICS = frozenset(
    {
        *("acos", "acosh", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf"),
        *("erfc", "exp", "exp2", "expm1", "fabs", "floor", "fmod", "frexp", "hypot", "ldexp", "lgamma", "log", "log10"),
        *("log1p", "log2", "pow", "round", "sin", "sinh", "sqrt", "tan", "tanh", "tgamma", "trunc"),
    }
)
"""Functions of the C mathematics library, which every process has; with an f behind, of float32."""
_SMALL = 60
"""Instructions up to which a function is written into the loops that call it: there is a copy for each lane."""


class CompiledFunction:
    """A function of numbers, written in what Numba compiles: Python's arithmetic, conditions, loops, and `math`.

    Called with arrays, it gives an array, element by element, with NumPy's broadcasting; called with expressions
    (`jitonnx.custom.e`), an expression. So an elementwise operator says `evaluate` and `scalar` by one function.

    signature: as Numba has it, "float32(float32, float32)"; arguments are converted to these types. None: compiled for
    the types that it is called with. It is also called with zeros, in lanes that hold no element, and has to return.
    """

    def __init__(self, function: Callable[..., Any], signature: str | None = None) -> None:
        self._function, self._signature = function, signature
        self._numba = _numba()
        self._made: dict[tuple[DType, ...], LinkedFunction] = {}
        self._lock = forks.WorkLock()
        signatures = [] if signature is None else [signature]
        self._of_arrays = self._numba.vectorize(signatures, nopython=True)(function)
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def __call__(self, *arguments: Any) -> Any:
        """An expression if an argument is one, else an array. TypeError for what Numba does not compile."""
        if not any(isinstance(argument, e.Expr) for argument in arguments):
            return self._of_arrays(*arguments)
        like = next(argument for argument in arguments if isinstance(argument, e.Expr))
        given = [one if isinstance(one, e.Expr) else e.constant(one, like.dtype) for one in arguments]
        made = self._linked(tuple(one.dtype for one in given))
        return e.call(made, *(e.cast(one, dtype) for one, dtype in zip(given, made.arguments, strict=True)))

    def __repr__(self) -> str:
        return f"compiled({self.__name__})"

    def _linked(self, dtypes: tuple[DType, ...]) -> LinkedFunction:
        with self._lock:
            if dtypes not in self._made:
                self._made[dtypes] = self._compiled(dtypes)
            return self._made[dtypes]

    def _compiled(self, dtypes: tuple[DType, ...]) -> LinkedFunction:
        numba = self._numba
        kinds = self._signature or tuple(numba.from_dtype(dtype.numpy) for dtype in dtypes)
        try:
            dispatcher = numba.njit(kinds, error_model="numpy")(self._function)
        except numba.core.errors.NumbaError as error:
            raise TypeError(f"Numba does not compile {self.__name__} for {kinds}: {error}") from error
        (signature,) = dispatcher.signatures
        if len(signature) != len(dtypes):
            raise TypeError(f"{self.__name__} has {len(signature)} arguments; {len(dtypes)} are given")
        arguments = tuple(map(self._dtype, signature))
        result = self._dtype(dispatcher.overloads[signature].signature.return_type)
        return LinkedFunction(self.__name__, arguments, result, self._ir(dispatcher.inspect_llvm(signature)))

    def _dtype(self, kind: Any) -> DType:
        try:
            return of_numpy(np.dtype(self._numba.np.numpy_support.as_dtype(kind)))
        except (NotImplementedError, self._numba.core.errors.NumbaError) as error:
            raise TypeError(f"{self.__name__} takes or gives {kind}; numbers and truth values are possible") from error

    def _ir(self, text: str) -> str:
        """The module of the C function alone, under the name of `SYMBOL`."""
        import llvmlite.binding as llvm

        try:
            module = llvm.parse_assembly(text.replace("noinline", "nounwind"))  # of what a C function calls
        except RuntimeError as error:
            raise TypeError(
                f"llvmlite does not read the LLVM IR that Numba {self._numba.__version__} made of {self.__name__}: "
                f"{error}. Install versions that go together"
            ) from error
        entry = None
        for function in module.functions:
            if function.is_declaration:
                continue
            if function.name.startswith("cfunc."):
                entry = function
            else:
                function.linkage = "internal"
                function.add_function_attribute("alwaysinline")
        assert entry is not None, "Bug: Numba has made no C function"
        entry.name = SYMBOL
        for variable in module.global_variables:
            if not variable.is_declaration:
                variable.linkage = "internal"
        machine = llvm.Target.from_triple(module.triple).create_target_machine()
        passes = llvm.create_new_module_pass_manager()
        for name in ("always_inliner", "global_dead_code_eliminate", "sroa", "simplify_cfg"):
            getattr(passes, f"add_{name}_pass")()
        passes.run(module, llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1)))
        if sum(len(list(block.instructions)) for block in entry.blocks) <= _SMALL:
            entry.add_function_attribute("alwaysinline")
        called = {one.name for one in module.functions if one.is_declaration and not one.name.startswith("llvm.")}
        strange = {name for name in called if name not in _MATHEMATICS and name.removesuffix("f") not in _MATHEMATICS}
        if strange or list(module.global_variables):
            raise TypeError(
                f"{self.__name__} needs {', '.join(sorted(strange)) or 'memory of its own'}: a compiled function "
                "computes with numbers and `math` alone, and raises no exceptions"
            )
        # Of the machine that runs it nothing is said, so that the kernel says it.
        return re.sub(r"^(target (datalayout|triple)|; ModuleID|source_filename) .*\n", "", str(module), flags=re.M)


def _numba() -> Any:
    try:
        import numba
    except ImportError as error:
        raise ImportError("a compiled function needs Numba: pip install jitonnx[numba]") from error
    return numba


def compiled(function: Callable[..., Any] | None = None, *, signature: str | None = None) -> Any:
    """Decorates a function of numbers, which becomes a `CompiledFunction`. ImportError without Numba.

    @custom.compiled(signature="float32(float32, float32)")
    def damped(x, rate): ...
    """
    if function is None:
        return lambda given: CompiledFunction(given, signature)
    return CompiledFunction(function, signature)

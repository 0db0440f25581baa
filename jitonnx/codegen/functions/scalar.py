"""Scalar functions in Python that Numba compiles, for users' operators: they fuse as built-in operations do.

Numba is imported where a function's translation is not on disk yet (`kept.py`), or its loops run on arrays: that takes
longer than all the rest of a start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from jitonnx.codegen.functions import translation
from jitonnx.codegen.functions.function_operator import FunctionOperator, plain_function
from jitonnx.codegen.functions.installed import check_installed, imported_numba
from jitonnx.codegen.functions.kept import Scalar, kept
from jitonnx.codegen.functions.modules import c_function
from jitonnx.ir.computation import expressions as e
from jitonnx.ir.computation.linked import LinkedFunction
from jitonnx.ir.dtypes import HALVES, DType, of_numpy
from jitonnx.ir.errors import FunctionError
from jitonnx.ops.base import BOOLS, NUMBERS, Elementwise
from jitonnx.support import fork_safety
from jitonnx.support.identity import identity

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
        check_installed()
        if signature is not None and not isinstance(signature, str):
            raise TypeError(f"the signature {signature!r} is no text, such as 'float32(float32, float32)'")
        self.function, self._signature = plain_function(function), signature
        self._made: dict[tuple[DType, ...], Scalar] = {}
        self._of_arrays: Callable[..., Any] | None = None
        self._lock = fork_safety.WorkLock()
        self.__name__, self.__doc__ = self.function.__name__, self.function.__doc__

    def __call__(self, *arguments: Any) -> Any:
        """An expression if an argument is one, else an array. TypeError for what Numba does not compile."""
        if not any(isinstance(argument, e.Expr) for argument in arguments):
            return self._on_arrays()(*arguments)
        like = next(argument for argument in arguments if isinstance(argument, e.Expr))
        given = [one if isinstance(one, e.Expr) else e.constant(one, like.dtype) for one in arguments]
        made = self._scalar(tuple(one.dtype for one in given))
        passed = [e.cast(one, dtype) for one, dtype in zip(given, made.arguments, strict=True)]
        return e.substitute(made.result, lambda leaf: passed[leaf.value] if leaf.op == "operand" else None)

    def __repr__(self) -> str:
        return f"compiled({self.__name__})"

    def identity(self) -> str:
        """All that it is made of, as `support.identity` has it. Raises: Unknown."""
        return repr((identity(self.function), self._signature))

    def _on_arrays(self) -> Callable[..., Any]:
        with self._lock:
            if self._of_arrays is None:
                signatures = [] if self._signature is None else [self._signature]
                self._of_arrays = imported_numba().vectorize(signatures, nopython=True)(self.function)
            return self._of_arrays

    def _scalar(self, dtypes: tuple[DType, ...]) -> Scalar:
        with self._lock:
            if dtypes not in self._made:
                types = (self._signature, [dtype.name for dtype in dtypes])
                self._made[dtypes] = kept(self.function, types, lambda: self._compiled(dtypes))
            return self._made[dtypes]

    def _compiled(self, dtypes: tuple[DType, ...]) -> Scalar:
        kinds, returned = self._kinds(dtypes)
        try:
            dispatcher = imported_numba().njit(error_model="numpy")(self.function)
            dispatcher.compile(kinds if returned is None else returned(*kinds))
        except Exception as error:  # of the many that Numba raises
            given = ", ".join(map(str, kinds))
            raise FunctionError(f"Numba does not compile {self.__name__} for ({given}): {error}") from error
        arguments = tuple(map(self._dtype, kinds))
        result = self._dtype(dispatcher.overloads[kinds].signature.return_type)
        entry = c_function(dispatcher.inspect_llvm(kinds), self.__name__)
        try:
            return Scalar(arguments, translation.expression(entry, arguments, result))
        except translation.Untranslated:
            linked = LinkedFunction(self.__name__, arguments, result, self._ir(entry))
            operands = (e.operand(i, dtype) for i, dtype in enumerate(arguments))
            return Scalar(arguments, e.call(linked, *operands))

    def _kinds(self, dtypes: tuple[DType, ...]) -> tuple[tuple[Any, ...], Any]:
        """Numba's types of the arguments, and of the result if the signature says it."""
        numba = imported_numba()
        if self._signature is None:
            return tuple(numba.from_dtype(dtype.numpy) for dtype in dtypes), None
        try:
            kinds, returned = numba.core.sigutils.normalize_signature(self._signature)
        except Exception as error:  # whatever it is that the text evaluates to
            raise FunctionError(
                f"the signature {self._signature!r} of {self.__name__} is none of Numba's ({type(error).__name__}: "
                f"{error}): give one such as 'float32(float32, float32)'"
            ) from error
        if len(kinds) != len(dtypes):
            raise FunctionError(
                f"the signature {self._signature!r} of {self.__name__} has {len(kinds)} arguments; "
                f"{len(dtypes)} are given"
            )
        return kinds, returned

    def _dtype(self, kind: Any) -> DType:
        numba = imported_numba()
        try:
            dtype = of_numpy(np.dtype(numba.np.numpy_support.as_dtype(kind)))
        except (NotImplementedError, TypeError, numba.core.errors.NumbaError):
            dtype = DType.STRING
        if dtype not in NUMBERS | BOOLS:
            raise FunctionError(f"{self.__name__} takes or gives {kind}; real numbers and truth values are possible")
        return dtype

    @staticmethod
    def _ir(entry: Any) -> str:
        """The text of the module that an entry is alone in."""
        if sum(len(list(block.instructions)) for block in entry.blocks) <= _SMALL:
            entry.add_function_attribute("alwaysinline")
        # Of the machine that runs it nothing is said, so that the kernel says it.
        text = str(entry.module)
        return re.sub(r"^(target (datalayout|triple)|; ModuleID|source_filename) .*\n", "", text, flags=re.M)


def compiled(function: Callable[..., Any] | None = None, *, signature: str | None = None) -> Any:
    """Decorates a function of numbers, which becomes a `CompiledFunction`. ImportError without Numba.

    @custom.compiled(signature="float32(float32, float32)")
    def damped(x, rate): ...
    """
    if function is None:
        return lambda given: CompiledFunction(given, signature)
    return CompiledFunction(function, signature)


def elementwise(
    function: Callable[..., Any],
    *,
    domain: str,
    name: str | None = None,
    types: Collection[DType] = NUMBERS,
    result: DType | None = None,
) -> type[Elementwise]:
    """Declare an elementwise operator by a function of numbers, which Numba compiles: of `numba.njit`, or a plain one.

    Its parameters are the inputs, all of one of `types`; those with a default, a number or truth value, are attributes.
    The function gets those that are floats in the inputs' type where that is of floats, too, else as float64, and whole
    numbers as int64. What it gives becomes the inputs' type, or `result`. name: the operator's, by default the
    function's.

    Raises: ImportError without Numba, TypeError for a function without inputs or with defaults of other types.
    """
    return declared(FunctionOperator(function, domain=domain, name=name, types=types, result=result))


def declared(operator: FunctionOperator) -> type[Elementwise]:
    """The declaration of what was looked at as a `FunctionOperator`."""
    numbers = operator.function
    if not isinstance(numbers, CompiledFunction):
        numbers = CompiledFunction(numbers)
    defaults, result = operator.defaults, operator.result

    def attributes(self: Elementwise, dtype: DType) -> list[tuple[Any, DType]]:
        single = dtype if dtype.is_float else DType.DOUBLE
        kinds = {int: DType.INT64, float: single, bool: DType.BOOL}
        return [(getattr(self, each), kinds[type(value)]) for each, value in defaults.items()]

    def scalar(self: Elementwise, *operands: e.Expr) -> e.Expr:
        given = (e.constant(value, kind) for value, kind in attributes(self, operands[0].dtype))
        return e.cast(numbers(*operands, *given), result or operands[0].dtype)

    def evaluate(self: Elementwise, *arrays: np.ndarray) -> Any:
        expression = self.scalar(*(e.operand(i, of_numpy(array.dtype)) for i, array in enumerate(arrays)))
        if all(node.op != "call" for node in e.children_first(expression)):
            return Elementwise.evaluate(self, *arrays)
        wide = [array.astype(np.float32) if of_numpy(array.dtype) in HALVES else array for array in arrays]
        given = (kind.numpy.type(value) for value, kind in attributes(self, of_numpy(wide[0].dtype)))
        return np.asarray(numbers(*wide, *given)).astype(result.numpy if result else arrays[0].dtype)

    members = {
        "__annotations__": {attribute: type(value) for attribute, value in defaults.items()},
        "__doc__": numbers.__doc__,
        "__made_of__": operator,
        "__module__": numbers.function.__module__ or "",  # that of `exec` without a name
        "domain": operator.domain,
        "inputs": tuple(f"{one}: T" for one in operator.inputs),
        "outputs": ("result: T" if result is None else f"result: tensor({result.text})",),
        "types": {"T": NUMBERS if operator.types is None else operator.types},
        "result": result,
        "scalar": scalar,
        "evaluate": evaluate,
        **defaults,
    }
    return type(operator.name, (Elementwise,), members)

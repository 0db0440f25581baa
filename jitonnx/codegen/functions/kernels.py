"""Users' kernels: operators by functions over arrays, which Numba compiles; their code is kept as that of scalar ones.

Numba is imported where a function's code is not on disk yet (`array_functions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, overload

import numpy as np

from jitonnx.codegen.functions.function_operator import parameters, plain_function
from jitonnx.codegen.functions.installed import check_installed
from jitonnx.codegen.functions.kept import kept_data
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import concrete
from jitonnx.ir.dtypes import HALVES, DType, of_numpy
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import EXACT
from jitonnx.ir.operator import Operator, as_tuple
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import BOOLS, NUMBERS, widen
from jitonnx.support.identity import definition, identity
from jitonnx.support.records import NamedTuple

_COMPUTED = NUMBERS | BOOLS
"""The types that arrays may have; numbers of 16 bits reach the function as float32."""


class _Parts(NamedTuple):
    """What a kernel's declaration is made of: what Numba compiles, and what is said beside it."""

    function: Callable[..., Any]
    beside: tuple[Any, ...]

    def identity(self) -> str:
        """All of it, as `support.identity` has it. Raises: Unknown."""
        return repr((identity(self.function), definition(self.beside)))


@overload
def kernel(
    function: None = None,
    *,
    domain: str,
    outputs: Sequence[str],
    infer: Callable[..., Any],
    items: Callable[..., Any] | None = None,
    inputs: Sequence[str] | None = None,
    types: Collection[DType] = ...,
    name: str | None = None,
    cost: int = 4,
) -> Callable[[Callable[..., Any]], type[Operator]]: ...
@overload
def kernel(
    function: Callable[..., Any],
    *,
    domain: str,
    outputs: Sequence[str],
    infer: Callable[..., Any],
    items: Callable[..., Any] | None = None,
    inputs: Sequence[str] | None = None,
    types: Collection[DType] = ...,
    name: str | None = None,
    cost: int = 4,
) -> type[Operator]: ...
def kernel(
    function: Callable[..., Any] | None = None,
    *,
    domain: str,
    outputs: Sequence[str],
    infer: Callable[..., Any],
    items: Callable[..., Any] | None = None,
    inputs: Sequence[str] | None = None,
    types: Collection[DType] = _COMPUTED,
    name: str | None = None,
    cost: int = 4,
) -> Any:
    """Declare an operator by a function over arrays that Numba compiles: a step of native code, split among threads.

    function(inputs..., outputs..., begin, end, attributes...): arrays, row-major; inputs are not written to, and
    outputs hold anything before. Those of float16 and bfloat16 come as float32, and results are rounded behind it. It
    makes the items [begin, end) of the outputs, each element of them once; calls for other items may run beside it.
    Parameters with a default, a number or truth value, are attributes.

    outputs: their names, with types behind a colon as in declarations ("Y: T"), "T" being one of `types`. inputs:
    likewise; by default the parameters in front, all "T".
    infer(operator, context, *inputs): the outputs' types, as `Operator.infer`.
    items(operator, *operands): how many items there are, of values with shapes, inputs and then outputs, as
    `lambda self, x, y: y.shape[0]`; without it there is one, and [begin, end) is [0, 1).
    name: the operator's, by default the function's. cost: rough nanoseconds for an element of the outputs, by which
    items are shared among threads.

    Without a function, a decorator. Raises: ImportError without Numba, TypeError for a function with other parameters.
    What Numba does not compile, and a function that allocates arrays, is a TypeError when a model is loaded. An
    exception raised inside (IndexError: indices are checked) is an error of the run.
    """
    if function is None:
        described: dict[str, Any] = {"domain": domain, "outputs": outputs, "infer": infer, "items": items}
        described |= {"inputs": inputs, "types": types, "name": name, "cost": cost}
        return lambda given: kernel(given, **described)
    check_installed()
    plain = plain_function(function)
    called = plain.__name__
    arrays, defaults = parameters(plain)
    if arrays[-2:] != ["begin", "end"] or len(arrays) < 2 + len(outputs) + 1 or not outputs:
        raise TypeError(
            f"{called}({', '.join((*arrays, *defaults))}) is no kernel with {len(outputs)} outputs: its "
            "parameters are inputs, outputs, begin, end, and those with a default, attributes"
        )
    count = len(arrays) - 2 - len(outputs)
    signature = tuple(f"{one}: T" for one in arrays[:count]) if inputs is None else tuple(inputs)
    if len(signature) != count or any(one.partition(":")[0].strip()[-1:] in "?*" for one in (*signature, *outputs)):
        raise TypeError(f"{called} takes {count} arrays to read, none optional or repeated; {signature} are declared")

    def attributes(self: Operator) -> tuple[int | float | bool, ...]:
        return tuple(type(value)(getattr(self, each)) for each, value in defaults.items())

    def count_items(self: Operator, operands: Sequence[Value]) -> Any:
        return 1 if items is None else items(self, *operands)

    def lower(self: Operator, to: Lowering, *inputs: Value) -> Sequence[Value]:
        operands = [to.cast(value, _wide(value.dtype)) for value in inputs]
        results = [Value(text, type) for text, type in zip(outputs, to.types, strict=True)]
        kinds = [TensorType(_wide(value.dtype), value.shape) for value in results]
        made = [Value(text, type) for text, type in zip(outputs, kinds, strict=True)]
        given = tuple((value.dtype.name, len(value.shape)) for value in (*operands, *made))
        if any(DType[dtype] not in _COMPUTED for dtype, _ in given):
            raise TypeError(f"{called} is called for {given}: Numba has arrays of numbers and truth values alone")

        def make() -> tuple[str, tuple[str, ...]]:
            from jitonnx.codegen.functions.array_functions import compiled_kernel  # imports Numba

            return compiled_kernel(plain, given, count, attributes(self))

        ir, errors = kept_data("kernel", plain, (given, count, attributes(self)), make)
        computation = c.UserKernel(called, ir, errors, count_items(self, (*operands, *made)), cost)
        computed = to.emit_many(computation, operands, kinds)
        return [to.cast(value, result.dtype) for value, result in zip(computed, results, strict=True)]

    def evaluate(self: Operator, *given: np.ndarray) -> tuple[np.ndarray, ...]:
        values = [
            Value(text, TensorType(of_numpy(x.dtype), x.shape), x) for text, x in zip(signature, given, strict=True)
        ]
        read = [np.ascontiguousarray(widen(array)).reshape(array.shape).view() for array in given]
        for array in read:
            array.flags.writeable = False
        kinds = as_tuple(self.infer(EXACT, *values))
        values += [Value(text, kind) for text, kind in zip(outputs, kinds, strict=True)]
        made = [np.zeros(kind.shape, _wide(kind.dtype).numpy) for kind in kinds]
        plain(*read, *made, 0, concrete(count_items(self, values)), *attributes(self))
        return tuple(array.astype(kind.dtype.numpy, copy=False) for array, kind in zip(made, kinds, strict=True))

    declared = {
        "__annotations__": {attribute: type(value) for attribute, value in defaults.items()},
        "__doc__": plain.__doc__,
        "__made_of__": _Parts(plain, (infer, items, domain, signature, tuple(outputs), frozenset(types), name, cost)),
        "__module__": plain.__module__ or "",  # that of `exec` without a name
        "domain": domain,
        "inputs": signature,
        "outputs": tuple(outputs),
        "types": {"T": frozenset(types)},
        "infer": infer,
        "lower": lower,
        "evaluate": evaluate,
        **defaults,
    }
    return type(name or called, (Operator,), declared)


def _wide(dtype: DType) -> DType:
    """The type in which the function gets an array."""
    return DType.FLOAT if dtype in HALVES else dtype

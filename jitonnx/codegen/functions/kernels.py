"""Users' kernels: operators by functions over arrays, which Numba compiles; their code is kept as that of scalar ones.

Numba is imported where a function's code is not on disk yet (`array_functions.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import FunctionType
from typing import Any, overload

import numpy as np

from jitonnx.codegen.functions.function_operator import element_types, operator_name, parameters, plain_function
from jitonnx.codegen.functions.installed import check_installed
from jitonnx.codegen.functions.kept import kept_data
from jitonnx.ir.computation import computations as c
from jitonnx.ir.computation.lowering import Lowering
from jitonnx.ir.dims import Dim, DimLike, concrete, integers, maximum
from jitonnx.ir.dtypes import HALVES, DType, of_numpy
from jitonnx.ir.errors import FunctionError, InferenceError
from jitonnx.ir.graph import Value
from jitonnx.ir.inference import EXACT, InferenceContext
from jitonnx.ir.operator import Operator, as_tuple
from jitonnx.ir.types import TensorType
from jitonnx.ops.base import BOOLS, NUMBERS, widen
from jitonnx.support.identity import definition, identity
from jitonnx.support.records import NamedTuple

_COMPUTED = NUMBERS | BOOLS
"""The types that arrays may have; numbers of 16 bits reach the function as float32."""
_MOST_COST = 10**9


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
def kernel(  # noqa: PLR0913  (a decorator's options, by name)
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
    domain, name = operator_name(plain, domain, name)
    signature, defaults = _signature(plain, inputs, outputs)
    for said, given in (("infer", infer), ("items", items)):
        if not callable(given) and (said == "infer" or given is not None):
            raise TypeError(f"{said} of {called} is a function; got {given!r}")
    if type(cost) is not int or not 0 < cost <= _MOST_COST:
        raise TypeError(f"cost of {called} is in nanoseconds for an element, 1 to {_MOST_COST}; got {cost!r}")
    allowed = element_types(plain, types)
    if not allowed <= _COMPUTED:
        raise TypeError(f"types of {called}: arrays are of numbers or truth values; got {sorted(allowed - _COMPUTED)}")

    made = _Declared(plain, infer, items, signature, tuple(outputs), defaults, cost)
    declared = {
        "__annotations__": {attribute: type(value) for attribute, value in defaults.items()},
        "__doc__": plain.__doc__,
        "__made_of__": _Parts(plain, (infer, items, domain, signature, tuple(outputs), allowed, name, cost)),
        "__module__": plain.__module__ or "",  # that of `exec` without a name
        "domain": domain,
        "inputs": signature,
        "outputs": tuple(outputs),
        "types": {"T": allowed},
        "infer": lambda self, context, *given: made.checked(self, context, *given),
        "lower": lambda self, to, *given: made.lower(self, to, *given),
        "evaluate": lambda self, *given: made.evaluate(self, *given),
        **defaults,
    }
    return type(name, (Operator,), declared)


def _signature(
    function: FunctionType, inputs: Sequence[str] | None, outputs: Sequence[str]
) -> tuple[tuple[str, ...], Mapping[str, int | float | bool]]:
    """The operator's inputs, and the defaults of its attributes. TypeError for parameters that are no kernel's."""
    called, (arrays, defaults) = function.__name__, parameters(function)
    for described_by, entries in (("inputs", inputs), ("outputs", outputs)):
        if isinstance(entries, str) or not all(isinstance(one, str) for one in entries or ()):
            raise TypeError(f"{described_by} of {called} are a list of texts as 'Y: T'; got {entries!r}")
    if arrays[-2:] != ["begin", "end"] or len(arrays) < 2 + len(outputs) + 1 or not outputs:
        raise TypeError(
            f"{called}({', '.join((*arrays, *defaults))}) is no kernel with {len(outputs)} outputs: its "
            "parameters are inputs, outputs, begin, end, and those with a default, attributes"
        )
    count = len(arrays) - 2 - len(outputs)
    signature = tuple(f"{one}: T" for one in arrays[:count]) if inputs is None else tuple(inputs)
    if len(signature) != count or any(one.partition(":")[0].strip()[-1:] in "?*" for one in (*signature, *outputs)):
        raise TypeError(f"{called} takes {count} arrays to read, none optional or repeated; {signature} are declared")
    return signature, defaults


class _Declared(NamedTuple):
    """A declared kernel. Its methods are those of the operator, which each is given."""

    function: Callable[..., Any]
    infer: Callable[..., Any]
    items: Callable[..., Any] | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    defaults: Mapping[str, int | float | bool]
    """The defaults of attributes, by name."""
    cost: int

    @property
    def name(self) -> str:
        return self.function.__name__

    def attributes(self, operator: Operator) -> tuple[int | float | bool, ...]:
        return tuple(type(value)(getattr(operator, each)) for each, value in self.defaults.items())

    def count_items(self, operator: Operator, operands: Sequence[Value]) -> DimLike:
        """How many items there are of these inputs and outputs. FunctionError for what is no number of them."""
        try:
            found = 1 if self.items is None else self.items(operator, *operands)
        except Exception as error:  # of the user's
            raise FunctionError(f"items of {self.name} raised {type(error).__name__}: {error}") from error
        if isinstance(found, Dim):
            return maximum(found, 0)
        if isinstance(found, bool) or not isinstance(found, int | np.integer) or not 0 <= found < 2**31:
            raise FunctionError(
                f"items of {self.name} gives {found!r}; a number of items is needed, or an expression of sizes"
            )
        return int(found)

    def checked(self, operator: Operator, context: InferenceContext, *given: Value) -> tuple[TensorType, ...]:
        """The outputs' types. InferenceError for what are none."""
        try:
            found = as_tuple(self.infer(operator, context, *given))
        except InferenceError:
            raise
        except Exception as error:  # of the user's
            raise InferenceError(f"infer of {self.name} raised {type(error).__name__}: {error}") from error
        tensors = all(isinstance(one, TensorType) and one.dtype in _COMPUTED and one.shape is not None for one in found)
        if len(found) != len(self.outputs) or not tensors or any(size is None for one in found for size in one.shape):
            raise InferenceError(
                f"infer of {self.name} gives {found!r}; as many TensorTypes as outputs ({len(self.outputs)}) are "
                "needed, of numbers or truth values, with shapes that follow from those of the inputs"
            )
        return found

    def lower(self, operator: Operator, to: Lowering, *inputs: Value) -> Sequence[Value]:
        operands = [to.cast(value, _wide(value.dtype)) for value in inputs]
        results = [Value(text, type) for text, type in zip(self.outputs, to.types, strict=True)]
        kinds = [TensorType(_wide(value.dtype), value.shape) for value in results]
        made = [Value(text, type) for text, type in zip(self.outputs, kinds, strict=True)]
        given = tuple((value.dtype.name, len(value.shape)) for value in (*operands, *made))
        count, attributes = len(self.inputs), self.attributes(operator)

        def make() -> tuple[str, tuple[str, ...]]:
            from jitonnx.codegen.functions.array_functions import compiled_kernel  # imports Numba

            return compiled_kernel(self.function, given, count, attributes)

        ir, errors = kept_data("kernel", self.function, (given, count, attributes), make)
        items = self.count_items(operator, (*operands, *made))
        computed = to.emit_many(c.UserKernel(self.name, ir, errors, items, self.cost), operands, kinds)
        return [to.cast(value, result.dtype) for value, result in zip(computed, results, strict=True)]

    def evaluate(self, operator: Operator, *given: np.ndarray) -> tuple[np.ndarray, ...]:
        values = [
            Value(text, TensorType(of_numpy(x.dtype), x.shape), x) for text, x in zip(self.inputs, given, strict=True)
        ]
        read = [np.ascontiguousarray(widen(array)).reshape(array.shape).view() for array in given]
        for array in read:
            array.flags.writeable = False
        types = self.checked(operator, EXACT, *values)
        results = [Value(text, kind) for text, kind in zip(self.outputs, types, strict=True)]
        made = [np.zeros(integers(value.shape), _wide(value.dtype).numpy) for value in results]
        count = concrete(self.count_items(operator, (*values, *results)))
        self.function(*read, *made, 0, count, *self.attributes(operator))
        return tuple(array.astype(value.dtype.numpy, copy=False) for array, value in zip(made, results, strict=True))


def _wide(dtype: DType) -> DType:
    """The type in which the function gets an array."""
    return DType.FLOAT if dtype in HALVES else dtype

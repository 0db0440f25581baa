"""Compiled models as functions that Numba compiles can call them: programs and sizes in tables that native code reads.

What is typed and lowered is in `lowering.py`, which imports Numba; here nothing does. Calls from Python do the same,
also under NUMBA_DISABLE_JIT=1.
"""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from jitonnx.api.session import InferenceSession
from jitonnx.errors import Fail, InvalidArgument, RuntimeException
from jitonnx.ir.declaration import Declaration, is_named
from jitonnx.runtime.driver import image
from jitonnx.runtime.layout import BOUND, address, records
from jitonnx.runtime.native.calls import NO_MEMORY
from jitonnx.runtime.program import Shapes, TensorSpec
from jitonnx.support.records import NamedTuple

if TYPE_CHECKING:
    from jitonnx.engine.programs import RunnableProgram
    from jitonnx.runtime.executable import Array

MOST_PROGRAMS = 4096
"""Sets of sizes that one bound model may have a program for: each has tables of some KB."""
_KNOWN = "?bhilqBHILQfdFD"
"""Characters of the element types that Numba computes with on CPUs."""

_bound: weakref.WeakValueDictionary[int, BoundModel] = weakref.WeakValueDictionary()
_numbers = itertools.count(1)


class Tensor(NamedTuple):
    """An input or output apart from its sizes."""

    name: str
    dtype: str
    rank: int


class Signature(NamedTuple):
    """All that code that calls a bound model depends on: what models have in common whose calls are compiled alike."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class BoundModel:
    """A model for inputs of certain sizes, called with arrays in the order of its inputs, by Numba's code or by Python.

    `model(x, ...)` gives new arrays, one or a tuple of them; `model.into(x, ..., y, ...)` writes the outputs to arrays
    that are given behind the inputs, and lie apart from these and each other. All are C-contiguous, aligned, and of
    exactly the model's types and sizes. `model.attempt(x, ..., y, ...)` does as `into`, but raises nothing: it returns
    whether that was done, and `model.check()` raises the first error that attempts have met since the last check. So
    errors come out of `numba.prange`, where Numba loses what calls raise.

    Raises, also in nopython code: InvalidArgument for sizes that do not fit, and for what kernels find wrong with the
    data (an index out of range); RuntimeException for a lack of memory, RuntimeError when it is closed or its session
    is. Other types, ranks and layouts are a TypingError when Numba compiles the call.

    Runs of one bound model on several threads are independent. A run that has begun is not ended by Ctrl-C.
    """

    def __init__(self, low: Shapes, varying: Sequence[_Varying]) -> None:
        self._low, self._varying = low, varying
        self._record = records(BOUND)
        self._address = address(self._record)
        self._number = next(_numbers)
        self._met: Exception | None = None
        self._told: Exception = RuntimeError("no attempt has met an error")
        _bound[self._number] = self

    _programs: Sequence[RunnableProgram]

    def fill(self, programs: Sequence[RunnableProgram]) -> None:
        """Be these programs', one for each set of sizes."""
        self._programs = programs
        inputs, outputs = self._specs(0)
        self.signature = Signature(*(tuple(map(_tensor, specs)) for specs in (inputs, outputs)))
        rows = [
            [made.frames.address, made.loadable.address, *_sizes(made.program.inputs), *_sizes(made.program.outputs)]
            for made in (one.executable for one in programs)
        ]
        leasts = _sizes(inputs)
        steps = [0 for _ in leasts]
        for each in self._varying:
            steps[each.place] = each.step
        tables = [np.array(table, np.int64) for table in (leasts, steps, rows)]
        record = self._record
        record["number"], record["object"], record["count"] = self._number, id(self), len(programs)
        record["call"] = image("calls")["jitonnx_call"]
        self._note = np.zeros(4 + len(leasts) + len(_sizes(outputs)), np.int64)
        record["leasts"], record["steps"], record["rows"], record["note"] = map(address, (*tables, self._note))
        self._tables = tables

    @property
    def _numba_type_(self) -> Any:
        """Numba asks for it."""
        from jitonnx.numba.lowering import BoundModelType

        return BoundModelType(self.signature)

    def close(self) -> None:
        """Refuse to be called from now on. Calls that have begun end well."""
        self._record["closed"] = 1

    def __reduce__(self) -> NoReturn:
        raise TypeError("a bound model is of this process alone: pickle the session, and bind that")

    def __call__(self, *inputs: Array) -> Any:
        """As nopython code calls it."""
        if len(inputs) != len(self.signature.inputs):
            raise TypeError(arity(self.signature, "", len(inputs)))
        outputs = self._run(inputs, ())
        return outputs[0] if len(outputs) == 1 else tuple(outputs)

    def into(self, *arrays: Array) -> None:
        """As nopython code calls it."""
        count = len(self.signature.inputs)
        if len(arrays) != count + len(self.signature.outputs):
            raise TypeError(arity(self.signature, "into", len(arrays)))
        for number, output in enumerate(arrays[count:], count):
            for other, array in enumerate(arrays[:number]):
                if np.may_share_memory(output, array):
                    raise self._overlap(number, other)
        self._run(arrays[:count], arrays[count:])

    def attempt(self, *arrays: Array) -> bool:
        """Call it as nopython code does; other types are a TypeError, as they are there when it is compiled."""
        try:
            self.into(*arrays)
        except (InvalidArgument, RuntimeError) as error:
            self._met = self._met or error
            return False
        return True

    def check(self) -> None:
        """Raise the first error that attempts have met since the last check, in nopython code or in Python."""
        if self._take():
            raise self._noted()

    def _run(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> list[Array]:
        if self._record["closed"][0]:
            raise self._closed()
        signature = self.signature
        for tensor, array in zip((*signature.inputs, *signature.outputs), (*inputs, *outputs), strict=False):
            why = misfit(tensor, array)
            if why:
                raise TypeError(why)
        sizes = [size for array in inputs for size in array.shape]
        number = sum((sizes[each.place] - each.least) * each.step for each in self._varying)
        if not 0 <= number < len(self._programs) or sizes != _sizes(self._specs(number)[0]):
            raise self._misfit(*sizes)
        specs = self._specs(number)[1]
        if outputs and [size for array in outputs for size in array.shape] != _sizes(specs):
            raise self._misfit(*sizes, *(size for array in outputs for size in array.shape))
        made: list[Array] = self._programs[number].executable.call(inputs, outputs).run()
        return made

    def _specs(self, number: int) -> tuple[list[TensorSpec], list[TensorSpec]]:
        program = self._programs[number].executable.program
        return list(program.inputs), list(program.outputs)

    # ------------------------------------------------------------ errors

    def _closed(self) -> Exception:
        return RuntimeError("the bound model is closed, or the session that it was made of")

    def _noted(self) -> Exception:
        """What `check` raises. Numba asks for it twice."""
        self._take()
        return self._told

    def _take(self) -> bool:
        """Whether attempts have met an error since this was last asked."""
        met, self._met = self._met, None
        if self._note[0]:
            kind, count, *numbers = self._note.tolist()
            met = getattr(self, KINDS[kind - 1].tell)(*numbers[:count])
            self._note[:] = 0
            self._record["noted"] = 0
        self._told = met or self._told
        return met is not None

    def _misfit(self, *sizes: int) -> Exception:
        """The error for inputs, or inputs and given outputs, of these sizes."""
        fitting = self._ranges()
        inputs = list(_cut(self.signature.inputs, sizes))
        for tensor, ranges, shape in zip(self.signature.inputs, fitting, inputs, strict=True):
            if not all(low <= size <= high for (low, high), size in zip(ranges, shape, strict=True)):
                return InvalidArgument(
                    f"input {tensor.name!r} has the shape {list(shape)}; the bound model takes {_ranged(ranges)}"
                )
        named = ", ".join(f"{one.name!r} {list(s)}" for one, s in zip(self.signature.inputs, inputs, strict=True))
        for number in range(len(self._programs)):
            specs, outputs = self._specs(number)
            if [spec.shape for spec in specs] == inputs:
                given = _cut(self.signature.outputs, sizes[sum(map(len, inputs)) :])
                for spec, shape in zip(outputs, given, strict=True):
                    if spec.shape != shape:
                        return InvalidArgument(
                            f"the array given for output {spec.name!r} has the shape {list(shape)}; it is "
                            f"{list(spec.shape)} for inputs of the shapes {named}"
                        )
        return InvalidArgument(f"the inputs' shapes do not go together, as the model names their sizes: {named}")

    def _overlap(self, output: int, other: int) -> Exception:
        tensors = [*self.signature.inputs, *self.signature.outputs]
        kind = "input" if other < len(self.signature.inputs) else "output"
        return InvalidArgument(
            f"the array given for output {tensors[output].name!r} shares memory with that of {kind} "
            f"{tensors[other].name!r}: give arrays that lie apart"
        )

    def _failed(self, status: int) -> Exception:
        if status == NO_MEMORY:
            return RuntimeException("There is not enough memory for a run")
        flags = self._programs[0].executable.loadable.common.flags
        return InvalidArgument(flags[status - 1].text)

    def _ranges(self) -> list[list[tuple[int, int]]]:
        highs = _sizes_of(self._low)
        for each in self._varying:
            highs[each.place] = each.most
            for place in each.same:
                highs[place] = each.most
        pairs = list(zip(_sizes_of(self._low), highs, strict=True))
        return [list(shape) for shape in _cut(self.signature.inputs, pairs)]


class _Varying(NamedTuple):
    """A size that is a range: its place among all sizes of inputs, those of others that are the same; `step` is how far
    the programs for one more lie apart."""

    place: int
    same: tuple[int, ...]
    least: int
    most: int
    step: int


def bound(session: InferenceSession, shapes: Mapping[str, Any] | None) -> BoundModel:
    """What `jitonnx.numba.bind` gives."""
    if not isinstance(session, InferenceSession):
        raise TypeError(f"bind takes an InferenceSession; got a {type(session).__name__}")
    low, high = session.shape_ends(None if shapes is None else _shapes(session, shapes))
    for declared in session.declared_inputs:
        if declared.dtype is None or declared.dtype.numpy.char not in _KNOWN:
            raise Fail(f"input {declared.name!r} is a {declared.type}, which Numba has no arrays of")
    varying = list(_varying(session.declared_inputs, low, high))
    count = math.prod(each.most - each.least + 1 for each in varying)
    if count > MOST_PROGRAMS:
        raise InvalidArgument(
            f"the shapes stand for {count} sets of sizes; a bound model has a program for each, {MOST_PROGRAMS} at "
            "most: give smaller ranges"
        )
    made = BoundModel(low, varying)
    programs = [session.native_program(one, made) for one in _each(low, varying)]
    for spec in programs[0].executable.program.outputs:
        if spec.dtype.char not in _KNOWN:
            raise Fail(f"output {spec.name!r} is of {spec.dtype}, which Numba has no arrays of")
    made.fill(programs)
    return made


def _shapes(session: InferenceSession, shapes: Mapping[str, Any]) -> dict[str, Any]:
    """The shapes of feeds, or those that are given."""
    if not isinstance(shapes, Mapping):
        raise TypeError(f"shapes are a dict of shapes or arrays by input name; got {shapes!r}")
    kinds = {declared.name: declared for declared in session.declared_inputs}
    for name, value in shapes.items():
        if isinstance(value, np.ndarray) and name in kinds:
            dtype = kinds[name].dtype
            if dtype is not None and value.dtype != dtype.numpy:
                raise InvalidArgument(f"input {name!r} is of {value.dtype}; the model takes {dtype.numpy}")
    return {name: value.shape if isinstance(value, np.ndarray) else value for name, value in shapes.items()}


def _varying(declared: Sequence[Declaration], low: Shapes, high: Shapes) -> Iterator[_Varying]:
    """The ranges, the last with the programs side by side. Sizes of one name are one."""
    names = [dim for entry in declared for dim in entry.shape or ()]
    lows, highs = _sizes_of(low), _sizes_of(high)
    places: dict[Any, list[int]] = {}
    for place, (least, most) in enumerate(zip(lows, highs, strict=True)):
        if least != most:
            dim = names[place] if len(names) == len(lows) else None
            places.setdefault((dim, least, most) if is_named(dim) else place, []).append(place)
    step = math.prod(highs[same[0]] - lows[same[0]] + 1 for same in places.values())
    for first, *same in places.values():
        step //= highs[first] - lows[first] + 1
        yield _Varying(first, tuple(same), lows[first], highs[first], step)


def _each(low: Shapes, varying: Sequence[_Varying]) -> Iterator[Shapes]:
    """All shapes of the ranges."""
    ranks = list(map(len, low))
    for chosen in itertools.product(*(range(each.least, each.most + 1) for each in varying)):
        sizes = _sizes_of(low)
        for each, size in zip(varying, chosen, strict=True):
            for place in (each.place, *each.same):
                sizes[place] = size
        ends = list(itertools.accumulate(ranks))
        yield tuple(tuple(sizes[end - rank : end]) for rank, end in zip(ranks, ends, strict=True))


def misfit(tensor: Tensor, array: Any) -> str:
    """What is wrong with an array for an input or output, but sizes; "" if nothing is."""
    if not isinstance(array, np.ndarray):
        return f"{tensor.name!r} is a {type(array).__name__}; give {described(tensor)}"
    fits = (
        array.dtype == tensor.dtype and array.ndim == tensor.rank and array.flags.c_contiguous and array.flags.aligned
    )
    given = (
        f"an array of {array.dtype} with {array.ndim} axes{'' if array.flags.c_contiguous else ', not C-contiguous'}"
    )
    return "" if fits else f"{tensor.name!r} is {given}; give {described(tensor)}"


def described(tensor: Tensor) -> str:
    """What arrays fit."""
    return (
        f"a C-contiguous, aligned array of {tensor.dtype} with {tensor.rank} axes (numpy.ascontiguousarray makes one)"
    )


def tensors_of(signature: Signature, method: str) -> list[Tensor]:
    """What a call takes, or one of a method."""
    return [] if method == "check" else [*signature.inputs, *(signature.outputs if method else ())]


def arity(signature: Signature, method: str, given: int) -> str:
    """The error for another number of arrays."""
    tensors = tensors_of(signature, method)
    names = ", ".join(tensor.name for tensor in tensors)
    return (
        f"{f'{method}() of a' if method else 'a'} bound model takes {len(tensors)} arrays ({names}); {given} are given"
    )


def _tensor(spec: TensorSpec) -> Tensor:
    return Tensor(spec.name, spec.dtype.name, len(spec.shape))


def _sizes(specs: Sequence[TensorSpec]) -> list[int]:
    return [size for spec in specs for size in spec.shape]


def _sizes_of(shapes: Shapes) -> list[int]:
    return [size for shape in shapes for size in shape]


def _cut(tensors: Sequence[Tensor], sizes: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
    """A tuple for each tensor, of as many as it has axes, as far as there are any."""
    rest = iter(sizes)
    for tensor in tensors if len(sizes) else ():
        yield tuple(itertools.islice(rest, tensor.rank))


def _ranged(ranges: Sequence[tuple[int, int]]) -> str:
    return f"[{', '.join(str(low) if low == high else f'{low} to {high}' for low, high in ranges)}]"


# What nopython code raises: told by numbers, since texts would be compiled into every caller. Calling such a class
# gives an error that users know.


class _Told(Exception):
    """An error of the bound model of a number."""

    tell: str

    def __new__(cls, number: int, *numbers: int) -> Any:
        model = _bound.get(number)
        return RuntimeError("the bound model is gone") if model is None else getattr(model, cls.tell)(*numbers)


class Closed(_Told):
    tell = "_closed"


class Misfit(_Told):
    tell = "_misfit"


class Overlap(_Told):
    tell = "_overlap"


class Failed(_Told):
    tell = "_failed"


class Noted(_Told):
    tell = "_noted"


KINDS: tuple[type[_Told], ...] = (Closed, Misfit, Overlap, Failed)
"""What is noted of an error is the place of its class here, from 1 on, and its numbers."""

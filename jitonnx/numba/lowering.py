"""Bound models in nopython code: their type, and calls of them, each a function in Numba's Python that is compiled into
its callers.

A bound model is the address of its `BOUND` there. Code depends on the signature alone; sizes and addresses are read
where it runs. So what Numba keeps on disk of functions that take a bound model as an argument works in other processes.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.core.imputils import lower_constant
from numba.core.typing.templates import AttributeTemplate
from numba.core.typing.templates import Signature as CallSignature
from numba.core.typing.templates import signature as call_signature
from numba.extending import (
    NativeValue,
    box,
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    models,
    register_model,
    unbox,
)

from jitonnx.numba.binding import (
    KINDS,
    BoundModel,
    Closed,
    Failed,
    Misfit,
    Noted,
    Overlap,
    Signature,
    Tensor,
    arity,
    described,
    tensors_of,
)
from jitonnx.runtime.layout import BOUND, WORD_BYTES

_WORD, _POINTER = ir.IntType(64), ir.IntType(8).as_pointer()
_PLACES = {name: place for place, name in enumerate(BOUND.names or ())}
_METHODS = ("into", "attempt", "check")
_ROW_HEAD = 2
"""Words of a row in front of the sizes."""


class BoundModelType(types.Callable, types.Opaque):
    """A bound model of a signature, or a method of such: what is called is the same address."""

    def __init__(self, described: Signature, method: str = "") -> None:
        self.described, self.method = described, method
        super().__init__(f"BoundModel{_text(described)}{method and '.'}{method}")

    @property
    def key(self) -> tuple[Signature, str]:
        """What tells types apart."""
        return self.described, self.method

    def get_call_type(self, context: Any, args: Sequence[Any], kws: Any) -> CallSignature:
        """The types of a call. TypingError for arrays that do not fit."""
        kinds = _checked(self.described, self.method, args, kws)
        made = self._called.get_call_type(context, (self, *kinds), {})
        return call_signature(made.return_type, *made.args[1:], recvr=self)

    def get_call_signatures(self) -> tuple[list[Any], bool]:
        """An empty list, for messages: there is none of them."""
        return [], True

    def get_impl_key(self, sig: CallSignature) -> Any:
        """What lowers a call."""
        return self._called.get_impl_key(sig)

    @property
    def _called(self) -> types.Dispatcher:
        return types.Dispatcher(_function(self.described, self.method))


def _text(described: Signature) -> str:
    inputs, outputs = (", ".join(f"{t.name}: {t.dtype} {t.rank}d" for t in tensors) for tensors in described)
    return f"({inputs}) -> ({outputs})"


register_model(BoundModelType)(models.OpaqueModel)


@unbox(BoundModelType)
def _unbox(kind: Any, given: Any, c: Any) -> NativeValue:
    place = c.pyapi.object_getattr_string(given, "_address")
    number = c.pyapi.long_as_longlong(place)
    c.pyapi.decref(place)
    return NativeValue(
        c.builder.inttoptr(number, _POINTER), is_error=cgutils.is_not_null(c.builder, c.pyapi.err_occurred())
    )


@box(BoundModelType)
def _box(kind: Any, value: Any, c: Any) -> Any:
    given = c.builder.inttoptr(_load(c.builder, value, _PLACES["object"]), c.pyapi.pyobj)
    c.pyapi.incref(given)
    return given


_frozen: dict[int, BoundModel] = {}
"""Bound models that compiled code names as globals: it has their addresses for as long as the process lives."""


@lower_constant(BoundModelType)
def _lower_constant(context: Any, builder: Any, kind: Any, model: BoundModel) -> Any:
    """The address as Numba writes those that no other process may read: code with it is not kept on disk."""
    _frozen[id(model)] = model
    return context.add_dynamic_addr(builder, model._address, info="a bound model")


@infer_getattr
class _Attributes(AttributeTemplate):
    key = BoundModelType

    def generic_resolve(self, model: BoundModelType, name: str) -> BoundModelType | None:
        return BoundModelType(model.described, name) if name in _METHODS and not model.method else None


@lower_getattr_generic(BoundModelType)
def _lower_method(context: Any, builder: Any, kind: Any, model: Any, name: str) -> Any:
    return model


# ------------------------------------------------------------ what calls are made of


def _load(builder: Any, address: Any, place: Any) -> Any:
    """Word number `place` at an address."""
    words = builder.bitcast(address, _WORD.as_pointer())
    return builder.load(builder.gep(words, [ir.Constant(_WORD, place) if isinstance(place, int) else place]))


@intrinsic
def _address(context: Any, model: Any) -> Any:
    """The address of the `BOUND`."""

    def lower(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.ptrtoint(arguments[0], _WORD)

    return types.int64(model), lower


@intrinsic
def _word(context: Any, place: Any, index: Any) -> Any:
    """Word number `index` at an address."""

    def lower(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return _load(builder, builder.inttoptr(arguments[0], _POINTER), arguments[1])

    return types.int64(types.int64, types.int64), lower


@intrinsic
def _apart(context: Any, one: Any, other: Any) -> Any:
    """Whether two C-contiguous arrays share no memory."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        begins, ends = [], []
        for kind, value in zip(signature.args, arguments, strict=True):
            array = context.make_array(kind)(context, builder, value)
            begin = builder.ptrtoint(array.data, _WORD)
            begins.append(begin)
            ends.append(builder.add(begin, builder.mul(array.nitems, array.itemsize)))
        before, behind = (builder.icmp_unsigned("<=", ends[i], begins[1 - i]) for i in (0, 1))
        return builder.or_(before, behind)

    return types.boolean(one, other), lower


@intrinsic
def _call(context: Any, call: Any, row: Any, arrays: Any) -> Any:
    """A run of a row's program on these arrays; what `jitonnx_call`, which lies at `call`, returns."""

    def lower(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kinds = signature.args[2]
        bases = cgutils.alloca_once(builder, _WORD, size=ir.Constant(_WORD, max(len(kinds), 1)))
        for place, kind in enumerate(kinds):
            array = context.make_array(kind)(context, builder, builder.extract_value(arguments[2], place))
            at = builder.gep(bases, [ir.Constant(_WORD, place)])
            builder.store(builder.ptrtoint(array.data, _WORD), at)
        row = builder.inttoptr(arguments[1], _POINTER)
        pool, program = (_load(builder, row, place) for place in range(_ROW_HEAD))
        kind = ir.FunctionType(_WORD, [_WORD, _WORD, _WORD.as_pointer()])
        function = builder.inttoptr(arguments[0], kind.as_pointer())
        return builder.call(function, [pool, program, bases])

    return types.int64(types.int64, types.int64, arrays), lower


@intrinsic
def _note(context: Any, bound: Any, kind: Any, numbers: Any) -> Any:
    """Note an error for `check`, if none is noted yet."""

    def lower(_: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        words = builder.inttoptr(arguments[0], _WORD.as_pointer())
        noted = builder.gep(words, [ir.Constant(_WORD, _PLACES["noted"])])
        taken = builder.cmpxchg(noted, ir.Constant(_WORD, 0), ir.Constant(_WORD, 1), "acquire")
        with builder.if_then(builder.extract_value(taken, 1)):
            note = builder.inttoptr(_load(builder, words, _PLACES["note"]), _WORD.as_pointer())
            count = len(signature.args[2])
            told = [builder.extract_value(arguments[2], place) for place in range(count)]
            for place, number in enumerate([ir.Constant(_WORD, count), *told], 1):
                builder.store(number, builder.gep(note, [ir.Constant(_WORD, place)]))
            builder.store_atomic(arguments[1], note, "release", 8)
        return ir.Constant(_WORD, 0)

    return types.int64(bound, types.int64, numbers), lower


# ------------------------------------------------------------ calls


def _checked(described_: Signature, method: str, args: Sequence[Any], kws: Any) -> list[Any]:
    """The types of the arrays of a call. TypingError names the one that does not fit."""
    tensors = tensors_of(described_, method)
    if kws:
        raise TypingError(
            f"a bound model takes arrays by their places ({', '.join(t.name for t in tensors)}), not by name"
        )
    if len(args) != len(tensors):
        raise TypingError(arity(described_, method, len(args)))
    kinds = [types.unliteral(kind) for kind in args]
    for place, (tensor, kind) in enumerate(zip(tensors, kinds, strict=True)):
        what = "input" if place < len(described_.inputs) else "output"
        fits = isinstance(kind, types.Array) and kind.layout == "C" and kind.aligned and kind.ndim == tensor.rank
        if not fits or kind.dtype != numba.from_dtype(np.dtype(tensor.dtype)):
            raise TypingError(f"{what} {tensor.name!r} is {kind}; give {described(tensor)}")
        if what == "output" and not kind.mutable:
            raise TypingError(f"the array given for output {tensor.name!r} cannot be written to")
    return kinds


@functools.cache
def _function(described_: Signature, method: str) -> Any:
    """What a call is: a function of the model and the arrays."""
    space: dict[str, Any] = {
        "__name__": __name__,  # of what has none Numba keeps nothing on disk that errors need
        **{each.__name__: each for each in (*KINDS, Noted)},
        **{"_address": _address, "_word": _word, "_apart": _apart, "_call": _call, "_note": _note},
        "empty": np.empty,
        **{f"dtype{i}": np.dtype(output.dtype).type for i, output in enumerate(described_.outputs)},
    }
    text = "\n".join(_source(described_, method))
    exec(compile(text, f"<bound model {_text(described_)}>", "exec"), space)
    return numba.njit(nogil=True)(space["call"])


def _source(described_: Signature, method: str) -> Iterator[str]:
    """The lines of a call.

    a0, a1, …: the inputs, b0, b1, …: the outputs, s0, s1, …: the sizes of inputs, t0, t1, … of given outputs.
    """
    inputs = [f"a{i}" for i in range(len(described_.inputs))]
    outputs = [f"b{i}" for i in range(len(described_.outputs))]
    arrays = [*inputs, *outputs][: len(tensors_of(described_, method))]

    def fail(kind: type[Exception], indent: int, *numbers: str) -> Iterator[str]:
        space = 4 * indent * " "
        if method == "attempt":
            yield f"{space}_note(bound, {KINDS.index(kind) + 1}, ({''.join(f'{number}, ' for number in numbers)}))"
            yield f"{space}return False"
        else:
            yield f"{space}raise {kind.__name__}({', '.join(['number', *numbers])})"

    yield f"def call({', '.join(['model', *arrays])}):"
    yield "    bound = _address(model)"
    yield f"    number = {_field('number')}"
    if method == "check":
        yield f"    if {_field('noted')} != 0:"
        yield "        raise Noted(number)"
        return
    yield f"    if {_field('closed')} != 0:"
    yield from fail(Closed, 2)
    sizes = yield from _sizes(described_.inputs, inputs, "s")
    yield f"    row, count = {_field('rows')}, {_field('count')}"
    every = _ROW_HEAD + len(sizes) + sum(output.rank for output in described_.outputs)
    if sizes:
        yield "    if count != 1:"
        yield f"        leasts, steps = {_field('leasts')}, {_field('steps')}"
        terms = (f"({size} - _word(leasts, {i})) * _word(steps, {i})" for i, size in enumerate(sizes))
        yield f"        index = {' + '.join(terms)}"
        yield "        if index < 0 or index >= count:"
        yield from fail(Misfit, 3, *sizes)
        yield f"        row += {every * WORD_BYTES} * index"
        yield f"    if {_unlike(sizes, _ROW_HEAD)}:"
        yield from fail(Misfit, 2, *sizes)
    first = _ROW_HEAD + len(sizes)
    if method:
        given = yield from _sizes(described_.outputs, outputs, "t")
        if given:
            yield f"    if {_unlike(given, first)}:"
            yield from fail(Misfit, 2, *sizes, *given)
        for place in range(len(inputs), len(arrays)):
            for other in range(place):
                yield f"    if not _apart({arrays[place]}, {arrays[other]}):"
                yield from fail(Overlap, 2, str(place), str(other))
    else:
        for i, output in enumerate(described_.outputs):
            shape = "".join(f"_word(row, {first + axis}), " for axis in range(output.rank))
            first += output.rank
            yield f"    {outputs[i]} = empty(({shape}), dtype{i})"
    yield f"    status = _call({_field('call')}, row, ({', '.join([*inputs, *outputs])},))"
    yield "    if status != 0:"
    yield from fail(Failed, 2, "status")
    if method == "attempt":
        yield "    return True"
    elif not method:
        yield f"    return {', '.join(outputs)}"


def _field(name: str) -> str:
    return f"_word(bound, {_PLACES[name]})"


def _sizes(tensors: Sequence[Tensor], arrays: Sequence[str], letter: str) -> Any:
    """Writes what names the sizes of arrays; returns the names."""
    names: list[str] = []
    for tensor, array in zip(tensors, arrays, strict=True):
        own = [f"{letter}{len(names) + axis}" for axis in range(tensor.rank)]
        if own:
            yield f"    {''.join(f'{name}, ' for name in own)}= {array}.shape"
        names += own
    return names


def _unlike(sizes: Sequence[str], first: int) -> str:
    """Python text for whether sizes are not those of the row from a word on."""
    return " or ".join(f"_word(row, {first + i}) != {size}" for i, size in enumerate(sizes))

"""Functions over arrays, compiled by Numba as kernels: an LLVM module of the kernels' signature. Imports Numba.

Indices are checked, and exceptions become a word that is set: nothing is read or written outside of an array.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numba
from llvmlite import ir
from numba.core import cgutils, serialize
from numba.core import types as numba_types
from numba.core.errors import NumbaError
from numba.extending import intrinsic
from numba.np import arrayobj, numpy_support

from jitonnx.codegen.functions.modules import c_function
from jitonnx.codegen.functions.unoptimised import unoptimised
from jitonnx.ir.dtypes import DType
from jitonnx.ir.errors import FunctionError

types: Any = numba_types
_SIGNATURE = types.void(
    types.CPointer(types.CPointer(types.uint8)), types.CPointer(types.int64), types.int64, types.int64, types.voidptr
)
"""(buffers, sizes, begin, end, scratch), as `emit.module` has it."""
_ALLOWED = (
    "a kernel works on the arrays that it is given, with numbers, `math` and exceptions of constant texts; it "
    "allocates no arrays and lists (take scratch memory as a further output)"
)
_HEADER = re.compile(r"^(target (datalayout|triple)|; ModuleID|source_filename) .*\n", re.M)
_ESCAPED = re.compile(rb"\\(\\|[0-9A-F]{2})")
_RAISED = re.compile(r'^@\.const\.pickledata\.(\w+)(?:\.\d+)? = .* c"(.*?)"', re.M)
_RECORD = re.compile(r"@\.const\.picklebuf\.(\w+)(?:\.\d+)?")
_DEFINED = re.compile(rf"^{_RECORD.pattern} = .*\n", re.M)
"""Exceptions in Numba's modules: what was pickled of them, the records that point to that; linking numbers copies."""


def compiled_kernel(
    function: Callable[..., Any],
    operands: Sequence[tuple[str, int]],
    inputs: int,
    attributes: Sequence[int | float | bool],
) -> tuple[str, tuple[str, ...]]:
    """The text of a module that defines the kernel as `linked.SYMBOL`, and what it may raise.

    As many words are behind the operands, of which the one is set to 1 that tells what it was.

    operands: data types' names and ranks, of inputs, then of outputs. The sizes are the number of items and
    all extents.

    Raises: FunctionError for what Numba does not compile, and for what needs more than the arrays.
    """
    name = function.__name__
    arrays = [
        types.Array(numpy_support.from_dtype(DType[dtype].numpy), rank, "C", readonly=number < inputs)
        for number, (dtype, rank) in enumerate(operands)
    ]
    kinds = {bool: types.boolean, int: types.int64, float: types.float64}
    attribute_kinds = [kinds[type(value)] for value in attributes]
    wanted = (*arrays, types.int64, types.int64, *attribute_kinds)
    try:
        with unoptimised():
            compiled = numba.njit(boundscheck=True, error_model="numpy")(function)
            compiled.compile(wanted)
            made = compiled.overloads[wanted]
            raised = _exceptions(made.library.get_llvm_str())
            if made.signature.return_type != types.none:
                raise FunctionError(f"{name} returns {made.signature.return_type}; a kernel writes to its outputs")

            @intrinsic
            def run(context: Any, buffers: Any, sizes: Any, begin: Any, end: Any) -> Any:
                def emit(context: Any, builder: Any, signature: Any, given: Any) -> Any:
                    buffers, sizes, begin, end = given
                    at, passed = 1, []
                    for number, array in enumerate(arrays):
                        extents = [_load(builder, sizes, at + axis) for axis in range(array.ndim)]
                        at += array.ndim
                        passed.append(_array(context, builder, array, _load(builder, buffers, number), extents))
                    passed += [begin, end]
                    passed += [
                        context.get_constant(kind, value)
                        for kind, value in zip(attribute_kinds, attributes, strict=True)
                    ]
                    context.active_code_library.add_linking_library(made.library)
                    status, _ = context.call_internal_no_propagate(builder, made.fndesc, made.signature, passed)
                    with builder.if_then(status.is_error, likely=False):
                        word = ir.IntType(64)
                        number = builder.ptrtoint(status.excinfoptr, word)
                        known = builder.and_(
                            status.is_user_exc, builder.icmp_unsigned("<", number, word(1 + len(raised)))
                        )
                        place = builder.add(builder.select(known, number, word(0)), word(len(arrays)))
                        met = builder.load(builder.gep(buffers, [place]))
                        builder.store(word(1), builder.bitcast(met, word.as_pointer()))
                    return context.get_dummy_value()

                return types.none(buffers, sizes, begin, end), emit

            def entry(buffers: Any, sizes: Any, begin: Any, end: Any, scratch: Any) -> None:
                run(buffers, sizes, begin, end)

            text = numba.njit(_SIGNATURE, error_model="numpy")(entry).inspect_llvm(_SIGNATURE.args)
    except NumbaError as error:
        given = ", ".join(map(str, wanted))
        raise FunctionError(f"Numba does not compile {name} for ({given}): {error}") from error
    numbers = {record: number for number, record in enumerate(raised, 1)}  # what stands in the place of the records
    text = _RECORD.sub(lambda one: f"inttoptr (i64 {numbers.get(one[1], 0)} to ptr)", _DEFINED.sub("", text))
    found = c_function(text, name, _ALLOWED)
    return _HEADER.sub("", str(found.module)), ("an exception", *raised.values())


def _load(builder: Any, pointer: Any, place: int) -> Any:
    return builder.load(builder.gep(pointer, [ir.IntType(64)(place)]))


def _array(context: Any, builder: Any, kind: Any, pointer: Any, extents: Sequence[Any]) -> Any:
    """A row-major array that nobody counts references of."""
    word = ir.IntType(64)
    itemsize = context.get_abi_sizeof(context.get_data_type(kind.dtype))
    strides: list[Any] = []
    stride = word(itemsize)
    for extent in reversed(extents):
        strides.insert(0, stride)
        stride = builder.mul(stride, extent)
    array = context.make_array(kind)(context, builder)
    arrayobj.populate_array(
        array,
        data=builder.bitcast(pointer, array.data.type),
        shape=cgutils.pack_array(builder, extents, ty=word),
        strides=cgutils.pack_array(builder, strides, ty=word),
        itemsize=word(itemsize),
        meminfo=None,
    )
    return array._getvalue()


def _exceptions(text: str) -> dict[str, str]:
    """The exceptions that a module raises, as Numba pickled them into it: what each says, by the name of its record."""
    said = {}
    for name, escaped in _RAISED.findall(text):
        data = _ESCAPED.sub(
            lambda one: b"\\" if one[1] == b"\\" else bytes([int(one[1], 16)]), escaped.encode("latin-1")
        )
        kind, arguments, *_ = serialize.loads(data)
        said[name] = ": ".join((kind.__name__, *map(str, arguments or ())))
    return said

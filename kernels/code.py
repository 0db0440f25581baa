"""Kernels written as LLVM IR: loops, memory and arguments for bodies that work on `Traced` values.

Where a kernel is mostly loops around a few vector operations, Numba spends 1 ms on every statement and 10 ms on every
device function before LLVM sees anything. Such a kernel is written as a Python function that emits its code as it runs:

    def body(code: Code, begin: Traced, end: Traced) -> None:
        x, y = code.buffer(0, types.float32), code.buffer(1, types.float32)
        columns = code.size(0)
        with code.loop(end, begin) as row:
            with code.loop(columns, step=lanes) as column:
                live = columns - column
                y.store(row * columns + column, x.load(row * columns + column, lanes, live) * 2.0, live)

    kernel = emitted(body)          # a kernel as any other
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import llvmlite.ir as ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from jitonnx.kernels.jit import BYTES
from jitonnx.kernels.simd import Vector, live_mask, masked_load, masked_store, splat
from jitonnx.kernels.tile import Epilogue, not_unrolled
from jitonnx.kernels.trace import Traced, select

REGISTER_LANE_BYTES = 16
"""Of the parts of a vector register within which shuffling is cheapest."""

_I64 = ir.IntType(64)
_ELEMENTS = {types.float16: ir.HalfType(), types.float32: ir.FloatType(), types.float64: ir.DoubleType()}


def emitted(body: Callable[[Code, Traced, Traced], None]) -> Callable[..., None]:
    """A kernel whose code `body(code, begin, end)` emits."""

    @intrinsic
    def emit(typingctx: Any, buffers: Any, sizes: Any, begin: Any, end: Any, scratch: Any) -> Any:
        def generate(context: Any, builder: ir.IRBuilder, sig: Any, args: Sequence[ir.Value]) -> ir.Value:
            code = Code(context, builder, args[0], args[1], args[4])
            body(code, code.integer(args[2]), code.integer(args[3]))
            return context.get_dummy_value()

        arguments = (types.CPointer(BYTES), types.CPointer(types.int64), types.int64, types.int64, BYTES)
        return types.void(*arguments), generate

    def kernel(buffers, sizes, begin, end, scratch):
        emit(buffers, sizes, begin, end, scratch)

    return kernel


class Code:
    """The place where a kernel's code is emitted, and the kernel's arguments."""

    def __init__(
        self, context: Any, builder: ir.IRBuilder, buffers: ir.Value, sizes: ir.Value, scratch: ir.Value
    ) -> None:
        self.context, self.builder = context, builder
        self._buffers, self._sizes, self._scratch = buffers, sizes, scratch

    # ------------------------------------------------------------ arguments and numbers

    def integer(self, value: int | ir.Value | Traced) -> Traced:
        """An int64."""
        if isinstance(value, Traced):
            return value
        return Traced(self.builder, types.int64, _I64(value) if isinstance(value, int) else value)

    def number(self, element: types.Type, value: float, lanes: int | None = None) -> Traced:
        """`value` as a scalar of `element`, or in all `lanes` of a vector."""
        typ = llvm_element(element) if lanes is None else ir.VectorType(llvm_element(element), lanes)
        return Traced(self.builder, element, ir.Constant(typ, None)).constant(value)

    def size(self, index: int | Traced) -> Traced:
        """sizes[index]. Sizes do not change during a call, so LLVM may keep them over stores."""
        return self.integer(self._invariant(self._sizes, index))

    def buffer(self, index: int, element: types.Type) -> Pointer:
        """buffers[index]."""
        address = self._invariant(self._buffers, index)
        return Pointer(self, element, self.builder.bitcast(address, llvm_element(element).as_pointer()))

    def scratch(self, element: types.Type) -> Pointer:
        """This thread's own memory."""
        return Pointer(self, element, self.builder.bitcast(self._scratch, llvm_element(element).as_pointer()))

    def memory(self, element: types.Type, count: int) -> Pointer:
        """Room for `count` elements on the stack, for this call of the kernel; nothing is in it at first."""
        place = cgutils.alloca_once(self.builder, llvm_element(element), size=count)
        place.align = 64
        return Pointer(self, element, place)

    def _invariant(self, pointer: ir.Value, index: int | Traced) -> ir.Value:
        loaded = self.builder.load(self.builder.gep(pointer, [self.integer(index).value]))
        loaded.set_metadata("invariant.load", self.builder.module.add_metadata([]))
        return loaded

    # ------------------------------------------------------------ control

    @contextmanager
    def loop(
        self, stop: Traced | int, start: Traced | int = 0, step: Traced | int = 1, unroll: bool = False
    ) -> Iterator[Traced]:
        """The block for each index start, start + step, … below stop. LLVM unrolls it only if `unroll`."""
        builder = self.builder
        start, stop, step = self.integer(start), self.integer(stop), self.integer(step)
        before, loop, after = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("done")
        builder.cbranch((start < stop).value, loop, after)
        builder.position_at_end(loop)
        index = builder.phi(_I64)
        index.add_incoming(start.value, before)
        yield self.integer(index)
        following = self.integer(index) + step
        index.add_incoming(following.value, builder.block)
        back = builder.cbranch((following < stop).value, loop, after)
        if not unroll:
            back.set_metadata("llvm.loop", not_unrolled(builder.module))
        builder.position_at_end(after)

    @contextmanager
    def when(self, condition: Traced) -> Iterator[None]:
        """The block if the condition (a scalar) holds."""
        with self.builder.if_then(condition.value):
            yield

    @contextmanager
    def either(self, condition: Traced) -> Iterator[tuple[Any, Any]]:
        """Two context managers: the block if the condition (a scalar) holds, and the block if not."""
        with self.builder.if_else(condition.value) as branches:
            yield branches

    def variable(self, value: Traced) -> Variable:
        """A variable that holds `value` for now; it lives in registers."""
        return Variable(value)

    # ------------------------------------------------------------ calls

    def drain(self) -> None:
        """Make what was streamed visible to other threads, as what was stored is: at the end of a kernel."""
        self.builder.fence("seq_cst")

    def call(self, function: Any, *arguments: Traced) -> Traced:
        """An intrinsic of one result (simd's, vecmath's) on values."""
        operands = [_numba_type(argument) for argument in arguments]
        signature, generate = function._defn(self.context.typing_context, *operands)
        value = generate(self.context, self.builder, signature, [argument.value for argument in arguments])
        result = signature.return_type
        return Traced(self.builder, result.element if isinstance(result, Vector) else result, value)

    def epilogue(
        self, apply: Epilogue, x: Traced, batch: Traced, row: Traced, column: Traced, live: Traced | int
    ) -> Traced:
        """The epilogue of a vector x, inline."""
        place = [*self.place(batch, row, column), self.integer(live).value]
        return x.like(apply.call(self.context, self.builder, x.value, place))

    def place(self, batch: Traced, row: Traced, column: Traced) -> list[ir.Value]:
        """Where a vector stands in the result, as an epilogue is told: buffers, sizes, batch, row, column."""
        return [self._buffers, self._sizes, batch.value, row.value, column.value]

    def subroutine(
        self, name: str, arguments: Sequence[Traced | Pointer], body: Callable[..., None], inline: bool = True
    ) -> None:
        """Call the function `name` of this module; at its first use, body(code, *parameters) emits it.

        All calls of a name pass arguments of the same types. Without `inline` it stays a function.
        """
        module = self.builder.module
        values = [self._buffers, self._sizes, self._scratch, *(argument.value for argument in arguments)]
        function = module.globals.get(name)
        if function is None:
            function = ir.Function(module, ir.FunctionType(ir.VoidType(), [value.type for value in values]), name)
            function.linkage = "internal"
            if not inline:
                function.attributes.add("noinline")
            code = Code(self.context, ir.IRBuilder(function.append_basic_block()), *function.args[:3])
            parameters = zip(arguments, function.args[3:], strict=True)
            body(code, *(_within(code, argument, value) for argument, value in parameters))
            code.builder.ret_void()
        self.builder.call(function, values)

    def live(self, live: Traced, lanes: int) -> Mask:
        """The mask of the first `live` of `lanes` lanes, to be used several times."""
        return Mask(live_mask(self.builder, live.value, lanes))

    def iota(self, lanes: int) -> Traced:
        """The int64 vector 0, 1, 2, …"""
        return self.integer(ir.Constant(ir.VectorType(_I64, lanes), list(range(lanes))))

    def spread(self, x: Traced, lanes: int) -> Traced:
        """A scalar in all lanes."""
        return x.like(splat(self.builder, x.value, lanes))

    def part(self, x: Traced, first: int, lanes: int) -> Traced:
        """Lanes first, …, first + lanes - 1 of a wider vector."""
        return shuffled(x, x, range(first, first + lanes))


class Mask:
    """Which lanes of a vector in memory are touched."""

    def __init__(self, value: ir.Value) -> None:
        self.value = value


class Variable:
    """A value that changes: an alloca, which LLVM turns into registers."""

    def __init__(self, value: Traced) -> None:
        self._model = value
        self._place = cgutils.alloca_once_value(value.builder, value.value)

    def get(self) -> Traced:
        return self._model.like(self._model.builder.load(self._place))

    def set(self, value: Traced) -> None:
        self._model.builder.store(value.value, self._place)


class Pointer:
    """A pointer to `element`. Nothing is aligned beyond the element."""

    def __init__(self, code: Code, element: types.Type, value: ir.Value) -> None:
        self._code, self.element, self.value = code, element, value

    def at(self, index: Traced | int) -> Pointer:
        """The pointer `index` elements further."""
        return Pointer(self._code, self.element, self._address(index))

    def not_before(self, index: Traced) -> Pointer:
        """This pointer, of which LLVM knows no more than that it cannot be had before `index`: what is read through it
        in a loop over `index` is read anew each time, and not kept in registers, or on the stack for want of such."""
        typ = self.value.type
        signature = ir.FunctionType(typ, [typ, index.value.type])
        value = self._code.builder.asm(signature, "", "=r,0,r", [self.value, index.value], side_effect=False)
        return Pointer(self._code, self.element, value)

    def settled(self) -> Pointer:
        """This pointer, of which LLVM does not know how it was computed: it is not computed anew in every round of a
        loop."""
        typ = self.value.type
        value = self._code.builder.asm(ir.FunctionType(typ, [typ]), "", "=r,0", [self.value], side_effect=False)
        return Pointer(self._code, self.element, value)

    def unless(self, condition: Traced, other: Pointer) -> Pointer:
        """This pointer, or `other` where the condition holds."""
        value = self._code.builder.select(condition.value, other.value, self.value)
        return Pointer(self._code, self.element, value)

    def as_bytes(self) -> Pointer:
        """The same address, as a pointer to uint8."""
        return self.to(types.uint8)

    def to(self, element: types.Type) -> Pointer:
        """The same address, as a pointer to `element`."""
        value = self._code.builder.bitcast(self.value, llvm_element(element).as_pointer())
        return Pointer(self._code, element, value)

    def load(self, index: Traced | int, lanes: int | None = None, live: Traced | Mask | None = None) -> Traced:
        """p[index], or the vector p[index : index + lanes]; lanes that are not live are 0 and not read."""
        builder, where = self._code.builder, self._address(index)
        if lanes is None:
            return Traced(builder, self.element, builder.load(where))
        typ = ir.VectorType(llvm_element(self.element), lanes)
        where = builder.bitcast(where, typ.as_pointer())
        if live is None:
            loaded = builder.load(where)
            loaded.align = self._alignment
            return Traced(builder, self.element, loaded)
        mask = live if isinstance(live, Mask) else self._code.live(live, lanes)
        return Traced(builder, self.element, masked_load(builder, where, typ, mask.value, self._alignment))

    def store(self, index: Traced | int, value: Traced, live: Traced | Mask | None = None) -> None:
        """p[index] = value, or the (live) lanes of a vector from p[index] on."""
        builder = self._code.builder
        where = builder.bitcast(self._address(index), value.value.type.as_pointer())
        if live is None:
            builder.store(value.value, where).align = self._alignment
            return
        mask = live if isinstance(live, Mask) else self._code.live(live, value.value.type.count)
        masked_store(builder, value.value, where, mask.value, self._alignment)

    def stream(self, index: Traced | int, value: Traced) -> None:
        """As `store` of a vector to a place aligned to its size, past the caches: a line that is written as a whole is
        not read before. See `drain`."""
        builder = self._code.builder
        stored = builder.store(value.value, builder.bitcast(self._address(index), value.value.type.as_pointer()))
        stored.align = value.value.type.count * self._alignment
        stored.set_metadata("nontemporal", builder.module.add_metadata([ir.IntType(32)(1)]))

    def misalignment(self, size: int) -> Traced:
        """How many bytes this is behind a multiple of `size`, a power of two."""
        return self._code.integer(self._code.builder.ptrtoint(self.value, _I64)) & (size - 1)

    def _address(self, index: Traced | int) -> ir.Value:
        return self._code.builder.gep(self.value, [self._code.integer(index).value])

    @property
    def _alignment(self) -> int:
        return max(1, self.element.bitwidth // 8)


def _within(code: Code, argument: Traced | Pointer, value: ir.Value) -> Traced | Pointer:
    """`value`, a parameter of the function that `code` emits, as what was passed for it."""
    if isinstance(argument, Pointer):
        return Pointer(code, argument.element, value)
    return Traced(code.builder, argument.element, value)


def each_vector(
    code: Code, count: Traced, lanes: int, body: Callable[[Traced, int, Mask | None, Traced], None], blocks: int = 4
) -> None:
    """Emit `body(first, width, mask, live)` for pieces of `count` elements: `width` of them from element `first` on.

    Pieces are `blocks` vectors of `lanes` elements as long as they last, then two: the operations on the vectors of one
    wide piece hide each other's latency. The last piece, one vector or two, has `live` elements and a mask.
    """
    done = code.integer(0)
    for width in (blocks * lanes, 2 * lanes):
        start, done = done, count - remainder(count, code.integer(width))
        with code.loop(done, start, width) as first:
            body(first, width, None, code.integer(width))
    rest = count - done
    for width in (2 * lanes, lanes):
        with code.when((rest > width - lanes) & (rest <= width)):
            body(done, width, code.live(rest, width), rest)


def remainder(a: Traced, b: Traced) -> Traced:
    """a modulo b for integers a >= 0, b > 0."""
    return a.like(a.builder.srem(a.value, b.value))


def larger(a: Traced, b: Traced | int) -> Traced:
    """The larger of two integers."""
    return select(a > b, a, b)


def smaller(a: Traced, b: Traced | int) -> Traced:
    """The smaller of two integers."""
    return select(a < b, a, b)


def gathered(vectors: Sequence[Traced], order: Sequence[int]) -> Traced:
    """The vector of elements `order` of all `vectors` one after another: one shuffle for each vector but the first."""
    width, result = len(order), vectors[0]
    places = [at if at < width else 0 for at in order]
    for number, vector in enumerate(vectors[1:], 1):
        first = number * width
        places = [
            width + at - first if first <= at < first + width else place
            for at, place in zip(order, places, strict=True)
        ]
        result, places = shuffled(result, vector, places), list(range(width))
    return result


def shuffled(a: Traced, b: Traced, order: Sequence[int]) -> Traced:
    """Elements `order` of two vectors one after the other."""
    mask = ir.Constant(ir.VectorType(ir.IntType(32), len(order)), list(order))
    return a.like(a.builder.shuffle_vector(a.value, b.value, mask))


def convert(x: Traced, element: types.Type) -> Traced:
    """Floats as floats of another width; integers as wider or narrower ones."""
    old, builder = x.element, x.builder
    if old == element:
        return x
    target = llvm_element(element)
    typ = ir.VectorType(target, x.value.type.count) if isinstance(x.value.type, ir.VectorType) else target
    wider = element.bitwidth > old.bitwidth
    if isinstance(element, types.Float):
        value = builder.fpext(x.value, typ) if wider else builder.fptrunc(x.value, typ)
    elif wider:
        value = builder.sext(x.value, typ) if old.signed else builder.zext(x.value, typ)
    else:
        value = builder.trunc(x.value, typ)
    return Traced(builder, element, value)


def llvm_element(element: types.Type) -> ir.Type:
    """LLVM's type of an element: half, float, double or an integer."""
    return ir.IntType(element.bitwidth) if isinstance(element, types.Integer) else _ELEMENTS[element]


def _numba_type(x: Traced) -> types.Type:
    return Vector(x.element, x.value.type.count) if isinstance(x.value.type, ir.VectorType) else x.element

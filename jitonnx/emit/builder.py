"""The language that kernels are written in: arguments, loops, memory and functions for code on `SSAValue` values.

A kernel is a Python function that emits its code as it runs. Its vectors are as wide as its builder is told, the
target's natural width, so one text serves every CPU. `module.emit_module` makes it a C function:

    def scale(code: Code, begin: SSAValue, end: SSAValue) -> None:
        x, y = code.buffers(ScaleBuffers, types.float32)
        columns = code.sizes(ScaleSizes).columns
        with code.loop(end, begin) as row:
            with code.loop(columns, step=lanes) as column:
                live = columns - column
                y.store(row * columns + column, x.load(row * columns + column, lanes, live) * 2.0, live)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias, TypeVar

from jitonnx.emit import llvm_ir, types
from jitonnx.emit.arguments import Arguments
from jitonnx.emit.half import widen
from jitonnx.emit.intrinsics import (
    alloca,
    live_mask,
    masked_gather,
    masked_load,
    masked_store,
    not_unrolled,
    opaque,
)
from jitonnx.emit.simd import LINE_BYTES, convert
from jitonnx.emit.ssa import SSAValue, select
from jitonnx.target.machine import Target

REGISTER_LANE_BYTES = 16
"""The size of the parts of a vector register within which shuffling is cheapest."""

_I64 = llvm_ir.IntType(64)

_Record = TypeVar("_Record", bound=Arguments)

Kernel: TypeAlias = "Callable[[KernelBuilder, SSAValue, SSAValue], None]"
"""Emits the code of the tasks [begin, end)."""


class KernelBuilder:
    """The place where a kernel's code is emitted, and the kernel's arguments."""

    def __init__(self, builder: llvm_ir.IRBuilder, arguments: Sequence[llvm_ir.Value]) -> None:
        self.builder = builder
        self.arguments = tuple(arguments)
        """The list of buffers, that of sizes, and scratch memory: what functions that kernels call are given too."""
        self._buffers, self._sizes, self._scratch = self.arguments

    @property
    def target(self) -> Target:
        """The CPU that the code is for."""
        return self.builder.module.target

    # ------------------------------------------------------------ arguments and numbers

    def integer(self, value: int | llvm_ir.Value | SSAValue) -> SSAValue:
        """An int64."""
        if isinstance(value, SSAValue):
            return value
        return SSAValue(self.builder, types.int64, _I64(value) if isinstance(value, int) else value)

    def number(self, element: types.ElementType, value: float, lanes: int | None = None) -> SSAValue:
        """`value` as a scalar of `element`, or in all `lanes` of a vector."""
        typ = element.llvm if lanes is None else llvm_ir.VectorType(element.llvm, lanes)
        return SSAValue(self.builder, element, llvm_ir.Constant(typ, None)).constant(value)

    def size(self, index: int | SSAValue) -> SSAValue:
        """sizes[index]. Sizes do not change during a call, so LLVM may keep them over stores."""
        return self.integer(self._invariant(self._sizes, index))

    def buffer(self, index: int, element: types.ElementType) -> Pointer:
        """buffers[index]."""
        address = self._invariant(self._buffers, index)
        return Pointer(self, element, self.builder.bitcast(address, element.memory.as_pointer()))

    def sizes(self, record: type[_Record]) -> _Record:
        """The kernel's own sizes, loaded here: where only some ways through the kernel come by, they are not known on
        others."""
        return record.make([self.size(number) for number in range(record.WIDTH)])

    def buffers(self, record: type[_Record], element: types.ElementType, **others: types.ElementType) -> _Record:
        """The kernel's own buffers, of `element`s; `others`: the elements of some by name."""
        kinds = [others.pop(name, element) for name in record.names()]
        if others:
            raise TypeError(f"Bug: {record.__name__} has no {', '.join(others)}")
        return record.make([self.buffer(number, kind) for number, kind in enumerate(kinds)])

    def scratch(self, element: types.ElementType) -> Pointer:
        """The thread's own memory."""
        return Pointer(self, element, self.builder.bitcast(self._scratch, element.memory.as_pointer()))

    def memory(self, element: types.ElementType, count: int) -> Pointer:
        """Room for `count` elements on the stack, for this call of the kernel; nothing is in it at first."""
        place = alloca(self.builder, element.memory, count)
        place.align = 64
        return Pointer(self, element, place)

    def fixed(self, pointer: Pointer, index: int | SSAValue) -> SSAValue:
        """pointer[index], of memory that nobody writes during a call: LLVM may keep it over stores."""
        return SSAValue(self.builder, pointer.element, self._invariant(pointer.value, index))

    def _invariant(self, pointer: llvm_ir.Value, index: int | SSAValue) -> llvm_ir.Value:
        return self.builder.load_invariant(self.builder.gep(pointer, [self.integer(index).value]))

    # ------------------------------------------------------------ control

    @contextmanager
    def loop(
        self, stop: SSAValue | int, start: SSAValue | int = 0, step: SSAValue | int = 1, *, unroll: bool = False
    ) -> Iterator[SSAValue]:
        """The block for each index start, start + step, … below stop. LLVM unrolls it only if `unroll`."""
        builder = self.builder
        start, stop, step = self.integer(start), self.integer(stop), self.integer(step)
        before, loop, after = builder.block, builder.append_basic_block("loop"), builder.append_basic_block("done")
        builder.cbranch((start < stop).value, loop, after)
        builder.position_at_end(loop)
        index = builder.phi(_I64)
        index.add_incoming(start.value, before)
        yield self.integer(index)
        following = self.integer(builder.advanced((self.integer(index) + step).value))
        index.add_incoming(following.value, builder.block)
        back = builder.cbranch((following < stop).value, loop, after)
        if not unroll:
            back.set_metadata("llvm.loop", not_unrolled(builder.module))
        builder.position_at_end(after)

    @contextmanager
    def loop_while(self, condition: Callable[[], SSAValue]) -> Iterator[None]:
        """The block as long as the condition holds; condition() emits it anew before each time."""
        builder = self.builder
        head, body, after = (builder.append_basic_block(name) for name in ("while", "do", "end"))
        builder.branch(head)
        builder.position_at_end(head)
        builder.cbranch(condition().value, body, after)
        builder.position_at_end(body)
        yield
        builder.branch(head)
        builder.position_at_end(after)

    @contextmanager
    def if_then(self, condition: SSAValue) -> Iterator[None]:
        """The block if the condition (a scalar) holds."""
        with self.builder.if_then(condition.value):
            yield

    @contextmanager
    def if_else(self, condition: SSAValue) -> Iterator[tuple[Any, Any]]:
        """Two context managers: the block if the condition (a scalar) holds, and the block if not."""
        with self.builder.if_else(condition.value) as branches:
            yield branches

    def variable(self, value: SSAValue) -> Variable:
        """A variable that holds `value` for now; it lives in registers."""
        return Variable(value)

    # ------------------------------------------------------------ calls

    def drain(self) -> None:
        """Make what was streamed visible to other threads, as what was stored is: at the end of a kernel."""
        self.builder.fence("seq_cst")

    def subroutine(
        self, name: str, arguments: Sequence[SSAValue | Pointer], body: Callable[..., None], *, inline: bool = True
    ) -> None:
        """Call the function `name` of this module; at its first use, body(code, *parameters) emits it.

        All calls of a name pass arguments of the same types. Without `inline` it stays a function.
        """
        module = self.builder.module
        values = [*self.arguments, *(argument.value for argument in arguments)]
        function = module.globals.get(name)
        if function is None:
            function = llvm_ir.Function(
                module, llvm_ir.FunctionType(llvm_ir.VoidType(), [value.type for value in values]), name
            )
            function.linkage = "internal"
            if not inline:
                function.attributes.add("noinline")
            code = KernelBuilder(llvm_ir.IRBuilder(function.append_basic_block()), function.args[:3])
            parameters = zip(arguments, function.args[3:], strict=True)
            body(code, *(_within(code, argument, value) for argument, value in parameters))
            code.builder.ret_void()
        self.builder.call(function, values)

    def function(self, function: Callable[..., SSAValue], arguments: Sequence[SSAValue]) -> SSAValue:
        """function(*arguments), of the same elements, which depends on its arguments alone, by a call: the code of the
        function is in the module once, for arguments of these types."""
        module, kinds = self.builder.module, [argument.value.type for argument in arguments]
        name = ".".join((function.__name__, *(kind.text for kind in kinds)))
        callee = module.globals.get(name)
        if callee is None:
            callee = llvm_ir.Function(module, llvm_ir.FunctionType(kinds[0], kinds), name)
            callee.linkage = "internal"
            callee.attributes.add("noinline")
            builder = llvm_ir.IRBuilder(callee.append_basic_block())
            given = zip(arguments, callee.args, strict=True)
            builder.ret(function(*(SSAValue(builder, argument.element, value) for argument, value in given)).value)
        return arguments[0].like(self.builder.call_pure(callee, [argument.value for argument in arguments]))

    def active(self, active: SSAValue, lanes: int) -> Mask:
        """The mask of the first `active` of `lanes` lanes, to be used several times."""
        return Mask(live_mask(self.builder, active.value, lanes))

    def iota(self, lanes: int) -> SSAValue:
        """The int64 vector 0, 1, 2, …"""
        return self.integer(llvm_ir.Constant(llvm_ir.VectorType(_I64, lanes), list(range(lanes))))

    def splat(self, x: SSAValue, lanes: int) -> SSAValue:
        """A scalar in all lanes."""
        return x.splat(lanes)

    def part(self, x: SSAValue, first: int, lanes: int) -> SSAValue:
        """Lanes first, …, first + lanes - 1 of a wider vector."""
        return shuffled(x, x, range(first, first + lanes))


class Mask:
    """Which lanes of a vector in memory are touched."""

    def __init__(self, value: llvm_ir.Value) -> None:
        self.value = value


class Variable:
    """A value that changes: an alloca, which LLVM turns into registers."""

    def __init__(self, value: SSAValue) -> None:
        self._model = value
        self._place = alloca(value.builder, value.value.type)
        self.set(value)

    def get(self) -> SSAValue:
        return self._model.like(self._model.builder.load(self._place))

    def set(self, value: SSAValue) -> None:
        self._model.builder.store(value.value, self._place)


class Pointer:
    """A pointer to `element`. Nothing is aligned beyond the element. Truth values lie in a byte each."""

    def __init__(self, code: KernelBuilder, element: types.ElementType, value: llvm_ir.Value) -> None:
        self._code, self.element, self.value = code, element, value

    def at(self, index: SSAValue | int) -> Pointer:
        """The pointer `index` elements further."""
        return Pointer(self._code, self.element, self._address(index))

    def not_before(self, index: SSAValue) -> Pointer:
        """The same pointer, of which LLVM knows no more than that it cannot be had before `index`: what is read through
        it in a loop over `index` is read anew each time, not kept in registers, or on the stack for want of such."""
        typ = self.value.type
        signature = llvm_ir.FunctionType(typ, [typ, index.value.type])
        value = self._code.builder.asm(signature, "", "=r,0,r", [self.value, index.value], side_effect=False)
        return Pointer(self._code, self.element, value)

    def behind(self, *vectors: SSAValue) -> Pointer:
        """The same pointer, of which LLVM knows no more than that it cannot be had before some vectors: what is read
        through it does not take registers before these are there."""
        after = [vector.value for vector in vectors]
        return Pointer(self._code, self.element, opaque(self._code.builder, self.value, *after))

    def pinned(self) -> Pointer:
        """The same pointer, of which LLVM does not know how it was computed: it is not computed anew in every round of
        a loop."""
        typ = self.value.type
        value = self._code.builder.asm(llvm_ir.FunctionType(typ, [typ]), "", "=r,0", [self.value], side_effect=False)
        return Pointer(self._code, self.element, value)

    def unless(self, condition: SSAValue, other: Pointer) -> Pointer:
        """The pointer, or `other` where the condition holds."""
        value = self._code.builder.select(condition.value, other.value, self.value)
        return Pointer(self._code, self.element, value)

    def as_bytes(self) -> Pointer:
        """The same address, as a pointer to uint8."""
        return self.to(types.uint8)

    def to(self, element: types.ElementType) -> Pointer:
        """The same address, as a pointer to `element`."""
        value = self._code.builder.bitcast(self.value, element.memory.as_pointer())
        return Pointer(self._code, element, value)

    def load(self, index: SSAValue | int, lanes: int | None = None, active: SSAValue | Mask | None = None) -> SSAValue:
        """p[index], or the vector p[index : index + lanes]; lanes that are not live are 0 and not read."""
        builder, where = self._code.builder, self._address(index)
        if lanes is None:
            return self._from_memory(builder.load(where))
        typ = llvm_ir.VectorType(self.element.memory, lanes)
        where = builder.bitcast(where, typ.as_pointer())
        if active is None:
            loaded = builder.load(where)
            loaded.align = self._alignment
            return self._from_memory(loaded)
        mask = active if isinstance(active, Mask) else self._code.active(active, lanes)
        return self._from_memory(masked_load(builder, where, typ, mask.value, self._alignment))

    def load_over(self, index: SSAValue | int, under: SSAValue, places: range) -> SSAValue:
        """The vector from p[index] on in the lanes `places`, and `under` in the others, whose memory is not touched."""
        builder, typ = self._code.builder, llvm_ir.VectorType(self.element.memory, under.lanes)
        chosen = llvm_ir.Constant(
            llvm_ir.VectorType(llvm_ir.IntType(1), under.lanes), [lane in places for lane in range(under.lanes)]
        )
        where = builder.bitcast(self._address(index), typ.as_pointer())
        below = self._to_memory(under.value)
        return self._from_memory(masked_load(builder, where, typ, chosen, self._alignment, below))

    def store(self, index: SSAValue | int, value: SSAValue, active: SSAValue | Mask | None = None) -> None:
        """p[index] = value, or the (live) lanes of a vector from p[index] on."""
        builder, stored = self._code.builder, self._to_memory(value.value)
        where = builder.bitcast(self._address(index), stored.type.as_pointer())
        if active is None:
            builder.store(stored, where).align = self._alignment
            return
        mask = active if isinstance(active, Mask) else self._code.active(active, value.lanes)
        masked_store(builder, stored, where, mask.value, self._alignment)

    def load_apart(self, index: SSAValue, step: SSAValue, active: SSAValue | int, lanes: int) -> SSAValue:
        """The vector p[index], p[index + step], …; lanes from `active` on repeat the first element."""
        code, builder = self._code, self._code.builder
        active = code.integer(active)
        result: llvm_ir.Value = llvm_ir.Constant(llvm_ir.VectorType(self.element.memory, lanes), llvm_ir.Undefined)
        for lane in range(lanes):
            at = index + select(active > lane, step * lane, 0)
            result = builder.insert_element(result, builder.load(self._address(at)), llvm_ir.IntType(32)(lane))
        return self._from_memory(result)

    def gather(self, places: SSAValue, chosen: SSAValue | None = None) -> SSAValue:
        """The vector p[places[0]], p[places[1]], … (int32 or int64) of the lanes in which `chosen` holds; others are 0
        and not read. None: of all lanes."""
        mask = None if chosen is None else chosen.value
        loaded = masked_gather(self._code.builder, self.value, self.element.memory, places.value, mask, self._alignment)
        return self._from_memory(loaded)

    def store_apart(self, index: SSAValue, step: SSAValue, value: SSAValue, active: SSAValue | int) -> None:
        """p[index + i * step] = lane i of the vector, for its first `active` lanes."""
        code, builder, stored = self._code, self._code.builder, self._to_memory(value.value)
        active = code.integer(active)
        for lane in range(value.lanes):
            with code.if_then(active > lane):
                builder.store(
                    builder.extract_element(stored, llvm_ir.IntType(32)(lane)), self._address(index + step * lane)
                )

    def stream(self, index: SSAValue | int, value: SSAValue) -> None:
        """Do what `store` does with a vector, to a place aligned to its size or to LINE_BYTES, past the caches: a line
        that is written as a whole is not read before. See `drain`."""
        builder, vector = self._code.builder, self._to_memory(value.value)
        stored = builder.store(vector, builder.bitcast(self._address(index), vector.type.as_pointer()))
        stored.align = min(LINE_BYTES, value.lanes * self._alignment)
        stored.set_metadata("nontemporal", builder.module.metadata("!{i32 1}"))

    def misalignment(self, size: int) -> SSAValue:
        """How many bytes this is behind a multiple of `size`, a power of two."""
        return self._code.integer(self._code.builder.ptrtoint(self.value, _I64)) & (size - 1)

    def lies_at(self, other: Pointer) -> SSAValue:
        """Whether both are the same address."""
        one, two = (self._code.integer(self._code.builder.ptrtoint(each.value, _I64)) for each in (self, other))
        return one.equals(two)

    def _address(self, index: SSAValue | int) -> llvm_ir.Value:
        return self._code.builder.gep(self.value, [self._code.integer(index).value])

    @property
    def _alignment(self) -> int:
        return max(1, self.element.bitwidth // 8)

    def _from_memory(self, value: llvm_ir.Value) -> SSAValue:
        builder = self._code.builder
        if isinstance(self.element, types.StoredHalf):
            return widen(SSAValue(builder, types.uint16, value), self.element.kind)
        if isinstance(self.element, types.StoredInteger):
            return _widened(builder, value, self.element.shift)
        if isinstance(self.element, types.Boolean):
            value = builder.icmp_unsigned("!=", value, llvm_ir.Constant(value.type, None))
        return SSAValue(builder, self.element, value)

    def _to_memory(self, value: llvm_ir.Value) -> llvm_ir.Value:
        assert not isinstance(self.element, types.Stored), "Bug: what is stored is written by who rounds it"
        if not isinstance(self.element, types.Boolean):
            return value
        to = self.element.memory
        typ = llvm_ir.VectorType(to, value.type.count) if isinstance(value.type, llvm_ir.VectorType) else to
        return self._code.builder.zext(value, typ)


def _widened(builder: llvm_ir.IRBuilder, value: llvm_ir.Value, shift: int | None) -> SSAValue:
    """The float32 of a `StoredInteger`."""
    if shift is None:
        return convert(SSAValue(builder, types.int8, value), types.float32)
    word = convert(SSAValue(builder, types.uint8, value), types.int32)
    number = (word >> shift if shift else word & 15) - 8
    return convert(number, types.float32)


def _within(code: KernelBuilder, argument: SSAValue | Pointer, value: llvm_ir.Value) -> SSAValue | Pointer:
    """`value`, a parameter of the function that `code` emits, as what was passed for it."""
    if isinstance(argument, Pointer):
        return Pointer(code, argument.element, value)
    return SSAValue(code.builder, argument.element, value)


def each_vector(
    code: KernelBuilder,
    count: SSAValue,
    lanes: int,
    body: Callable[[SSAValue, int, Mask | None, SSAValue], None],
    blocks: int = 4,
) -> None:
    """Emit `body(first, width, mask, live)` for pieces of `count` elements: `width` of them from element `first` on.

    Pieces are `blocks` vectors of `lanes` elements as long as they last, then two: the operations on the vectors of one
    wide piece hide each other's latency. The last piece, one vector or two, has `active` elements and a mask.
    """
    done = code.integer(0)
    for width in (blocks * lanes, 2 * lanes):
        start, done = done, count - remainder(count, code.integer(width))
        with code.loop(done, start, width) as first:
            body(first, width, None, code.integer(width))
    rest = count - done
    for width in (2 * lanes, lanes):
        with code.if_then((rest > width - lanes) & (rest <= width)):
            body(done, width, code.active(rest, width), rest)


def remainder(a: SSAValue, b: SSAValue) -> SSAValue:
    """a modulo b for integers a >= 0, b > 0."""
    return a.like(a.builder.srem(a.value, b.value))


def larger(a: SSAValue, b: SSAValue | int) -> SSAValue:
    """The larger of two integers."""
    return select(a > b, a, b)


def smaller(a: SSAValue, b: SSAValue | int) -> SSAValue:
    """The smaller of two integers."""
    return select(a < b, a, b)


def gathered(vectors: Sequence[SSAValue], order: Sequence[int]) -> SSAValue:
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
    return result if len(vectors) > 1 else shuffled(result, result, places)


def shuffled(a: SSAValue, b: SSAValue, order: Sequence[int]) -> SSAValue:
    """Elements `order` of two vectors one after the other."""
    mask = llvm_ir.Constant(llvm_ir.VectorType(llvm_ir.IntType(32), len(order)), list(order))
    return a.like(a.builder.shuffle_vector(a.value, b.value, mask))
